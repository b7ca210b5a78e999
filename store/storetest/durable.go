package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// durable.go: what was acknowledged is there after the process is gone.

func durableChecks() []check {
	return []check{
		{"everything acknowledged is found again", durableAll},
		{"another process sees what was committed", durableSecond},
		{"a lease outlives its process, and ends", durableLease},
		{"a lost answer of the store itself is resolved by asking again", durableUnknown},
	}
}

// dump reads everything that a store shows.
func (b *bench) dump() map[string]any {
	b.Helper()
	ops := b.ops(store.OperationFilter{Limit: 1000})
	m := map[string]any{"operations": ops, "events": b.events(store.EventFilter{Limit: 1000}), "due": b.dueKeys()}
	for _, o := range ops {
		m["trail "+o.ID] = b.trail(o.ID)
		v := b.read(o.OrderingKey)
		v.Now = time.Time{}
		m["key "+o.OrderingKey] = v
	}
	return m
}

func durableAll(b *bench) {
	for n, at := range places() {
		b.at(at, n)
		if at.state == store.Pending || at.state == store.Uncertain {
			b.take(opID(n))
		}
	}
	_, create := b.opened("k:1", 21)
	b.noted(create, 22)
	b.accept(eventOf("k:1", 23))
	b.accept(eventOf("k:1", 24))
	b.advance(personal(create, store.Cancel))
	b.submit(30)
	before := b.dump()
	b.reopen()
	if d := cmp.Diff(before, b.dump()); d != "" {
		b.Fatalf("after the database was opened again: %s", d)
	}
	if r := b.accept(eventOf("k:1", 23)); !r.Duplicate {
		b.Fatalf("an event from before: %+v", r)
	}
	b.take(opID(30))
}

func durableSecond(b *bench) {
	other := b.second()
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	here := b.dump()
	first := b.st
	b.st = other
	if d := cmp.Diff(here, b.dump()); d != "" {
		b.Fatalf("another process reads otherwise: %s", d)
	}
	if r := b.accept(eventOf("k:1", 2)); !r.Duplicate {
		b.Fatalf("an event of the other process: %+v", r)
	}
	o := b.take(opID(1))
	b.st = first
	b.advance(reportOf(o, store.Confirmed)) // the guard is in the database, not in the handle
}

func durableLease(b *bench) {
	o := b.atState(store.Sending, 1)
	b.reopen()
	b.wantUnclaimed("the process died while it was sending")
	b.wait(lease + time.Second)
	ops, err := b.st.Attention(b.ctx, 10, false)
	b.must(err)
	if len(ops) != 1 || ops[0].ID != o.ID {
		b.Fatalf("need attention: %v", ids(ops))
	}
	got := b.advance(store.Report{ID: o.ID, On: store.Lost, Version: ops[0].Version, Fence: ops[0].Fence})
	if got.State != store.NeedsReconciliation || !got.Unreturned {
		b.Fatalf("%s, unreturned %v", got.State, got.Unreturned)
	}
}

// durableUnknown fails every call of a short life in turn, before and after its effect, and calls again with the same
// arguments: the end is always the same.
func durableUnknown(b *bench) {
	real := b.st
	for _, when := range []When{Before, After} {
		for n := 0; ; n++ {
			if n > 50 {
				b.Fatal("the sweep does not end")
			}
			f := Fail(real, n, when)
			b.st = f
			life := fmt.Sprintf("%s-%d", when, n)
			b.lifeWithRetries("k:"+life, 100*n+int(when)+1)
			if f.Failed() == "" {
				break
			}
		}
	}
}

// again calls until there is no injected failure.
func again[T any](b *bench, call func() (T, error)) T {
	b.Helper()
	v, err := call()
	if errors.Is(err, ErrInjected) {
		v, err = call()
	}
	b.must(err)
	return v
}

// lifeWithRetries takes one event to done and one submission to canceled.
func (b *bench) lifeWithRetries(key string, n int) {
	b.Helper()
	e := eventOf(key, n)
	r := again(b, func() (store.Receipt, error) { return b.st.Accept(b.ctx, e) })
	for range 2 { // a plan is decided anew: its first commit may have been made
		v := again(b, func() (store.KeyView, error) { return b.st.ReadKey(b.ctx, key) })
		if len(v.Events) > 0 {
			if _, err := b.st.CommitPlan(b.ctx, opening(planOf(v), e.DealKey, n)); err == nil {
				break
			}
		}
	}
	if _, err := b.st.Claim(b.ctx, claimOf("a", 1)); err != nil {
		_, err = b.st.Claim(b.ctx, claimOf("a", 1))
		b.must(err)
	}
	again(b, func() (store.Operation, error) { return b.st.Advance(b.ctx, evidence(opID(n), "77")) })
	s := submissionOf(n + 50)
	o := again(b, func() (store.Operation, error) { return b.st.Submit(b.ctx, s) })
	again(b, func() (store.Operation, error) { return b.st.Advance(b.ctx, personal(o, store.Cancel)) })

	if ops := again(b, func() ([]store.Operation, error) {
		return b.st.Operations(b.ctx, store.OperationFilter{EventID: r.EventID})
	}); len(ops) != 1 || ops[0].State != store.Done || ops[0].CRMID != "77" || ops[0].ConflictID != "" {
		b.Fatalf("%s: the event came to %+v", key, ops)
	}
	if got := again(b, func() (store.Operation, error) { return b.st.Operation(b.ctx, o.ID) }); got.State != store.Canceled {
		b.Fatalf("%s: the submission came to %s", key, got.State)
	}
}
