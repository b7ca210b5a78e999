package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// hostile_test.go: what a careless host, adapter or rule can do, and must not be able to break.

type ruleFunc func(e dedup.Enquiry, h dedup.History) (dedup.Decision, error)

func (ruleFunc) Kinds() []crm.Kind { return []crm.Kind{crm.KindCreate} }
func (f ruleFunc) Decide(e dedup.Enquiry, h dedup.History) (dedup.Decision, error) {
	return f(e, h)
}

func open(key string, e dedup.Enquiry) dedup.Decision {
	return dedup.Decision{Effects: []dedup.Effect{dedup.Open{Key: key, Lead: crm.Lead{Title: e.Text}}}}
}

type brokenError struct{ text string }

func (e *brokenError) Error() string { return e.text } // panics on a typed nil

type brokenJSON struct{}

func (brokenJSON) MarshalJSON() ([]byte, error) { panic("s3cr3t-token") }

func (b *bed) events(states ...store.EventState) []store.EventRow {
	b.t.Helper()
	evs, err := b.st.Events(b.ctx, store.EventFilter{States: states})
	if err != nil {
		b.t.Fatal(err)
	}
	return evs
}

func TestHostileRules(t *testing.T) {
	t.Run("an edit of a message from long ago is planned, whatever came between", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			stop := b.run(b.processorOn(b.st, nil, dedup.OnePerMessage(lead)))
			for i := range 20 {
				b.accept(event(7, i+1, fmt.Sprint("please call me ", i)))
				time.Sleep(time.Minute)
			}
			edit := event(7, 100, "please call me, really")
			edit.ContentID, edit.DealKey, edit.ContentRev = "m/7/1", "m/7/1", "2"
			b.accept(edit)
			again := event(7, 101, "please call me 1")
			again.ContentID, again.DealKey = "m/7/2", "m/7/2"
			b.accept(again)
			time.Sleep(time.Minute)
			stop()
			b.leads(20)
			if left := b.events(store.EventPending); len(left) != 0 {
				t.Fatalf("%d events are stuck", len(left))
			}
			if n := len(b.sim.Leads()[0].Notes); n != 1 {
				t.Fatalf("the edit is %d notes", n)
			}
		})
	})
	t.Run("a host's own key is found again after any number of other deals, and by nobody else", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			rule := ruleFunc(func(e dedup.Enquiry, _ dedup.History) (dedup.Decision, error) {
				key, _, _ := strings.Cut(e.Text, " ")
				return open(key, e), nil
			})
			stop := b.run(b.processorOn(b.st, nil, rule))
			for i := range 20 {
				b.accept(event(7, i+1, fmt.Sprint("заказ", i, " x")))
			}
			b.accept(event(7, 50, "заказ0 again"))
			other := event(8, 51, "заказ0 mine")
			other.OrderingKey = event(7, 1, "").OrderingKey // a group
			b.accept(other)
			time.Sleep(10 * time.Minute)
			stop()
			b.leads(20)
			notes := 0
			for _, l := range b.sim.Leads() {
				notes += len(l.Notes)
			}
			if notes != 1 {
				t.Fatalf("%d notes", notes)
			}
			if parked := b.events(store.EventParked); len(parked) != 1 {
				t.Fatalf("%d parked, want the other person's", len(parked))
			}
		})
	})
	t.Run("a hundred keys of a host's own in one reading are asked for together", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			for i := range 100 {
				b.accept(event(7, i+1, fmt.Sprint("order", i)))
			}
			rule := ruleFunc(func(e dedup.Enquiry, _ dedup.History) (dedup.Decision, error) { return open(e.Text, e), nil })
			b.runFor(b.processorOn(b.st, nil, rule), time.Minute)
			b.leads(100)
		})
	})
	t.Run("a rule that makes a new key at every try parks its event", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			var n atomic.Int64
			rule := ruleFunc(func(e dedup.Enquiry, _ dedup.History) (dedup.Decision, error) {
				if e.Text == "odd" {
					return open(fmt.Sprint(n.Add(1)), e), nil
				}
				return open("", e), nil
			})
			b.accept(event(7, 1, "odd"))
			b.accept(event(8, 2, "please call me"))
			b.runFor(b.processorOn(b.st, nil, rule), 5*time.Minute)
			b.leads(1)
			if len(b.events(store.EventParked)) != 1 {
				t.Fatalf("%+v", b.events())
			}
		})
	})
	for name, rule := range map[string]dedup.Rule{
		"opens the same deal twice": ruleFunc(func(e dedup.Enquiry, _ dedup.History) (dedup.Decision, error) {
			d := open("", e)
			return dedup.Decision{Effects: append(d.Effects, d.Effects...)}, nil
		}),
		"returns an error that panics": ruleFunc(func(dedup.Enquiry, dedup.History) (dedup.Decision, error) {
			var e *brokenError
			return dedup.Decision{}, e
		}),
		"returns a lead that panics": ruleFunc(func(e dedup.Enquiry, _ dedup.History) (dedup.Decision, error) {
			return dedup.Decision{Effects: []dedup.Effect{dedup.Open{Lead: crm.Lead{Fields: map[string]any{"x": brokenJSON{}}}}}}, nil
		}),
		"returns a lead that JSON can't say": ruleFunc(func(e dedup.Enquiry, _ dedup.History) (dedup.Decision, error) {
			return dedup.Decision{Effects: []dedup.Effect{dedup.Open{Lead: crm.Lead{Fields: map[string]any{"x": math.NaN()}}}}}, nil
		}),
	} {
		t.Run("a rule that "+name+" parks its event", func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				b.accept(event(7, 1, "please call me"))
				b.runFor(b.processorOn(b.st, nil, rule), 10*time.Minute)
				if len(b.events(store.EventParked)) != 1 || len(b.told("person")) != 1 {
					t.Fatalf("%+v", b.events())
				}
				b.leads(0)
			})
		})
	}
	t.Run("a source that tells no content apart loses nothing", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			for i := range 3 {
				e := event(7, i+1, fmt.Sprint("please call me ", i))
				e.ContentID, e.DealKey = "", ""
				b.accept(e)
			}
			b.runFor(b.processor(nil), time.Minute)
			b.leads(1)
			if n := len(b.sim.Leads()[0].Notes); n != 2 {
				t.Fatalf("%d notes", n)
			}
		})
	})
}

