package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store"
)

// planner.go: finds ordering keys with unplanned events and commits decisions about them, optimistically: read, decide,
// compare-and-set. No lock is held while a rule thinks.

// pollKeys asks the store for keys that no hint told of: events of other processes, of a past life, and rules to retry.
func (p *Processor) pollKeys(ctx context.Context) {
	limit := pollBatch
	for {
		keys, err := p.st.DueKeys(ctx, limit)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.storeFailed("DueKeys", err)
		}
		limit = pollBatch
		for _, k := range keys {
			if !p.enqueue(k) && limit < maxKeys {
				limit++ // strangers' keys must not stand before ours
			}
		}
		if !pause(ctx, p.opt.Poll) {
			return
		}
	}
}

// pollBatch is how many keys one poll brings.
const pollBatch = 200

// enqueue has a key planned, unless it is known to be a stranger's.
func (p *Processor) enqueue(key string) bool {
	if p.strangers.has(key) {
		return false
	}
	p.keys.add(key)
	return true
}

func (p *Processor) planLoop(ctx context.Context) {
	for {
		key, ok := p.keys.take()
		if !ok {
			return
		}
		again, err := p.planKey(ctx, key)
		p.keys.done(key, again)
		if err != nil && ctx.Err() == nil {
			p.storeFailed("plan", err)
			pause(ctx, p.opt.BackoffMin) // the key comes back by the next poll
		}
	}
}

// planKey decides what is due under one key. again means that more may be due at once.
func (p *Processor) planKey(ctx context.Context, key string) (again bool, err error) {
	var asked []string
	for lost := 0; lost < 10; { // somebody else won the compare-and-set: decide anew
		view, err := p.st.ReadKey(ctx, key, asked...)
		if err := p.onlyCorrupt("ReadKey", err); err != nil {
			return false, err
		}
		l, rest := p.laneOf(&view)
		if l == nil {
			return false, nil
		}
		start := time.Now()
		pl, failed, ask := plan(view, l.policy, asked...)
		if len(ask) > 0 { // the rule opens a deal under a key of its own
			asked = append(asked, ask...)
			continue
		}
		if len(pl.Events) == 0 {
			return false, nil
		}
		begun, err := p.commitPlan(l, pl)
		if errors.Is(err, store.ErrConflict) {
			lost++
			continue
		}
		if err != nil {
			return false, err
		}
		p.planned(l, pl, failed, begun, time.Since(start))
		return p.movedOn(pl) || rest || len(view.Events) >= store.ViewEvents, nil
	}
	return false, nil // the poll brings the key back
}

// movedOn tells the ordering keys to which a plan has sent events, and reports whether its own has more to do at once.
func (p *Processor) movedOn(pl store.Plan) (again bool) {
	for _, e := range pl.Events {
		if e.MoveTo != "" && e.Retry == 0 {
			p.keys.add(e.MoveTo)
		}
	}
	if pl.Merge == nil {
		return false
	}
	p.keys.add(pl.Merge.To)
	return pl.Merge.To == pl.Key
}

// laneOf returns the lane of a key's tenant, nil if nothing is to be done here. A source that puts several tenants under one
// key has them decided one after the other: rest tells that the view was cut.
func (p *Processor) laneOf(view *store.KeyView) (l *lane, rest bool) {
	if len(view.Events) == 0 {
		return nil, false
	}
	tenant := view.Events[0].Tenant
	if l = p.lanes.of(tenant); l == nil {
		p.strange(tenant, view.Key)
		return nil, false
	}
	other := func(e store.EventRow) bool { return e.Tenant != tenant }
	if i := slices.IndexFunc(view.Events, other); i > 0 && p.lanes.several() {
		view.Events, rest = view.Events[:i], true
	}
	return l, rest
}

