package crmtest

import (
	"context"

	"github.com/leadonce/leadonce/crm"
)

// contract_stage.go: a manager's decision is not undone, and where a lead stands is read as it is.

// elsewhere is a stage that no lead is in.
const elsewhere = "contract-no-such-stage"

func (h *harness) stages(t scope) {
	_, sets := h.adapter().(crm.Stager)
	_, reads := h.adapter().(crm.StageReader)
	if sets {
		t.sub("SetStage leaves a lead alone that is in none of From", h.leavesAlone)
	}
	if reads && sets {
		t.sub("ReadStage reads what SetStage set", h.readsWhatWasSet)
	}
	if !reads {
		return
	}
	t.sub("ReadStage only reads", func(t scope) {
		id := h.newLead(t)
		one, err1 := h.readStage(t, id, nil)
		two, err2 := h.readStage(t, id, nil)
		if err1 != nil || err2 != nil || one.Stage == "" || !same(one, two) {
			t.Errorf("two readings of a lead that nobody changed: %+v, %v and %+v, %v", one, err1, two, err2)
		}
	})
	t.sub("a reading that fails is an error, not a stage", func(t scope) {
		id := h.newLead(t)
		for _, m := range []*mishap{
			losing(true), resetting(), truncating(), html(200, true), bare(502, true), bare(503, true), errorBody(200),
		} {
			t.sub("when "+m.name, func(t scope) {
				if s, err := h.readStage(t, id, always(m)); err == nil {
					t.Errorf("ReadStage returned %+v without an error, and there was no answer that says so: the deal would be closed "+
						"or kept open on no ground", s)
				}
			})
		}
	})
	t.sub("the stage of a lead that does not exist is an error", func(t scope) {
		if s, err := h.readStage(t, "999999999", nil); err == nil {
			t.Errorf("ReadStage returned %+v without an error", s)
		}
	})
}

// leavesAlone moves a lead from a stage that it is not in. Where the stage can be read it is compared; else what counts is
// whether the request left that moves a lead.
func (h *harness) leavesAlone(t scope) {
	to := crm.Stage{To: h.subject.Stage.To, From: []string{elsewhere}}
	id := h.newLead(t)
	_, reads := h.adapter().(crm.StageReader)
	var before crm.StageState
	if reads {
		before, _ = h.readStage(t, id, nil)
	}
	op := h.op(crm.KindStage)
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	r := h.call(t, ctx, op.ID, nil, func(ctx context.Context) (string, error) {
		return "", h.adapter().(crm.Stager).SetStage(ctx, op, id, to)
	})
	if r.err != nil {
		t.Errorf("SetStage returned %v for a lead that is in none of From: do nothing, without an error; it stands where a "+
			"manager put it", r.err)
	}
	const advice = "SetStage %s although the lead is in none of From: read its stage first, and do nothing if s.From is given " +
		"and does not contain it. Where the CRM compares by itself, skip this subtest with that reason"
	if reads {
		if after, err := h.readStage(t, id, nil); err != nil || after.Stage != before.Stage {
			t.Errorf(advice, "moved it")
		}
		return
	}
	if (write{mark: to.To}).writing(r.sent) != nil {
		t.Errorf(advice, "sent its write")
	}
}

func (h *harness) readsWhatWasSet(t scope) {
	id, to := h.newLead(t), h.subject.Stage.To
	before, err := h.readStage(t, id, nil)
	if err != nil || before.Stage == "" || before.Stage == to {
		t.Fatalf("ReadStage of a new lead returned %+v, %v; it has to tell the stage, and Subject.Stage.To has to be another",
			before, err)
	}
	op := h.op(crm.KindStage)
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	r := h.call(t, ctx, op.ID, nil, func(ctx context.Context) (string, error) {
		return "", h.adapter().(crm.Stager).SetStage(ctx, op, id, crm.Stage{To: to, From: []string{before.Stage}})
	})
	after, err := h.readStage(t, id, nil)
	switch {
	case r.err != nil || err != nil:
		t.Errorf("SetStage from the stage that was read returned %v, and ReadStage after it %v", r.err, err)
	case after.Stage != to:
		t.Errorf("SetStage moved a lead to %q, and ReadStage reads %q", to, after.Stage)
	case after.Version < before.Version || after.At.Before(before.At):
		t.Errorf("Version went from %d to %d and At from %v to %v with a change: leave at 0 what does not grow, or a late "+
			"reading would undo a newer one", before.Version, after.Version, before.At, after.At)
	}
}

func (h *harness) newLead(t scope) string {
	t.Helper()
	r := h.create(t, h.adapter(), h.op(crm.KindCreate), nil)
	if r.err != nil {
		t.Fatalf("a plain create: %v", r.err)
	}
	return r.id
}

func (h *harness) readStage(t scope, leadID string, s script) (crm.StageState, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	op := h.op(crm.KindRead)
	read := make(chan crm.StageState, 1)
	r := h.call(t, ctx, op.ID, s, func(ctx context.Context) (string, error) {
		st, err := h.adapter().(crm.StageReader).ReadStage(ctx, op, leadID)
		read <- st
		return "", err
	})
	select {
	case st := <-read:
		return st, r.err
	default: // it never returned
		return crm.StageState{}, r.err
	}
}

func same(a, b crm.StageState) bool {
	return a.Stage == b.Stage && a.Version == b.Version && a.At.Equal(b.At) && a.Closed == b.Closed
}
