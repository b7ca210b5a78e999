package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/store/storetest"
	"github.com/leadonce/leadonce/telegram"
)

// pgx_test.go: the host's rows and ours, the store's contract on pgx's driver, and pgbouncer.

func TestMain(m *testing.M) { pgtest.Main(m) }

// open returns connections of pgx's own.
func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// newStore returns a store on connections of pgx's.
func newStore(t *testing.T, db *sql.DB, o postgres.Options) *postgres.Store {
	t.Helper()
	o.Migrate = true
	s, err := postgres.New(t.Context(), db, &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestProgram(t *testing.T) {
	t.Run("it stores an order and shows its lead, and again on the same database", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		for range 2 {
			var out bytes.Buffer
			if err := run(t.Context(), dsn, &out); err != nil || !strings.Contains(out.String(), "A new clutch") {
				t.Fatalf("%v: %s", err, &out)
			}
		}
	})
	t.Run("a wrong URL is said without its password", func(t *testing.T) {
		for _, dsn := range []string{"postgres://bot:hunter2@127.0.0.1:1/x", "postgres://bot:hunter2%@h/x"} {
			err := run(t.Context(), dsn, &bytes.Buffer{})
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v", err)
			}
		}
	})
}

func TestOneTransaction(t *testing.T) {
	db := open(t, pgtest.DSN(t))
	sim := crmtest.NewSimulator(crmtest.Config{})
	s, err := openShop(t.Context(), db, sim.Local(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.close() })
	st := newStore(t, db, postgres.Options{})
	count := func() (rows, operations int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), `select count(*) from orders`).Scan(&rows); err != nil {
			t.Fatal(err)
		}
		ops, err := st.Operations(t.Context(), store.OperationFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return rows, len(ops)
	}

	t.Run("an order that the database refuses leaves no lead", func(t *testing.T) {
		if _, err := db.ExecContext(t.Context(), `alter table orders add constraint items check (item <> 'nothing')`); err != nil {
			t.Fatal(err)
		}
		if err := s.place(t.Context(), order{ID: "1", Phone: "+1", Item: "nothing"}); err == nil {
			t.Fatal("placed")
		}
		if rows, ops := count(); rows != 0 || ops != 0 {
			t.Fatalf("%d orders, %d operations", rows, ops)
		}
	})
	t.Run("a lead that the store refuses leaves no order", func(t *testing.T) {
		if err := s.place(t.Context(), order{ID: " ", Phone: "+1", Item: "x"}); !errors.Is(err, store.ErrInvalid) {
			t.Fatal(err)
		}
		if rows, ops := count(); rows != 0 || ops != 0 {
			t.Fatalf("%d orders, %d operations", rows, ops)
		}
	})
	t.Run("a transaction that is rolled back after both leaves neither", func(t *testing.T) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		op, err1 := s.leads.SubmitTx(t.Context(), tx, "2", dedup.Person{ID: "+1"}, crm.Lead{Title: "Order"})
		_, err2 := tx.ExecContext(t.Context(), `insert into orders values ('2', 'x', $1)`, op.ID)
		if err := errors.Join(err1, err2, tx.Rollback()); err != nil {
			t.Fatal(err)
		}
		if rows, ops := count(); rows != 0 || ops != 0 {
			t.Fatalf("%d orders, %d operations", rows, ops)
		}
	})
	t.Run("an order placed three times is one row and one lead, and the row names the lead's operation", func(t *testing.T) {
		for range 3 {
			if err := s.place(t.Context(), order{ID: "3", Phone: "+1", Item: "clutch"}); err != nil {
				t.Fatal(err)
			}
		}
		if rows, ops := count(); rows != 1 || ops != 1 {
			t.Fatalf("%d orders, %d operations", rows, ops)
		}
		var id string
		if err := db.QueryRowContext(t.Context(), `select operation_id from orders`).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if _, err := st.Operation(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("an update and a row of the host's are stored together, or not at all", func(t *testing.T) {
		src, err := telegram.NewSource(123456, "a-secret-of-the-test", nil)
		if err != nil {
			t.Fatal(err)
		}
		e, err := src.Parse([]byte(`{"update_id":1,"message":{"message_id":1,"date":1767225600,"text":"hello",` +
			`"chat":{"id":42,"type":"private"},"from":{"id":42,"is_bot":false,"first_name":"Anna"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, commit := range []bool{false, true} {
			together(t, db, st, e, commit)
			events, err := st.Events(t.Context(), store.EventFilter{})
			if rows, _ := count(); err != nil || (rows == 2) != commit || (len(events) == 1) != commit {
				t.Fatalf("committed %v: %d orders, %d events, %v", commit, rows, len(events), err)
			}
		}
	})
}

// together stores an event and an order in one transaction.
func together(t *testing.T, db *sql.DB, st store.Transactional, e store.Event, commit bool) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err1 := st.AcceptTx(t.Context(), tx, e)
	_, err2 := tx.ExecContext(t.Context(), `insert into orders values ('4', 'x', '')`)
	end := tx.Rollback
	if commit {
		end = tx.Commit
	}
	if err := errors.Join(err1, err2, end()); err != nil {
		t.Fatal(err)
	}
}

// clock moves when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func TestConformance(t *testing.T) {
	db, n := open(t, pgtest.DSN(t)), 0
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		n++
		return subject(t, db, db, postgres.Options{Schema: fmt.Sprint("check_", n)})
	})
}

func TestConformanceThroughPgbouncer(t *testing.T) {
	if testing.Short() {
		t.Log("the suite through a pooler is left to the long run") // a skip would be a failure in CI
		return
	}
	direct := pgtest.DSN(t)
	pooled := pgtest.Pgbouncer(t, direct, "transaction", "default_pool_size = 8")
	hands, db, n := open(t, direct), open(t, pooled+"&default_query_exec_mode=exec"), 0
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		n++
		return subject(t, db, hands, postgres.Options{Schema: fmt.Sprint("pooled_", n), Pooler: true})
	})
}

// subject returns a store on db, and what the suite needs to break its rows by hand.
func subject(t *testing.T, db, hands *sql.DB, o postgres.Options) storetest.Subject {
	c := &clock{now: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)}
	o.Now = c.Now
	first := newStore(t, db, o)
	change := func(statement, arg string) error {
		res, err := hands.ExecContext(context.Background(), `update `+o.Schema+statement, arg)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n != 1 {
			return fmt.Errorf("%d rows, %v", n, err)
		}
		return nil
	}
	return storetest.Subject{
		Backend: first,
		Advance: c.Advance,
		Second:  func() storetest.Backend { return newStore(t, db, o) },
		Reopen: func() storetest.Backend {
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			return newStore(t, db, o)
		},
		Corrupt: func(table, id string) error {
			return change(map[string]string{
				storetest.TableEvents:     `.leadonce_events set enquiry = '\x7b' where id::text = $1`,
				storetest.TableOperations: `.leadonce_operations set fields = '\x7b' where id = $1`,
				storetest.TableDeals:      `.leadonce_deals set generation = 0 where id = $1`,
			}[table], id)
		},
		Erase: func(id string) error { return change(`.leadonce_operations set fields = null where id = $1`, id) },
	}
}

func TestPgbouncer(t *testing.T) {
	direct := pgtest.DSN(t)
	pooled := pgtest.Pgbouncer(t, direct, "transaction", "default_pool_size = 8")
	for mode, o := range map[string]postgres.Options{
		"exec":            {Schema: "by_exec", Pooler: true},
		"simple_protocol": {Schema: "by_simple", Pooler: true},
	} {
		t.Run("with default_query_exec_mode="+mode+" many orders at once are all stored", func(t *testing.T) {
			if errs := placeMany(t, open(t, pooled+"&default_query_exec_mode="+mode), o); len(errs) > 0 {
				t.Fatalf("%d errors, the first: %v", len(errs), errs[0])
			}
		})
	}
	t.Run("where something is prepared after all, the error says what to set", func(t *testing.T) {
		for name, c := range map[string]struct {
			params string
			o      postgres.Options
			says   string
		}{
			"by the store": {"&default_query_exec_mode=exec", postgres.Options{Schema: "store_forgot"}, "Options.Pooler"},
			"by pgx":       {"", postgres.Options{Schema: "pgx_forgot", Pooler: true}, "Options.Pooler"},
		} {
			for _, err := range placeMany(t, open(t, pooled+c.params), c.o) {
				if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: it does not say what to do: %v", name, err)
				}
			}
		}
	})
}

// placeMany submits many leads at once, so that transactions change between the server's connections.
func placeMany(t *testing.T, db *sql.DB, o postgres.Options) (errs []error) {
	t.Helper()
	o.Migrate = true
	st, err := postgres.New(t.Context(), db, &o)
	if err != nil {
		return []error{err}
	}
	t.Cleanup(func() { st.Close() })
	leads, err := dedup.NewProcessor(st, crmtest.NewSimulator(crmtest.Config{}).Local(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for caller := range 16 {
		wg.Go(func() {
			for n := range 4 {
				key := fmt.Sprint(100*caller + n)
				_, err := leads.Submit(t.Context(), key, dedup.Person{ID: key}, crm.Lead{Title: "Order"})
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return errs
	}
	ops, err := st.Operations(t.Context(), store.OperationFilter{Limit: 1000})
	if err != nil || len(ops) != 64 {
		errs = append(errs, fmt.Errorf("%d operations are stored, %w", len(ops), err))
	}
	return errs
}
