package crmtest

import (
	"context"
	"sync"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// contract_repeat.go: what the declared guarantee promises about a repeat of the same operation.

func (h *harness) repeats(t scope) {
	d, err := crm.Describe(h.adapter())
	if err != nil || d.Create.Kind == crm.None {
		return // nothing is promised, so nothing is repeated
	}
	t.sub("a repeat after a lost reply is harmless, as declared", func(t scope) {
		op := h.op(crm.KindCreate)
		h.create(t, h.adapter(), op, losing(true))
		first := h.create(t, h.adapter(), op, nil)
		second := h.create(t, h.adapter(), op, nil)
		for _, r := range []result{first, second} {
			if r.err != nil || r.id == "" {
				t.Fatalf("%q is declared, and the repeat of a create whose answer was lost returned %q, %v: it has to return "+
					"the id of the lead that exists", d.Create.Kind, r.id, r.err)
			}
		}
		if first.id != second.id {
			t.Errorf("two repeats returned different ids, %q and %q", first.id, second.id)
		}
		h.single(t, d, second.created)
	})
	t.sub("two calls at once make one lead, as declared", func(t scope) { h.atOnce(t, d) })
	if d.Create.Kind == crm.IdempotencyKey {
		t.sub("the key that is sent is op.Key", h.sendsKey)
	}
	if d.Create.Kind == crm.UniqueID && h.subject.Foreign != nil {
		t.sub("a conflict with somebody else's record is not a lead made", func(t scope) {
			op := h.op(crm.KindCreate)
			h.subject.Foreign(op)
			r := h.create(t, h.adapter(), op, nil)
			if r.err == nil && r.id != "" {
				t.Errorf("a uniqueness conflict was taken for success (id %q), and the record in the way does not carry op.ID: "+
					"read the record, compare its external id with op.ID, and return an error if they differ", r.id)
			}
		})
	}
}

func (h *harness) single(t scope, d crm.Description, created int) {
	t.Helper()
	if created != 1 {
		t.Errorf("%q is declared, and repeats of one operation made %d leads: send the reference that the CRM compares (its "+
			"key, external id or unique field) the same every time. If the CRM of this test is a stand-in, it has to compare "+
			"and insert in one step", d.Create.Kind, created)
	}
}

// atOnce holds two creating requests back until both have come, or a moment has passed.
func (h *harness) atOnce(t scope, d crm.Description) {
	op := h.op(crm.KindCreate)
	var meet sync.WaitGroup
	meet.Add(2)
	both := make(chan struct{})
	go func() { meet.Wait(); close(both) }()
	var twice [2]sync.Once
	hold := func(x *exchange) *mishap {
		if !h.createsFor(x, op.ID) {
			return nil
		}
		first := false
		twice[0].Do(func() { first = true; meet.Done() })
		if !first {
			twice[1].Do(meet.Done)
		}
		select {
		case <-both:
		case <-time.After(300 * time.Millisecond):
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	results := make(chan result, 2)
	for range 2 {
		a := h.adapter()
		go func() { results <- h.createWithin(t, ctx, a, op, hold) }()
	}
	var ids []string
	for range 2 {
		r := <-results
		if o, _ := crm.OutcomeOf(r.err); r.err != nil && o != crm.OutcomeUnknown && o != crm.OutcomeNotApplied {
			t.Errorf("one of two calls at once is marked %q (%v): \"in progress\" is unmarked, or crm.NotApplied where the CRM "+
				"documents it", o, r.err)
		}
		if r.err == nil {
			ids = append(ids, r.id)
		}
	}
	twice[0].Do(meet.Done)
	twice[1].Do(meet.Done)
	if len(ids) == 2 && ids[0] != ids[1] {
		t.Errorf("two calls of one operation returned different ids, %q and %q", ids[0], ids[1])
	}
	h.single(t, d, h.subject.Created(op.ID))
}

// sendsKey: an edit gives an operation a new key, since a CRM replays a stored refusal under the old one.
func (h *harness) sendsKey(t scope) {
	op := h.op(crm.KindCreate)
	edited := op
	edited.Key = h.op(crm.KindCreate).Key
	a := h.adapter()
	if unequal(h.request(t, a, op), h.request(t, a, edited)) == "" {
		t.Errorf("the request does not change with op.Key: send op.Key, not op.ID, as the idempotency key; after an edit a " +
			"CRM replays its stored refusal under the old one")
	}
}
