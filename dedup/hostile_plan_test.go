package dedup

import (
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// hostile_plan_test.go: the same at the level of one plan.

// One content that opened two deals is edited: each keeps its own lead.
func TestHostileEditOfTwoOpens(t *testing.T) {
	rule := ruleFunc(func(e Enquiry, _ History) (Decision, error) {
		return Decision{Effects: []Effect{Open{Key: "a", Lead: crm.Lead{Title: "A " + e.Text}}, Open{Key: "b", Lead: crm.Lead{Title: "B " + e.Text}}}}, nil
	})
	d1, o1 := dealOf(1, store.Pending)
	d2, o2 := dealOf(2, store.Pending)
	d1.Key, d2.Key, d1.HostKey, d2.HostKey = "host/a", "host/b", true, true
	v := store.KeyView{Key: "k", Version: 4, Now: t0, Events: []store.EventRow{event(9, "new", edit(1, "x"))}, Deals: []store.Deal{d1, d2},
		Operations: []store.Operation{o1, o2}, Handled: []store.Handled{before(event(1, "old"), "od2", "od1")}} // by their ids, which are random
	p, _, _ := plan(v, policyOf(rule))
	for _, e := range p.Edits {
		if want := map[string]string{"od1": "A new", "od2": "B new"}[e.OperationID]; !strings.Contains(string(e.Fields), want) {
			t.Errorf("%s becomes %s, want %s", e.OperationID, e.Fields, want)
		}
	}
}

// The edit of a note that was moved out of a failed deal goes into the dead deal.
func TestHostileEditOfMovedNote(t *testing.T) {
	d1, o1 := dealOf(1, store.Failed)
	d5, o5 := dealOf(5, store.Done)
	d5.OpenedAt = t0.Add(-time.Minute)
	n := store.Operation{ID: "n2", Kind: "note.add", DealID: "d1", DependsOn: "od1", State: store.Canceled, Version: 3, Fields: []byte(`{"text":"old"}`)}
	v := store.KeyView{Key: "k", Version: 4, Now: t0, Events: []store.EventRow{event(9, "new", edit(2, "x"))},
		Deals: []store.Deal{d1, d5}, Operations: []store.Operation{o1, o5, n}, Handled: []store.Handled{before(event(2, "old"), "n2")}}
	p, _, _ := plan(v, policyOf(ContinueWithin(24*time.Hour, titled)))
	if len(p.Operations) != 1 || p.Operations[0].DealID != "d5" {
		t.Fatalf("%+v", p.Operations)
	}
}
