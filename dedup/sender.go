package dedup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// sender.go: claims operations for free workers, calls the adapter once for each, and reports what is known afterwards. The
// claim is committed before the call, so a crash at any later point looks like a lost reply.

// reserve takes up to n free worker slots without waiting.
func (p *Processor) reserve(n int) (got int) {
	for got < n {
		select {
		case p.slots <- struct{}{}:
			got++
		default:
			return got
		}
	}
	return got
}

func (p *Processor) release(n int) {
	for range n {
		<-p.slots
	}
}

// sendLoop claims whenever a hint, a freed worker or the poll says that there may be something to do.
func (p *Processor) sendLoop(ctx context.Context) {
	tick := time.NewTicker(p.opt.Poll)
	defer tick.Stop()
	for ctx.Err() == nil {
		if p.claim(ctx) {
			continue // there may be more
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-p.wake:
		}
	}
}

// claim begins as many due operations as there are free workers; more tells that all of these got one.
func (p *Processor) claim(ctx context.Context) (more bool) {
	free := p.reserve(p.opt.Workers)
	if free == 0 {
		return false
	}
	n, probe := p.health.allow(free)
	p.release(free - n)
	if n == 0 {
		return false
	}
	if c, ok := p.adapter.(crm.Checker); ok && probe && p.health.toCheck() {
		p.release(n)
		p.goCheck(c)
		return false
	}
	c := p.terms.claim
	c.Limit = n
	claimedAt := time.Now()
	ops, err := p.st.Claim(ctx, c)
	p.release(n - len(ops))
	if probe && len(ops) == 0 {
		p.health.unused()
	}
	for _, op := range ops {
		p.start(op, claimedAt, probe)
	}
	if err := p.onlyCorrupt("Claim", err); err != nil && ctx.Err() == nil {
		p.storeFailed("Claim", err)
		return false
	}
	return len(ops) == n && !probe
}

// goCheck probes a paused adapter with its read-only call. Where that answers, one operation goes next: a CRM may answer
// questions and swallow writes.
func (p *Processor) goCheck(c crm.Checker) {
	p.calls.run(func() {
		_, r := attempt(p.opt.CallTimeout, p.opt.grace(), func(ctx context.Context) (struct{}, error) { return struct{}{}, c.Check(ctx) }, nil)
		if r.err == nil && !r.abandoned {
			p.health.checkedFine()
			p.poke()
			return
		}
		p.health.settle(true, false, crm.OutcomeNotApplied)
	})
}

// start gives a claimed operation to a worker, which owns one slot until it is through.
func (p *Processor) start(op store.Operation, claimedAt time.Time, probe bool) {
	if f := p.opt.Observer.Began; f != nil {
		on := store.Begin
		if op.Doubt {
			on = store.Repeat
		}
		guard(p.opt.Logger, func() { f(step(op, on, 0)) })
	}
	p.calls.run(func() {
		defer p.poke()
		defer p.release(1)
		defer func() {
			if r := recover(); r != nil { // ours, not the adapter's: its lease will end as a lost reply
				p.opt.Logger.Error("leadonce: a worker panicked", "operation", op.ID, "type", fmt.Sprintf("%T", r))
			}
		}()
		p.work(op, claimedAt, probe)
	})
}

// work makes the call and reports. The pause is told first: it has to stand before the slot is free again.
func (p *Processor) work(op store.Operation, claimedAt time.Time, probe bool) {
	p.called.add(op.ID, op.Fence) // before the check: see calledSet
	if why := p.reasonNotToSend(op, claimedAt, probe); why != "" {
		if probe {
			p.health.unused()
		}
		p.called.remove(op.ID, op.Fence)
		p.advance(op, verdict(op, reply{unsent: why}, p.terms, time.Now()))
		return
	}
	send, supported, err := p.request(op)
	if !supported {
		if probe {
			p.health.unused()
		}
		p.called.remove(op.ID, op.Fence)
		p.drop(op)
		return
	}
	r := reply{err: err}
	if err == nil {
		var id string
		id, r = attempt(p.opt.CallTimeout, p.opt.grace(), send, func(id string, err error) { p.late(op, id, err) })
		r.id = id
	}
	rep := verdict(op, r, p.terms, time.Now())
	if o, _ := crm.OutcomeOf(r.err); !r.startedAt.IsZero() {
		p.health.settle(probe, rep.On == store.Confirmed || rep.On == store.Rejected, o)
	} else if probe {
		p.health.unused()
	}
	if _, settled := p.advance(op, rep); settled {
		p.called.remove(op.ID, op.Fence)
	}
}

