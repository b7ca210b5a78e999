package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// calls.go: the calls that are more than a call of the adapter.

// supports reports whether operations of a kind can be carried out with a.
func (p *Processor) supports(a crm.Adapter, k crm.Kind) bool {
	switch k {
	case crm.KindFile:
		return p.opt.AddFile != nil
	case crm.KindContact, crm.KindLink:
		if !p.opt.Contacts {
			return false
		}
	}
	return crm.Supports(a, k)
}

// notYet says why an operation has to wait for something else, and how long.
func (p *Processor) notYet(op store.Operation) (why string, again time.Duration) {
	switch {
	case p.opt.Shadow && !strings.HasPrefix(op.Kind, shadowMark) && crm.Kind(op.Kind) != crm.KindRead:
		return "shadow mode: nothing is sent", p.opt.BackoffMax
	case crm.Kind(op.Kind) == crm.KindLink && (op.ContactID == "" || strings.HasPrefix(op.ContactID, shadowMark)):
		// The contact is in doubt, refused, or on its way: the deal has gone ahead, and is asked about ever more seldom.
		return "the person's contact is not in the CRM yet", min(max(time.Since(op.CreatedAt)/4, time.Second), maxWait)
	}
	return "", 0
}

// create looks before it repeats an upsert, so that what a manager has edited meanwhile is not overwritten.
func (p *Processor) create(ctx context.Context, a crm.Adapter, op store.Operation, o crm.Op, l crm.Lead) (string, error) {
	f, ok := a.(crm.Finder)
	if !ok || !op.Doubt || op.Guarantee != string(crm.Upsert) {
		return a.CreateLead(ctx, o, l)
	}
	found, err := f.FindLead(ctx, o)
	switch {
	case err != nil:
		return "", crm.NotApplied(fmt.Errorf("look-up before a repeat: %w", err), 0)
	case len(found) > 1:
		return "", errAmbiguous
	case len(found) == 1:
		return found[0], nil
	}
	// The look-up took its time: what has run out meanwhile, by either clock, is not sent any more.
	if end, ok := ctx.Deadline(); ctx.Err() != nil || (ok && time.Now().Round(0).After(end.Round(0))) {
		return "", crm.NotApplied(errors.New("the look-up before a repeat took too long"), 0)
	}
	return a.CreateLead(ctx, o, l)
}

// setStage looks before it repeats: what a manager has decided since the first attempt is not undone.
func (p *Processor) setStage(ctx context.Context, a crm.Adapter, op store.Operation, o crm.Op, s crm.Stage) error {
	if r, ok := a.(crm.StageReader); ok && op.Attempts > 1 {
		now, err := r.ReadStage(ctx, o, op.LeadID)
		switch {
		case err != nil:
			return crm.NotApplied(fmt.Errorf("reading the stage before a repeat: %w", err), 0)
		case now.Stage == s.To || (len(s.From) > 0 && !slices.Contains(s.From, now.Stage)):
			return nil // it is done, or somebody has decided otherwise
		}
	}
	return a.(crm.Stager).SetStage(ctx, o, op.LeadID, s)
}

// readStage brings what it reads in through the door, as an event: from there it is decided like a hook's.
func (p *Processor) readStage(ctx context.Context, a crm.Adapter, op store.Operation, o crm.Op) error {
	began := time.Now()
	now, err := a.(crm.StageReader).ReadStage(ctx, o, op.LeadID)
	if err != nil {
		return err
	}
	if now.Stage == "" {
		return crm.Rejected(errors.New("read stage: the adapter returned none"))
	}
	if _, err := p.st.Accept(ctx, stageEvent(op, now, began)); err != nil {
		return crm.NotApplied(fmt.Errorf("store the stage that was read: %w", err), 0)
	}
	return nil
}
