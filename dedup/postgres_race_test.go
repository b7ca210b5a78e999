package dedup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
)

// postgres_race_test.go: two processors on two stores of one PostgreSQL, as two machines have them, and what they could
// do to each other: decide about one contact at the same time, miss an event that comes in while
// one commits, mix up an order.

const first, second = "please call me", "please call me again"

// meeting lets two planners commit at the same time: a commit waits, not for long, until the other one has decided too.
type meeting struct {
	*postgres.Store
	at        chan struct{} // shared by the two: whoever comes second takes the first one along
	conflicts *atomic.Int64
}

func (m *meeting) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	select {
	case m.at <- struct{}{}:
	case <-m.at:
	case <-time.After(20 * time.Millisecond):
	}
	ops, err := m.Store.CommitPlan(ctx, p)
	if errors.Is(err, store.ErrConflict) {
		m.conflicts.Add(1)
	}
	return ops, err
}

// pair is two machines.
type pair struct {
	dsn       string
	st        [2]*meeting
	conflicts atomic.Int64
	asked     [1000]time.Time // when an update's Accept was called, by its number
	acked     [1000]time.Time // and when it returned
}

// behind reports whether update b was delivered after a had been acknowledged: only then is there an order.
func (p *pair) behind(b, a string) bool {
	i, _ := strconv.Atoi(a)
	j, _ := strconv.Atoi(b)
	return p.acked[i].Before(p.asked[j])
}

func openPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{dsn: pgtest.DSN(t)}
	at := make(chan struct{})
	for i := range p.st {
		p.st[i] = &meeting{Store: openPostgres(t, p.dsn), at: at, conflicts: &p.conflicts}
	}
	return p
}

// acceptAll accepts messages of person 7 from many goroutines, through both stores.
func (p *pair) acceptAll(t *testing.T, n int) {
	t.Helper()
	var all sync.WaitGroup
	next := make(chan int)
	for i := range 16 {
		all.Go(func() {
			for id := range next {
				p.asked[id] = time.Now()
				if _, err := p.st[i%2].Accept(context.Background(), event(7, id, fmt.Sprint("please call me ", id))); err != nil {
					t.Errorf("accept %d: %v", id, err)
				}
				p.acked[id] = time.Now()
			}
		})
	}
	for id := range n {
		next <- id + 1
	}
	close(next)
	all.Wait()
}

// byHintsAlone: nobody asks the store for due keys or operations, but once at the start. What is found is found by a hint.
func byHintsAlone(o *dedup.Options) { o.Poll = time.Hour }

func TestTwoPlannersOfOneContact(t *testing.T) {
	const messages = 200
	t.Run("one lead a message: none is left behind, none is made twice", func(t *testing.T) {
		t.Parallel()
		p := openPair(t)
		sim, _ := simulator(t, none)
		for _, st := range p.st {
			runPostgres(t, st, sim.Local(), dedup.OnePerMessage(lead), byHintsAlone)
		}
		p.acceptAll(t, messages)
		settled(t, p.st[0].Store, 30*time.Second, nil)
		list := found(t, p.dsn)
		oneRequestEach(t, list, sim)
		seen := map[string]bool{}
		for i, m := range list {
			if m.opState != string(store.Done) || sim.Created(m.op) != 1 || seen[m.op] {
				t.Errorf("update %s: operation %s is %s, %d leads", m.update, m.op, m.opState, sim.Created(m.op))
			}
			seen[m.op] = true
			for _, a := range list[:i] {
				if a.seq >= m.seq && p.behind(m.update, a.update) {
					t.Errorf("update %s, which was acknowledged before %s came, was planned after it", a.update, m.update)
				}
			}
		}
		if len(list) != messages || len(sim.Leads()) != messages {
			t.Errorf("%d rows, %d leads, want %d", len(list), len(sim.Leads()), messages)
		}
		p.met(t)
	})
	t.Run("continued within a day: one deal, and everything else is its notes", func(t *testing.T) {
		t.Parallel()
		p := openPair(t)
		sim, _ := simulator(t, none)
		for _, st := range p.st {
			runPostgres(t, st, sim.Local(), dedup.ContinueWithin(24*time.Hour, lead), byHintsAlone)
		}
		p.acceptAll(t, messages)
		settled(t, p.st[0].Store, 30*time.Second, nil)
		list := found(t, p.dsn)
		creates := 0
		for _, m := range list {
			if m.kind == string(crm.KindCreate) {
				creates++
				for _, a := range list {
					if p.behind(m.update, a.update) {
						t.Errorf("update %s made the lead, though %s was acknowledged before it came", m.update, a.update)
					}
				}
			} else if m.kind != string(crm.KindNote) {
				t.Errorf("event %d is a %s", m.event, m.kind)
			}
			if m.opState != string(store.Done) || m.deal != list[0].deal {
				t.Errorf("event %d is a %s (%s) of deal %s, want one of %s", m.event, m.kind, m.opState, m.deal, list[0].deal)
			}
		}
		if creates != 1 {
			t.Errorf("%d leads were decided", creates)
		}
		if leads := sim.Leads(); len(list) != messages || len(leads) != 1 || len(leads[0].Notes) != messages-1 {
			t.Errorf("%d rows, %d leads, want %d and one with the rest as notes", len(list), len(leads), messages)
		}
		p.met(t)
	})
}