// reasonNotToSend checks, right before the call, that it still may be made.
func (p *Processor) reasonNotToSend(op store.Operation, claimedAt time.Time, probe bool) string {
	// A suspended machine stops the monotonic clock and not the lease: the longer of the two readings counts.
	now := time.Now()
	held := max(now.Sub(claimedAt), now.Round(0).Sub(claimedAt.Round(0)))
	switch {
	case held+p.opt.CallTimeout+p.opt.grace() > p.opt.Lease:
		return "the lease was nearly over before the call"
	case p.stopping.Load():
		return "stopping"
	case !probe && p.health.isPaused():
		return "the adapter is paused"
	}
	return ""
}

// request returns the adapter's call for op. Fields that can't be read are refused for good: nothing was sent.
func (p *Processor) request(op store.Operation) (send func(context.Context) (string, error), supported bool, err error) {
	kind := crm.Kind(op.Kind)
	if !crm.Supports(p.adapter, kind) {
		return nil, false, nil
	}
	o := crm.Op{ID: op.ID, Key: op.ID, Kind: kind, Tenant: op.Tenant}
	if op.Revision > 0 {
		o.Key = fmt.Sprintf("%s-r%d", op.ID, op.Revision)
	}
	switch kind {
	case crm.KindCreate:
		var l crm.Lead
		err = decode(op.Fields, &l)
		send = func(ctx context.Context) (string, error) { return p.create(ctx, op, o, l) }
	case crm.KindUpdate:
		var l crm.Lead
		err = decode(op.Fields, &l)
		send = func(ctx context.Context) (string, error) {
			return "", p.adapter.(crm.Updater).UpdateLead(ctx, o, op.LeadID, l)
		}
	case crm.KindNote:
		var n crm.Note
		err = decode(op.Fields, &n)
		send = func(ctx context.Context) (string, error) { return p.adapter.(crm.Noter).AddNote(ctx, o, op.LeadID, n) }
	case crm.KindStage:
		var s crm.Stage
		err = decode(op.Fields, &s)
		send = func(ctx context.Context) (string, error) {
			return "", p.adapter.(crm.Stager).SetStage(ctx, o, op.LeadID, s)
		}
	case crm.KindContact:
		var c crm.Contact
		err = decode(op.Fields, &c)
		send = func(ctx context.Context) (string, error) { return p.adapter.(crm.Contacter).EnsureContact(ctx, o, c) }
	}
	if err != nil {
		return nil, true, crm.Rejected(errors.New("the stored fields can't be read"))
	}
	return send, true, nil
}

