package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store"
)

// concurrent.go: everything at once, at random, through two handles; then what must hold is looked for in what everybody was
// told. history.go judges it. A failure prints its seed; the seed repeats the choices, not the interleaving.

func concurrentChecks() []check {
	return []check{
		{"whatever happens at once, the invariants hold", concurrentAll},
	}
}

const (
	chaosKeys    = 6
	chaosWorkers = 8
	chaosSteps   = 60 // of each of the goroutines
)

// chaos is one run.
type chaos struct {
	b       *bench
	handles [2]Backend
	clock   sync.RWMutex // held for writing while the clock moves: a claim and its answer are of one time
	hist    history

	mu   sync.Mutex
	dead []store.Operation // as they were claimed, by workers that reported nothing
}

func concurrentAll(b *bench) {
	c := &chaos{b: b, handles: [2]Backend{b.st, b.st}}
	if b.Second != nil {
		c.handles[1] = b.Second()
	}
	seed := b.seed()
	roles := []func(*chaos, Backend, *rand.Rand, string) error{(*chaos).accept, (*chaos).accept, (*chaos).plan,
		(*chaos).plan,
		(*chaos).work, (*chaos).work, (*chaos).work, (*chaos).work, (*chaos).recover, (*chaos).recover, (*chaos).person}
	var wg sync.WaitGroup
	for i := range chaosWorkers {
		r, name := rand.New(rand.NewPCG(seed, uint64(i))), fmt.Sprint("goroutine-", i)
		wg.Go(func() {
			for range chaosSteps { // each is everybody in turn, so that all of it overlaps all the time
				if err := roles[r.IntN(len(roles))](c, c.handles[r.IntN(2)], r, name); err != nil {
					c.hist.problem("%s: %v", name, err)
				}
			}
		})
	}
	wg.Wait()
	for range 3 * chaosKeys { // what is left to plan
		c.hist.check(c.plan(b.st, rand.New(rand.NewPCG(seed, 99)), "the end"))
	}
	c.judge()
	for _, p := range c.hist.problems {
		b.Error(p)
	}
}

// expected drops the errors that racing calls have to get.
func expected(err error) error {
	if _, refused := errors.AsType[*store.MoveError](err); refused {
		return nil
	}
	for _, target := range []error{store.ErrConflict, store.ErrLeaseLost, store.ErrMoved} {
		if errors.Is(err, target) {
			return nil
		}
	}
	return err
}

// accept delivers one of a few events: often a repeat, sometimes other content under a used id.
func (c *chaos) accept(st Backend, r *rand.Rand, _ string) error {
	e := eventOf(fmt.Sprint("k:", r.IntN(chaosKeys)), r.IntN(8))
	if r.IntN(4) == 0 {
		e.Hash, e.Fingerprints = e.Hash+"'", []store.Fingerprint{{Version: 1, Sum: e.Hash + "'"}}
	}
	receipt, err := st.Accept(c.b.ctx, e)
	if err == nil {
		c.hist.accepted(e, receipt)
	}
	return err
}

// plan decides about a due key: the first event opens a deal, later ones are notes to it.
func (c *chaos) plan(st Backend, r *rand.Rand, name string) error {
	keys, err := st.DueKeys(c.b.ctx, 4)
	if err != nil || len(keys) == 0 {
		return err
	}
	v, err := st.ReadKey(c.b.ctx, keys[r.IntN(len(keys))].Key)
	if err != nil || len(v.Events) == 0 {
		return err
	}
	p := planOf(v)
	var create *store.Operation
	for _, o := range v.Operations {
		if o.Kind == kindCreate {
			create = &o
		}
	}
	for _, e := range v.Events {
		n := int(e.ID)
		var o store.Operation
		if create == nil {
			o = createOf(v.Key, n)
			p.Contacts, p.Deals = append(p.Contacts, contactOf(v.Key)), append(p.Deals, dealOf(v.Key, e.DealKey, n))
			create = &o
		} else {
			o = noteFor(*create, n)
		}
		p.Operations = append(p.Operations, o)
		p.Links = append(p.Links, store.Link{EventID: e.ID, OperationID: o.ID})
	}
	if r.IntN(2) == 0 {
		claim := claimOf(name, 1)
		p.Claim = &claim
	}
	c.clock.RLock()
	defer c.clock.RUnlock()
	began, err := st.CommitPlan(c.b.ctx, p)
	if err != nil {
		return expected(err)
	}
	c.hist.planned(p)
	for _, o := range began {
		c.hist.began(o, name)
	}
	return nil
}

