package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
)

// engine_test.go: what is PostgreSQL's own: settings, tables, and locks that others hold.

func TestOpenRefuses(t *testing.T) {
	wantErr := func(t *testing.T, err error, parts ...string) {
		t.Helper()
		if err == nil {
			t.Fatal("no error")
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("the error does not say %q: %v", p, err)
			}
		}
	}
	for _, name := range []string{"Leads", "a b", `x"; drop schema public; --`, "1a", "pg_x", strings.Repeat("a", 49), "ю"} {
		t.Run("a schema named "+name, func(t *testing.T) {
			_, err := Open(t.Context(), "host=/nowhere", &Options{Schema: name})
			wantErr(t, err, "Options.Schema")
			_, err = Schema(name)
			wantErr(t, err, "Options.Schema")
		})
	}
	for field, o := range map[string]*Options{
		"MaxConns": {MaxConns: 3}, "LockTimeout": {LockTimeout: time.Hour}, "AllowUnsafe": {AllowUnsafe: []string{"all"}},
	} {
		t.Run("an odd "+field, func(t *testing.T) {
			_, err := Open(t.Context(), "host=/nowhere", o)
			wantErr(t, err, "Options."+field)
		})
	}
	t.Run("a DSN that can't be read, without showing it", func(t *testing.T) {
		_, err := Open(t.Context(), "postgres://u:s3cret%@h/x", nil)
		wantErr(t, err, "DSN")
		if strings.Contains(err.Error(), "s3cret") {
			t.Fatalf("the error shows the password: %v", err)
		}
	})
	t.Run("no database at all", func(t *testing.T) {
		_, err := New(t.Context(), nil, nil)
		wantErr(t, err, "db is nil")
	})
	t.Run("a pool that is too small", func(t *testing.T) {
		db := pool(t, pgtest.DSN(t))
		db.SetMaxOpenConns(2)
		_, err := New(t.Context(), db, nil)
		wantErr(t, err, "SetMaxOpenConns")
	})
	t.Run("a server that can't be reached is ErrUnavailable", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := Open(ctx, "host=127.0.0.1 port=1 sslmode=disable", nil)
		if !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	})
}

