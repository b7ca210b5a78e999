package dedup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// hostile_enquiry_test.go: albums, edits, repeats, hooks and shadows at their worst, driven through a whole processor.

// countedPlans counts what a planner asks of the store: one that spins is seen.
type countedPlans struct {
	*sqlite.Store
	commits, reads, claims atomic.Int64
}

func (c *countedPlans) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	if n := c.commits.Add(1); n > 3000 {
		time.Sleep(time.Second) // it is one: let the clock go on
	}
	return c.Store.CommitPlan(ctx, p)
}
func (c *countedPlans) ReadKey(ctx context.Context, k string, more ...string) (store.KeyView, error) {
	c.reads.Add(1)
	return c.Store.ReadKey(ctx, k, more...)
}
func (c *countedPlans) Claim(ctx context.Context, x store.Claim) ([]store.Operation, error) {
	c.claims.Add(1)
	return c.Store.Claim(ctx, x)
}

func change(e store.Event, f func(*store.Event, *dedup.Enquiry)) store.Event {
	var q dedup.Enquiry
	_ = json.Unmarshal(e.Enquiry, &q)
	f(&e, &q)
	q.ContentID, q.ContentRev, q.DealKey = e.ContentID, e.ContentRev, e.DealKey
	e.Enquiry, _ = json.Marshal(q)
	return e
}

func hook(n int, c dedup.StageChange) store.Event {
	id := fmt.Sprint("hook/", n)
	q := dedup.Enquiry{Source: "hook", Kind: "stage", ContentID: id, DealKey: id, Stage: &c}
	body, _ := json.Marshal(q)
	return store.Event{Source: "hook", UpdateID: id, Hash: id, Kind: "stage", ContentID: id, DealKey: id, LeadRef: c.LeadID,
		OrderingKey: dedup.OrderingKey("", "hook", "", "lead", c.LeadID), Payload: body, Enquiry: body}
}

func inChat(chat string) func(*store.Event, *dedup.Enquiry) {
	return func(e *store.Event, q *dedup.Enquiry) {
		e.OrderingKey = dedup.OrderingKey("", "telegram", "1", "chat", chat)
		e.ContentID = chat + e.ContentID
		e.DealKey = e.ContentID
		q.Private = false
	}
}

type ruleF func(e dedup.Enquiry, h dedup.History) (dedup.Decision, error)

func (f ruleF) Decide(e dedup.Enquiry, h dedup.History) (dedup.Decision, error) { return f(e, h) }
func (f ruleF) Kinds() []crm.Kind                                               { return []crm.Kind{crm.KindCreate} }

// A: a deal that stayed behind in a merged group sends a hook round in circles.
func TestHostileMergedKeyHookLoop(t *testing.T) {
	virtual(t, none, func(b *bed) {
		st := &countedPlans{Store: b.st}
		rule := ruleF(func(e dedup.Enquiry, h dedup.History) (dedup.Decision, error) {
			return dedup.Decision{Effects: []dedup.Effect{dedup.Open{Key: "p/" + e.Person.ID, Lead: crm.Lead{Title: e.Text}}}}, nil
		})
		p := b.processorOn(st, nil, rule)
		stop := b.run(p)
		b.accept(change(event(7, 1, "x"), inChat("-1")))
		time.Sleep(10 * time.Second)
		old := b.sim.Leads()[0].ID
		b.accept(change(event(7, 2, "y"), inChat("-100")))
		time.Sleep(10 * time.Second)
		b.accept(change(event(7, 3, ""), func(e *store.Event, q *dedup.Enquiry) {
			inChat("-1")(e, q)
			q.MovedTo = dedup.OrderingKey("", "telegram", "1", "chat", "-100")
		}))
		time.Sleep(10 * time.Second)
		before := st.commits.Load()
		b.accept(hook(1, dedup.StageChange{LeadID: old, Stage: "won", Version: 5, Closed: true}))
		time.Sleep(20 * time.Second)
		n := st.commits.Load() - before
		stop()
		ev, _ := b.st.Events(b.ctx, store.EventFilter{})
		last := ev[len(ev)-1]
		t.Logf("commits %d, hook is %s %q", n, last.State, last.Reason)
		if n > 50 {
			t.Errorf("hot loop: %d plans in 20 s", n)
		}
	})
}

