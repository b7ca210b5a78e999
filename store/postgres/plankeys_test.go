package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// plankeys_test.go: plans that touch another ordering key than their own, on this engine.

// merging returns a plan of key that merges from into to.
func merging(t testing.TB, s *Store, key, from, to string) store.Plan {
	t.Helper()
	v, err := s.ReadKey(background, key)
	if err != nil {
		t.Fatal(err)
	}
	return store.Plan{Key: key, Version: v.Version, Merge: &store.Merge{From: from, To: to}}
}

func TestMerge(t *testing.T) {
	dsn := pgtest.DSN(t)
	t.Run("merges of two keys in opposite directions wait for each other, and never deadlock", func(t *testing.T) {
		db, a, b := pool(t, dsn), reopen(t, dsn, nil), reopen(t, dsn, nil)
		for _, key := range []string{"k:x", "k:y"} {
			if _, err := a.Submit(background, submission(key, key)); err != nil {
				t.Fatal(err)
			}
		}
		plans := []store.Plan{merging(t, b, "k:y", "k:y", "k:x"), merging(t, a, "k:x", "k:x", "k:y")}
		held, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer held.Rollback()
		if _, err := held.Exec(`select 1 from leadonce.leadonce_keys where ordering_key = 'k:y' for update`); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var errs [2]error
		for i, s := range []*Store{b, a} { // the one that names k:y first comes first
			wg.Go(func() { _, errs[i] = s.CommitPlan(background, plans[i]) })
			waitFor(t, "the merge to wait", func() bool {
				var n int
				err := db.QueryRow(`select count(*) from pg_stat_activity where datname = current_database()
					and wait_event_type = 'Lock' and query_start < clock_timestamp() - interval '200 ms'`).Scan(&n)
				return err == nil && n == i+1
			})
		}
		if err := held.Rollback(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if errs[0] != nil || !errors.Is(errs[1], store.ErrConflict) {
			t.Fatalf("the first is to be committed, the second to be a conflict: %v", errs)
		}
		if err := errors.Join(a.Close(), b.Close()); err != nil { // their sessions report what they met
			t.Fatal(err)
		}
		waitFor(t, "the sessions to end", func() bool {
			var n int
			err := db.QueryRow(`select count(*) from pg_stat_activity where datname = current_database()
				and pid <> pg_backend_pid() and state <> 'idle'`).Scan(&n)
			return err == nil && n == 0
		})
		var n int
		if err := db.QueryRow(`select deadlocks from pg_stat_database where datname = current_database()`).Scan(&n); err != nil || n != 0 {
			t.Fatalf("%d deadlocks, %v", n, err)
		}
	})
	t.Run("a merge that is refused leaves no row of a key behind", func(t *testing.T) {
		s := reopen(t, dsn, nil)
		p := merging(t, s, "k:r1", "k:r1", "k:r2")
		p.Version = 7
		if _, err := s.CommitPlan(background, p); !errors.Is(err, store.ErrConflict) {
			t.Fatal(err)
		}
		var n int
		if err := pool(t, dsn).QueryRow(`select count(*) from leadonce.leadonce_keys where ordering_key like 'k:r%'`).Scan(&n); err != nil || n != 0 {
			t.Fatalf("%d rows, %v", n, err)
		}
	})
	for _, when := range []moment{beforeCommit, afterCommit} {
		t.Run("a merge counts once, connection lost "+when.String(), func(t *testing.T) {
			s, l := lossyStore(t, dsn, nil)
			from, to := fmt.Sprint("k:from", when), fmt.Sprint("k:to", when)
			if _, err := s.Accept(background, event("lost"+from, from)); err != nil {
				t.Fatal(err)
			}
			p := merging(t, s, to, from, to)
			before := l.lost.Load()
			l.at(when)
			if _, err := s.CommitPlan(background, p); err != nil || l.lost.Load() != before+1 {
				t.Fatalf("%v, %d connections lost", err, l.lost.Load()-before)
			}
			old, err := s.ReadKey(background, from)
			if err != nil || old.MovedTo != to || old.Version != 1 {
				t.Fatalf("%+v, %v", old, err)
			}
			if v, err := s.ReadKey(background, to); err != nil || len(v.Events) != 1 || v.Version != 1 {
				t.Fatalf("%+v, %v", v, err)
			}
		})
	}
	t.Run("a deal does not open again beside an open one of its key", func(t *testing.T) {
		s := reopen(t, dsn, nil)
		sub := submission("twice", "k:twice")
		sub.Deal.HostKey, sub.Deal.State = true, store.DealClosed
		if _, err := s.Submit(background, sub); err != nil {
			t.Fatal(err)
		}
		next := submission("thrice", "k:twice")
		next.Deal.Key, next.Deal.Generation = sub.Deal.Key, 2
		if _, err := s.Submit(background, next); err != nil {
			t.Fatal(err)
		}
		v, err := s.ReadKey(background, "k:twice", sub.Deal.Key)
		if err != nil || len(v.Deals) != 2 {
			t.Fatalf("%v, %v", v.Deals, err)
		}
		_, err = s.CommitPlan(background, store.Plan{Key: v.Key, Version: v.Version,
			Stages: []store.StageMove{{DealID: sub.Deal.ID, Version: 1, Stage: "s", State: store.DealOpen}}})
		if !errors.Is(err, store.ErrConflict) {
			t.Fatal(err)
		}
	})
}

func TestTenantMarks(t *testing.T) {
	var w watermark
	north, south := "north", "south"
	since := func(tenant string) int64 {
		asks := []sqlstore.Ask{{Tenant: tenant}}
		w.mark(asks)
		return asks[0].Since
	}
	if _, sweeps := w.start(&north); !sweeps {
		t.Fatal("the first claim did not sweep")
	}
	w.start(&south)
	w.moveTo(&north, map[string]int64{north: 100_000_000}, true)
	if at := since(south); at != 0 {
		t.Fatalf("another tenant's claim moved it to %d", at)
	}
	if since(north) == 0 {
		t.Fatal("its own claim did not move it")
	}
	if tenants, sweeps := w.start(&north); sweeps || len(tenants) != 1 {
		t.Fatal("a claim that had all that it asked for is followed by a sweep")
	}
	w.moveTo(&north, nil, false)
	if _, sweeps := w.start(&north); !sweeps {
		t.Fatal("a claim that had too little is not followed by a sweep")
	}
}

func TestMoveIsTold(t *testing.T) {
	dsn := pgtest.DSN(t)
	front, back := reopen(t, dsn, nil), reopen(t, dsn, nil)
	heard := make(chan store.Hint, 100)
	back.Subscribe(func(h store.Hint) { heard <- h })
	waitFor(t, "the listener", func() bool {
		var n int
		err := pool(t, dsn).QueryRow(`select count(*) from pg_stat_activity
			where datname = current_database() and query like 'LISTEN %'`).Scan(&n)
		return err == nil && n == 1
	})
	told := func(key string) {
		t.Helper()
		e := event("1", key)
		waitFor(t, "the hint of "+key, func() bool {
			select {
			case h := <-heard:
				return h == store.Hint{OrderingKey: key, Tenant: e.Tenant}
			default:
				return false
			}
		})
	}
	r, err := front.Accept(background, event("1", "k:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("another process is told of an event that was moved", func(t *testing.T) {
		p := store.Plan{Key: "k:1", Events: []store.EventEnd{{ID: r.EventID, State: store.EventPending, MoveTo: "k:2"}}}
		if _, err := front.CommitPlan(background, p); err != nil {
			t.Fatal(err)
		}
		told("k:2")
	})
	t.Run("another process is told of events that a merge moved", func(t *testing.T) {
		if _, err := front.CommitPlan(background, merging(t, front, "k:3", "k:2", "k:3")); err != nil {
			t.Fatal(err)
		}
		told("k:3")
	})
}
