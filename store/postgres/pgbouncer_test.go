package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/store/storetest"
)

// pgbouncer_test.go: a pooler in transaction mode between the store and the server: each transaction may run on another
// connection of the server, so nothing may be kept on one.

func TestConformanceThroughPgbouncer(t *testing.T) {
	if testing.Short() {
		t.Log("the suite through a pooler is left to the long run") // a skip would be a failure in CI
		return
	}
	direct, n := pgtest.DSN(t), 0
	pooled := pgtest.Pgbouncer(t, direct, "transaction", "default_pool_size = 8")
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		n++
		schema := fmt.Sprint("pooled_", n)
		s := subject(t, direct, schema) // its hands in the tables are beside the pooler
		c := &clock{now: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)}
		open := func() *postgres.Store {
			return openPooled(t, pooled, &postgres.Options{Schema: schema, Now: c.Now, Pooler: true})
		}
		if err := s.Backend.(*postgres.Store).Close(); err != nil { // its clock is another one
			t.Fatal(err)
		}
		first := open()
		s.Backend, s.Advance = first, c.Advance
		s.Second = func() storetest.Backend { return open() }
		s.Reopen = func() storetest.Backend {
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			return open()
		}
		return s
	})
}

func openPooled(t *testing.T, dsn string, o *postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestPgbouncer(t *testing.T) {
	direct := pgtest.DSN(t)
	pooled := pgtest.Pgbouncer(t, direct, "transaction", "default_pool_size = 8")

	t.Run("with Options.Pooler many callers at once meet no error", func(t *testing.T) {
		s := openPooled(t, pooled, &postgres.Options{Schema: "crowd", Pooler: true})
		if errs := crowd(t.Context(), s); len(errs) > 0 {
			t.Fatalf("%d errors, the first: %v", len(errs), errs[0])
		}
	})
	t.Run("without it the opening says what to set", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pooled, &postgres.Options{Schema: "forgotten"})
		if err == nil {
			s.Close()
			t.Fatal("opened")
		}
		if !strings.Contains(err.Error(), "set Options.Pooler") {
			t.Fatal(err)
		}
	})
	t.Run("what another process makes due is found by looking, since no hint comes through", func(t *testing.T) {
		here := openPooled(t, pooled, &postgres.Options{Schema: "polled", Pooler: true})
		there := openPooled(t, pooled, &postgres.Options{Schema: "polled", Pooler: true})
		hints := make(chan store.Hint, 10)
		t.Cleanup(here.Subscribe(func(h store.Hint) { hints <- h }))
		if _, err := there.Accept(t.Context(), enquiry("1")); err != nil {
			t.Fatal(err)
		}
		if keys, err := here.DueKeys(t.Context(), 10); err != nil || len(keys) != 1 || len(hints) != 0 {
			t.Fatalf("due: %v, %v; %d hints", keys, err, len(hints))
		}
	})
	t.Run("one that is not pooled hears what is accepted through the pooler", func(t *testing.T) {
		hearer := openPooled(t, direct, &postgres.Options{Schema: "heard"})
		teller := openPooled(t, pooled, &postgres.Options{Schema: "heard", Pooler: true})
		hints := make(chan store.Hint, 10_000)
		t.Cleanup(hearer.Subscribe(func(h store.Hint) { hints <- h }))
		// The listening connection may come up after a notice: then another one tells.
		for n, end := 1, time.Now().Add(30*time.Second); len(hints) == 0; n++ {
			if _, err := teller.Accept(t.Context(), enquiry(fmt.Sprint(n))); err != nil {
				t.Fatal(err)
			}
			if time.Now().After(end) {
				t.Fatal("nothing was heard")
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	t.Run("a host's transaction through the pooler takes event and row along, or neither", func(t *testing.T) {
		db, err := sql.Open("postgres", pooled+"&binary_parameters=yes")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		s, err := postgres.New(t.Context(), db, &postgres.Options{Schema: "hosted", Migrate: true, Pooler: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		if _, err := db.ExecContext(t.Context(), `create table orders (id text primary key)`); err != nil {
			t.Fatal(err)
		}
		for id, commit := range map[string]bool{"1": false, "2": true} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err1 := tx.ExecContext(t.Context(), `insert into orders values ($1)`, id)
			_, err2 := s.AcceptTx(t.Context(), tx, enquiry(id))
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			if err := errors.Join(err1, err2, end()); err != nil {
				t.Fatal(err)
			}
		}
		var orders string
		if err := db.QueryRowContext(t.Context(), `select string_agg(id, ',') from orders`).Scan(&orders); err != nil {
			t.Fatal(err)
		}
		events, err := s.Events(t.Context(), store.EventFilter{})
		if err != nil || len(events) != 1 || events[0].UpdateID != "2" || orders != "2" {
			t.Fatalf("orders %q, events %+v, %v", orders, events, err)
		}
	})
}

// crowd makes many calls at once, so that transactions change between the server's connections, and looks whether every
// event that was acknowledged is there.
func crowd(ctx context.Context, s *postgres.Store) (errs []error) {
	var mu sync.Mutex
	note := func(err error) {
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	}
	acked := map[string]bool{}
	var wg sync.WaitGroup
	for caller := range 16 {
		wg.Go(func() {
			for n := range 4 {
				id := fmt.Sprint(100*caller + n)
				_, err := s.Accept(ctx, enquiry(id))
				note(err)
				if err == nil {
					mu.Lock()
					acked[id] = true
					mu.Unlock()
				}
				_, err = s.DueKeys(ctx, 10)
				note(err)
			}
		})
	}
	wg.Wait()
	if len(errs) > 0 {
		return errs // the reading could fail as well
	}
	events, err := s.Events(ctx, store.EventFilter{Limit: 1000})
	note(err)
	for _, e := range events {
		delete(acked, e.UpdateID)
	}
	for id := range acked {
		note(fmt.Errorf("update %s was acknowledged and is not there", id))
	}
	return errs
}

// enquiry returns the event of an update, with an ordering key of its own.
func enquiry(update string) store.Event {
	return store.Event{
		Source: "telegram", Bot: "7", UpdateID: update, Hash: "h" + update, Kind: "message", OrderingKey: "k" + update,
		ContentID: "m" + update, DealKey: "m" + update, Payload: []byte(`{}`), Enquiry: []byte(`{}`),
		Fingerprints: []store.Fingerprint{{Version: 1, Sum: "f" + update}},
	}
}
