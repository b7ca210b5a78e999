package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/store"
)

// fault_test.go: a full store, a read-only one, rows that can't be read.

// fill accepts large events until one is refused.
func fill(t *testing.T, s *Store) (accepted int, refused error) {
	t.Helper()
	for n := range 10_000 {
		e := event(fmt.Sprint(n), fmt.Sprintf("k%d", n))
		e.Payload = make([]byte, 20_000)
		if _, err := s.Accept(background, e); err != nil {
			return n, err
		}
	}
	t.Fatal("never full")
	return 0, nil
}

func TestFullStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	s := reopen(t, path, &Options{MaxPages: 200})
	n, err := fill(t, s)
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "no space") ||
		!strings.Contains(err.Error(), "MaxPages") {
		t.Fatalf("got %v", err)
	}
	t.Run("what fits beside a member that does not is kept", func(t *testing.T) {
		if err := s.writer.do(background, false, func(c *conn) error { // room for something small
			_, err := c.exec("delete from leadonce_events where id = 1", nil)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		big := event("big", "kb")
		big.Payload = make([]byte, 500_000)
		row := func(e store.Event) func(*conn) error {
			return func(c *conn) error {
				_, err := c.exec("insert into leadonce_meta (name, value) values (:name, :value)",
					args{"name": e.UpdateID, "value": string(e.Payload)})
				return err
			}
		}
		for i := range big.Payload {
			big.Payload[i] = 'x'
		}
		batch := []*request{
			{ctx: background, run: row(event("1", "k")), single: true},
			{ctx: background, run: row(big), single: true},
			{ctx: background, run: row(event("2", "k"))},
		}
		inWriter(t, s, func(w *writer) { w.commit(batch) })
		if batch[0].err != nil || batch[2].err != nil || !errors.Is(batch[1].err, store.ErrUnavailable) {
			t.Fatalf("got %v, %v, %v", batch[0].err, batch[1].err, batch[2].err)
		}
		if !marked(t, s, "1") || marked(t, s, "big") || !marked(t, s, "2") {
			t.Fatal("the small ones must be there, the large one must not")
		}
	})
	t.Run("reading goes on", func(t *testing.T) {
		if st := must(s.Stats(background))(t); st.Events[0].N != int64(n-1) {
			t.Fatalf("%d events, want %d", st.Events[0].N, n-1)
		}
	})
	t.Run("it goes on when space returns", func(t *testing.T) {
		if err := s.writer.do(background, true, func(c *conn) error {
			var pages int64
			_, err := c.get(&pages, "pragma max_page_count = 10000", nil)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		e := event("later", "k")
		e.Payload = make([]byte, 20_000)
		must(s.Accept(background, e))(t)
	})
}

func TestReadOnlyStore(t *testing.T) {
	t.Run("a connection that can't write any more", func(t *testing.T) {
		s := open(t, nil)
		must(s.Accept(background, event("1", "k")))(t)
		set := func(on string) {
			inWriter(t, s, func(w *writer) {
				if err := w.c.script("pragma query_only = " + on); err != nil {
					t.Fatal(err)
				}
			})
		}
		set("on")
		_, err := s.Accept(background, event("2", "k"))
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Fatalf("got %v", err)
		}
		must(s.Stats(background))(t)
		set("off")
		must(s.Accept(background, event("2", "k")))(t)
	})
	t.Run("a database that is handed in read-only", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "leads.db")
		if err := reopen(t, path, nil).Close(); err != nil {
			t.Fatal(err)
		}
		db := handIn(t, path, "mode=ro&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)")
		s, err := New(background, db, nil)
		if err == nil {
			s.Close()
			t.Fatal("taken")
		}
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("a file without the right to write", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "leads.db")
		if err := reopen(t, path, nil).Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o400); err != nil {
			t.Fatal(err)
		}
		if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
			f.Close()
			return // root may write everything; the subtest before is the same refusal by other means
		}
		if s, err := Open(background, path, nil); err == nil {
			s.Close()
			t.Fatal("opened")
		} else if !strings.Contains(err.Error(), "read-only") {
			t.Fatalf("got %v", err)
		}
	})
}

