package dedup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/backoff"
	"github.com/leadonce/leadonce/store"
)

// sender.go: claims operations for free workers, calls the adapter once for each, and reports what is known afterwards. The
// claim is committed before the call, so a crash at any later point looks like a lost reply.

// sendLoop claims whenever a hint, a freed worker or the poll says that there may be something to do.
func (p *Processor) sendLoop(ctx context.Context) {
	tick := time.NewTicker(p.opt.Poll)
	defer tick.Stop()
	p.lanes.mark(nil)
	for ctx.Err() == nil {
		if p.claim(ctx) {
			continue // there may be more
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			p.lanes.mark(nil)
		case <-p.wake:
		}
	}
}

// claim begins as many due operations as there are free workers, the lanes in turn and each its share; more tells that there
// may be more to begin.
func (p *Processor) claim(ctx context.Context) (more bool) {
	due := p.lanes.turn()
	first := true
	for i, l := range due {
		got, again := p.claimFor(ctx, l, p.slots.share(len(due)-i))
		if got > 0 && first {
			p.lanes.served(l)
			first = false
		}
		more = more || again
	}
	return more
}

// claimFor begins up to n operations of a lane; again tells that there may be more of it.
func (p *Processor) claimFor(ctx context.Context, l *lane, n int) (got int, again bool) {
	free := p.slots.take(l, n)
	if free == 0 {
		return 0, false
	}
	n, probe := l.health.allow(free)
	p.slots.give(l, free-n)
	if n == 0 {
		return 0, false
	}
	if c, ok := l.adapter.(crm.Checker); ok && probe && l.health.toCheck() {
		p.slots.give(l, n)
		p.goCheck(l, c)
		return 0, false
	}
	c := l.terms.claim
	c.Limit = n
	claimedAt := time.Now()
	l.due.Store(false) // before the question: what becomes due meanwhile is a new one
	ops, err := p.st.Claim(ctx, c)
	p.slots.give(l, n-len(ops))
	if probe && len(ops) == 0 {
		l.health.unused()
	}
	for _, op := range ops {
		p.start(l, op, claimedAt, probe)
	}
	if err := p.onlyCorrupt("Claim", err); err != nil && ctx.Err() == nil {
		p.storeFailed("Claim", err)
		return len(ops), false
	}
	if again = len(ops) == n && !probe; again {
		l.due.Store(true)
	}
	return len(ops), again
}

// goCheck probes a paused adapter with its read-only call. Where that answers, one operation goes next: a CRM may answer
// questions and swallow writes.
func (p *Processor) goCheck(l *lane, c crm.Checker) {
	p.calls.run(func() {
		_, r := attempt(p.opt.CallTimeout, p.opt.grace(), func(ctx context.Context) (struct{}, error) { return struct{}{}, c.Check(ctx) }, nil)
		if r.err == nil && !r.abandoned {
			l.health.checkedFine()
			p.poke(l)
			return
		}
		l.health.settle(true, false, crm.OutcomeNotApplied)
	})
}

// start gives a claimed operation to a worker, which owns one slot until it is through.
func (p *Processor) start(l *lane, op store.Operation, claimedAt time.Time, probe bool) {
	if f := p.opt.Observer.Began; f != nil {
		on := store.Begin
		if op.Doubt {
			on = store.Repeat
		}
		guard(p.opt.Logger, func() { f(step(op, on, 0)) })
	}
	p.calls.run(func() {
		defer p.poke(l)
		defer p.slots.give(l, 1)
		defer func() {
			if r := recover(); r != nil { // ours, not the adapter's: its lease will end as a lost reply
				p.opt.Logger.Error("leadonce: a worker panicked", "operation", op.ID, "type", fmt.Sprintf("%T", r))
			}
		}()
		p.work(l, op, claimedAt, probe)
	})
}

