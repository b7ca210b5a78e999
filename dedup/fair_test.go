package dedup_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// fair_test.go: one tenant's flood keeps nobody else waiting. What is measured is work, not time: how many of the flood's turns
// pass between the moment when the other's enquiry is there and the moment when its lead is in the CRM.

// The two of them.
const flooding, quiet = "flooding", "quiet"

// turnstile lets the flood's work through one by one.
type turnstile struct {
	inside  atomic.Int64 // how many stand before it
	through chan struct{}
}

func newTurnstile() *turnstile { return &turnstile{through: make(chan struct{})} }

func (s *turnstile) pass() {
	s.inside.Add(1)
	<-s.through
	s.inside.Add(-1)
}

// polls is a store that counts the questions, and tells nobody of new work unless it hints: as a database does whose other
// processes accept it.
type polls struct {
	store.Store
	hints bool
	asked atomic.Int64
}

func (s *polls) Subscribe(f func(store.Hint)) (cancel func()) {
	if !s.hints {
		return func() {}
	}
	return s.Store.Subscribe(f)
}

func (s *polls) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	defer s.asked.Add(1)
	return s.Store.DueKeys(ctx, limit, tenants...)
}

func (s *polls) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	defer s.asked.Add(1)
	return s.Store.Claim(ctx, c)
}

// turn waits until everything has happened that happens without the flood's next turn, as far as it can be seen: the store has
// been asked again and again, and a while has passed. It ends early once ok.
func (s *polls) turn(t *testing.T, ok func() bool) {
	t.Helper()
	seen, began := s.asked.Load(), time.Now()
	within(t, "the store is asked again", func() bool {
		return ok() || (s.asked.Load() >= seen+20 && time.Since(began) > 500*time.Millisecond)
	})
}

// opener opens one database once more.
type opener func(t *testing.T) store.Store

// onEach runs f with a database of each engine.
func onEach(t *testing.T, f func(t *testing.T, open opener)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "leads.db")
		f(t, func(t *testing.T) store.Store {
			st, err := sqlite.Open(t.Context(), path, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := st.Close(); err != nil {
					t.Error(err)
				}
			})
			return st
		})
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		f(t, func(t *testing.T) store.Store { return openPostgres(t, dsn) })
	})
}

// floodSize is how much one tenant has waiting.
func floodSize() int {
	if testing.Short() {
		return 5_000
	}
	return 50_000
}

// inParallel does n things, 64 at once.
func inParallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	began := time.Now()
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				if err := do(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d loaded in %v", n, time.Since(began))
	if t.Failed() {
		t.FailNow()
	}
}

// town is a processor that runs, and the CRM of the quiet one.
type town struct {
	st   *polls
	gate *turnstile
	won  atomic.Int64 // leads of the quiet one
	stop func()
}

