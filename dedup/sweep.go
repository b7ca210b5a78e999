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

// sweep.go: operations that nobody is working on: leases that ended, windows that closed, doubts that a look-up may settle.

// sweepBatch is how many operations of each sort one sweep reads.
const sweepBatch = 100

// maxSweep bounds what is read beyond that where the first rows are not for us.
const maxSweep = 10_000

// sweepLoop is also the recovery at start: a lease that has ended is a lost reply, whoever held it.
func (p *Processor) sweepLoop(ctx context.Context) {
	limit := sweepBatch
	for {
		ops, err := p.st.Attention(ctx, limit, false)
		if ctx.Err() != nil {
			return
		}
		if err := p.onlyCorrupt("Attention", err); err != nil {
			p.storeFailed("Attention", err)
		}
		reported := 0
		limit = sweepBatch
		for _, op := range ops {
			l := p.lanes.of(op.Tenant)
			if l == nil {
				p.strange(op.Tenant, "")
				limit = min(limit+1, maxSweep) // strangers must not stand before ours
				continue
			}
			unsent := op.Owner == p.opt.Owner && !p.called.has(op.ID, op.Fence)
			rep, ok := attention(op, unsent, l.terms, time.Now())
			if !ok { // it waits for its repeat, perhaps as long as its lane is paused
				limit = min(limit+1, maxSweep)
				continue
			}
			if rep.On == store.Lost || rep.On == store.LostRepeatable {
				p.opt.Logger.Warn("leadonce: a lease ended without a report", "operation", op.ID, "owner", op.Owner)
			}
			reported++
			p.advanceOnce(ctx, l, rep)
		}
		if reported >= sweepBatch/2 {
			continue // there may be more behind them
		}
		if !pause(ctx, p.opt.Poll) {
			return
		}
	}
}

// meetStrangers looks once for unfinished operations of tenants that are not served here: a tenant that was taken out of the
// map by mistake leaves nothing that any loop would meet.
func (p *Processor) meetStrangers(ctx context.Context) {
	r, ok := p.st.(store.Reader)
	if !ok || !p.lanes.several() {
		return
	}
	ops, err := r.Operations(ctx, store.OperationFilter{Limit: 1000,
		States: []store.State{store.Pending, store.Uncertain, store.NeedsReconciliation, store.Failed}})
	if err != nil && !store.OnlyCorrupt(err) && ctx.Err() == nil {
		p.storeFailed("Operations", err)
	}
	for _, op := range ops {
		if p.lanes.of(op.Tenant) == nil {
			p.strange(op.Tenant, "")
		}
	}
}

// advanceOnce reports without persistence: the next sweep comes anyway.
func (p *Processor) advanceOnce(ctx context.Context, l *lane, rep store.Report) {
	next, err := p.st.Advance(ctx, rep)
	var move *store.MoveError
	switch {
	case err == nil:
		p.moved(next, rep.On, 0)
		p.poke(l)
	case errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrMoved), errors.As(err, &move):
		// Somebody else was here first.
	case ctx.Err() == nil:
		p.storeFailed("Advance", err)
	}
}

// noLookUp says why a look-up can't settle a doubt about op; empty if it may. One that was never begun here (a restored
// backup) may be in the present account.
func (p *Processor) noLookUp(l *lane, op store.Operation) string {
	_, finds := l.adapter.(crm.Finder)
	switch {
	case !finds:
		return "the adapter has no look-up (crm.Finder)"
	case crm.Kind(op.Kind) != crm.KindCreate:
		return "there is no look-up for " + op.Kind
	case op.Adapter != "" && op.Adapter != l.desc.Identity:
		return fmt.Sprintf("it began under adapter %q, and %q runs now", op.Adapter, l.desc.Identity)
	}
	return ""
}