// work makes the call and reports. The pause is told first: it has to stand before the slot is free again.
func (p *Processor) work(l *lane, op store.Operation, claimedAt time.Time, probe bool) {
	p.called.add(op.ID, op.Fence) // before the check: see calledSet
	why, again := p.reasonNotToSend(l, op, claimedAt, probe), time.Duration(0)
	if why == "" {
		why, again = p.notYet(op)
	} else if !l.serves(op) {
		again = p.opt.BackoffMax // or the two would be busy with each other
	}
	if why != "" {
		if probe {
			l.health.unused()
		}
		p.called.remove(op.ID, op.Fence)
		p.advance(op, verdict(op, reply{unsent: why, again: again}, l.terms, time.Now()))
		return
	}
	send, supported, err := p.request(l, op)
	if !supported {
		if probe {
			l.health.unused()
		}
		p.called.remove(op.ID, op.Fence)
		p.drop(l, op)
		return
	}
	r := reply{err: err}
	if err == nil {
		var id string
		id, r = attempt(p.opt.CallTimeout, p.opt.grace(), send, func(id string, err error) { p.late(op, id, err) })
		r.id = id
	}
	rep := verdict(op, r, l.terms, time.Now())
	if o, _ := crm.OutcomeOf(r.err); !r.startedAt.IsZero() && crm.Kind(op.Kind) != crm.KindFile { // that is the host's hook, not the CRM
		l.health.settle(probe, rep.On == store.Confirmed || rep.On == store.Rejected, o)
	} else if probe {
		l.health.unused()
	}
	if _, settled := p.advance(op, rep); settled {
		p.called.remove(op.ID, op.Fence)
	}
}

// reasonNotToSend checks, right before the call, that it still may be made.
func (p *Processor) reasonNotToSend(l *lane, op store.Operation, claimedAt time.Time, probe bool) string {
	// A suspended machine stops the monotonic clock and not the lease: the longer of the two readings counts.
	now := time.Now()
	held := max(now.Sub(claimedAt), now.Round(0).Sub(claimedAt.Round(0)))
	switch {
	case held+p.opt.CallTimeout+p.opt.grace() > p.opt.Lease:
		return "the lease was nearly over before the call"
	case !l.serves(op):
		return "it is another tenant's: the store does not heed Claim.Tenant"
	case p.stopping.Load():
		return "stopping"
	case !probe && l.health.isPaused():
		return "the adapter is paused"
	}
	return ""
}

// request returns the adapter's call for op. Fields that can't be read are refused for good: nothing was sent.
func (p *Processor) request(l *lane, op store.Operation) (send func(context.Context) (string, error), supported bool, err error) {
	a, kind := l.adapter, crm.Kind(op.Kind)
	if strings.HasPrefix(op.Kind, shadowMark) { // whoever meets it ends it: nothing of it is ever sent
		return func(context.Context) (string, error) { return shadowMark + op.ID[:8], nil }, true, nil
	}
	if !l.policy.supports(kind) {
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
		send = func(ctx context.Context) (string, error) { return p.create(ctx, a, op, o, l) }
	case crm.KindUpdate:
		var l crm.Lead
		err = decode(op.Fields, &l)
		send = func(ctx context.Context) (string, error) {
			return "", a.(crm.Updater).UpdateLead(ctx, o, op.LeadID, l)
		}
	case crm.KindNote:
		var n crm.Note
		err = decode(op.Fields, &n)
		send = func(ctx context.Context) (string, error) { return a.(crm.Noter).AddNote(ctx, o, op.LeadID, n) }
	case crm.KindStage:
		var s crm.Stage
		err = decode(op.Fields, &s)
		send = func(ctx context.Context) (string, error) { return "", p.setStage(ctx, a, op, o, s) }
	case crm.KindRead:
		send = func(ctx context.Context) (string, error) { return "", p.readStage(ctx, a, op, o) }
	case crm.KindLink:
		send = func(ctx context.Context) (string, error) {
			return "", a.(crm.Updater).UpdateLead(ctx, o, op.LeadID, crm.Lead{ContactID: op.ContactID})
		}
	case crm.KindFile:
		var f crm.File
		err = decode(op.Fields, &f)
		send = func(ctx context.Context) (string, error) {
			return "", p.opt.AddFile(ctx, FileJob{Op: o, LeadID: op.LeadID, File: f})
		}
	case crm.KindContact:
		var c crm.Contact
		err = decode(op.Fields, &c)
		send = func(ctx context.Context) (string, error) { return a.(crm.Contacter).EnsureContact(ctx, o, c) }
	}
	if err != nil {
		return nil, true, crm.Rejected(errors.New("the stored fields can't be read"))
	}
	return send, true, nil
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
		time.Sleep(backoff.Delay(min(n, 4), p.opt.BackoffMin, p.opt.BackoffMax))
	}
}

// drop ends an operation that the adapter has no call for: counted, never failed.
func (p *Processor) drop(l *lane, op store.Operation) {
	next, ok := p.advance(op, verdict(op, reply{unsent: unsupported}, l.terms, time.Now()))
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
