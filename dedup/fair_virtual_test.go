package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// fair_virtual_test.go: what hangs or takes its time at one tenant, in virtual time, and what becomes of the other's meanwhile.

// seeker is a CRM whose look-ups take their time, find nothing, and are remembered.
type seeker struct {
	takes time.Duration
	mu    sync.Mutex
	asked []question
}

type question struct {
	tenant string
	at     time.Time
}

func (s *seeker) FindLead(_ context.Context, op crm.Op) ([]string, error) {
	s.mu.Lock()
	s.asked = append(s.asked, question{op.Tenant, time.Now()})
	s.mu.Unlock()
	time.Sleep(s.takes)
	return nil, nil
}

func (s *seeker) CreateLead(context.Context, crm.Op, crm.Lead) (string, error) {
	return "", errors.New("the answer is lost")
}

// between counts the questions of tenant after one moment and before another.
func (s *seeker) between(tenant string, from, to time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		if q.tenant == tenant && q.at.After(from) && q.at.Before(to) {
			n++
		}
	}
	return n
}

func (s *seeker) first(tenant string) (at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		if q.tenant == tenant {
			return q.at
		}
	}
	return at
}

// mumbles is a store whose hints do not say whose they are.
type mumbles struct{ *sqlite.Store }

func (s mumbles) Subscribe(f func(store.Hint)) (cancel func()) {
	return s.Store.Subscribe(func(h store.Hint) { f(store.Hint{OrderingKey: h.OrderingKey}) })
}

// either runs f with a lane for each of the tenants a and b, and with one adapter for all.
func either(t *testing.T, name string, f func(b *bed, lanes bool, start func(st store.Store, a crm.Adapter, rule dedup.Rule) (stop func()))) {
	for _, lanes := range []bool{true, false} {
		t.Run(fmt.Sprintf("%s; a lane each: %v", name, lanes), func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				f(b, lanes, func(st store.Store, a crm.Adapter, rule dedup.Rule) (stop func()) {
					if lanes {
						return b.run(b.tenantsOn(st, map[string]dedup.Tenant{"a": {a, rule}, "b": {a, rule}}))
					}
					return b.run(b.processorOn(st, a, rule))
				})
			})
		})
	}
}

func TestWhatHangsAtOneTenant(t *testing.T) {
	either(t, "a rule that hangs holds up no enquiry of another", func(b *bed, _ bool, start func(store.Store, crm.Adapter, dedup.Rule) func()) {
		whoseRuleHangs(b, b.st, start)
	})
	either(t, "nor where hints do not say whose they are", func(b *bed, _ bool, start func(store.Store, crm.Adapter, dedup.Rule) func()) {
		whoseRuleHangs(b, mumbles{b.st}, start)
	})
	either(t, "a flood of doubts keeps no look-up of another waiting", aFloodOfDoubts)
	either(t, "quick look-ups do not wait for the next poll", func(b *bed, _ bool, start func(store.Store, crm.Adapter, dedup.Rule) func()) {
		doubts(b, 100)
		c, began := &seeker{takes: time.Millisecond}, time.Now()
		stop := start(b.st, c, nil)
		defer stop()
		time.Sleep(3 * time.Minute)
		first := c.first("a")
		if n := c.between("a", began, first.Add(3*time.Second)); n != 100 {
			b.t.Errorf("%d look-ups within three seconds of the first, want all 100; a poll is five", n)
		}
	})
}

// whoseRuleHangs floods a, whose rule hangs, and wants b's enquiries in the CRM within a second each.
func whoseRuleHangs(b *bed, st store.Store, start func(store.Store, crm.Adapter, dedup.Rule) func()) {
	back := make(chan struct{})
	defer close(back)
	c := &book{}
	stop := start(st, c, dedup.OnePerMessage(func(e dedup.Enquiry) (crm.Lead, error) {
		if e.Tenant == "a" {
			<-back
		}
		return crm.Lead{Title: e.Text}, nil
	}))
	defer stop()
	b.accept(eventOf("b", 1, 1, "please call me")) // with one adapter: now it is known that there are two
	time.Sleep(10 * time.Second)
	for i := range 50 {
		b.accept(eventOf("a", 10+i, 10+i, "please call me"))
	}
	time.Sleep(time.Second)
	for i := range 20 {
		before := len(c.calls())
		b.accept(eventOf("b", 100+i, 100+i, "please call me"))
		time.Sleep(time.Second)
		if n := len(c.calls()); n != before+1 {
			b.t.Fatalf("enquiry %d of b: %d calls within a second, want one", i+1, n-before)
		}
	}
}

// aFloodOfDoubts is a's, one look-up a second; b's one doubt is asked about among the next.
func aFloodOfDoubts(b *bed, lanes bool, start func(store.Store, crm.Adapter, dedup.Rule) func()) {
	desk := doubts(b, 300)
	c := &seeker{takes: time.Second}
	stop := start(b.st, c, nil)
	defer stop()
	time.Sleep(2*time.Minute + 10*time.Second) // the quiet period; the look-ups have begun, one a second
	began := time.Now()
	b.submit(desk, "b", "y") // its answer is lost at once
	time.Sleep(4 * time.Minute)
	at, wait := c.first("b"), 2*time.Minute
	if n := c.between("a", began.Add(wait), at); at.IsZero() || n > 25 || (lanes && n > 7) {
		b.t.Errorf("asked about b's doubt %v after it was due, after %d questions of a", at.Sub(began.Add(wait)), n)
	}
	if n := c.between("a", at, time.Now()); n < 60 {
		b.t.Errorf("the flood was over: %d questions after it", n)
	}
}

// doubts makes n of a's: a process that began them is heard of no more.
func doubts(b *bed, n int) (desk *dedup.Processor) {
	b.t.Helper()
	desk = b.processorOn(b.st, &book{}, nil)
	for i := range n {
		b.submit(desk, "a", fmt.Sprint("x", i))
	}
	ops, err := b.st.Claim(b.ctx, store.Claim{Owner: "dead", Limit: n, Lease: time.Second, Quiet: time.Second})
	if err != nil || len(ops) != n {
		b.t.Fatalf("%d claimed, %v", len(ops), err)
	}
	time.Sleep(time.Minute)
	return desk
}