// met makes sure that there was a race at all.
func (p *pair) met(t *testing.T) {
	t.Helper()
	if n := p.conflicts.Load(); n == 0 {
		t.Error("no plan lost against another: nothing was shown")
	} else {
		t.Logf("%d plans lost against another", n)
	}
}

// meanwhile lets something happen between a decision and its commit, or right after the commit, once.
type meanwhile struct {
	*postgres.Store
	when   func(store.Plan) bool // nil: the first
	before func()
	after  func()
	once   sync.Once
	got    chan error // what the commit between the two came to
}

func (m *meanwhile) CommitPlan(ctx context.Context, p store.Plan) (ops []store.Operation, err error) {
	now := false
	if m.when == nil || m.when(p) {
		m.once.Do(func() { now = true })
	}
	if now && m.before != nil {
		m.before()
	}
	ops, err = m.Store.CommitPlan(ctx, p)
	if now && m.after != nil {
		m.after()
	}
	if now {
		m.got <- err
	}
	return ops, err
}

// A message that comes in while a plan of its contact is committed, before or after, is found by the hint alone.
func TestAcceptedAtTheEndOfAPlan(t *testing.T) {
	for _, before := range []bool{true, false} {
		for _, foreign := range []bool{true, false} {
			t.Run(fmt.Sprintf("before the commit %v, by another process %v", before, foreign), func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.DSN(t)
				st, other := openPostgres(t, dsn), openPostgres(t, dsn)
				sim, _ := simulator(t, none)
				from := st
				if foreign {
					from = other
				}
				m := &meanwhile{Store: st, got: make(chan error, 1)}
				accept := func() {
					if _, err := from.Accept(context.Background(), event(7, 2, second)); err != nil {
						t.Error(err)
					}
				}
				if before {
					m.before = accept
				} else {
					m.after = accept
				}
				runPostgres(t, m, sim.Local(), dedup.OnePerMessage(lead), byHintsAlone)
				until(t, "the listening connection", func() bool { return listening(t, dsn) })
				if _, err := st.Accept(t.Context(), event(7, 1, first)); err != nil {
					t.Fatal(err)
				}
				until(t, "the second lead", func() bool { return len(sim.Leads()) == 2 })
				if err := <-m.got; err != nil {
					t.Errorf("the first plan: %v", err)
				}
			})
		}
	}
}

// One machine has decided about the second message alone, the first one's transaction being open; the other one about both.
// Only one of the decisions stands: else there were two deals.
func TestTwoDecisionsThatIgnoreEachOther(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sim, _ := simulator(t, none)
	decided, open := make(chan struct{}, 2), make(chan struct{})
	machine := func() *meanwhile {
		m := &meanwhile{Store: openPostgres(t, dsn), got: make(chan error, 1), before: func() {
			decided <- struct{}{}
			<-open
		}}
		runPostgres(t, m, sim.Local(), dedup.ContinueWithin(time.Hour, lead))
		return m
	}
	a := machine()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.AcceptTx(t.Context(), tx, event(7, 1, first)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Accept(t.Context(), event(7, 2, second)); err != nil {
		t.Fatal(err)
	}
	<-decided
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b := machine()
	<-decided
	close(open)
	one, two := <-a.got, <-b.got
	if (one == nil) == (two == nil) || !errors.Is(errors.Join(one, two), store.ErrConflict) {
		t.Errorf("the two plans came to %v and %v, want one of them to stand and a conflict", one, two)
	}
	settled(t, a.Store, 20*time.Second, nil)
	if l := sim.Leads(); len(l) != 1 || len(l[0].Notes) != 1 {
		t.Errorf("the CRM holds %+v, want one lead with one note", l)
	}
}

// listening reports whether a session listens on the database.
func listening(t *testing.T, dsn string) (yes bool) {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err == nil {
		defer db.Close()
		err = db.QueryRow(`select exists (select from pg_stat_activity
			where datname = current_database() and query ilike 'listen %' and state = 'idle')`).Scan(&yes)
	}
	if err != nil {
		t.Error(err)
	}
	return yes
}

// A person's messages go through the doors of two processes in turn, each when the one before was acknowledged, and are
// planned in that order: whether somebody works meanwhile or only afterwards.
func TestPlannedInTheOrderOfAcknowledgementAcrossProcesses(t *testing.T) {
	const persons, each = 40, 6
	for name, before := range map[string]bool{"while both work": true, "before anybody works": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := openPair(t)
			sim, _ := simulator(t, none)
			work := func() {
				for _, st := range p.st {
					runPostgres(t, st, sim.Local(), dedup.ContinueWithin(time.Hour, lead))
				}
			}
			if before {
				work()
			}
			var all sync.WaitGroup
			for person := range persons {
				all.Go(func() {
					for n := range each {
						e := event(person, person*each+n, fmt.Sprint("message ", n))
						if _, err := p.st[(person+n)%2].Accept(context.Background(), e); err != nil {
							t.Error(err)
						}
					}
				})
			}
			all.Wait()
			if !before {
				work()
			}
			settled(t, p.st[0].Store, 30*time.Second, nil)
			inOrder(t, found(t, p.dsn), persons*each)
			for _, l := range sim.Leads() {
				if l.Lead.Title != "message 0" || len(l.Notes) != each-1 {
					t.Errorf("a lead is %q with %d notes, want that of the first message with %d", l.Lead.Title, len(l.Notes), each-1)
				}
			}
			if n := len(sim.Leads()); n != persons {
				t.Errorf("%d leads, want %d", n, persons)
			}
		})
	}
}
