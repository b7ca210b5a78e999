package dedup

import (
	"context"
	"errors"
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
		for _, op := range ops {
			unsent := op.Owner == p.opt.Owner && !p.called.has(op.ID, op.Fence)
			rep, ok := attention(op, unsent, p.terms, time.Now())
			if !ok {
				continue
			}
			if rep.On == store.Lost || rep.On == store.LostRepeatable {
				p.opt.Logger.Warn("leadonce: a lease ended without a report", "operation", op.ID, "owner", op.Owner)
			}
			p.advanceOnce(ctx, rep)
		}
		if len(ops) >= sweepBatch {
			continue
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

// canLookUp reports whether a doubt about op may be settled without a person: in the account where it may be. One that was
// never begun here (a restored backup) may be in the present one.
func (p *Processor) canLookUp(op store.Operation) bool {
	_, ok := p.adapter.(crm.Finder)
	return ok && crm.Kind(op.Kind) == crm.KindCreate && (op.Adapter == "" || op.Adapter == p.desc.Identity)
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

func (p *Processor) lookUp(ctx context.Context, op store.Operation) {
	if !p.canLookUp(op) {
		p.advanceOnce(ctx, store.Report{ID: op.ID, Version: op.Version, On: store.Inconclusive, RetryAfter: 24 * time.Hour, Reason: op.Reason})
		return
	}
	found, r := attempt(p.opt.CallTimeout, p.opt.grace(), func(ctx context.Context) ([]string, error) {
		return p.adapter.(crm.Finder).FindLead(ctx, crm.Op{ID: op.ID, Key: op.ID, Kind: crm.Kind(op.Kind), Tenant: op.Tenant})
	}, nil)
	if r.abandoned {
		r.err = context.DeadlineExceeded
	}
	trust := p.opt.TrustEmptyLookup && p.desc.LookupReadsOwnWrites
	rep := lookedUp(op, found, r.err, trust, p.terms, time.Now())
	p.advanceOnce(ctx, rep)
	// A person hears of it when the look-up has had its say, and again only when that changes.
	if rep.On == store.Inconclusive && r.err == nil && rep.Reason != op.Reason {
		op.Reason = rep.Reason
		p.opt.Logger.Warn("leadonce: an operation needs a person", "operation", op.ID, "kind", op.Kind, "state", string(op.State))
		p.hooks.call("NeedsPerson", p.opt.NeedsPerson, outcome(op, time.Now()))
	}
}
