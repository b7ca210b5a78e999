package dedup

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// processor.go: the Processor: what it is made of, how it starts and how it stops. Its loops are in planner.go (events to
// operations), sender.go (operations to the CRM) and sweep.go (what nobody is working on any more).

var kinds = []crm.Kind{crm.KindCreate, crm.KindUpdate, crm.KindNote, crm.KindStage, crm.KindContact,
	crm.KindLink, crm.KindRead, crm.KindFile}

// Processor drives operations: it plans events, calls the adapter, retries, looks up, and reports what needs a person. Any
// number of processors, in any number of processes, may work on one store.
type Processor struct {
	*Desk

	st        store.Store
	opt       Options
	lanes     lanes
	strangers strangers
	hooks     *hooks

	slots    *slots[*lane]  // one for each call that may be under way
	rules    *slots[string] // one for each call of a tenant's rule, as long as that runs
	wake     chan struct{}  // work may be due, or a slot is free
	looked   chan struct{}  // a lane's look-ups have come to their end
	keys     *keyQueue
	called   calledSet
	calls    inflight // workers
	running  atomic.Bool
	stopping atomic.Bool // no call is begun any more
}

// NewProcessor checks everything it is given and returns a Processor, which does nothing until Run. It serves every tenant
// with the one adapter and the one rule; NewTenants gives each its own. Tenants take turns all the same: what waits for one of
// them holds up nobody else. rule may be nil for a host that only submits: every event in the store then ends ignored, also those of another process on the same database, so
// that one's processors must have the same rule. It is an error if the adapter declares what can't be meant, the rule needs
// what the adapter does not offer, or the options contradict each other; the text names the field and the bound.
func NewProcessor(st store.Store, adapter crm.Adapter, rule Rule, o *Options) (*Processor, error) {
	if st == nil || adapter == nil {
		return nil, errors.New("dedup: NewProcessor needs a store and an adapter")
	}
	p := newProcessor(st, o, false)
	l, err := p.newLane(nil, adapter, rule)
	if err := errors.Join(p.opt.validate(), err); err != nil {
		return nil, err
	}
	p.lanes.all = []*lane{l}
	if err := p.validateTrust(); err != nil {
		return nil, err
	}
	return p, nil
}

// NewTenants returns a Processor for several tenants, each with a CRM and a rule of its own. They share the workers
// (Options.Workers in all) and take turns: one tenant's backlog, a rule that hangs, or a CRM of theirs that hangs or is paused,
// holds up nobody else: one of several has three quarters of the planners and of the workers at most; that takes two workers
// at least. Errors name the tenant.
//
// What belongs to a tenant that is not in the map is left as it is, for a process that serves it; the log names each such
// tenant once, and Stats counts what waits. The rest is as with NewProcessor.
func NewTenants(st store.Store, tenants map[string]Tenant, o *Options) (*Processor, error) {
	if st == nil || len(tenants) == 0 {
		return nil, errors.New("dedup: NewTenants needs a store and at least one tenant")
	}
	p := newProcessor(st, o, true)
	p.keys.many = len(tenants) > 1
	if err := errors.Join(p.opt.validate(), p.addTenants(tenants)); err != nil {
		return nil, err
	}
	if err := p.validateTrust(); err != nil {
		return nil, err
	}
	return p, nil
}

func newProcessor(st store.Store, o *Options, several bool) *Processor {
	opt := o.withDefaults()
	// The owner is never the same twice, whatever name the host gives: a lease is known to be this Processor's own by it.
	opt.Owner = strings.TrimPrefix(opt.Owner+"/"+rand.Text(), "/")
	p := &Processor{Desk: &Desk{st, opt.QuietPeriod}, st: st, opt: opt, slots: newSlots[*lane](opt.Workers, several),
		wake: make(chan struct{}, 1),
		keys: newKeyQueue(), looked: make(chan struct{}, 1),
		rules: &slots[string]{free: math.MaxInt, each: ruleRoom, held: map[string]int{}}}
	p.hooks = &hooks{log: opt.Logger, timeout: opt.HookTimeout, room: make(chan struct{}, hookRoom), lost: func(h string) {
		if f := opt.Observer.HookLost; f != nil {
			guard(opt.Logger, func() { f(h) })
		}
	}}
	return p
}

