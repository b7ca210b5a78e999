package dedup_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// scenario_acts_test.go: what the CRM, its manager, our operator and our processes do in a scenario.

// act does what is no delivery.
func (w *world) act(st step) {
	r := &reader{step: st}
	switch {
	case r.take("the", "crm", "is", "down"):
		w.sim.Always(crmtest.Fault{Kind: crmtest.Refuse})
	case r.take("the", "crm", "is", "up"):
		w.sim.Always()
	case r.take("the", "crm", "refuses"):
		w.sim.Always(crmtest.Fault{Kind: crmtest.Reject, On: crm.Kind(r.word())})
	case r.take("the", "crm", "loses", "the", "next", "reply", "to"):
		w.sim.Next(1, crmtest.Fault{Kind: crmtest.LoseReply, On: crm.Kind(r.word())})
	case r.take("the", "crm", "drops", "the", "next"):
		w.sim.Next(1, crmtest.Fault{Kind: crmtest.Drop, On: crm.Kind(r.word())})
	case r.take("a", "manager", "moves"):
		id := w.leadID(r.word())
		r.take("to")
		stage := r.word()
		w.sim.Edit(id, func(rec *crmtest.Record) { rec.Stage = stage })
	case r.take("the", "process", "restarts"):
		w.restart()
	case r.take("the", "host", "goes", "live"):
		w.shadow = false
		w.restart()
	case r.take("the", "host", "adopts"):
		title := r.word()
		r.take("of")
		w.adopt(title, r.word(), r)
	case r.take("the", "process", "dies"):
		w.now().gate.die("died")
		w.pass(20 * time.Millisecond)
	case r.take("an", "operator", "cancels"):
		w.operate(r.word(), (*dedup.Desk).Cancel)
	case r.take("an", "operator", "sends", "again"):
		w.operate(r.word(), func(d *dedup.Desk, ctx context.Context, v dedup.Verdict) (store.Operation, error) {
			op, err := d.Reopen(ctx, v)
			if err != nil { // it is in doubt, and the operator has looked
				v.Force = true // this CRM acts at once or never
				op, err = d.Absent(ctx, v)
			}
			return op, err
		})
	default:
		w.t.Fatalf("line %d: %q is not understood", st.line, st.text)
	}
	if !r.done() {
		w.t.Fatalf("line %d: %q is too much", st.line, r.word())
	}
}

func (w *world) restart() {
	l := w.now()
	l.cancel()
	if err := <-l.done; err != nil {
		w.t.Errorf("drain: %v", err)
	}
	l.gate.die("restart")
	w.begin(0, false)
}

// adopt imports a lead that the CRM has had before: "title" of anna idle 2h.
func (w *world) adopt(title, who string, r *reader) {
	r.take("idle")
	idle, err := time.ParseDuration(r.word())
	if err != nil {
		w.t.Fatalf("line %d: %v", r.line, err)
	}
	id := ""
	for _, l := range w.sim.Leads() {
		if l.Lead.Title == title {
			id = l.ID
		}
	}
	if id == "" {
		id = w.sim.Plant(crmtest.Record{OpID: "before", Lead: crm.Lead{Title: title, Name: capital(who)}})
	}
	for range 100 {
		_, err = w.now().proc.Adopt(context.Background(), dedup.Adoption{LeadID: id, LastActivity: w.clock.now().Add(-idle),
			Person: dedup.Person{ID: fmt.Sprint(w.made.person(who)), Source: telegram.Name, Bot: fmt.Sprint(scenarioBot)}})
		if err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatalf("line %d: %v", r.line, err)
}

// leadID is the CRM's id of the lead with a title. A process that has died may not have made it yet.
func (w *world) leadID(title string) string {
	for range 20 {
		for _, l := range w.sim.Leads() {
			if titled(l) == title || l.ID == title {
				return l.ID
			}
		}
		if strings.HasPrefix(title, "lead-") {
			return title
		}
		w.pass(10 * time.Second)
	}
	w.t.Fatalf("there is no lead %q: %v", title, w.sim.Leads())
	return ""
}

func (w *world) operate(kind string, do func(*dedup.Desk, context.Context, dedup.Verdict) (store.Operation, error)) {
	var ops []store.Operation
	for range 30 { // a process that has died may have left it to its lease
		var err error
		if ops, err = w.st.Operations(context.Background(), store.OperationFilter{Kind: kind,
			States: []store.State{store.Pending, store.Failed, store.NeedsReconciliation, store.Uncertain}}); err != nil {
			w.t.Fatal(err)
		}
		if len(ops) > 0 {
			break
		}
		w.pass(10 * time.Second)
	}
	if len(ops) == 0 {
		w.t.Fatalf("no %s to be settled", kind)
	}
	for _, op := range ops {
		if _, err := do(w.now().desk, context.Background(), dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga"}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// hook is what the CRM sends about a lead: `lead "title" is won version 2 at 5s`, or `lead "title" has changed`.
func (w *world) hook(st step) []byte {
	r := &reader{step: st}
	h := map[string]any{"event_id": fmt.Sprint("h", st.line)}
	r.take("lead")
	h["lead_id"] = w.leadID(r.word())
	if !r.take("has", "changed") {
		r.take("is")
		stage := r.word()
		h["stage"], h["closed"] = stage, closedStage(stage)
	}
	if r.take("version") {
		h["version"] = json.Number(r.word())
	}
	if r.take("at") {
		d, err := time.ParseDuration(r.word())
		if err != nil {
			w.t.Fatalf("line %d: %v", st.line, err)
		}
		h["at"] = time.Unix(1_780_000_000, 0).Add(d).UTC()
	}
	if !r.done() {
		w.t.Fatalf("line %d: %q is not understood", st.line, r.word())
	}
	body, err := json.Marshal(h)
	if err != nil {
		w.t.Fatal(err)
	}
	return body
}