// work claims, and reports something about each, or dies and reports nothing.
func (c *chaos) work(st Backend, r *rand.Rand, name string) error {
	c.clock.RLock()
	defer c.clock.RUnlock()
	ops, err := st.Claim(c.b.ctx, claimOf(name, 2))
	if err != nil {
		return err
	}
	if len(ops) > 2 {
		return fmt.Errorf("claimed %d with a limit of 2", len(ops))
	}
	for _, o := range ops {
		c.hist.began(o, name)
	}
	for _, o := range ops {
		outcomes := []store.Trigger{store.Confirmed, store.Confirmed, store.NotApplied, store.Rejected, store.Lost,
			store.LostRepeatable, ""}
		on := outcomes[r.IntN(len(outcomes))]
		if on == "" {
			c.bury(o)
			continue
		}
		err = errors.Join(err, c.report(st, reportOf(o, on)))
		if r.IntN(8) == 0 {
			err = errors.Join(err, c.report(st, evidence(o.ID, "crm-"+o.ID[len(o.ID)-4:])))
		}
	}
	if o, ok := c.exhume(r); ok { // a frozen worker that wakes up
		on := leased()[r.IntN(len(leased()))]
		err = errors.Join(err, c.report(st, reportOf(o, on)))
	}
	return err
}

func (c *chaos) bury(o store.Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = append(c.dead, o)
}

func (c *chaos) exhume(r *rand.Rand) (store.Operation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.dead) == 0 || r.IntN(2) == 0 {
		return store.Operation{}, false
	}
	return c.dead[r.IntN(len(c.dead))], true
}

// report advances and writes down what came of it.
func (c *chaos) report(st Backend, r store.Report) error {
	o, err := st.Advance(c.b.ctx, r)
	if err == nil {
		c.hist.moved(o, r.On)
		if slices.Contains(leased(), r.On) && o.Fence != r.Fence {
			return fmt.Errorf("%s of %s under fence %d was taken when it was held under %d", r.On, o.ID, r.Fence, o.Fence)
		}
		return nil
	}
	if r.On == store.Confirmed && r.Version == 0 {
		return fmt.Errorf("evidence was refused: %w", err)
	}
	return expected(err)
}

// recover moves the clock and settles what nobody holds any more.
func (c *chaos) recover(st Backend, r *rand.Rand, _ string) error {
	if c.b.Advance != nil && r.IntN(3) == 0 {
		c.clock.Lock()
		c.b.Advance(time.Duration(r.Int64N(int64(3 * lease))))
		c.clock.Unlock()
	}
	ops, err := st.Attention(c.b.ctx, 3, true)
	if err != nil {
		return err
	}
	for _, o := range ops {
		on := map[store.State][]store.Trigger{
			store.Sending:             {store.Lost, store.LostRepeatable},
			store.Uncertain:           {store.WindowClosed, store.GuaranteeChanged},
			store.NeedsReconciliation: {store.Absent, store.Inconclusive, store.Confirmed},
		}[o.State]
		if len(on) == 0 {
			return fmt.Errorf("attention is asked for %s in state %s", o.ID, o.State)
		}
		if o.State == store.Uncertain && r.IntN(4) > 0 {
			continue
		}
		rep := reportOf(o, on[r.IntN(len(on))])
		rep.Returned = false
		err = errors.Join(err, c.report(st, rep))
	}
	return err
}

// person looks at some operation and decides something about it, possible or not.
func (c *chaos) person(st Backend, r *rand.Rand, name string) error {
	ops, err := st.Operations(c.b.ctx, store.OperationFilter{Limit: 1000})
	if err != nil || len(ops) == 0 {
		return err
	}
	o := ops[r.IntN(len(ops))]
	says := []store.Trigger{store.Cancel, store.Reopen, store.Reopen, store.Absent, store.Confirmed, store.Restored}
	rep := personal(o, says[r.IntN(len(says))])
	for range 4 { // mostly something possible
		if _, _, err := store.Next(o.State, o.Doubt, rep.On); err == nil {
			break
		}
		rep = personal(o, says[r.IntN(len(says))])
	}
	rep.By = fmt.Sprint(name, " ", r.Uint64())
	return c.report(st, rep)
}

// judge compares what everybody was told with what is stored, and with the machine.
func (c *chaos) judge() {
	b, h := c.b, &c.hist
	rows := b.events(store.EventFilter{Limit: 1000})
	h.judgeEvents(rows)
	for _, row := range rows {
		if n := len(b.ops(store.OperationFilter{EventID: row.ID})); row.State != store.EventPlanned || n != 1 {
			h.problem("event %d is %s with %d operations", row.ID, row.State, n)
		}
	}
	ops := b.ops(store.OperationFilter{Limit: 1000})
	if len(ops) != len(rows) {
		h.problem("%d operations for %d events", len(ops), len(rows))
	}
	for _, o := range ops {
		h.moved(o, "")
		h.judgeOperation(o)
	}
	if len(ops) == 0 || len(h.owners) == 0 {
		h.problem("nothing happened: %d operations, %d claims", len(ops), len(h.owners))
	}
}