func validateRule(rule Rule, adapter crm.Adapter) error {
	if rule == nil {
		return nil
	}
	if v, ok := rule.(interface{ validate() error }); ok {
		if err := v.validate(); err != nil {
			return err
		}
	}
	var errs []error
	for _, k := range rule.Kinds() {
		if !crm.Supports(adapter, k) {
			errs = append(errs, fmt.Errorf("dedup: the rule makes %s operations, and the adapter %T has no %s: "+
				"add that method, or take a rule that does without (OnePerMessage needs CreateLead alone)", k, adapter, crm.MethodFor(k)))
		}
	}
	return errors.Join(errs...)
}

// Run works until ctx ends, then drains: nothing new is begun, calls under way may finish (Options.DrainTimeout), what they
// bring is stored. It returns nil after a clean drain. Whatever it leaves behind, another Run takes up: in this process, in
// another, after a crash. It is an error to run a Processor twice at the same time.
func (p *Processor) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return errors.New("dedup: this Processor is running already")
	}
	defer p.running.Store(false)
	p.stopping.Store(false)
	p.keys.reopen()
	cancel := p.st.Subscribe(p.hinted)
	defer cancel()

	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){p.pollKeys, p.sendLoop, p.sweepLoop, p.lookupLoop, p.meetStrangers} {
		loops.Go(func() { loop(ctx) })
	}
	for range planners {
		loops.Go(func() { p.planLoop(ctx) })
	}
	<-ctx.Done()
	p.stopping.Store(true)
	p.keys.close()
	done := make(chan struct{})
	go func() {
		loops.Wait()
		p.calls.wait()
		p.hooks.calls.wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-time.After(p.opt.DrainTimeout):
		return fmt.Errorf("dedup: not drained after %v: what is still under way counts as lost and is taken up after its lease", p.opt.DrainTimeout)
	}
}

// poke makes the sender look for due operations of a lane, or of every one if l is nil.
func (p *Processor) poke(l *lane) {
	p.lanes.mark(l)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Paused reports whether a tenant's adapter is paused: enquiries are stored and wait, and one probe at a time goes out. With
// NewProcessor there is one adapter, whatever the tenant.
func (p *Processor) Paused(tenant string) bool {
	l := p.lanes.of(tenant)
	return l != nil && l.health.isPaused()
}

// Stats counts what is unfinished, with the age of the oldest, and what finished in the last 24 hours.
func (p *Processor) Stats(ctx context.Context) (store.Stats, error) { return p.st.Stats(ctx) }

func (p *Processor) pausedChanged(l *lane, paused bool, reason string, next time.Duration) {
	if !paused {
		p.opt.Logger.Info("leadonce: the adapter answers again", "adapter", l.desc.Identity, "tenant", l.name())
		if f := p.opt.Observer.Resumed; f != nil {
			guard(p.opt.Logger, func() { f(l.name()) })
		}
		p.poke(l)
		return
	}
	p.opt.Logger.Warn("leadonce: the adapter is paused", "adapter", l.desc.Identity, "tenant", l.name(), "why", reason, "probe_in", next)
	if f := p.opt.Observer.Paused; f != nil {
		guard(p.opt.Logger, func() { f(l.name(), reason, next) })
	}
}

func (p *Processor) storeFailed(call string, err error) {
	p.opt.Logger.Error("leadonce: the store failed; it will be tried again", "call", call, "error", err)
	if f := p.opt.Observer.StoreError; f != nil {
		guard(p.opt.Logger, func() { f(call, err) })
	}
}

// moved tells everyone about a committed move.
func (p *Processor) moved(op store.Operation, on store.Trigger, took time.Duration) {
	if f := p.opt.Observer.Moved; f != nil {
		guard(p.opt.Logger, func() { f(step(op, on, took)) })
	}
	now := time.Now()
	switch {
	case strings.HasPrefix(op.Kind, shadowMark), crm.Kind(op.Kind) == crm.KindRead && op.State == store.Done:
	case op.ConflictID != "" && on == store.Confirmed:
		p.opt.Logger.Error("leadonce: two ids were confirmed for one operation", "operation", op.ID)
		p.hooks.call("NeedsPerson", p.opt.NeedsPerson, outcome(op, now))
	case op.State == store.Done && on == store.Confirmed:
		p.hooks.call("OnDone", p.opt.OnDone, outcome(op, now))
	case op.State == store.Failed: // of what needs reconciliation lookUp tells
		p.opt.Logger.Warn("leadonce: an operation needs a person", "operation", op.ID, "kind", op.Kind, "state", string(op.State))
		p.hooks.call("NeedsPerson", p.opt.NeedsPerson, outcome(op, now))
	}
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
