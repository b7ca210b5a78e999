package storetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// attention.go: what needs a verdict, found again by whoever asks.

func attentionChecks() []check {
	return []check{
		{"an expired lease needs attention, a running one does not", attentionLease},
		{"an uncertain operation needs attention once it is due", attentionUncertain},
		{"a look-up is asked for only where look-ups are made, and once it is due", attentionLookups},
		{"nothing else needs attention", attentionOthers},
		{"attention changes nothing, and is found again", attentionAgain},
		{"the limit is of each", attentionLimit},
	}
}

func (b *bench) attention(lookups bool) []string {
	b.Helper()
	ops, err := b.st.Attention(b.ctx, 100, lookups)
	if err != nil {
		b.Fatalf("attention: %v", err)
	}
	list := ids(ops)
	slices.Sort(list)
	return list
}

func (b *bench) wantAttention(lookups bool, when string, want ...string) {
	b.Helper()
	if got := b.attention(lookups); !slices.Equal(got, want) {
		b.Fatalf("%s: %v need attention, want %v", when, got, want)
	}
}

func attentionLease(b *bench) {
	o := b.atState(store.Sending, 1)
	b.wantAttention(true, "right after a claim")
	b.wait(lease - time.Second)
	b.wantAttention(true, "before the lease ends")
	b.wait(2 * time.Second)
	b.wantAttention(false, "after the lease", o.ID)
	b.advance(reportOf(o, store.Lost))
	b.wantAttention(false, "once it is settled")
}

func attentionUncertain(b *bench) {
	o := b.atState(store.Sending, 1)
	r := reportOf(o, store.LostRepeatable)
	r.RetryAfter = time.Minute
	b.advance(r)
	b.wantAttention(true, "during back-off")
	b.wait(time.Minute)
	b.wantAttention(false, "when it is due", o.ID)
	b.wait(10 * window)
	b.wantAttention(false, "after its window", o.ID)
	b.advance(reportOf(b.op(o.ID), store.WindowClosed))
	b.wantAttention(false, "once its window is known to be closed")
}

func attentionLookups(b *bench) {
	o := b.atState(store.Sending, 1)
	r := reportOf(o, store.Lost)
	r.RetryAfter = quiet
	b.advance(r)
	b.wantAttention(true, "in the quiet period")
	b.wait(quiet)
	b.wantAttention(false, "without look-ups")
	b.wantAttention(true, "with look-ups", o.ID)
	r = reportOf(b.op(o.ID), store.Inconclusive)
	r.RetryAfter = time.Hour
	b.advance(r)
	b.wantAttention(true, "after a look-up that settled nothing")
	b.wait(time.Hour)
	b.wantAttention(true, "when it is looked up again", o.ID)
}

func attentionOthers(b *bench) {
	for n, at := range places() {
		o := b.at(at, n)
		switch at.state {
		case store.Sending, store.Uncertain, store.NeedsReconciliation:
		default:
			b.wait(24 * time.Hour)
			b.wantAttention(true, at.name())
		}
		b.finish(o.ID)
	}
}

func attentionAgain(b *bench) {
	o := b.atState(store.Sending, 1)
	b.wait(2 * lease)
	for range 3 {
		b.wantAttention(true, "again", o.ID)
	}
	if d := cmp.Diff(o, b.op(o.ID)); d != "" {
		b.Fatal(d)
	}
	ops, err := b.st.Attention(b.ctx, 10, false)
	b.must(err)
	b.advance(store.Report{ID: o.ID, On: store.Lost, Version: ops[0].Version, Fence: ops[0].Fence})
}

func attentionLimit(b *bench) {
	for n := range 3 {
		b.atState(store.NeedsReconciliation, n)
	}
	for n := range 3 {
		o := b.atState(store.Sending, 10+n)
		r := reportOf(o, store.LostRepeatable)
		r.RetryAfter = lease
		b.advance(r)
		b.atState(store.Sending, 20+n)
	}
	b.wait(2 * lease)
	ops, err := b.st.Attention(b.ctx, 2, true)
	b.must(err)
	of := map[store.State]int{}
	for _, o := range ops {
		of[o.State]++
	}
	want := map[store.State]int{store.Sending: 2, store.Uncertain: 2, store.NeedsReconciliation: 2}
	if d := cmp.Diff(want, of); d != "" {
		b.Fatalf("with a limit of 2: %s", d)
	}
}
