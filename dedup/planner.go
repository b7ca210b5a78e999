package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// planner.go: finds ordering keys with unplanned events and commits decisions about them, optimistically: read, decide,
// compare-and-set. No lock is held while a rule thinks.

// pollBatch is how many keys one poll brings.
const pollBatch = 200

// pollKeys asks the store for keys that no hint told of: events of other processes, of a past life, and rules to retry.
func (p *Processor) pollKeys(ctx context.Context) {
	for {
		keys, err := p.st.DueKeys(ctx, pollBatch, p.lanes.names...)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			p.storeFailed("DueKeys", err)
		}
		for _, k := range keys {
			p.keys.add(k.Key, k.Tenant)
		}
		if !pause(ctx, p.opt.Poll) {
			return
		}
	}
}

// hinted takes a hint of the store's.
func (p *Processor) hinted(h store.Hint) {
	switch {
	case h.OrderingKey == "":
		p.poke(nil)
	case h.Tenant != "" && p.lanes.of(h.Tenant) == nil:
		p.strange(h.Tenant)
	default:
		p.keys.add(h.OrderingKey, h.Tenant)
	}
}

func (p *Processor) planLoop(ctx context.Context) {
	for ctx.Err() == nil { // not by the queue alone: the next Run opens it again, perhaps before a rule that hangs has returned
		key, ok := p.keys.take()
		if !ok {
			return
		}
		again, err := p.planKey(ctx, key)
		if err != nil && ctx.Err() == nil {
			p.storeFailed("plan", err)
			pause(ctx, p.opt.BackoffMin) // the key comes back by the next poll
		}
		p.keys.done(key, again) // not before: the pause is its tenant's
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
		if !p.keys.belongs(key, view.Events[0].Tenant) {
			return true, nil
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
		tenant := view.Events[0].Tenant
		p.planned(l, pl, failed, begun, Planned{tenant, len(pl.Events), len(pl.Operations), time.Since(start)})
		return p.movedOn(pl, tenant) || rest || len(view.Events) >= store.ViewEvents, nil
	}
	return false, nil // the poll brings the key back
}

// movedOn tells the ordering keys to which a plan has sent events, and reports whether its own has more to do at once.
func (p *Processor) movedOn(pl store.Plan, tenant string) (again bool) {
	for _, e := range pl.Events {
		if e.MoveTo != "" && e.Retry == 0 {
			p.keys.add(e.MoveTo, tenant)
		}
	}
	if pl.Merge == nil {
		return false
	}
	p.keys.add(pl.Merge.To, tenant)
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
		p.strange(tenant)
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
		free = p.slots.takeFresh(l, len(pl.Operations), p.keys.several())
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

func (p *Processor) planned(l *lane, pl store.Plan, failed []store.EventEnd, begun []store.Operation, did Planned) {
	if f := p.opt.Observer.Planned; f != nil {
		guard(p.opt.Logger, func() { f(did) })
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

// ruleRoom is how many calls of the rule may hang for one tenant. It is more than a few odd enquiries bring about, since what
// comes beyond it is parked.
const ruleRoom = 1000

// decide runs the rule so that a panic or a hang is an error like any other. A call that hangs keeps its goroutine; when there
// are too many of them the rule is not called, which is a failure like any other too: a rule that always hangs does so at every
// attempt of every event, and they may be many.
func (p *Processor) decide(rule Rule, e Enquiry, h History) (Decision, error) {
	type answer struct {
		d   Decision
		err error
	}
	if p.rules.take(e.Tenant, 1) == 0 {
		return Decision{}, fmt.Errorf("was not called: %d earlier calls hang", ruleRoom)
	}
	c := make(chan answer, 1)
	go func() {
		a := answer{err: errors.New("ended its goroutine")} // runtime.Goexit
		defer func() { c <- a }()
		defer p.rules.give(e.Tenant, 1)
		defer func() {
			if r := recover(); r != nil {
				a.err = fmt.Errorf("panicked: %T", r)
			}
		}()
		d, err := rule.Decide(e, h)
		a = answer{d, readable(err)}
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