func TestHostileAdapters(t *testing.T) {
	for name, c := range map[string]struct {
		f    adapterFunc
		want store.State
	}{
		"an error that panics": {func(context.Context, crm.Op, crm.Lead) (string, error) {
			var e *brokenError
			return "42", e
		}, store.NeedsReconciliation},
		"an id beside 'not applied'": {func(context.Context, crm.Op, crm.Lead) (string, error) {
			return "42", crm.NotApplied(errors.New("x"), 0)
		}, store.NeedsReconciliation},
		"an id beside 'rejected'": {func(context.Context, crm.Op, crm.Lead) (string, error) {
			return "42", crm.Rejected(errors.New("x"))
		}, store.NeedsReconciliation},
	} {
		t.Run("an adapter that returns "+name, func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				b.accept(event(7, 1, "please call me"))
				b.runFor(b.processorOn(b.st, c.f, dedup.OnePerMessage(lead)), 10*time.Minute)
				if op := b.only(c.want); op.Attempts != 1 {
					t.Fatalf("%d attempts", op.Attempts)
				}
			})
		})
	}
	t.Run("a wait of centuries is a day", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "please call me"))
			a := adapterFunc(func(context.Context, crm.Op, crm.Lead) (string, error) {
				return "", crm.NotApplied(errors.New("x"), math.MaxInt64)
			})
			b.runFor(b.processorOn(b.st, a, dedup.OnePerMessage(lead)), time.Minute)
			if op := b.only(store.Pending); time.Until(op.DueAt) > 25*time.Hour {
				t.Fatal(op.DueAt)
			}
		})
	})
	t.Run("a CRM that answers Check and swallows writes leaves one doubt for each probe", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(loseCreate(crmtest.Hang))
			p := b.processor(nil)
			stop := b.run(p)
			for i := range 60 {
				b.accept(event(i+1, i+1, "please call me"))
			}
			time.Sleep(10 * time.Minute)
			if n := len(b.ops(store.NeedsReconciliation)); n > 8+2+8 {
				t.Fatalf("%d of 60 in doubt after ten minutes", n)
			}
			b.sim.Heal()
			time.Sleep(30 * time.Minute)
			stop()
			if n := len(b.ops(store.Pending)); n != 0 || p.Paused("") {
				t.Fatalf("%d left, paused %v", n, p.Paused(""))
			}
		})
	})
	t.Run("a note in doubt whose adapter has no notes any more is a person's, once", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "one"))
			b.accept(event(7, 2, "two"))
			b.sim.Always(crmtest.Fault{Kind: crmtest.LoseReply, On: crm.KindNote})
			stop := b.run(b.processor(nil))
			time.Sleep(100 * time.Millisecond)
			stop()
			if n := len(b.ops(store.Uncertain)); n != 1 {
				t.Fatal(show(b.ops()))
			}
			d := b.sim.Describe()
			b.runFor(b.processorOn(b.st, declaring{b.sim.Minimal(), d}, dedup.OnePerMessage(lead)), 10*time.Minute)
			op := b.ops(store.NeedsReconciliation)
			if len(op) != 1 || len(b.trail(op[0].ID)) > 5 {
				t.Fatalf("%s, trail of %d", show(b.ops()), len(b.trail(op[0].ID)))
			}
		})
	})
	t.Run("a refused lead that is reopened goes out under a new key", func(t *testing.T) {
		virtual(t, keyed, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.Reject)) // and the CRM remembers its refusal under the key
			b.accept(event(7, 1, "please call me"))
			p := b.processor(nil)
			stop := b.run(p)
			time.Sleep(time.Minute)
			op := b.only(store.Failed)
			if _, err := p.Reopen(b.ctx, dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			stop()
			b.only(store.Done)
		})
	})
}