// lookupLoop asks the CRMs about doubts, each lane's one at a time and without a lease: the verdict is guarded by the version
// that was read before the question. A look-up that hangs keeps only its lane's look-ups waiting, until its deadline.
func (p *Processor) lookupLoop(ctx context.Context) {
	limit := sweepBatch
	for {
		idle := map[*lane]bool{} // before the reading: what a lane has just settled is not asked again
		for _, l := range p.lanes.all {
			idle[l] = !l.looking.Load()
		}
		ops, err := p.st.Attention(ctx, limit, true)
		if ctx.Err() != nil {
			return
		}
		if err := p.onlyCorrupt("Attention", err); err != nil {
			p.storeFailed("Attention", err)
		}
		batches := map[*lane][]store.Operation{}
		limit = sweepBatch
		for _, op := range ops {
			if op.State != store.NeedsReconciliation {
				continue
			}
			l := p.lanes.of(op.Tenant)
			switch {
			case l == nil:
				p.strange(op.Tenant, "")
				limit = min(limit+1, maxSweep)
			case !idle[l]:
				limit = min(limit+1, maxSweep)
			default:
				batches[l] = append(batches[l], op)
			}
		}
		full := false
		for l, batch := range batches {
			full = full || len(batch) >= sweepBatch
			p.lookUpAll(ctx, l, batch)
		}
		if !p.awaitLookups(ctx, full) {
			return
		}
	}
}

// lookUpAll makes a lane's look-ups in the background.
func (p *Processor) lookUpAll(ctx context.Context, l *lane, ops []store.Operation) {
	l.looking.Store(true)
	p.calls.run(func() {
		defer func() {
			l.looking.Store(false)
			select {
			case p.looked <- struct{}{}:
			default:
			}
		}()
		for _, op := range ops {
			if ctx.Err() != nil {
				return
			}
			p.lookUp(ctx, l, op)
		}
	})
}

// awaitLookups waits until a lane is idle, and then for the next poll, unless there may be more at once. It reports whether
// ctx is still alive.
func (p *Processor) awaitLookups(ctx context.Context, full bool) bool {
	busy := func(l *lane) bool { return l.looking.Load() }
	for !slices.ContainsFunc(p.lanes.all, func(l *lane) bool { return !busy(l) }) {
		select {
		case <-ctx.Done():
			return false
		case <-p.looked:
		}
	}
	if full && !slices.ContainsFunc(p.lanes.all, busy) {
		return ctx.Err() == nil
	}
	return pause(ctx, p.opt.Poll)
}

// lookUp settles a doubt, or tells a person when it can't. It comes a quiet period after the doubt began: before that there
// is nothing that a person could know better.
func (p *Processor) lookUp(ctx context.Context, l *lane, op store.Operation) {
	rep, err := store.Report{ID: op.ID, Version: op.Version, On: store.Inconclusive, RetryAfter: 24 * time.Hour}, error(nil)
	if why := p.noLookUp(l, op); why != "" {
		rep.Reason = op.Reason
		if !strings.HasPrefix(op.Reason, why) {
			rep.Reason = why + ", so a person must look. Before: " + op.Reason
		}
	} else {
		rep, err = p.ask(l, op)
	}
	p.advanceOnce(ctx, l, rep)
	// A person hears of it once, and again when there is something new; not while the CRM can't even be asked.
	if rep.On == store.Inconclusive && err == nil && rep.Reason != op.Reason {
		op.Reason = rep.Reason
		p.opt.Logger.Warn("leadonce: an operation needs a person", "operation", op.ID, "kind", op.Kind, "state", string(op.State))
		p.hooks.call("NeedsPerson", p.opt.NeedsPerson, outcome(op, time.Now()))
	}
}

// ask makes the look-up. The error is that of the question, not of the verdict.
func (p *Processor) ask(l *lane, op store.Operation) (store.Report, error) {
	found, r := attempt(p.opt.CallTimeout, p.opt.grace(), func(ctx context.Context) ([]string, error) {
		return l.adapter.(crm.Finder).FindLead(ctx, crm.Op{ID: op.ID, Key: op.ID, Kind: crm.Kind(op.Kind), Tenant: op.Tenant})
	}, nil)
	if r.abandoned {
		r.err = context.DeadlineExceeded
	}
	trust := p.opt.TrustEmptyLookup && l.desc.LookupReadsOwnWrites
	return lookedUp(op, found, r.err, trust, l.terms, time.Now()), r.err
}
