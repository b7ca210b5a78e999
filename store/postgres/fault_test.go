package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
)

// fault_test.go: the connection is lost, the session is killed, the server crashes. What was acknowledged stays, and nothing
// has two owners.

// TestLostAnswers loses a connection around every commit of an enquiry's life. Each call still gives the answer that it would
// have given.
func TestLostAnswers(t *testing.T) {
	dsn := pgtest.DSN(t)
	s, l := lossyStore(t, dsn, nil)
	n := 0
	accepted := func(t *testing.T) (store.Event, store.KeyView) {
		n++
		e := event(fmt.Sprint(n), fmt.Sprint("k:", n))
		if _, err := s.Accept(background, e); err != nil {
			t.Fatal(err)
		}
		v, err := s.ReadKey(background, e.OrderingKey)
		if err != nil || len(v.Events) != 1 {
			t.Fatalf("%d events, %v", len(v.Events), err)
		}
		return e, v
	}
	lost := func(t *testing.T, what string, when moment, f func(t *testing.T)) {
		t.Run(what+", connection lost "+when.String(), func(t *testing.T) {
			before := l.lost.Load()
			l.at(when)
			f(t)
			if l.lost.Load() != before+1 {
				t.Fatal("no connection was lost: the test shows nothing")
			}
		})
	}
	for _, when := range []moment{beforeQuery, afterQuery} {
		lost(t, "accept", when, func(t *testing.T) {
			n++
			r, err := s.Accept(background, event(fmt.Sprint(n), "k:accept"))
			if err != nil || r.Duplicate || r.Reused || r.EventID == 0 {
				t.Fatalf("%+v, %v", r, err)
			}
			if again, err := s.Accept(background, event(fmt.Sprint(n), "k:accept")); err != nil || !again.Duplicate || again.EventID != r.EventID {
				t.Fatalf("again: %+v, %v", again, err)
			}
		})
		lost(t, "accept of a batch", when, func(t *testing.T) {
			var calls []*acceptCall
			for range 5 {
				n++
				a, err := s.arrive(event(fmt.Sprint(n), "k:accept"), 0)
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, &acceptCall{ctx: background, in: a})
			}
			s.acceptAll(calls)
			for _, c := range calls {
				if c.err != nil || c.out.Duplicate || c.out.EventID == 0 {
					t.Fatalf("%+v, %v", c.out, c.err)
				}
			}
		})
	}
	for _, when := range []moment{beforeCommit, afterCommit} {
		_, v := accepted(t)
		lost(t, "plan", when, func(t *testing.T) {
			c := claimOf("w", 1)
			ops, err := s.CommitPlan(background, planFor(v, &c))
			if err != nil || len(ops) != 1 {
				t.Fatalf("%d operations, %v", len(ops), err)
			}
			stored, err := s.Operation(background, ops[0].ID)
			if d := cmp.Diff(stored, ops[0]); d != "" || err != nil {
				t.Fatalf("stored and told differ: %s, %v", d, err)
			}
		})
		_, v = accepted(t)
		lost(t, "plan of nothing to begin", when, func(t *testing.T) {
			if _, err := s.CommitPlan(background, planFor(v, nil)); err != nil {
				t.Fatal(err)
			}
		})
		claimAll(t, s)
		n++
		lost(t, "submit", when, func(t *testing.T) {
			o, err := s.Submit(background, submission(fmt.Sprint(n), "k:submit"))
			if err != nil || o.State != store.Pending {
				t.Fatalf("%+v, %v", o, err)
			}
		})
		lost(t, "claim", when, func(t *testing.T) {
			ops, err := s.Claim(background, claimOf("w", 5))
			if err != nil || len(ops) != 1 || ops[0].Attempts != 1 || ops[0].Fence != 1 {
				t.Fatalf("%+v, %v", ops, err)
			}
		})
		for _, on := range []store.Trigger{store.Confirmed, store.NotApplied, store.Lost, store.Rejected} {
			_, v := accepted(t)
			c := claimOf("w", 1)
			ops, err := s.CommitPlan(background, planFor(v, &c))
			if err != nil {
				t.Fatal(err)
			}
			lost(t, "advance "+string(on), when, func(t *testing.T) {
				o, err := s.Advance(background, store.Report{ID: ops[0].ID, On: on, Version: ops[0].Version, Fence: ops[0].Fence,
					CRMID: "77", RetryAfter: time.Hour})
				if err != nil || o.Version != ops[0].Version+1 {
					t.Fatalf("%+v, %v", o, err)
				}
				stored, err := s.Operation(background, o.ID)
				if d := cmp.Diff(stored, o); d != "" || err != nil {
					t.Fatalf("stored and told differ: %s, %v", d, err)
				}
			})
		}
	}
	t.Run("a plan whose answer was lost is still refused if another one came first", func(t *testing.T) {
		_, v := accepted(t)
		other := reopen(t, dsn, nil)
		c := claimOf("other", 1)
		if _, err := other.CommitPlan(background, planFor(v, &c)); err != nil {
			t.Fatal(err)
		}
		p := &proposal{Plan: planFor(v, &c), token: newToken(), begins: true, unknown: true}
		m := &planCall{ctx: background, in: p}
		err := s.transaction(background, writing, func(c *session) error {
			t := planTx{s: s, c: c, left: []*planCall{m}}
			return t.run("")
		})
		if err != nil || !errors.Is(m.err, store.ErrConflict) || len(m.out.begun) != 0 {
			t.Fatalf("%v, %v, %v", err, m.err, m.out)
		}
	})
}

