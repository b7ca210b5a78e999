package dedup

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// event makes an unplanned message of Ann's.
func event(id int64, text string, change ...func(*store.EventRow, *Enquiry)) store.EventRow {
	content := fmt.Sprintf("m/%d", id)
	e := Enquiry{Source: "telegram", Bot: "1", Kind: "message", HasPerson: true, Asks: true, Person: Person{ID: "7", Name: "Ann"}, Text: text}
	row := store.EventRow{ID: id, State: store.EventPending, Event: store.Event{Source: "telegram", Bot: "1", OrderingKey: "k",
		ContactKey: "c7", ContentID: content, DealKey: content}}
	for _, f := range change {
		f(&row, &e)
	}
	row.Enquiry, _ = json.Marshal(e)
	return row
}

func titled(e Enquiry) (crm.Lead, error) {
	if strings.HasPrefix(e.Text, "/") {
		return crm.Lead{}, Ignore("command")
	}
	if e.Text == "bad" {
		return crm.Lead{}, errors.New("can't")
	}
	return crm.Lead{Title: e.Text}, nil
}

func policyOf(r Rule) policy {
	p := policy{supports: func(k crm.Kind) bool { return k != crm.KindContact && k != crm.KindLink && k != crm.KindFile }, attempts: 3,
		repeat: time.Minute, wait: time.Hour, backoff: func(n int) time.Duration { return time.Duration(n) * time.Second }}
	if r != nil {
		p.decide = r.Decide
	}
	return p
}

// summary writes a plan on one line an item, as a reviewer reads it.
func summary(p store.Plan) string {
	var b []string
	for _, e := range p.Events {
		b = append(b, strings.TrimSpace(fmt.Sprintf("event %d %s %s", e.ID, e.State, e.Reason)))
	}
	for _, o := range p.Operations {
		b = append(b, strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Kind, o.Fields, map[bool]string{true: "blocked"}[o.Blocked])))
	}
	for range p.Edits {
		b = append(b, "edit")
	}
	for range p.Drops {
		b = append(b, "drop")
	}
	return strings.Join(b, "\n")
}