// commitPlan commits a plan and begins its first operations where workers are free: one commit less on the way.
func (p *Processor) commitPlan(l *lane, pl store.Plan) ([]store.Operation, error) {
	free := 0
	if len(pl.Operations) > 0 && !l.health.isPaused() {
		free = p.slots.take(l, len(pl.Operations))
	}
	if free > 0 {
		c := l.terms.claim
		c.Limit = free
		pl.Claim = &c
	}
	claimedAt := time.Now()
	// Not ctx: a decision that was made is committed even while draining; its operations then go back unsent.
	ctx, cancel := context.WithTimeout(context.Background(), p.opt.CallTimeout)
	defer cancel()
	begun, err := p.st.CommitPlan(ctx, pl)
	p.slots.give(l, free-len(begun))
	for _, op := range begun {
		p.start(l, op, claimedAt, false)
	}
	return begun, err
}

func (p *Processor) planned(l *lane, pl store.Plan, failed []store.EventEnd, begun []store.Operation, took time.Duration) {
	if f := p.opt.Observer.Planned; f != nil {
		guard(p.opt.Logger, func() { f(len(pl.Events), len(pl.Operations), took) })
	}
	for _, e := range failed {
		parked := e.State == store.EventParked
		if f := p.opt.Observer.RuleError; f != nil {
			guard(p.opt.Logger, func() { f(e.ID, parked) })
		}
		if parked {
			p.opt.Logger.Error("leadonce: an event is parked: its rule failed; mend the rule and retry the event", "event", e.ID)
			p.hooks.call("NeedsPerson", p.opt.NeedsPerson, Outcome{EventID: e.ID, State: string(e.State), Reason: e.Reason})
		}
	}
	if len(pl.Operations) > len(begun) {
		p.poke(l)
	}
}

// decide runs the rule so that a panic or a hang is an error like any other. A hanging rule keeps its goroutine; the event
// is parked after the attempts, so there are few of them.
func (p *Processor) decide(rule Rule, e Enquiry, h History) (Decision, error) {
	type answer struct {
		d   Decision
		err error
	}
	c := make(chan answer, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				c <- answer{err: fmt.Errorf("panicked: %T", r)}
			}
		}()
		d, err := rule.Decide(e, h)
		c <- answer{d, readable(err)}
	}()
	t := time.NewTimer(p.opt.RuleTimeout)
	defer t.Stop()
	select {
	case a := <-c:
		return a.d, a.err
	case <-t.C:
		return Decision{}, fmt.Errorf("did not return within %v", p.opt.RuleTimeout)
	}
}

// onlyCorrupt lets a call go on whose only trouble was rows that the store has set aside; it tells about them.
func (p *Processor) onlyCorrupt(call string, err error) error {
	if err == nil {
		return nil
	}
	if !store.OnlyCorrupt(err) {
		return err
	}
	p.storeFailed(call, err)
	return nil
}

// keyQueue hands out ordering keys so that one key is planned by one goroutine of this process at a time.
type keyQueue struct {
	mu     sync.Mutex
	cond   *sync.Cond
	queue  []string
	state  map[string]keyState
	closed bool
}

type keyState int

const (
	queued keyState = iota + 1
	taken
	takenAgain // taken, and a hint came meanwhile
)

// maxKeys bounds the queue: beyond it a hint is dropped, and the poll brings the key back.
const maxKeys = 20_000

func newKeyQueue() *keyQueue {
	q := &keyQueue{state: map[string]keyState{}}
	q.cond = sync.NewCond(&q.mu)
	return q
}

func (q *keyQueue) add(key string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.state[key] {
	case 0:
		if q.closed || len(q.queue) >= maxKeys {
			return
		}
		q.state[key] = queued
		q.queue = append(q.queue, key)
		q.cond.Signal()
	case taken:
		q.state[key] = takenAgain
	}
}

func (q *keyQueue) take() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) == 0 && !q.closed {
		q.cond.Wait()
	}
	if q.closed {
		return "", false
	}
	key := q.queue[0]
	q.queue = q.queue[1:]
	q.state[key] = taken
	return key, true
}

func (q *keyQueue) done(key string, again bool) {
	q.mu.Lock()
	again = again || q.state[key] == takenAgain
	delete(q.state, key)
	q.mu.Unlock()
	if again {
		q.add(key)
	}
}

func (q *keyQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

func (q *keyQueue) reopen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.queue, q.state = false, nil, map[string]keyState{}
}
