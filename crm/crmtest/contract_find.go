package crmtest

import (
	"context"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// contract_find.go: a look-up finds its own operation's leads, and says so when it does not know.

func (h *harness) lookups(t scope) {
	if _, finds := h.adapter().(crm.Finder); !finds {
		t.Logf("the adapter is no crm.Finder: a create whose answer was lost will wait for a person")
		return
	}
	t.sub("a look-up finds the lead of its operation and no other", h.findsOwn)
	t.sub("a look-up finds every lead of its operation", h.findsAll)
	t.sub("a look-up for an unknown operation finds nothing", func(t scope) {
		if ids, err := h.find(t, h.op(crm.KindCreate), nil); err != nil || len(ids) > 0 {
			t.Errorf("FindLead returned %q, %v for an operation that made nothing: return no ids and no error, and compare "+
				"the external id of what the search found with op.ID", ids, err)
		}
	})
	t.sub("a look-up that fails is an error, not an empty answer", func(t scope) {
		op := h.op(crm.KindCreate)
		if r := h.create(t, h.adapter(), op, nil); r.err != nil {
			t.Fatalf("a plain create: %v", r.err)
		}
		for _, m := range []*mishap{
			losing(true), resetting(), truncating(), html(200, true), bare(500, true), bare(502, true), bare(503, true),
			errorBody(200),
		} {
			t.sub("when "+m.name, func(t scope) { h.failedLookup(t, op, m) })
		}
	})
	t.sub("a look-up is left when its context ends", func(t scope) {
		op := h.op(crm.KindCreate)
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		if _, err := h.findWithin(t, ctx, op, always(hanging(cancel))); err == nil {
			t.Errorf("FindLead returned no error, and its context had ended without an answer")
		}
	})
}

func (h *harness) find(t scope, op crm.Op, s script) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return h.findWithin(t, ctx, op, s)
}

func (h *harness) findWithin(t scope, ctx context.Context, op crm.Op, s script) ([]string, error) {
	t.Helper()
	f := h.adapter().(crm.Finder)
	found := make(chan []string, 1)
	before := h.subject.Created(op.ID)
	r := h.call(t, ctx, op.ID, s, func(ctx context.Context) (string, error) {
		ids, err := f.FindLead(ctx, op)
		found <- ids
		return "", err
	})
	if n := h.subject.Created(op.ID) - before; n != 0 {
		t.Errorf("FindLead made %d leads: a look-up only reads", n)
	}
	select {
	case ids := <-found:
		return ids, r.err
	default: // it never returned
		return nil, r.err
	}
}

// eventually looks up until there are n ids, or until time is up; at once where the adapter says that it reads its own
// writes.
func (h *harness) eventually(t scope, op crm.Op, n int) (ids []string, err error) {
	t.Helper()
	d, _ := crm.Describe(h.adapter())
	for end := time.Now().Add(callTime); ; time.Sleep(50 * time.Millisecond) {
		ids, err = h.find(t, op, nil)
		if len(ids) >= n || err != nil || d.LookupReadsOwnWrites || time.Now().After(end) {
			break
		}
	}
	if len(ids) < n && d.LookupReadsOwnWrites {
		t.Errorf("LookupReadsOwnWrites is declared, and a look-up right after the create does not see it: declare it only for " +
			"a look-up that is no search index, or remove the declaration")
	}
	return ids, err
}

func (h *harness) findsOwn(t scope) {
	a := h.adapter()
	one, other := h.op(crm.KindCreate), h.op(crm.KindCreate)
	r1, r2 := h.create(t, a, one, nil), h.create(t, a, other, nil)
	if r1.err != nil || r2.err != nil {
		t.Fatalf("plain creates: %v, %v", r1.err, r2.err)
	}
	for _, c := range []struct {
		op   crm.Op
		want string
	}{{one, r1.id}, {other, r2.id}} {
		ids, err := h.eventually(t, c.op, 1)
		if err != nil || !slices.Equal(ids, []string{c.want}) {
			t.Errorf("FindLead returned %q, %v; CreateLead had returned %q: return the id of every record whose external id "+
				"equals op.ID, whole and exactly, and of no other", ids, err, c.want)
		}
	}
}

// findsAll: two leads of one operation are for a person to look at, so they must be seen.
func (h *harness) findsAll(t scope) {
	op, a := h.op(crm.KindCreate), h.adapter()
	h.create(t, a, op, nil)
	n := h.create(t, a, op, nil).created
	ids, err := h.eventually(t, op, n)
	slices.Sort(ids)
	if len(slices.Compact(ids)) != n || err != nil {
		t.Errorf("the CRM has %d leads of one operation, and FindLead returned %q, %v: return them all", n, ids, err)
	}
}

func (h *harness) failedLookup(t scope, op crm.Op, m *mishap) {
	d, _ := crm.Describe(h.adapter())
	ids, err := h.find(t, op, always(m))
	const advice = "FindLead returned %q without an error, and there was no answer that says so: an empty look-up may be " +
		"taken for proof that there is no lead. Return an error unless the CRM's own success answer was read whole"
	switch {
	case err != nil:
	case m.name == errorBody(200).name && !d.LookupReadsOwnWrites && len(ids) == 0:
		t.Logf(advice, ids) // nobody takes it for proof as declared
	default:
		t.Errorf(advice, ids)
	}
}
