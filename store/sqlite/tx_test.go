package sqlite

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
)

func TestInsideTheHostsTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	s := reopen(t, path, &Options{BusyTimeout: 200 * time.Millisecond})
	host, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { host.Close() })
	host.SetMaxOpenConns(1)
	if _, err := host.Exec(`create table orders (id integer primary key)`); err != nil {
		t.Fatal(err)
	}
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := host.Begin()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(`insert into orders default values`); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	count := func(table string) (n int) {
		t.Helper()
		if err := host.QueryRow(`select count(*) from ` + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	form := func(id string) store.Submission {
		op := lead("op-"+id, "deal-"+id, "k-"+id)
		return store.Submission{Operation: op, Deal: store.Deal{ID: "deal-" + id, OrderingKey: "k-" + id, Key: "submit:" + id, Generation: 1,
			State: store.DealOpen, CreateOp: op.ID}}
	}
	insert := func(tx *sql.Tx, id string) {
		t.Helper()
		if r, err := s.AcceptTx(background, tx, event(id, "k")); err != nil || r.Duplicate {
			t.Fatal(r, err)
		}
		if _, err := s.SubmitTx(background, tx, form(id)); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a rollback of the host leaves nothing", func(t *testing.T) {
		tx := begin()
		insert(tx, "1")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if n := count("orders") + count("leadonce_events") + count("leadonce_operations"); n != 0 {
			t.Fatalf("%d rows", n)
		}
	})
	t.Run("a commit of the host stores the order, the event and the lead", func(t *testing.T) {
		tx := begin()
		insert(tx, "2")
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if count("orders") != 1 || count("leadonce_events") != 1 || count("leadonce_operations") != 1 {
			t.Fatal("not all three")
		}
		if r, err := s.Accept(background, event("2", "k")); err != nil || !r.Duplicate {
			t.Fatal(r, err)
		}
	})
	t.Run("the same again adds nothing, another lead under the key is told", func(t *testing.T) {
		tx := begin()
		defer tx.Rollback()
		if r, err := s.AcceptTx(background, tx, event("2", "k")); err != nil || !r.Duplicate {
			t.Fatal(r, err)
		}
		other := form("2")
		other.Operation.Fields = []byte(`{"title":"other"}`)
		if _, err := s.SubmitTx(background, tx, other); !errors.Is(err, store.ErrKeyReused) {
			t.Fatal(err)
		}
	})
	t.Run("a hook and an adopted lead are stored whole", func(t *testing.T) {
		tx := begin()
		e := event("6", "k")
		e.RepeatKey, e.LeadRef = "press 7", "77"
		r, err := s.AcceptTx(background, tx, e)
		if err != nil {
			t.Fatal(err)
		}
		adopt := form("6")
		adopt.Adopt = &store.Adoption{CRMID: "77", Opened: time.Hour}
		o, err := s.SubmitTx(background, tx, adopt)
		if err != nil || o.State != store.Done || o.LeadID != "77" {
			t.Fatal(o, err)
		}
		again := form("7")
		again.Adopt = adopt.Adopt
		if second, err := s.SubmitTx(background, tx, again); err != nil || second.ID != o.ID {
			t.Fatal(second, err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		rows := must(s.Events(background, store.EventFilter{ID: r.EventID}))(t)
		if len(rows) != 1 || rows[0].RepeatKey != "press 7" || rows[0].LeadRef != "77" {
			t.Fatalf("%+v", rows)
		}
		if got := must(s.ReadKey(background, "k-6", "submit:6"))(t); len(got.Deals) != 1 || got.Deals[0].CRMID != "77" {
			t.Fatalf("%+v", got.Deals)
		}
	})
	t.Run("while the host's transaction is open, others get ErrUnavailable after the busy timeout", func(t *testing.T) {
		tx := begin()
		insert(tx, "3")
		if _, err := s.Accept(background, event("4", "k")); !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Accept(background, event("4", "k")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("a transaction on another file is refused", func(t *testing.T) {
		other, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "other.db"))
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.Exec(`create table x (y)`); err != nil {
			t.Fatal(err)
		}
		tx, err := other.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := s.AcceptTx(background, tx, event("5", "k")); !errors.Is(err, store.ErrInvalid) {
			t.Fatal(err)
		}
		if _, err := s.AcceptTx(background, nil, event("5", "k")); !errors.Is(err, store.ErrInvalid) {
			t.Fatal(err)
		}
	})
}