func TestSettings(t *testing.T) {
	// A role's own defaults stand for the server's configuration here; what can't be set so is tested on a private server.
	dsn := pgtest.DSN(t)
	db := pool(t, dsn)
	for name, value := range map[string]string{"synchronous_commit": "off", "default_transaction_isolation": "serializable"} {
		t.Run(name+"="+value+" is an error that can be overridden by name", func(t *testing.T) {
			exec(t, db, `do $$ begin execute format('alter database %I set `+name+` = ''`+value+`''', current_database()); end $$`)
			defer exec(t, db, `do $$ begin execute format('alter database %I reset `+name+`', current_database()); end $$`)
			_, err := Open(t.Context(), dsn, nil)
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), value) {
				t.Fatalf("got %v", err)
			}
			s := reopen(t, dsn, &Options{AllowUnsafe: []string{name}})
			if _, err := s.Accept(background, event("1", "k:"+name)); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("fsync and full_page_writes that are off are both named", func(t *testing.T) {
		c := pgtest.Start(t, &pgtest.Options{Settings: map[string]string{"fsync": "off", "full_page_writes": "off"}})
		dsn := c.DSN(t)
		_, err := Open(t.Context(), dsn, nil)
		if err == nil || !strings.Contains(err.Error(), "fsync is off") || !strings.Contains(err.Error(), "full_page_writes is off") {
			t.Fatalf("got %v", err)
		}
		reopen(t, dsn, &Options{AllowUnsafe: []string{"fsync", "full_page_writes"}})
	})
}

func TestTables(t *testing.T) {
	t.Run("eight processes that start at once make them once", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				s, err := Open(t.Context(), dsn, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
	t.Run("a role that may create nothing is told what to run, and works once it was run", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		admin := pool(t, dsn)
		role := "r" + newHandle()
		exec(t, admin, `create role `+role+` login`)
		t.Cleanup(func() { exec(t, admin, `drop owned by `+role, `drop role `+role) })
		as := pool(t, dsn+"&options=-c%20role%3D"+role)
		if _, err := New(t.Context(), as, &Options{Migrate: true}); err == nil ||
			!strings.Contains(err.Error(), `postgres.Schema("leadonce")`) {
			t.Fatalf("got %v", err)
		}
		if _, err := New(t.Context(), as, nil); err == nil || !strings.Contains(err.Error(), "no leadonce tables") {
			t.Fatalf("got %v", err)
		}
		text, err := Schema("")
		if err != nil {
			t.Fatal(err)
		}
		exec(t, admin, text, `grant usage on schema leadonce to `+role,
			`grant select, insert, update, delete on all tables in schema leadonce to `+role)
		s, err := New(t.Context(), as, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		enquiry(t, s, 1)
	})
	t.Run("what is missing is named", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		s, db := reopen(t, dsn, nil), pool(t, dsn)
		for missing, ddl := range map[string]string{
			"index leadonce_events_due":          `drop index leadonce.leadonce_events_due`,
			"column leadonce_deals.broken":       `alter table leadonce.leadonce_deals drop column broken`,
			"table leadonce_trail":               `drop table leadonce.leadonce_trail`,
			"function leadonce_clock":            `drop function leadonce.leadonce_clock(bigint)`,
			"view leadonce_operation_rows":       `drop view leadonce.leadonce_operation_rows`,
			"index leadonce_operations_blocked":  `drop index leadonce.leadonce_operations_blocked`,
			"column leadonce_events.quarantine":  `alter table leadonce.leadonce_events drop column quarantine`,
			"index leadonce_operations_conflict": `drop index leadonce.leadonce_operations_conflict`,
		} {
			exec(t, db, ddl)
			if err := s.Validate(background); err == nil || !strings.Contains(err.Error(), missing) {
				t.Errorf("without %s: %v", missing, err)
			}
		}
	})
	t.Run("tables of another version are refused", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		reopen(t, dsn, nil)
		exec(t, pool(t, dsn), `update leadonce.leadonce_meta set value = '0/abc'`)
		if _, err := Open(t.Context(), dsn, nil); err == nil || !strings.Contains(err.Error(), "another version") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("two schemas of one database are two stores", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		a, b := reopen(t, dsn, &Options{Schema: "a"}), reopen(t, dsn, &Options{Schema: "b"})
		for _, s := range []*Store{a, b} {
			if r, err := s.Accept(background, event("1", "k")); err != nil || r.Duplicate {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	})
}

// enquiry takes one event to a lead that is done.
func enquiry(t testing.TB, s *Store, n int) store.Operation {
	t.Helper()
	e := event(fmt.Sprint(n), fmt.Sprint("k:", n))
	if _, err := s.Accept(background, e); err != nil {
		t.Fatal(err)
	}
	v, err := s.ReadKey(background, e.OrderingKey)
	if err != nil {
		t.Fatal(err)
	}
	c := claimOf("w", 1)
	ops, err := s.CommitPlan(background, planFor(v, &c))
	if err != nil || len(ops) != 1 {
		t.Fatalf("%d operations, %v", len(ops), err)
	}
	o, err := s.Advance(background, store.Report{ID: ops[0].ID, On: store.Confirmed, CRMID: fmt.Sprint("crm-", n)})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPlanners(t *testing.T) {
	t.Run("of two planners that race for a new key's row one gets ErrConflict", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		a, b := reopen(t, dsn, nil), reopen(t, dsn, nil)
		for n := range 20 {
			e := event(fmt.Sprint(n), fmt.Sprint("k:", n))
			if _, err := a.Accept(background, e); err != nil {
				t.Fatal(err)
			}
			v, err := a.ReadKey(background, e.OrderingKey)
			if err != nil {
				t.Fatal(err)
			}
			errs := make(chan error, 4)
			for i := range 4 {
				go func() {
					c := claimOf(fmt.Sprint("w", i), 1)
					_, err := []*Store{a, b}[i%2].CommitPlan(background, planFor(v, &c))
					errs <- err
				}()
			}
			won := 0
			for range 4 {
				switch err := <-errs; {
				case err == nil:
					won++
				case !errors.Is(err, store.ErrConflict):
					t.Fatal(err)
				}
			}
			if won != 1 {
				t.Fatalf("%d plans of %s were committed", won, e.OrderingKey)
			}
		}
	})
	t.Run("a plan that loses takes none of its batch with it", func(t *testing.T) {
		s := open(t, nil)
		var calls []*planCall
		for n := range 5 {
			e := event(fmt.Sprint(n), fmt.Sprint("k:", n))
			if _, err := s.Accept(background, e); err != nil {
				t.Fatal(err)
			}
			v, err := s.ReadKey(background, e.OrderingKey)
			if err != nil {
				t.Fatal(err)
			}
			p := planFor(v, nil)
			switch n {
			case 1: // found out before anything is written
				p.Version = 7
			case 2: // and afterwards
				p.Events[0].ID += 1000
			case 3:
				p.Deals[0].ID = ""
			}
			calls = append(calls, &planCall{ctx: background, in: &proposal{Plan: p, token: newToken()}, done: make(chan struct{})})
		}
		s.planAll(calls)
		for n, want := range []error{nil, store.ErrConflict, store.ErrConflict, store.ErrInvalid, nil} {
			if !errors.Is(calls[n].err, want) {
				t.Errorf("plan %d: %v, want %v", n, calls[n].err, want)
			}
			_, err := s.Operation(background, fmt.Sprint("o", n))
			if stored := err == nil; stored != (want == nil) {
				t.Errorf("the operation of plan %d: %v", n, err)
			}
		}
	})
}

func TestBatches(t *testing.T) {
	t.Run("of one event twice in a batch one is the duplicate, of one key with two contents one is the next epoch", func(t *testing.T) {
		s := open(t, nil)
		other := event("1", "k")
		other.Hash, other.Fingerprints = "other", nil
		var calls []*acceptCall
		for _, e := range []store.Event{event("1", "k"), event("1", "k"), other, event("2", "k"), other} {
			a, err := s.arrive(e, 0)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, &acceptCall{ctx: background, in: a, done: make(chan struct{})})
		}
		s.acceptAll(calls)
		want := []store.Receipt{{}, {Duplicate: true}, {Epoch: 1, Reused: true}, {}, {Epoch: 1, Duplicate: true}}
		for i, c := range calls {
			if c.err != nil {
				t.Fatal(c.err)
			}
			got := c.out
			if got.EventID = 0; got != want[i] {
				t.Errorf("call %d: %+v, want %+v", i, got, want[i])
			}
		}
		if calls[0].out.EventID != calls[1].out.EventID || calls[2].out.EventID != calls[4].out.EventID {
			t.Error("duplicates have other ids")
		}
	})
	t.Run("an answer that was lost is not taken for a duplicate", func(t *testing.T) {
		s := open(t, nil)
		for _, n := range []int{1, 3} {
			var calls []*acceptCall
			for i := range n {
				a, err := s.arrive(event(fmt.Sprint(n, "-", i), "k"), 0)
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, &acceptCall{ctx: background, in: a})
			}
			var first []store.Receipt
			for again := range 2 {
				if err := s.acceptBatch(calls, ""); err != nil {
					t.Fatal(err)
				}
				for i, c := range calls {
					if again == 0 {
						first = append(first, c.out)
					} else if c.out != first[i] || c.out.Duplicate {
						t.Errorf("first %+v, then %+v", first[i], c.out)
					}
				}
			}
		}
	})
}

// TestHostTransaction holds an uncommitted key of the host's.
func TestHostTransaction(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, host := reopen(t, dsn, &Options{LockTimeout: 300 * time.Millisecond}), pool(t, dsn)
	t.Run("one that stays open stalls nobody but who asks for its key", func(t *testing.T) {
		tx, err := host.BeginTx(background, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := s.AcceptTx(background, tx, event("held", "k:held")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SubmitTx(background, tx, submission("held", "k:held")); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for n := range 40 {
			wg.Go(func() {
				if _, err := s.Accept(background, event(fmt.Sprint(n), fmt.Sprint("k:", n))); err != nil {
					t.Errorf("event %d: %v", n, err)
				}
			})
		}
		for range 6 { // more than may wait beside the batches
			wg.Go(func() {
				if _, err := s.Accept(background, event("held", "k:held")); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("the host's key: %v", err)
				}
			})
		}
		wg.Wait()
		if _, err := s.Submit(background, submission("held", "k:held")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the host's submission: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if r, err := s.Accept(background, event("held", "k:held")); err != nil || !r.Duplicate {
			t.Errorf("after its commit: %+v, %v", r, err)
		}
		if o, err := s.Submit(background, submission("held", "k:held")); err != nil || o.ID != "oheld" {
			t.Errorf("after its commit: %+v, %v", o, err)
		}
	})
	t.Run("who waits for it goes on when it ends", func(t *testing.T) {
		s := reopen(t, dsn, &Options{LockTimeout: time.Minute})
		tx, err := host.BeginTx(background, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AcceptTx(background, tx, event("waited", "k:waited")); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			r, err := s.Accept(background, event("waited", "k:waited"))
			if err == nil && r.Duplicate {
				err = errors.New("a duplicate of what was rolled back")
			}
			got <- err
		}()
		waitFor(t, "the call that waits apart", func() bool { return len(s.apart) == 1 })
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
	t.Run("the host's settings are left as they were", func(t *testing.T) {
		tx, err := host.BeginTx(background, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		read := func() (v string) {
			if err := tx.QueryRow(`select current_setting('lock_timeout') || current_setting('enable_seqscan')`).Scan(&v); err != nil {
				t.Fatal(err)
			}
			return v
		}
		before := read()
		if _, err := s.AcceptTx(background, tx, event("set", "k:set")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.SubmitTx(background, tx, submission("set", "k:set")); err != nil {
			t.Fatal(err)
		}
		if after := read(); after != before {
			t.Fatalf("%s became %s", before, after)
		}
	})
	t.Run("nothing is stored, and nobody told, if it rolls back", func(t *testing.T) {
		tx, err := host.BeginTx(background, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AcceptTx(background, tx, event("gone", "k:gone")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if v, err := s.ReadKey(background, "k:gone"); err != nil || len(v.Events) != 0 {
			t.Fatalf("%d events, %v", len(v.Events), err)
		}
	})
}

// waitFor polls, with a deadline.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// hinted is the hint that an event of a key gives.
func hinted(key string) store.Hint {
	return store.Hint{OrderingKey: key, Tenant: event("", key).Tenant}
}

func TestNotify(t *testing.T) {
	dsn := pgtest.DSN(t)
	front, back := reopen(t, dsn, nil), reopen(t, dsn, nil)
	var mu sync.Mutex
	heard := map[store.Hint]int{}
	back.Subscribe(func(h store.Hint) {
		mu.Lock()
		defer mu.Unlock()
		heard[h]++
	})
	count := func(h store.Hint) int {
		mu.Lock()
		defer mu.Unlock()
		return heard[h]
	}
	waitFor(t, "the listener", func() bool {
		var n int
		if err := pool(t, dsn).QueryRow(`select count(*) from pg_stat_activity where datname = current_database() and query like 'LISTEN %'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
	t.Run("another process is told of an event, after the commit", func(t *testing.T) {
		if _, err := front.Accept(background, event("1", "k:1")); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the hint", func() bool { return count(hinted("k:1")) > 0 })
	})
	t.Run("another process is told whose the event is", func(t *testing.T) {
		e := event("north", "k:north")
		e.Tenant = "north"
		if _, err := front.Accept(background, e); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the hint", func() bool { return count(store.Hint{OrderingKey: "k:north", Tenant: "north"}) > 0 })
	})
	t.Run("another process is told of a submission", func(t *testing.T) {
		if _, err := front.Submit(background, submission("1", "k:s")); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the hint", func() bool { return count(store.Hint{}) > 0 })
	})
	t.Run("an event of the host's transaction is told when it commits", func(t *testing.T) {
		tx, err := pool(t, dsn).BeginTx(background, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := front.AcceptTx(background, tx, event("2", "k:2")); err != nil {
			t.Fatal(err)
		}
		if _, err := front.Accept(background, event("3", "k:3")); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the later event's hint", func() bool { return count(hinted("k:3")) > 0 })
		if count(hinted("k:2")) != 0 {
			t.Fatal("told before the commit")
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the hint", func() bool { return count(hinted("k:2")) > 0 })
	})
	t.Run("a lost listening connection is made again", func(t *testing.T) {
		exec(t, pool(t, dsn), `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and query like 'LISTEN %'`)
		n := 0
		waitFor(t, "a hint over the new connection", func() bool {
			n++
			key := fmt.Sprint("k:again", n)
			if _, err := front.Accept(background, event(key, key)); err != nil {
				t.Fatal(err)
			}
			for i := range n + 1 {
				if count(hinted(fmt.Sprint("k:again", i))) > 0 {
					return true
				}
			}
			return false
		})
	})
	t.Run("a handle with a subscriber keeps the head start to itself", func(t *testing.T) {
		e := event("own", "k:own")
		e.HeadStart = time.Minute
		if _, err := back.Accept(background, e); err != nil {
			t.Fatal(err)
		}
		if v, err := front.ReadKey(background, "k:own"); err != nil || v.Events[0].DueAt.Sub(v.Events[0].AcceptedAt) != time.Minute {
			t.Fatalf("%+v, %v", v, err)
		}
	})
	t.Run("what does not fit into one notice goes into several", func(t *testing.T) {
		var hints []store.Hint
		for i := range 40 {
			hints = append(hints, hinted(fmt.Sprint(i, strings.Repeat("x", 500))))
		}
		list := front.notices(append(hints, hinted(strings.Repeat("y", 9000)), hinted("line\nbreak"), hinted("a\x1fb"))...)
		if len(list) != 3 {
			t.Fatalf("%d notices", len(list))
		}
		for _, n := range list {
			if len(n) >= 8000 {
				t.Errorf("a notice of %d bytes", len(n))
			}
		}
	})
}