// create looks before it repeats an upsert, so that what a manager has edited meanwhile is not overwritten.
func (p *Processor) create(ctx context.Context, op store.Operation, o crm.Op, l crm.Lead) (string, error) {
	f, ok := p.adapter.(crm.Finder)
	if !ok || !op.Doubt || op.Guarantee != string(crm.Upsert) {
		return p.adapter.CreateLead(ctx, o, l)
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
	return p.adapter.CreateLead(ctx, o, l)
}

// attempt runs f with a deadline, and leaves it behind if it has not returned within grace of it. late, if not nil, gets what
// f returns after that.
func attempt[T any](timeout, grace time.Duration, f func(context.Context) (T, error), late func(T, error)) (T, reply) {
	type answer struct {
		v   T
		err error
	}
	var settled atomic.Bool // by whoever comes first: f's return or the end of patience
	c := make(chan answer, 1)
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	go func() {
		defer cancel()
		var a answer
		defer func() {
			if r := recover(); r != nil {
				a.err = fmt.Errorf("the adapter panicked: %T", r)
			}
			a.err = readable(a.err)
			if settled.CompareAndSwap(false, true) {
				c <- a
			} else if late != nil {
				late(a.v, a.err)
			}
		}()
		a.err = errors.New("the adapter's goroutine ended without returning") // runtime.Goexit
		a.v, a.err = f(ctx)
	}()
	t := time.NewTimer(timeout + grace)
	defer t.Stop()
	select {
	case a := <-c:
		return a.v, reply{err: a.err, startedAt: start, took: time.Since(start)}
	case <-t.C:
	}
	if !settled.CompareAndSwap(false, true) {
		a := <-c
		return a.v, reply{err: a.err, startedAt: start, took: time.Since(start)}
	}
	var none T
	return none, reply{abandoned: true, startedAt: start, took: time.Since(start)}
}

// late reports a success that came back after its call was given up.
func (p *Processor) late(op store.Operation, id string, err error) {
	if err != nil || (id == "" && crm.Kind(op.Kind) == crm.KindCreate) {
		return
	}
	p.advance(op, store.Report{ID: op.ID, On: store.Confirmed, CRMID: id, Reason: "a call that had been given up returned"})
}

// advance stores a report, and keeps trying while the store is down: an answer that was seen must not be forgotten.
// settled is false if the report may not have been stored.
func (p *Processor) advance(op store.Operation, rep store.Report) (_ store.Operation, settled bool) {
	giveUp := time.Now().Add(p.opt.Lease)
	if rep.On == store.Confirmed {
		giveUp = time.Now().Add(10 * p.opt.Lease) // nothing else may know it
	}
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), p.opt.CallTimeout)
		next, err := p.st.Advance(ctx, rep)
		cancel()
		var move *store.MoveError
		switch {
		case err == nil:
			p.moved(next, rep.On, rep.Took)
			return next, true
		case store.OnlyCorrupt(err):
			p.storeFailed("Advance", err) // the row is set aside; what is known stands in its trail
			return op, true
		case errors.Is(err, store.ErrLeaseLost), errors.Is(err, store.ErrMoved), errors.Is(err, store.ErrNotFound), errors.As(err, &move):
			p.opt.Logger.Warn("leadonce: a report came too late", "operation", op.ID, "on", string(rep.On))
			return op, true
		case time.Now().After(giveUp):
			p.opt.Logger.Error("leadonce: a report could not be stored; the lease's end will count it as lost", "operation", op.ID, "on", string(rep.On))
			return op, false
		}
		p.storeFailed("Advance", err)
		time.Sleep(p.terms.backoff(min(n, 4)))
	}
}

// drop ends an operation that the adapter has no call for: counted, never failed.
func (p *Processor) drop(op store.Operation) {
	next, ok := p.advance(op, verdict(op, reply{unsent: unsupported}, p.terms, time.Now()))
	if ok && next.State == store.Pending {
		p.advance(next, store.Report{ID: next.ID, On: store.Drop, Version: next.Version, Reason: unsupported})
	}
}

// calledSet holds the leases under which a call may have been made: an operation goes in before the last check and comes out
// when its report is stored, or when it is certain that no call was made. A lease of this Processor that is not in it was
// granted by a claim whose answer never arrived.
type calledSet struct {
	mu sync.Mutex
	m  map[lease]bool
}

type lease struct {
	id    string
	fence int64
}

func (s *calledSet) add(id string, fence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[lease]bool{}
	}
	s.m[lease{id, fence}] = true
}

func (s *calledSet) remove(id string, fence int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.m, lease{id, fence})
}

func (s *calledSet) has(id string, fence int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[lease{id, fence}]
}

// decode reads stored fields, with numbers as json.Number.
func decode(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return d.Decode(into)
}
