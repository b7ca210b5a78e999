package dedup_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// adopt_test.go: open leads that were in the CRM before.

// anna is the person whose private chat event(7, …) is.
var anna = dedup.Person{ID: "7", Source: "telegram", Bot: "1"}

func (b *bed) adopt(p *dedup.Processor, a dedup.Adoption) store.Operation {
	b.t.Helper()
	op, err := p.Adopt(b.ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

func TestAdopt(t *testing.T) {
	ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
	t.Run("an adopted lead is continued with notes, and not doubled", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			id := b.sim.Plant(crmtest.Record{})
			p := b.processor(nil)
			op := b.adopt(p, dedup.Adoption{Person: anna, LeadID: id, OpenedAt: ago(90 * 24 * time.Hour), LastActivity: ago(20 * time.Hour), Stage: "talks"})
			if op.State != store.Done || op.CRMID != id {
				t.Fatalf("adopted as %s with id %q", op.State, op.CRMID)
			}
			b.accept(event(7, 1, "please call me"))
			b.runFor(p, time.Minute)
			b.leads(1)
			rec, _ := b.sim.Lead(id)
			if len(rec.Notes) != 1 || !strings.HasPrefix(rec.Notes[0].Note.Text, "please call me") {
				t.Errorf("notes %+v: %s", rec.Notes, show(b.ops()))
			}
			if n := b.sim.Requests(crm.KindCreate, op.ID); n != 0 {
				t.Errorf("%d requests for the adopted lead", n)
			}
			deal, err := b.st.ReadKey(b.ctx, op.OrderingKey, "adopt:"+id)
			if err != nil || len(deal.Deals) != 1 || deal.Deals[0].Stage != "talks" || time.Since(deal.Deals[0].OpenedAt) < 89*24*time.Hour {
				t.Errorf("deal %+v, %v", deal.Deals, err)
			}
		})
	})
	t.Run("one whose last activity is too long ago is not continued", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			id := b.sim.Plant(crmtest.Record{})
			p := b.processor(nil)
			b.adopt(p, dedup.Adoption{Person: anna, LeadID: id, LastActivity: ago(25 * time.Hour)})
			b.accept(event(7, 1, "please call me"))
			b.runFor(p, time.Minute)
			b.leads(2)
		})
	})
	t.Run("another person, bot or tenant does not continue it", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			id := b.sim.Plant(crmtest.Record{})
			p := b.processor(nil)
			b.adopt(p, dedup.Adoption{Person: anna, LeadID: id, LastActivity: ago(time.Hour)})
			b.accept(event(8, 1, "please call me"))
			b.accept(eventOf("acme", 7, 2, "please call me"))
			b.runFor(p, time.Minute)
			b.leads(3)
		})
	})
	t.Run("adopting again adds nothing, also with other words, and for another person is refused", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processor(nil)
			a := dedup.Adoption{Person: anna, LeadID: "L1", LastActivity: ago(time.Hour)}
			a.Person.Tenant = "a"
			first := b.adopt(p, a)
			a.Lead, a.LastActivity = crm.Lead{Title: "x"}, ago(time.Minute)
			again := b.adopt(p, a)
			if again.ID != first.ID || again.Version != first.Version {
				t.Error("another operation stands for it")
			}
			a.Person.ID = "8"
			if _, err := p.Adopt(b.ctx, a); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("adopted for another person: %v", err)
			}
			b.only(store.Done)
		})
	})
	t.Run("a lead that leadonce made itself is not adopted", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processor(nil)
			b.accept(event(7, 1, "please call me"))
			b.runFor(p, time.Minute)
			made := b.only(store.Done)
			if op := b.adopt(p, dedup.Adoption{Person: anna, LeadID: made.CRMID, LastActivity: ago(time.Second)}); op.ID != made.ID {
				t.Errorf("adopted as %s beside %s", op.ID, made.ID)
			}
			b.only(store.Done)
		})
	})
	t.Run("one id at two tenants is two leads, and an unknown tenant is refused", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {&book{}, nil}, "b": {&book{}, nil}})
			a := dedup.Adoption{Person: anna, LeadID: "L1", LastActivity: ago(time.Hour)}
			a.Person.Tenant = "a"
			first := b.adopt(p, a)
			a.Person.Tenant = "b"
			if b.adopt(p, a).ID == first.ID {
				t.Error("they are one")
			}
			a.Person.Tenant = "c"
			if _, err := p.Adopt(b.ctx, a); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), `"c"`) {
				t.Error(err)
			}
		})
	})
	t.Run("what can't be meant is refused by name, and nothing is stored", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processor(nil)
			for want, change := range map[string]func(*dedup.Adoption){
				"LeadID":                     func(a *dedup.Adoption) { a.LeadID = " " },
				"LeadID must be UTF-8":       func(a *dedup.Adoption) { a.LeadID = "\xff" },
				"needs an ID":                func(a *dedup.Adoption) { a.Person.ID = "" },
				"a Source":                   func(a *dedup.Adoption) { a.Person.Source = "" },
				"a Bot":                      func(a *dedup.Adoption) { a.Person.Bot = "" },
				"LastActivity is missing":    func(a *dedup.Adoption) { a.LastActivity = time.Time{} },
				"in the future":              func(a *dedup.Adoption) { a.LastActivity = ago(-time.Second) },
				"OpenedAt is after":          func(a *dedup.Adoption) { a.OpenedAt = ago(time.Minute) },
				"before 1970":                func(a *dedup.Adoption) { a.LastActivity = time.Unix(0, 0) },
				"OpenedAt or LastActivity i": func(a *dedup.Adoption) { a.OpenedAt = time.Unix(-5, 0) },
			} {
				a := dedup.Adoption{Person: anna, LeadID: "L1", LastActivity: ago(time.Hour)}
				change(&a)
				if _, err := p.Adopt(b.ctx, a); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), want) {
					t.Errorf("%v, want %q in it", err, want)
				}
			}
			if len(b.ops()) != 0 {
				t.Error("something was stored")
			}
		})
	})
}
