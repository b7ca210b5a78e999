package dedup_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// effects_run_test.go: effects besides the lead, driven to their end.

func TestShadowMode(t *testing.T) {
	virtual(t, none, func(b *bed) {
		shadow := b.processor(nil, func(o *dedup.Options) { o.Shadow, o.Contacts = true, true })
		stop := b.run(shadow)
		b.accept(event(7, 1, "please call me"))
		b.accept(event(7, 2, "please call me soon"))
		if _, err := shadow.Submit(b.ctx, "form/1", dedup.Person{ID: "9"}, crm.Lead{Title: "a form"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		b.leads(0)
		report, err := dedup.ShadowReport(b.ctx, b.st, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range report {
			got = append(got, string(e.Kind)+" "+e.Summary+" "+string(e.State))
		}
		all := strings.Join(got, "; ")
		for _, want := range []string{"lead.create please call me done", "note.add please call me soon", "lead.create a form done", "contact.ensure Anna Karenina done"} {
			if !strings.Contains(all, want) {
				t.Errorf("the report lacks %q: %s", want, all)
			}
		}
		if told := b.told("done"); len(told) != 0 {
			t.Errorf("a shadow told of %d done", len(told))
		}

		live := b.processor(nil, func(o *dedup.Options) { o.Contacts = true })
		stop = b.run(live)
		time.Sleep(time.Hour)
		b.leads(0) // nothing of the shadow is sent
		b.accept(event(7, 3, "please call me again"))
		if _, err := live.Submit(b.ctx, "form/1", dedup.Person{ID: "9"}, crm.Lead{Title: "a form"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		stop()
		b.leads(2)
		for _, l := range b.sim.Leads() {
			if strings.HasPrefix(l.Lead.ContactID, "shadow:") {
				t.Errorf("lead %s is tied to a shadow's contact", l.ID)
			}
		}
		if n := len(b.ops(store.Pending, store.Sending, store.Uncertain, store.NeedsReconciliation, store.Failed)); n != 0 {
			t.Errorf("%d unfinished: %s", n, show(b.ops()))
		}
	})
	t.Run("what was to be sent before stays where it is", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.Refuse})
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(nil), time.Minute)
			b.sim.Heal()
			b.runFor(b.processor(nil, func(o *dedup.Options) { o.Shadow = true }), time.Hour)
			b.leads(0)
			b.only(store.Pending)
			b.runFor(b.processor(nil), time.Hour)
			b.leads(1)
		})
	})
}

func TestShadowReadsStages(t *testing.T) {
	virtual(t, none, func(b *bed) {
		id := b.sim.Plant(crmtest.Record{Lead: crm.Lead{Title: "before"}})
		p := b.processor(nil, func(o *dedup.Options) { o.Shadow = true })
		if _, err := p.Adopt(b.ctx, dedup.Adoption{LeadID: id, LastActivity: time.Now().Add(-time.Hour),
			Person: dedup.Person{ID: "7", Source: "telegram", Bot: "1"}}); err != nil {
			t.Fatal(err)
		}
		b.sim.Move(id, "won")
		b.accept(hook(1, dedup.StageChange{LeadID: id}))
		b.runFor(p, time.Minute)
		view, err := b.st.ReadKey(b.ctx, dedup.OrderingKey("", "telegram", "1", "user", "7"), "adopt:"+id)
		if err != nil || len(view.Deals) != 1 || view.Deals[0].Stage != "won" || view.Deals[0].State != store.DealClosed {
			t.Fatalf("%+v %v: a reading is no sending", view.Deals, err)
		}
	})
}

func TestFilesAndContacts(t *testing.T) {
	t.Run("a hook that fails on files pauses nobody's leads", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			var calls atomic.Int64
			p := b.processor(nil, func(o *dedup.Options) {
				o.AddFile = func(context.Context, dedup.FileJob) error { calls.Add(1); return errors.New("no connection") }
			})
			stop := b.run(p)
			for i := range 6 {
				b.accept(withFile(event(i+1, i+1, "please call me")))
			}
			time.Sleep(time.Minute)
			if p.Paused("") || calls.Load() < 6 {
				t.Fatalf("paused=%v after %d calls", p.Paused(""), calls.Load())
			}
			stop()
			b.leads(6)
		})
	})
	t.Run("Contacts with an adapter that has none is refused", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			_, err := dedup.NewProcessor(b.st, b.sim.Minimal(), nil, &dedup.Options{Contacts: true})
			if err == nil || !strings.Contains(err.Error(), "EnsureContact") {
				t.Fatal(err)
			}
		})
	})
}

// blunt sets a stage without looking, and loses the answer to the first call.
type blunt struct {
	*crmtest.Client
	sim   *crmtest.Simulator
	calls atomic.Int64
}

func (a *blunt) SetStage(_ context.Context, _ crm.Op, leadID string, s crm.Stage) error {
	n := a.calls.Add(1)
	a.sim.Edit(leadID, func(r *crmtest.Record) { r.Stage = s.To })
	if n == 1 {
		return errors.New("connection reset")
	}
	return nil
}

func TestSetStageLooksBeforeItRepeats(t *testing.T) {
	virtual(t, keyed, func(b *bed) {
		a := &blunt{Client: b.sim.Local(), sim: b.sim}
		rule := ruleF(func(e dedup.Enquiry, h dedup.History) (dedup.Decision, error) {
			if len(h.Deals) == 0 {
				return dedup.Decision{Effects: []dedup.Effect{dedup.Open{Lead: crm.Lead{Title: e.Text}}}}, nil
			}
			return dedup.Decision{Effects: []dedup.Effect{dedup.SetStage{DealID: h.Deals[0].ID, To: "call", From: []string{"new"}}}}, nil
		})
		p := b.processorOn(b.st, a, rule, func(o *dedup.Options) { o.BackoffMin, o.BackoffMax = time.Minute, time.Minute })
		stop := b.run(p)
		b.accept(event(7, 1, "please call me"))
		time.Sleep(30 * time.Second)
		b.accept(event(7, 2, "please call me"))
		time.Sleep(30 * time.Second)
		id := b.sim.Leads()[0].ID
		b.sim.Move(id, "won")
		time.Sleep(time.Hour)
		stop()
		if l, _ := b.sim.Lead(id); l.Stage != "won" || a.calls.Load() != 1 {
			t.Fatalf("the lead stands in %q after %d calls: what the manager decided was undone", l.Stage, a.calls.Load())
		}
		if n := len(b.ops(store.Pending, store.Sending, store.Uncertain, store.NeedsReconciliation)); n != 0 {
			t.Fatalf("%d unfinished: %s", n, show(b.ops()))
		}
	})
}

// withFile attaches a photo to an event.
func withFile(e store.Event) store.Event {
	var q dedup.Enquiry
	_ = json.Unmarshal(e.Enquiry, &q)
	q.Files = []dedup.File{{Kind: "photo", ID: "F" + e.UpdateID}}
	e.Enquiry, _ = json.Marshal(q)
	return e
}