// B: the 18th press within the window is a second lead.
func TestHostileManyPresses(t *testing.T) {
	virtual(t, none, func(b *bed) {
		p := b.processorOn(b.st, nil, dedup.OnePerMessage(lead))
		stop := b.run(p)
		for i := range 20 {
			b.accept(change(event(7, i+1, "buy"), func(e *store.Event, q *dedup.Enquiry) { e.RepeatKey = "r" }))
			time.Sleep(2 * time.Second)
		}
		time.Sleep(10 * time.Second)
		stop()
		b.leads(1)
	})
}

func albumItem(n int, group string) func(*store.Event, *dedup.Enquiry) {
	return func(e *store.Event, q *dedup.Enquiry) {
		e.ContentID, e.DealKey = fmt.Sprint("m/7/", n), group
		q.Group, q.Message = group, fmt.Sprint(n)
	}
}

// C: a twin of the first item together with a late one.
func TestHostileAlbumTwinAndLateItem(t *testing.T) {
	virtual(t, none, func(b *bed) {
		p := b.processor(nil)
		stop := b.run(p)
		b.accept(event(7, 1, "hello"))
		time.Sleep(10 * time.Second)
		b.accept(change(event(7, 11, "one"), albumItem(11, "album")))
		b.accept(change(event(7, 12, "two"), albumItem(12, "album")))
		time.Sleep(10 * time.Second)
		b.accept(change(event(7, 91, "one"), albumItem(11, "album"))) // under a second update id
		b.accept(change(event(7, 13, "three"), albumItem(13, "album")))
		time.Sleep(time.Minute)
		stop()
		b.leads(1)
		rec := b.sim.Leads()[0]
		all := fmt.Sprint(rec.Notes)
		if !strings.Contains(all, "three") {
			t.Errorf("the late item is lost: %s", all)
		}
	})
}

// D: a link whose contact never comes is claimed for ever.
func TestHostileLinkForEver(t *testing.T) {
	for _, end := range []string{"failed", "canceled"} {
		t.Run(end, func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				b.sim.Next(1, crmtest.Fault{Kind: crmtest.Reject, On: crm.KindContact})
				p := b.processor(nil, func(o *dedup.Options) { o.Contacts, o.Poll = true, time.Minute })
				stop := b.run(p)
				b.accept(event(7, 1, "x"))
				time.Sleep(5 * time.Minute)
				if end == "canceled" {
					for _, o := range b.ops(store.Failed) {
						if _, err := p.Cancel(b.ctx, dedup.Verdict{OperationID: o.ID, Seen: o.Version, By: "olga", Why: "no"}); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(2 * 24 * time.Hour)
				stop()
				for _, o := range b.ops() {
					if o.Kind == string(crm.KindLink) {
						tr, _ := b.st.Trail(b.ctx, o.ID)
						if len(tr) > 60 {
							t.Errorf("%d entries in its trail after two days", len(tr))
						}
					}
				}
			})
		})
	}
}

// E: an adopted lead whose stage is known never hears a hook that carries only a time.
func TestHostileAdoptedStageNeverMoves(t *testing.T) {
	virtual(t, none, func(b *bed) {
		id := b.sim.Plant(crmtest.Record{})
		p := b.processorOn(b.st, nil, dedup.UntilClosed(0, lead))
		stop := b.run(p)
		b.adopt(p, dedup.Adoption{Person: anna, LeadID: id, LastActivity: time.Now().Add(-time.Hour), Stage: "talks"})
		time.Sleep(time.Minute)
		b.accept(hook(1, dedup.StageChange{LeadID: id, Stage: "won", At: time.Now(), Closed: true}))
		time.Sleep(time.Minute)
		b.accept(event(7, 1, "new enquiry"))
		time.Sleep(time.Minute)
		stop()
		b.leads(2)
	})
}