// spoil changes a row by hand.
func spoil(t *testing.T, s *Store, query string) {
	t.Helper()
	if err := s.writer.do(background, false, func(c *conn) error {
		n, err := c.exec(query, nil)
		if err == nil && n == 0 {
			err = errors.New("no row")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func wantCorrupt(t *testing.T, err error, table, id string) {
	t.Helper()
	c, ok := errors.AsType[*store.CorruptError](err)
	if !ok || c.Table != table || c.ID != id {
		t.Fatalf("got %v, want the row %s of %s", err, id, table)
	}
}

func TestRowsThatCantBeRead(t *testing.T) {
	begun := func(t *testing.T) *Store {
		s := open(t, nil)
		must(s.Accept(background, event("1", "k")))(t)
		v := must(s.ReadKey(background, "k"))(t)
		must(s.CommitPlan(background, planFor(v, nil)))(t)
		must(s.Accept(background, event("2", "k")))(t)
		return s
	}
	t.Run("every column of an operation that could mislead", func(t *testing.T) {
		for _, set := range []string{
			"state = 'sold'", "kind = ''", "version = 0", "doubt = 7", "unreturned = 2", "revision = -1", "window_ns = -1",
			"attempts = -1", "failures = -1", "fence = -1", "created_at = 0", "fields = x'00'", "fields = x'7b22'",
			"state = 'sending', lease_until = 0",
		} {
			s := begun(t)
			spoil(t, s, "update leadonce_operations set "+set)
			_, err := s.Operation(background, "o1")
			wantCorrupt(t, err, "leadonce_operations", "o1")
			if ops, err := s.Claim(background, claimOf("w", 5)); len(ops) != 0 || err != nil {
				t.Errorf("%s: claimed %v, %v", set, ops, err)
			}
			if st := must(s.Stats(background))(t); st.Broken != 1 || len(st.Operations) != 0 {
				t.Errorf("%s: %+v", set, st)
			}
		}
	})
	t.Run("a success that is reported about a broken operation stays in the trail", func(t *testing.T) {
		s := begun(t)
		spoil(t, s, "update leadonce_operations set fields = x'00'")
		_, err := s.Advance(background, store.Report{ID: "o1", On: store.Confirmed, CRMID: "77"})
		wantCorrupt(t, err, "leadonce_operations", "o1")
		list := must(s.Trail(background, "o1"))(t)
		if len(list) != 1 || list[0].CRMID != "77" {
			t.Fatalf("got %+v", list)
		}
	})
	t.Run("a broken deal in the way of a new one is named, not called a conflict", func(t *testing.T) {
		s := begun(t)
		spoil(t, s, "update leadonce_deals set state = 'odd', broken = 1")
		v, err := s.ReadKey(background, "k")
		wantCorrupt(t, err, "leadonce_deals", "d1")
		p := planFor(v, nil)
		p.Deals[0].Key = "m1"
		_, err = s.CommitPlan(background, p)
		wantCorrupt(t, err, "leadonce_deals", "d1")
	})
	t.Run("a broken trail entry hides no other", func(t *testing.T) {
		s := begun(t)
		o := must(s.Operation(background, "o1"))(t)
		o = must(s.Advance(background, store.Report{ID: "o1", On: store.Cancel, Version: o.Version, By: "anna"}))(t)
		must(s.Advance(background, store.Report{ID: "o1", On: store.Reopen, Version: o.Version, By: "anna"}))(t)
		spoil(t, s, "update leadonce_trail set cause = 'odd' where id = 1")
		list, err := s.Trail(background, "o1")
		wantCorrupt(t, err, "leadonce_trail", "1")
		if len(list) != 1 || list[0].On != store.Reopen {
			t.Fatalf("got %+v", list)
		}
	})
	t.Run("a parked row that can't be read is shown with what can be read, and can be retried", func(t *testing.T) {
		s := begun(t)
		spoil(t, s, "update leadonce_events set enquiry = x'00' where update_id = '2'")
		_, err := s.ReadKey(background, "k")
		wantCorrupt(t, err, "leadonce_events", "2")
		list := must(s.Events(background, store.EventFilter{States: []store.EventState{store.EventParked}}))(t)
		if len(list) != 1 || list[0].UpdateID != "2" || list[0].Reason == "" {
			t.Fatalf("got %+v", list)
		}
		spoil(t, s, "update leadonce_events set enquiry = x'7b7d' where update_id = '2'")
		if err := s.RetryEvent(background, 2, "anna", "mended"); err != nil {
			t.Fatal(err)
		}
		if v := must(s.ReadKey(background, "k"))(t); len(v.Events) != 1 {
			t.Fatalf("got %+v", v)
		}
	})
}

func TestStrangeBytesLoseNothing(t *testing.T) {
	s := open(t, nil)
	e := event("1", "k\x00\xff")
	e.UpdateID, e.DealKey, e.ContentID = "a\x00b", "\xf0\x28", "\x00"
	e.Payload = []byte{0, 1, 2, 0xff}
	first := must(s.Accept(background, e))(t)
	again := must(s.Accept(background, e))(t)
	if first.Duplicate || !again.Duplicate || again.EventID != first.EventID {
		t.Fatalf("%+v, then %+v", first, again)
	}
	for _, due := range append(must(s.DueKeys(background, 5))(t), store.DueKey{Key: e.OrderingKey}) {
		v := must(s.ReadKey(background, due.Key))(t)
		if len(v.Events) != 1 || string(v.Events[0].Payload) != string(e.Payload) {
			t.Fatalf("under %q: %+v", due.Key, v)
		}
	}
}

func TestFileTakenAway(t *testing.T) {
	for name, c := range map[string]struct {
		harm  func(path string) error
		heals bool
	}{
		"deleted": {os.Remove, false},
		"replaced": {func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		}, false},
		"its log deleted":     {func(path string) error { return os.Remove(path + "-wal") }, false},
		"emptied":             {func(path string) error { return os.Truncate(path, 0) }, false},
		"moved, and put back": {func(path string) error { return os.Rename(path, path+".away") }, true},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				return // an open file can't be taken away there
			}
			path := filepath.Join(t.TempDir(), "leads.db")
			s := reopen(t, path, nil)
			if _, err := s.Accept(background, event("1", "k")); err != nil {
				t.Fatal(err)
			}
			if err := c.harm(path); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Accept(background, event("2", "k")); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "while it was open") {
				t.Fatalf("acknowledged into a file that is gone: %v", err)
			}
			if !c.heals {
				return
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			if r, err := s.Accept(background, event("2", "k")); err != nil {
				t.Fatal(r, err)
			}
		})
	}
}