func TestPlan(t *testing.T) {
	day := ContinueWithin(24*time.Hour, titled)
	view := func(evs ...store.EventRow) store.KeyView {
		return store.KeyView{Key: "k", Version: 4, Now: t0, Events: evs}
	}
	withDeal := func(v store.KeyView, createState store.State, age time.Duration) store.KeyView {
		deal := store.Deal{ID: "d1", OrderingKey: "k", ContactKey: "c7", Key: "m/1", Generation: 1, State: store.DealOpen, Version: 2,
			CreateOp: "o1", LastActivity: t0.Add(-age), OpenedAt: t0.Add(-age)}
		v.Deals = append(v.Deals, deal)
		v.Operations = append(v.Operations, store.Operation{ID: "o1", Kind: "lead.create", DealID: "d1", State: createState, Version: 5})
		return v
	}
	for _, c := range []struct {
		name string
		v    store.KeyView
		rule Rule
		want string
	}{
		{"a first message opens a deal", view(event(1, "hi")), day,
			"event 1 planned\nlead.create {\"title\":\"hi\"}"},
		{"another message of the same person in the same plan continues it", view(event(1, "hi"), event(2, "more")), day,
			"event 1 planned\nevent 2 planned\nlead.create {\"title\":\"hi\"}\nnote.add NOTE blocked"},
		{"a message within the time continues", withDeal(view(event(2, "more")), store.Done, 23*time.Hour), day,
			"event 2 planned\nnote.add NOTE"},
		{"a message after the time opens the next", withDeal(view(event(2, "more")), store.Done, 25*time.Hour), day,
			"event 2 planned\nlead.create {\"title\":\"more\"}"},
		{"a deal in doubt is continued, and its notes wait", withDeal(view(event(2, "more")), store.NeedsReconciliation, time.Hour), day,
			"event 2 planned\nnote.add NOTE blocked"},
		{"a deal whose create failed is not continued", withDeal(view(event(2, "more")), store.Failed, time.Hour), day,
			"event 2 planned\nlead.create {\"title\":\"more\"}"},
		{"nor one whose create was canceled", withDeal(view(event(2, "more")), store.Canceled, time.Hour), day,
			"event 2 planned\nlead.create {\"title\":\"more\"}"},
		{"another person's deal is not continued", withDeal(view(event(2, "hi", func(r *store.EventRow, e *Enquiry) { r.ContactKey = "c8" })), store.Done, time.Hour), day,
			"event 2 planned\nlead.create {\"title\":\"hi\"}"},
		{"the same message under another update id opens nothing", withDeal(view(event(9, "hi", func(r *store.EventRow, e *Enquiry) { r.DealKey, r.ContentID = "m/1", "m/1" })), store.Done, 90*time.Hour), day,
			"event 9 ignored the same content has opened a deal already"},
		{"the same message of a failed deal edits it", withDeal(view(event(9, "hi2", func(r *store.EventRow, e *Enquiry) { r.DealKey, r.ContentID = "m/1", "m/1" })), store.Failed, time.Hour), day,
			"event 9 planned\nedit"},
		{"the same message of a canceled deal is ignored", withDeal(view(event(9, "hi", func(r *store.EventRow, e *Enquiry) { r.DealKey, r.ContentID = "m/1", "m/1" })), store.Canceled, time.Hour), day,
			"event 9 ignored its deal was canceled"},
		{"the second item of an album is a note even without continuing", view(
			event(1, "a", func(r *store.EventRow, e *Enquiry) { r.DealKey = "g" }), event(2, "b", func(r *store.EventRow, e *Enquiry) { r.DealKey = "g" })), OnePerMessage(titled),
			"event 1 planned\nevent 2 planned\nlead.create {\"title\":\"a\"}\nnote.add NOTE blocked"},
		{"one per message opens two", view(event(1, "a"), event(2, "b")), OnePerMessage(titled),
			"event 1 planned\nevent 2 planned\nlead.create {\"title\":\"a\"}\nlead.create {\"title\":\"b\"}"},
		{"what the rule ignores is kept with its reason", view(event(1, "/start"), event(2, "hi")), day,
			"event 1 ignored command\nevent 2 planned\nlead.create {\"title\":\"hi\"}"},
		{"nobody's event is ignored", view(event(1, "x", func(r *store.EventRow, e *Enquiry) { e.HasPerson = false })), day,
			"event 1 ignored no person"},
		{"without a rule events end ignored", view(event(1, "hi")), nil, "event 1 ignored no rule"},
		{"a failing rule holds what comes after it", view(event(1, "bad"), event(2, "hi")), day,
			"event 1 pending rule: can't"},
		{"after the attempts its event is parked and the next goes on", view(event(1, "bad", func(r *store.EventRow, e *Enquiry) { r.Attempts = 2 }), event(2, "hi")), day,
			"event 1 parked rule: can't\nevent 2 planned\nlead.create {\"title\":\"hi\"}"},
		{"one that waits for its retry holds the rest", view(event(1, "hi", func(r *store.EventRow, e *Enquiry) { r.Attempts, r.DueAt = 1, t0.Add(1) }), event(2, "hi")), day, ""},
		{"a fresh one does not wait for its head start", view(event(1, "hi", func(r *store.EventRow, e *Enquiry) { r.DueAt = t0.Add(time.Second) })), day,
			"event 1 planned\nlead.create {\"title\":\"hi\"}"},
		{"a stored enquiry that can't be read is parked", view(store.EventRow{ID: 1, State: store.EventPending, Event: store.Event{Enquiry: []byte("{")}}), day,
			"event 1 parked its stored enquiry can't be read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, _ := plan(c.v, policyOf(c.rule))
			got := summary(p)
			for _, o := range p.Operations {
				if o.Kind == "note.add" {
					got = strings.Replace(got, string(o.Fields), "NOTE", 1)
				}
			}
			if got != c.want {
				t.Fatalf("got\n%s\nwant\n%s", got, c.want)
			}
			if len(p.Events) > 0 && (p.Version != c.v.Version || len(p.SeenDeals) != len(c.v.Deals) || len(p.SeenOps) != len(c.v.Operations)) {
				t.Fatal("the plan does not guard everything that it read")
			}
		})
	}
}