func TestRestoredBackup(t *testing.T) {
	virtual(t, none, func(b *bed) {
		r := b.accept(event(7, 1, "please call me")) // not planned when the backup was made
		d := dedup.NewDesk(b.st)
		for range 2 {
			if _, err := d.Restored(b.ctx, "olga", "disk died"); err != nil {
				t.Fatal(err)
			}
		}
		p := b.processor(nil)
		b.runFor(p, time.Hour)
		b.leads(0)
		if evs := b.events(store.EventParked); len(evs) != 1 || !strings.Contains(evs[0].Reason, "restored") {
			t.Fatalf("%+v", b.events())
		}
		if err := p.Retry(b.ctx, r.EventID, "olga", "looked, not there"); err != nil {
			t.Fatal(err)
		}
		b.runFor(p, time.Minute)
		b.leads(1)
	})
}

func TestOptionsHaveBounds(t *testing.T) {
	virtual(t, keyed, func(b *bed) {
		for name, o := range map[string]dedup.Options{
			"QuietPeriod": {QuietPeriod: math.MaxInt64}, "Lease": {Lease: math.MaxInt64}, "CallTimeout": {CallTimeout: math.MaxInt64},
			"BackoffMax": {BackoffMax: math.MaxInt64}, "Poll": {Poll: 1}, "RuleTimeout": {RuleTimeout: math.MaxInt64},
			"RuleAttempts": {RuleAttempts: math.MaxInt32},
		} {
			if _, err := dedup.NewProcessor(b.st, b.sim.Local(), nil, &o); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func TestRunAgainAfterADrainThatFailed(t *testing.T) {
	virtual(t, none, func(b *bed) {
		end := make(chan struct{})
		a := deafAdapter{b.sim.Local(), end}
		p := b.processorOn(b.st, a, dedup.OnePerMessage(lead), func(o *dedup.Options) { o.DrainTimeout = time.Second })
		ctx, cancel := context.WithCancel(b.ctx)
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		b.accept(event(7, 1, "please call me"))
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err == nil {
			t.Fatal("it drained")
		}
		close(end)
		time.Sleep(time.Hour)
		stop := b.run(p)
		b.accept(event(8, 2, "please call me"))
		time.Sleep(time.Minute)
		stop()
		b.leads(2)
	})
}