// inTown starts a processor on st. The flood stands before the turnstile in its rule if inRule, else in its CRM.
func inTown(t *testing.T, st *polls, lanes, inRule bool) *town {
	t.Helper()
	w := &town{st: st, gate: newTurnstile()}
	adapter := adapterFunc(func(_ context.Context, op crm.Op, _ crm.Lead) (string, error) {
		if op.Tenant == quiet {
			w.won.Add(1)
		} else if !inRule {
			w.gate.pass()
		}
		return "L" + op.ID, nil
	})
	rule := dedup.OnePerMessage(func(e dedup.Enquiry) (crm.Lead, error) {
		if e.Tenant == flooding && inRule {
			w.gate.pass()
		}
		return crm.Lead{Title: e.Text}, nil
	})
	o := pgOptions()
	o.Poll, o.RuleTimeout, o.CallTimeout, o.Lease = 20*time.Millisecond, 5*time.Minute, 5*time.Minute, 11*time.Minute
	var p *dedup.Processor
	var err error
	if lanes {
		one := dedup.Tenant{Adapter: adapter, Rule: rule}
		p, err = dedup.NewTenants(st, map[string]dedup.Tenant{flooding: one, quiet: one}, &o)
	} else {
		p, err = dedup.NewProcessor(st, adapter, rule, &o)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		close(w.gate.through)
		if err := <-done; err != nil {
			t.Errorf("drain: %v", err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// turns lets the flood through, most times at most, until the quiet one's lead is there. What can happen without the flood's next
// turn is given half a second before that turn, and as long as it takes after the last one.
func (w *town) turns(t *testing.T, places int64, most int) {
	t.Helper()
	began := time.Now()
	won := func() bool { return w.won.Load() > 0 }
	for n := range most {
		within(t, "the flood stands before the turnstile", func() bool { return won() || w.gate.inside.Load() >= places })
		if w.st.turn(t, won); won() {
			t.Logf("%d turns of the flood, %v", n, time.Since(began))
			return
		}
		w.gate.through <- struct{}{}
	}
	within(t, fmt.Sprintf("the lead is in the CRM, after %d turns of the flood", most), won)
	t.Logf("%d turns of the flood, %v", most, time.Since(began))
}

func TestAFloodOfEvents(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		before := open(t) // a process without a planner: nobody gets a head start
		inParallel(t, floodSize(), func(i int) error {
			e := eventOf(flooding, i, i, "please call me")
			e.HeadStart = 0
			_, err := before.Accept(context.Background(), e)
			return err
		})
		person := 1_000_000
		for _, c := range []struct {
			name   string
			lanes  bool
			hinted bool
			places int64 // where the flood stands
			most   int   // turns
		}{
			{"with a lane each, accepted here, its lead needs no turn of the flood's", true, true, 6, 0},
			{"with a lane each, accepted elsewhere, its lead needs no turn of the flood's", true, false, 6, 0},
			{"with one adapter for all, accepted here, it is among the first", false, true, 8, 2},
			{"with one adapter for all, accepted elsewhere, it is among the first", false, false, 8, 2},
		} {
			t.Run(c.name, func(t *testing.T) {
				here := &polls{Store: open(t), hints: c.hinted}
				w := inTown(t, here, c.lanes, true)
				within(t, "the flood stands before the turnstile", func() bool { return w.gate.inside.Load() == c.places })
				person++
				accepts := before
				if c.hinted {
					accepts = here.Store
				}
				if _, err := accepts.Accept(t.Context(), eventOf(quiet, person, person, "please call me")); err != nil {
					t.Fatal(err)
				}
				w.turns(t, c.places, c.most)
				w.stop()
			})
		}
	})
}

func TestAFloodOfOperations(t *testing.T) {
	onEach(t, func(t *testing.T, open opener) {
		before := open(t)
		desk, err := dedup.NewProcessor(before, adapterFunc(nil), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		const each = 500 // of one commit
		size := floodSize()
		if strings.HasSuffix(t.Name(), "PostgreSQL") && !fullScale {
			size = 5_000 // what more would change is the store's affair, and is shown there
		}
		inParallel(t, size/each, func(i int) error {
			pl := store.Plan{Key: fmt.Sprint("flood", i)}
			for n := range each {
				id := fmt.Sprint(i, "/", n)
				pl.Deals = append(pl.Deals, store.Deal{ID: "d" + id, Tenant: flooding, OrderingKey: pl.Key, Key: id, Generation: 1,
					State: store.DealOpen, CreateOp: "o" + id})
				pl.Operations = append(pl.Operations, store.Operation{ID: "o" + id, Tenant: flooding, Kind: string(crm.KindCreate),
					OrderingKey: pl.Key, DealID: "d" + id, Fields: []byte(`{"title":"x"}`)})
			}
			_, err := before.CommitPlan(context.Background(), pl)
			return err
		})
		for i, c := range []struct {
			name   string
			lanes  bool
			places int64
			most   int
		}{
			{"with a lane each the other's lead needs no turn of the flood's", true, 6, 0},
			{"with one adapter for all it is among the first", false, 8, 4},
		} {
			t.Run(c.name, func(t *testing.T) {
				st := &polls{Store: open(t)}
				w := inTown(t, st, c.lanes, false)
				within(t, "the flood stands before the turnstile", func() bool { return w.gate.inside.Load() == c.places })
				key := fmt.Sprint("quiet", i)
				if _, err := desk.Submit(t.Context(), key, dedup.Person{ID: key, Tenant: quiet}, crm.Lead{Title: key}); err != nil {
					t.Fatal(err)
				}
				w.turns(t, c.places, c.most)
				w.stop()
			})
		}
	})
}