// F: a parked press of yesterday is retried.
func TestHostileParkedPressOfYesterday(t *testing.T) {
	virtual(t, none, func(b *bed) {
		var bad atomic.Bool
		bad.Store(true)
		p := b.processorOn(b.st, nil, dedup.OnePerMessage(func(e dedup.Enquiry) (crm.Lead, error) {
			if bad.Load() {
				return crm.Lead{}, errors.New("no")
			}
			return lead(e)
		}))
		stop := b.run(p)
		press := func(n int) store.Event {
			return change(event(7, n, "buy"), func(e *store.Event, q *dedup.Enquiry) { e.RepeatKey = "r" })
		}
		first := b.accept(press(1))
		time.Sleep(2 * time.Hour)
		bad.Store(false)
		b.accept(press(2))
		time.Sleep(10 * time.Minute)
		if err := b.st.RetryEvent(b.ctx, first.EventID, "olga", "mended"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		b.leads(2)
	})
}

// G: a live note that waits for a failed create, and a shadow.
func TestHostileShadowTakesLiveNote(t *testing.T) {
	virtual(t, none, func(b *bed) {
		b.sim.Next(1, crmtest.Fault{Kind: crmtest.Slow, Delay: 15 * time.Second, On: crm.KindCreate})
		b.sim.Next(1, crmtest.Fault{Kind: crmtest.Reject, On: crm.KindCreate})
		gate := make(chan struct{})
		a := b.sim.Local()
		n := 0
		slow := struct {
			adapterFunc
			crm.Noter
		}{func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
			if n++; n == 1 {
				<-gate
				return "", crm.Rejected(errors.New("no"))
			}
			return a.CreateLead(ctx, op, l)
		}, a}
		b.sim.Heal()
		p := b.processor(slow)
		stop := b.run(p)
		b.accept(event(7, 1, "first"))
		time.Sleep(3 * time.Second)
		b.accept(event(7, 2, "second"))
		time.Sleep(3 * time.Second)
		close(gate)
		time.Sleep(3 * time.Second)
		stop()
		b.runShadow(event(7, 3, "third"), slow)
		p = b.processor(slow)
		stop = b.run(p)
		for _, o := range b.ops(store.Failed) {
			if _, err := p.Reopen(b.ctx, dedup.Verdict{OperationID: o.ID, Seen: o.Version, By: "olga", Why: "mended"}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		stop()
		b.leads(1)
		if s := fmt.Sprint(b.sim.Leads()[0].Notes); !strings.Contains(s, "second") {
			t.Errorf("the note is lost: %s; %s", s, show(b.ops()))
		}
	})
}

func (b *bed) runShadow(e store.Event, a crm.Adapter) {
	p := b.processor(a, func(o *dedup.Options) { o.Shadow = true })
	stop := b.run(p)
	b.accept(e)
	time.Sleep(time.Minute)
	stop()
}

// I: many hints.
func TestHostileHintStorm(t *testing.T) {
	virtual(t, none, func(b *bed) {
		st := &countedPlans{Store: b.st}
		p := b.processorOn(st, nil, dedup.OnePerMessage(lead))
		b.accept(event(7, 1, "x"))
		b.runFor(p, time.Minute)
		id := b.sim.Leads()[0].ID
		stop := b.run(p)
		c0 := st.commits.Load()
		for i := range 2000 {
			b.accept(hook(i, dedup.StageChange{LeadID: id}))
		}
		b.accept(event(7, 2, "behind"))
		began := time.Now()
		for len(b.sim.Leads()) < 2 && time.Since(began) < 3*time.Hour {
			time.Sleep(time.Second)
		}
		reads := 0
		for _, o := range b.ops() {
			if o.Kind == string(crm.KindRead) {
				reads++
			}
		}
		if n := st.commits.Load() - c0; reads > 400 || n > 4500 || time.Since(began) > time.Hour {
			t.Errorf("after %v: %d plans, %d readings", time.Since(began), n, reads)
		}
		time.Sleep(10 * time.Minute)
		c1, r1 := st.commits.Load(), st.reads.Load()
		time.Sleep(30 * time.Minute)
		if st.commits.Load() != c1 || st.reads.Load() != r1 {
			t.Errorf("an idle half hour: %d plans, %d readings of keys", st.commits.Load()-c1, st.reads.Load()-r1)
		}
		stop()
	})
}

// J: hints about a lead that throttles.
func TestHostileHintsWhileThrottled(t *testing.T) {
	virtual(t, none, func(b *bed) {
		p := b.processorOn(b.st, nil, dedup.OnePerMessage(lead))
		b.accept(event(7, 1, "x"))
		b.runFor(p, time.Minute)
		id := b.sim.Leads()[0].ID
		b.sim.Always(crmtest.Fault{Kind: crmtest.Throttle, On: crm.KindRead, Delay: time.Minute})
		stop := b.run(p)
		for i := range 1000 {
			b.accept(hook(i, dedup.StageChange{LeadID: id}))
			time.Sleep(time.Second)
		}
		reads := 0
		for _, o := range b.ops(store.Pending) {
			if o.Kind == string(crm.KindRead) {
				reads++
			}
		}
		stop()
		if reads > 20 { // a hint that meets a reading under way makes one more
			t.Errorf("%d readings of one lead are pending", reads)
		}
	})
}

// K: two changes within a second, only the time is told.
func TestHostileTwoChangesInOneSecond(t *testing.T) {
	virtual(t, none, func(b *bed) {
		p := b.processorOn(b.st, nil, dedup.UntilClosed(0, lead))
		stop := b.run(p)
		b.accept(event(7, 1, "x"))
		time.Sleep(10 * time.Second)
		id, at := b.sim.Leads()[0].ID, time.Now().Truncate(time.Second)
		b.accept(hook(1, dedup.StageChange{LeadID: id, Stage: "call", At: at}))
		time.Sleep(time.Second)
		b.sim.Move(id, "won")
		b.accept(hook(2, dedup.StageChange{LeadID: id, Stage: "won", At: at, Closed: true}))
		time.Sleep(10 * time.Second)
		b.accept(event(7, 2, "another"))
		time.Sleep(10 * time.Second)
		stop()
		b.leads(2)
	})
}

// L: an album of ten, one caption edited often while the CRM is away, then another caption.
func TestHostileManyEditsLoseItems(t *testing.T) {
	virtual(t, none, func(b *bed) {
		b.sim.Always(crmtest.Fault{Kind: crmtest.Refuse})
		p := b.processor(nil)
		stop := b.run(p)
		for i := range 3 {
			b.accept(change(event(7, i+1, fmt.Sprint("item", i+1)), albumItem(i+1, "album")))
		}
		time.Sleep(20 * time.Second)
		edit := func(n, item int, text string) {
			b.accept(change(event(7, n, text), func(e *store.Event, q *dedup.Enquiry) {
				albumItem(item, "album")(e, q)
				e.ContentRev = fmt.Sprint(n)
				q.Edited, q.EditedAt = true, time.Now()
			}))
			time.Sleep(10 * time.Second)
		}
		for i := range 17 {
			edit(100+i, 1, fmt.Sprint("caption", i))
		}
		edit(200, 2, "item2 edited")
		b.sim.Heal()
		time.Sleep(time.Hour)
		stop()
		b.leads(1)
		r := b.sim.Leads()[0]
		text := r.Lead.Text + fmt.Sprint(r.Notes)
		for _, w := range []string{"item3", "caption16", "item2 edited"} {
			if !strings.Contains(text, w) {
				t.Errorf("%q is lost: %s", w, text)
			}
		}
	})
}

// N: an album that was parked, each item retried.
func TestHostileParkedAlbum(t *testing.T) {
	virtual(t, none, func(b *bed) {
		var bad atomic.Bool
		bad.Store(true)
		p := b.processorOn(b.st, b.sim.Minimal(), dedup.OnePerMessage(func(e dedup.Enquiry) (crm.Lead, error) {
			if bad.Load() {
				return crm.Lead{}, errors.New("no")
			}
			return lead(e)
		}))
		stop := b.run(p)
		var ids []int64
		for i := range 3 {
			ids = append(ids, b.accept(change(event(7, i+1, fmt.Sprint("item", i+1)), albumItem(i+1, "album"))).EventID)
		}
		time.Sleep(time.Hour)
		bad.Store(false)
		for _, id := range ids {
			if err := b.st.RetryEvent(b.ctx, id, "olga", "mended"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(5 * time.Minute)
		stop()
		b.leads(1)
		for i := range 3 {
			if w := fmt.Sprint("item", i+1); !strings.Contains(b.sim.Leads()[0].Lead.Text, w) {
				t.Errorf("%s is lost", w)
			}
		}
	})
}
