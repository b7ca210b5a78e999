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
		ops, err := p.st.Attention(ctx, limit, false, p.lanes.names...)
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
			if l == nil { // a store that does not heed the tenants
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

// meetStrangers looks now and then for work of tenants that are not served here, which no other loop asks for: a tenant that
// was taken out of the map by mistake.
func (p *Processor) meetStrangers(ctx context.Context) {
	if !p.lanes.several() {
		return
	}
	p.meetPending(ctx)
	for {
		keys, err := p.st.DueKeys(ctx, pollBatch)
		if err != nil && ctx.Err() == nil {
			p.storeFailed("DueKeys", err)
		}
		for _, k := range keys {
			p.meet(k.Tenant)
		}
		ops, err := p.st.Attention(ctx, sweepBatch, true)
		if err := p.onlyCorrupt("Attention", err); err != nil && ctx.Err() == nil {
			p.storeFailed("Attention", err)
		}
		for _, op := range ops {
			p.meet(op.Tenant)
		}
		if !pause(ctx, time.Minute) {
			return
		}
	}
}

// meetPending looks for operations that nobody asks for as long as they only wait to be sent.
func (p *Processor) meetPending(ctx context.Context) {
	r, ok := p.st.(store.Reader)
	if !ok {
		return
	}
	ops, err := r.Operations(ctx, store.OperationFilter{Limit: 1000,
		States: []store.State{store.Pending, store.Uncertain, store.NeedsReconciliation, store.Failed}})
	if err != nil && !store.OnlyCorrupt(err) && ctx.Err() == nil {
		p.storeFailed("Operations", err)
	}
	for _, op := range ops {
		p.meet(op.Tenant)
	}
}

func (p *Processor) meet(tenant string) {
	if p.lanes.of(tenant) == nil {
		p.strange(tenant)
	}
}

// advanceOnce reports without persistence: the next sweep comes anyway. It tells whether the operation has moved, by whomever.
func (p *Processor) advanceOnce(ctx context.Context, l *lane, rep store.Report) bool {
	next, err := p.st.Advance(ctx, rep)
	var move *store.MoveError
	switch {
	case err == nil:
		p.moved(next, rep.On, 0)
		p.poke(l)
	case errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrMoved), errors.As(err, &move):
		// Somebody else was here first.
	default:
		if ctx.Err() == nil {
			p.storeFailed("Advance", err)
		}
		return false
	}
	return true
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

// lookupBatch is how many look-ups a lane makes before it asks anew whose turn it is.
const lookupBatch = 20

// lookupLoop asks the CRMs about doubts, each lane's one at a time and without a lease: the verdict is guarded by the version
// that was read before the question. A look-up that hangs keeps only its lane's look-ups waiting, until its deadline.
func (p *Processor) lookupLoop(ctx context.Context) {
	for {
		idle := map[*lane]bool{} // before the reading: what a lane has just settled is not asked again
		var names []string       // stays nil where one lane serves all
		for _, l := range p.lanes.all {
			if l.looking.Load() {
				continue
			}
			idle[l] = true
			l.more.Store(false)
			if l.tenant != nil {
				names = append(names, *l.tenant)
			}
		}
		ops, err := p.st.Attention(ctx, min(lookupBatch*len(idle), maxSweep), true, names...)
		if ctx.Err() != nil {
			return
		}
		if err := p.onlyCorrupt("Attention", err); err != nil {
			p.storeFailed("Attention", err)
		}
		batches := map[*lane][]store.Operation{}
		for _, op := range ops {
			if l := p.lanes.of(op.Tenant); op.State == store.NeedsReconciliation && idle[l] {
				batches[l] = append(batches[l], op)
			}
		}
		for l, batch := range batches {
			p.lookUpAll(ctx, l, batch)
		}
		if !p.awaitLookups(ctx) {
			return
		}
	}
}

// lookUpAll makes a lane's look-ups in the background, one batch of them.
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
		settled := 0
		for _, op := range ops[:min(len(ops), lookupBatch)] {
			if ctx.Err() != nil {
				return
			}
			if p.lookUp(ctx, l, op) {
				settled++
			}
		}
		l.more.Store(len(ops) >= lookupBatch && settled > 0)
	})
}

// awaitLookups waits until an idle lane may have more to ask about, or some lane is idle and it is time for the next poll. It
// reports whether ctx is still alive.
func (p *Processor) awaitLookups(ctx context.Context) bool {
	poll := time.NewTimer(p.opt.Poll)
	defer poll.Stop()
	due := false
	for {
		if slices.ContainsFunc(p.lanes.all, func(l *lane) bool { return !l.looking.Load() && (due || l.more.Load()) }) {
			return ctx.Err() == nil
		}
		select {
		case <-ctx.Done():
			return false
		case <-poll.C:
			due = true
		case <-p.looked:
		}
	}
}

// lookUp settles a doubt, or tells a person when it can't. It comes a quiet period after the doubt began: before that there
// is nothing that a person could know better. It tells whether the store has taken the verdict.
func (p *Processor) lookUp(ctx context.Context, l *lane, op store.Operation) (reported bool) {
	rep, err := store.Report{ID: op.ID, Version: op.Version, On: store.Inconclusive, RetryAfter: 24 * time.Hour}, error(nil)
	if why := p.noLookUp(l, op); why != "" {
		rep.Reason = op.Reason
		if !strings.HasPrefix(op.Reason, why) {
			rep.Reason = why + ", so a person must look. Before: " + op.Reason
		}
	} else {
		rep, err = p.ask(l, op)
	}
	reported = p.advanceOnce(ctx, l, rep)
	// A person hears of it once, and again when there is something new; not while the CRM can't even be asked.
	if rep.On == store.Inconclusive && err == nil && rep.Reason != op.Reason {
		op.Reason = rep.Reason
		p.opt.Logger.Warn("leadonce: an operation needs a person", "operation", op.ID, "kind", op.Kind, "state", string(op.State))
		p.hooks.call("NeedsPerson", p.opt.NeedsPerson, outcome(op, time.Now()))
	}
	return reported
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