// claimAll leaves nothing pending behind.
func claimAll(t *testing.T, s *Store) {
	t.Helper()
	if _, err := s.Claim(background, claimOf("w", 100)); err != nil {
		t.Fatal(err)
	}
}

// life is many workers at once, each doing what a process does, on several handles. It writes down what it was told.
type life struct {
	t       *testing.T
	seed    uint64
	handles []*Store
	stop    atomic.Bool
	failed  atomic.Int64 // calls that got an error, as they may

	mu     sync.Mutex
	events map[int64]string  // acknowledged: id → update id
	owners map[string]string // operation/fence → who was told to send it
	done   map[string]string // acknowledged: operation → id in the CRM
	wrong  []string
}

func startLife(t *testing.T, dsn string) *life {
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("FAULT_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("FAULT_SEED=%d", seed)
	l := &life{t: t, seed: seed, events: map[int64]string{}, owners: map[string]string{}, done: map[string]string{}}
	for range 2 {
		l.handles = append(l.handles, reopen(t, dsn, nil))
	}
	return l
}

func (l *life) problem(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrong = append(l.wrong, fmt.Sprintf(format, a...))
}

// run works until stop is set, and returns what ends it.
func (l *life) run() (end func()) {
	var wg sync.WaitGroup
	for i := range 8 {
		r := rand.New(rand.NewPCG(l.seed, uint64(i)))
		wg.Go(func() {
			for n := 0; !l.stop.Load(); n++ {
				s := l.handles[r.IntN(len(l.handles))]
				switch r.IntN(4) {
				case 0, 1:
					l.accept(s, fmt.Sprintf("%d-%d", i, r.IntN(n+1)))
				case 2:
					l.plan(s, fmt.Sprint("w", i))
				case 3:
					l.work(s, fmt.Sprint("w", i))
				}
			}
		})
	}
	return func() {
		l.stop.Store(true)
		wg.Wait()
	}
}

func (l *life) accept(s *Store, id string) {
	r, err := s.Accept(background, event(`"`+id+`"`, "k:"+id))
	if err != nil {
		l.failure(err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events[r.EventID] = id
}

func (l *life) plan(s *Store, owner string) {
	keys, err := s.DueKeys(background, 3)
	if err != nil {
		l.failure(err)
		return
	}
	for _, key := range keys {
		v, err := s.ReadKey(background, key.Key)
		if err != nil || len(v.Events) == 0 {
			l.failure(err)
			continue
		}
		c := claimOf(owner, 1)
		ops, err := s.CommitPlan(background, planFor(v, &c))
		if !errors.Is(err, store.ErrConflict) {
			l.failure(err)
		}
		l.send(s, owner, ops)
	}
}

func (l *life) work(s *Store, owner string) {
	ops, err := s.Claim(background, claimOf(owner, 3))
	l.failure(err)
	l.send(s, owner, ops)
}

// send stands for the CRM: it notes who sends, and confirms.
func (l *life) send(s *Store, owner string, ops []store.Operation) {
	for _, o := range ops {
		l.mu.Lock()
		lease := fmt.Sprint(o.ID, "/", o.Fence)
		if other, sent := l.owners[lease]; sent {
			l.wrong = append(l.wrong, fmt.Sprintf("%s was begun by %s and by %s", lease, other, owner))
		}
		l.owners[lease] = owner
		l.mu.Unlock()
		got, err := s.Advance(background, store.Report{ID: o.ID, On: store.Confirmed, CRMID: "crm-" + o.ID})
		if err != nil {
			l.failure(err)
			continue
		}
		l.mu.Lock()
		l.done[o.ID] = got.CRMID
		l.mu.Unlock()
	}
}

// failure lets pass what a crash may cause, and nothing else.
func (l *life) failure(err error) {
	switch {
	case err == nil:
	case errors.Is(err, store.ErrUnavailable):
		l.failed.Add(1)
	default:
		l.problem("%v", err)
	}
}

// judge compares what was told with what is there.
func (l *life) judge() {
	t, s := l.t, l.handles[0]
	var events []store.EventRow
	for after := int64(0); ; {
		page, err := s.Events(background, store.EventFilter{After: after, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		events, after = append(events, page...), page[len(page)-1].ID
	}
	stored := map[int64]bool{}
	updates := map[string]bool{}
	for _, e := range events {
		stored[e.ID] = true
		if updates[e.UpdateID] {
			l.problem("update %s is stored twice", e.UpdateID)
		}
		updates[e.UpdateID] = true
	}
	for id, update := range l.events {
		if !stored[id] {
			l.problem("event %d (%s) was acknowledged and is gone", id, update)
		}
	}
	for id, crm := range l.done {
		if o, err := s.Operation(background, id); err != nil || o.State != store.Done || o.CRMID != crm {
			l.problem("operation %s was confirmed and stands as %s, %v", id, o.State, err)
		}
	}
	for _, w := range l.wrong {
		t.Error(w)
	}
	if len(l.events) == 0 || len(l.done) == 0 {
		t.Fatalf("nothing happened: %d events, %d operations", len(l.events), len(l.done))
	}
	t.Logf("%d events, %d operations done, %d calls failed as they may", len(l.events), len(l.done), l.failed.Load())
}

func TestKilledSessions(t *testing.T) {
	dsn := pgtest.DSN(t)
	l := startLife(t, dsn)
	end := l.run()
	killed := 0
	for range 12 {
		time.Sleep(150 * time.Millisecond) // load between the blows, not a wait for anything
		n, err := pgtest.Disconnect(dsn)
		if err != nil {
			t.Error(err)
		}
		killed += n
	}
	end()
	if killed == 0 {
		t.Fatal("no session was killed")
	}
	l.judge()
	enquiry(t, l.handles[0], 1) // the workers come back by themselves
}

func TestCrashedServer(t *testing.T) {
	c := pgtest.Start(t, nil)
	l := startLife(t, c.DSN(t))
	end := l.run()
	for range 2 {
		time.Sleep(500 * time.Millisecond)
		if err := c.Restart(pgtest.Immediate); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(500 * time.Millisecond)
	if _, err := c.KillBackends(); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	end()
	l.judge()
	enquiry(t, l.handles[1], 1)
}