func TestPlanMovesWhatWaitsForAFailedCreate(t *testing.T) {
	v := store.KeyView{Key: "k", Now: t0, Events: []store.EventRow{event(3, "again")},
		Deals: []store.Deal{{ID: "d1", ContactKey: "c7", Key: "m/1", Generation: 1, State: store.DealOpen, CreateOp: "o1", LastActivity: t0}},
		Operations: []store.Operation{{ID: "o1", DealID: "d1", State: store.Failed},
			{ID: "n1", Kind: "note.add", DealID: "d1", DependsOn: "o1", Blocked: true, State: store.Pending, Version: 9, Fields: []byte(`{"text":"old"}`)}}}
	p, _, _ := plan(v, policyOf(ContinueWithin(time.Hour, titled)))
	if len(p.Drops) != 1 || p.Drops[0].OperationID != "n1" || p.Drops[0].Version != 9 || !strings.HasPrefix(p.Drops[0].Reason, "moved to ") {
		t.Fatalf("%+v", p.Drops)
	}
	if len(p.Operations) != 2 || p.Operations[1].ID == "n1" || p.Operations[1].DealID == "d1" || string(p.Operations[1].Fields) != `{"text":"old"}` || !p.Operations[1].Blocked {
		t.Fatalf("%+v", p.Operations)
	}
}

func TestPlanRefusesWhatARuleMayNotDo(t *testing.T) {
	base := store.KeyView{Key: "k", Now: t0, Events: []store.EventRow{event(3, "x")},
		Deals: []store.Deal{{ID: "mine", ContactKey: "c7", State: store.DealOpen, CreateOp: "o1"}, {ID: "failed", ContactKey: "c7", State: store.DealOpen, CreateOp: "o2"},
			{ID: "closed", ContactKey: "c7", State: store.DealClosed, CreateOp: "o1"}, {ID: "theirs", ContactKey: "c8", State: store.DealOpen, CreateOp: "o1"}},
		Operations: []store.Operation{{ID: "o1", State: store.Done}, {ID: "o2", State: store.Failed}}}
	for _, id := range []string{"failed", "closed", "theirs", "unknown"} {
		t.Run("a note for the deal "+id, func(t *testing.T) {
			pol := policyOf(nil)
			pol.decide = func(Enquiry, History) (Decision, error) {
				return Decision{Effects: []Effect{Note{DealID: "mine", Text: "a"}, Note{DealID: id, Text: "b"}}}, nil
			}
			p, failed, _ := plan(base, pol)
			if len(failed) != 1 || len(p.Operations) != 0 {
				t.Fatalf("half a decision was planned: %+v", p.Operations)
			}
		})
	}
}

func TestOperationIDsAreDerived(t *testing.T) {
	v := store.KeyView{Key: "k", Now: t0, Events: []store.EventRow{event(1, "hi"), event(2, "more")}}
	pol := policyOf(ContinueWithin(time.Hour, titled))
	a, _, _ := plan(v, pol)
	v.Now = t0.Add(time.Minute)
	b, _, _ := plan(v, pol)
	for i := range a.Operations {
		if a.Operations[i].ID != b.Operations[i].ID {
			t.Fatal("the same decision made twice has two ids")
		}
	}
	if a.Operations[0].ID == a.Operations[1].ID {
		t.Fatal("two operations share an id")
	}
	// Golden: these must never change, or a redelivery after an upgrade is a second lead.
	want := []string{"176d3fc6-5808-8f8b-acb4-8fc5c7269eff", "d241be1c-14ae-8856-b854-158289ad85ef"}
	for i, o := range a.Operations {
		if o.ID != want[i] {
			t.Errorf("operation %d: %s, want %s", i, o.ID, want[i])
		}
	}
}
