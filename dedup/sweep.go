package dedup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// sweep.go: operations that nobody is working on: leases that ended, windows that closed, doubts that a look-up may settle.

// sweepBatch is how many operations of each sort one sweep reads.
const sweepBatch = 100

// sweepLoop is also the recovery at start: a lease that has ended is a lost reply, whoever held it.
func (p *Processor) sweepLoop(ctx context.Context) {
	for {
		ops, err := p.st.Attention(ctx, sweepBatch, false)
		if ctx.Err() != nil {
			return
		}
		if err := p.onlyCorrupt("Attention", err); err != nil {
			p.storeFailed("Attention", err)
		}
		reported := 0
		for _, op := range ops {
			unsent := op.Owner == p.opt.Owner && !p.called.has(op.ID, op.Fence)
			rep, ok := attention(op, unsent, p.terms, time.Now())
			if !ok {
				continue
			}
			if rep.On == store.Lost || rep.On == store.LostRepeatable {
				p.opt.Logger.Warn("leadonce: a lease ended without a report", "operation", op.ID, "owner", op.Owner)
			}
			reported++
			p.advanceOnce(ctx, rep)
		}
		if reported >= sweepBatch/2 {
			continue // there may be more behind them
		}
		if !pause(ctx, p.opt.Poll) {
			return
		}
	}
}

// advanceOnce reports without persistence: the next sweep comes anyway.
func (p *Processor) advanceOnce(ctx context.Context, rep store.Report) {
	next, err := p.st.Advance(ctx, rep)
	var move *store.MoveError
	switch {
	case err == nil:
		p.moved(next, rep.On, 0)
		p.poke()
	case errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrMoved), errors.As(err, &move):
		// Somebody else was here first.
	case ctx.Err() == nil:
		p.storeFailed("Advance", err)
	}
}

// noLookUp says why a look-up can't settle a doubt about op; empty if it may. One that was never begun here (a restored
// backup) may be in the present account.
func (p *Processor) noLookUp(op store.Operation) string {
	_, finds := p.adapter.(crm.Finder)
	switch {
	case !finds:
		return "the adapter has no look-up (crm.Finder)"
	case crm.Kind(op.Kind) != crm.KindCreate:
		return "there is no look-up for " + op.Kind
	case op.Adapter != "" && op.Adapter != p.desc.Identity:
		return fmt.Sprintf("it began under adapter %q, and %q runs now", op.Adapter, p.desc.Identity)
	}
	return ""
}

// lookupLoop asks the CRM about doubts, one at a time and without a lease: the verdict is guarded by the version that was
// read before the question. A look-up that hangs keeps only look-ups waiting, until its deadline.
func (p *Processor) lookupLoop(ctx context.Context) {
	for {
		ops, err := p.st.Attention(ctx, sweepBatch, true)
		if ctx.Err() != nil {
			return
		}
		if err := p.onlyCorrupt("Attention", err); err != nil {
			p.storeFailed("Attention", err)
		}
		looked := 0
		for _, op := range ops {
			if op.State != store.NeedsReconciliation || ctx.Err() != nil {
				continue
			}
			looked++
			p.lookUp(ctx, op)
		}
		if looked >= sweepBatch {
			continue
		}
		if !pause(ctx, p.opt.Poll) {
			return
		}
	}
}

// lookUp settles a doubt, or tells a person when it can't. It comes a quiet period after the doubt began: before that there
// is nothing that a person could know better.
func (p *Processor) lookUp(ctx context.Context, op store.Operation) {
	rep, err := store.Report{ID: op.ID, Version: op.Version, On: store.Inconclusive, RetryAfter: 24 * time.Hour}, error(nil)
	if why := p.noLookUp(op); why != "" {
		rep.Reason = op.Reason
		if !strings.HasPrefix(op.Reason, why) {
			rep.Reason = why + ", so a person must look. Before: " + op.Reason
		}
	} else {
		rep, err = p.ask(op)
	}
	p.advanceOnce(ctx, rep)
	// A person hears of it once, and again when there is something new; not while the CRM can't even be asked.
	if rep.On == store.Inconclusive && err == nil && rep.Reason != op.Reason {
		op.Reason = rep.Reason
		p.opt.Logger.Warn("leadonce: an operation needs a person", "operation", op.ID, "kind", op.Kind, "state", string(op.State))
		p.hooks.call("NeedsPerson", p.opt.NeedsPerson, outcome(op, time.Now()))
	}
}

// ask makes the look-up. The error is that of the question, not of the verdict.
func (p *Processor) ask(op store.Operation) (store.Report, error) {
	found, r := attempt(p.opt.CallTimeout, p.opt.grace(), func(ctx context.Context) ([]string, error) {
		return p.adapter.(crm.Finder).FindLead(ctx, crm.Op{ID: op.ID, Key: op.ID, Kind: crm.Kind(op.Kind), Tenant: op.Tenant})
	}, nil)
	if r.abandoned {
		r.err = context.DeadlineExceeded
	}
	trust := p.opt.TrustEmptyLookup && p.desc.LookupReadsOwnWrites
	return lookedUp(op, found, r.err, trust, p.terms, time.Now()), r.err
}
