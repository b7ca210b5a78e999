package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// claim.go: who sends what, and when. One owner an operation, and no repeat that could double (I8, I9).

func claimChecks() []check {
	return []check{
		{"a claim begins an operation and says so", claimBegins},
		{"a claim returns what is stored", claimReturnsStored},
		{"the oldest due comes first, up to the limit", claimOrder},
		{"a limit of 0 claims nothing", claimZero},
		{"what is being sent is nobody else's, also after its lease", claimHeld},
		{"only pending and uncertain operations are claimed", claimStates},
		{"a blocked operation is not claimed", claimBlocked},
		{"an operation without fields is not claimed", claimErased},
		{"an operation is not sent before it is due", claimFuture},
		{"a fresh attempt freezes the terms that hold now", claimTerms},
		{"a kind without terms begins without a guarantee", claimNoTerms},
		{"an uncertain operation is repeated inside its window", claimRepeats},
		{"an uncertain operation is not repeated before it is due", claimRepeatFuture},
		{"no repeat from the edge of the window on", claimWindow},
		{"the window counts from the first attempt in doubt, not from the last", claimWindowFirst},
		{"a fresh attempt after one that certainly did nothing has a window of its own", claimFreshWindow},
		{"no repeat under another adapter or promise", claimChanged},
		{"no repeat without a guarantee", claimUnguaranteed},
		{"the fencing token grows with every attempt", claimFence},
		{"every operation has one owner", claimRace},
		{"a claim that can't be meant is refused with the field's name", claimInvalid},
		{"what is not repeatable does not use up the limit", claimLimitSkips},
	}
}

// wantBegun checks an operation that was begun for the first time just now.
func (b *bench) wantBegun(o store.Operation, owner string) {
	b.Helper()
	if o.State != store.Sending || o.Doubt || o.Owner != owner || o.Fence < 1 || o.Attempts != 1 || o.Failures != 0 ||
		o.Unreturned {
		b.Errorf("begun: %s doubt=%v, owner %q, fence %d, attempts %d, failures %d, unreturned %v",
			o.State, o.Doubt, o.Owner, o.Fence, o.Attempts, o.Failures, o.Unreturned)
	}
	if got := o.LeaseUntil.Sub(o.LastSentAt); got != lease || o.LastSentAt.IsZero() || !o.FirstSentAt.Equal(o.LastSentAt) {
		b.Errorf("begun: first sent %s, last sent %s, lease for %s", o.FirstSentAt, o.LastSentAt, got)
	}
	if o.Adapter != adapter || o.Guarantee != guarantee || o.Window != window {
		b.Errorf("begun under %q %q %s", o.Adapter, o.Guarantee, o.Window)
	}
}

func claimBegins(b *bench) {
	before := b.submit(1)
	o := b.take(opID(1))
	b.wantBegun(o, "worker-a")
	if o.Version <= before.Version || string(o.Fields) != string(before.Fields) || !o.CreatedAt.Equal(before.CreatedAt) {
		b.Errorf("before %+v, begun %+v", before, o)
	}
	if len(b.trail(o.ID)) != 0 {
		b.Error("an ordinary beginning left a trail")
	}
}

func claimReturnsStored(b *bench) {
	_, create := b.opened("k:1", 1)
	if d := cmp.Diff(b.take(create.ID), b.op(create.ID)); d != "" {
		b.Fatalf("returned and read differ: %s", d)
	}
	b.finish(create.ID)
	_, note := b.noted(create, 2)
	got := b.take(note.ID)
	if got.LeadID != b.op(create.ID).CRMID || got.LeadID == "" {
		b.Fatalf("the note is to be added to the lead %q, want %q", got.LeadID, b.op(create.ID).CRMID)
	}
	if d := cmp.Diff(got, b.op(note.ID)); d != "" {
		b.Fatalf("returned and read differ: %s", d)
	}
}

func claimOrder(b *bench) {
	for _, n := range []int{5, 3, 4, 1, 2} {
		b.submit(n)
		b.wait(time.Second)
	}
	var got []string
	for _, limit := range []int{1, 2, 10} {
		ops := b.claim(claimOf("a", limit))
		if len(ops) > limit {
			b.Fatalf("%d operations for %d workers", len(ops), limit)
		}
		got = append(got, ids(ops)...)
	}
	if want := []string{opID(5), opID(3), opID(4), opID(1), opID(2)}; !slices.Equal(got, want) {
		b.Fatalf("claimed %v, want %v", got, want)
	}
}

func claimZero(b *bench) {
	b.submit(1)
	if ops, _ := b.st.Claim(b.ctx, claimOf("a", 0)); len(ops) != 0 || b.op(opID(1)).State != store.Pending {
		b.Fatalf("claimed %v, stored as %s", ids(ops), b.op(opID(1)).State)
	}
}

// wantUnclaimed checks that nothing can be claimed, through any handle.
func (b *bench) wantUnclaimed(when string) {
	b.Helper()
	if ops := b.claim(claimOf("worker-b", 10)); len(ops) != 0 {
		b.Fatalf("%s: claimed %v", when, ids(ops))
	}
}

func claimHeld(b *bench) {
	b.submit(1)
	b.take(opID(1))
	b.wantUnclaimed("right after a claim")
	if b.Second != nil {
		if ops, err := b.Second().Claim(b.ctx, claimOf("c", 10)); err != nil || len(ops) != 0 {
			b.Fatalf("another process: %v, %v", ids(ops), err)
		}
	}
	b.wait(lease + time.Hour)
	b.wantUnclaimed("after the lease: what became of the attempt is not known")
}

func claimStates(b *bench) {
	for n, at := range places() {
		o := b.at(at, n)
		b.wait(24 * time.Hour) // every window is closed
		if at.state == store.Pending {
			b.take(o.ID)
		} else {
			b.wantUnclaimed(at.name())
		}
		b.finish(o.ID)
	}
}

func claimBlocked(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	if !note.Blocked {
		b.Fatal("the note is not blocked")
	}
	b.take(create.ID)
	b.wantUnclaimed("a note to a lead that is being created")
}

func claimErased(b *bench) {
	b.submit(1)
	b.erase(opID(1))
	if o := b.op(opID(1)); o.Fields != nil {
		b.Fatalf("erased: %d bytes of fields", len(o.Fields))
	}
	b.wantUnclaimed("an erased operation")
}

func claimFuture(b *bench) {
	o := b.atState(store.Sending, 1)
	r := reportOf(o, store.NotApplied)
	r.RetryAfter = time.Minute
	b.advance(r)
	b.wantUnclaimed("during back-off")
	b.wait(time.Minute - time.Millisecond)
	b.wantUnclaimed("a moment before it is due")
	b.wait(time.Millisecond)
	b.take(o.ID)
}

func claimTerms(b *bench) {
	o := b.atState(store.Sending, 1)
	b.advance(reportOf(o, store.NotApplied))
	c := claimOf("a", 1)
	c.Adapter, c.Terms = "sim account-2", map[string]store.Terms{kindCreate: {Guarantee: "idempotency_key",
		Window: 48 * time.Hour}}
	ops := b.claim(c)
	if len(ops) != 1 || ops[0].Adapter != "sim account-2" || ops[0].Guarantee != "idempotency_key" ||
		ops[0].Window != 48*time.Hour {
		b.Fatalf("begun %+v", ops)
	}
}

func claimNoTerms(b *bench) {
	b.submit(1)
	c := claimOf("a", 1)
	c.Terms = nil
	ops := b.claim(c)
	if len(ops) != 1 || ops[0].Guarantee != "" || ops[0].Window != 0 || ops[0].Adapter != adapter {
		b.Fatalf("begun %+v", ops)
	}
}

func claimRepeats(b *bench) {
	first := b.atState(store.Uncertain, 1)
	b.wait(10 * time.Minute)
	o := b.take(first.ID)
	if o.State != store.Sending || !o.Doubt || o.Attempts != 2 || !o.FirstSentAt.Equal(first.FirstSentAt) ||
		o.LastSentAt.Sub(o.FirstSentAt) < 10*time.Minute || o.LeaseUntil.Sub(o.LastSentAt) != lease {
		b.Fatalf("repeated: %s doubt=%v, attempts %d, first sent %s (was %s), last sent %s, lease until %s",
			o.State, o.Doubt, o.Attempts, o.FirstSentAt, first.FirstSentAt, o.LastSentAt, o.LeaseUntil)
	}
	if string(o.Fields) != string(first.Fields) || o.Revision != first.Revision {
		b.Fatal("the repeat is another request")
	}
}

func claimRepeatFuture(b *bench) {
	o := b.atState(store.Sending, 1)
	r := reportOf(o, store.LostRepeatable)
	r.RetryAfter = time.Minute
	b.advance(r)
	b.wait(time.Minute - time.Millisecond)
	b.wantUnclaimed("a moment before it is due")
	b.wait(time.Millisecond)
	b.take(o.ID)
}

func claimWindow(b *bench) {
	b.atState(store.Uncertain, 1)
	b.wait(window - lease - quiet)
	b.wantUnclaimed("at the edge of the window")
	b.wait(time.Hour)
	b.wantUnclaimed("after the window")
	if o := b.op(opID(1)); o.State != store.Uncertain {
		b.Fatalf("a claim moved it to %s", o.State)
	}
}

func claimWindowFirst(b *bench) {
	o := b.atState(store.Uncertain, 1)
	b.wait(40 * time.Minute)
	o = b.take(o.ID)
	b.advance(reportOf(o, store.NotApplied)) // doubt about the first attempt stays, and so does its window
	b.wait(window - lease - quiet - 40*time.Minute)
	b.wantUnclaimed("when the window of the first attempt has closed")
}

func claimFreshWindow(b *bench) {
	o := b.atState(store.Sending, 1)
	b.advance(reportOf(o, store.NotApplied))
	b.wait(2 * window)
	again := b.take(o.ID)
	if !again.FirstSentAt.Equal(again.LastSentAt) || again.FirstSentAt.Sub(o.FirstSentAt) < 2*window {
		b.Fatalf("the second attempt's window counts from %s, begun at %s", again.FirstSentAt, again.LastSentAt)
	}
	b.advance(reportOf(again, store.LostRepeatable))
	b.take(o.ID)
}

func claimChanged(b *bench) {
	b.atState(store.Uncertain, 1)
	terms := func(g string, w time.Duration) map[string]store.Terms {
		return map[string]store.Terms{kindCreate: {Guarantee: g, Window: w}}
	}
	for what, f := range map[string]func(*store.Claim){
		"another adapter":   func(c *store.Claim) { c.Adapter = "sim account-2" },
		"another guarantee": func(c *store.Claim) { c.Terms = terms("idempotency_key", window) },
		"a longer window":   func(c *store.Claim) { c.Terms = terms(guarantee, 2*window) },
		"a shorter window":  func(c *store.Claim) { c.Terms = terms(guarantee, window/2) },
		"no guarantee":      func(c *store.Claim) { c.Terms = nil },
		"a longer lease":    func(c *store.Claim) { c.Lease = window },
		"a longer quiet":    func(c *store.Claim) { c.Quiet = window },
	} {
		c := claimOf("a", 1)
		f(&c)
		if ops := b.claim(c); len(ops) != 0 {
			b.Fatalf("repeated under %s", what)
		}
	}
	b.take(opID(1))
}

func claimUnguaranteed(b *bench) {
	b.submit(1)
	c := claimOf("a", 1)
	c.Terms = map[string]store.Terms{kindCreate: {Window: window}}
	ops := b.claim(c)
	if len(ops) != 1 {
		b.Fatalf("claimed %v", ids(ops))
	}
	b.advance(reportOf(ops[0], store.LostRepeatable)) // a caller's mistake
	if ops := b.claim(c); len(ops) != 0 {
		b.Fatal("repeated without a guarantee")
	}
}

func claimFence(b *bench) {
	o := b.submit(1)
	last := o.Fence
	for n, on := range []store.Trigger{store.NotApplied, store.LostRepeatable, store.NotApplied, store.LostRepeatable} {
		o = b.take(o.ID)
		if o.Fence <= last || o.Attempts != n+1 {
			b.Fatalf("attempt %d: fence %d after %d, attempts %d", n+1, o.Fence, last, o.Attempts)
		}
		last = o.Fence
		o = b.advance(reportOf(o, on))
		if o.Fence != last {
			b.Fatalf("%s moved the fence from %d to %d", on, last, o.Fence)
		}
	}
}

func claimRace(b *bench) {
	handles := []Backend{b.st, b.st}
	if b.Second != nil {
		handles[1] = b.Second()
	}
	const n, workers = 60, 8
	for i := range n {
		b.submit(i)
	}
	owners := make([]map[string]int64, workers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		owners[w] = map[string]int64{}
		wg.Go(func() {
			for {
				ops, err := handles[w%2].Claim(b.ctx, claimOf(fmt.Sprint("worker-", w), 3))
				if err != nil || len(ops) == 0 || len(ops) > 3 {
					if errs[w] = err; len(ops) > 3 {
						errs[w] = fmt.Errorf("%d operations for 3 workers", len(ops))
					}
					return
				}
				for _, o := range ops {
					owners[w][o.ID] = o.Fence
				}
			}
		})
	}
	wg.Wait()
	claimed := map[string]int{}
	for w := range workers {
		b.must(errs[w])
		for id, fence := range owners[w] {
			if other, ok := claimed[id]; ok {
				b.Fatalf("%s is owned by the workers %d and %d", id, other, w)
			}
			claimed[id] = w
			if o := b.op(id); o.Owner != fmt.Sprint("worker-", w) || o.Fence != fence || o.Attempts != 1 {
				b.Fatalf("worker %d was given fence %d of %s; stored are owner %q, fence %d, attempts %d", w, fence, id,
					o.Owner, o.Fence, o.Attempts)
			}
		}
	}
	if len(claimed) != n {
		b.Fatalf("%d of %d operations were claimed", len(claimed), n)
	}
}

func claimInvalid(b *bench) {
	b.submit(1)
	for field, f := range map[string]func(*store.Claim){
		"Owner": func(c *store.Claim) { c.Owner = "" },
		"Lease": func(c *store.Claim) { c.Lease = 0 },
	} {
		c := claimOf("a", 1)
		f(&c)
		_, err := b.st.Claim(b.ctx, c)
		b.wantErr(err, store.ErrInvalid, "claim without "+field)
		b.wantNamed(err, field)
	}
	b.take(opID(1))
}

func claimLimitSkips(b *bench) {
	for n := range 3 {
		b.atState(store.Uncertain, n)
		b.wait(time.Second)
		if n < 2 {
			// Out of the way of the next one, and due again later, before the window closes.
			o := b.take(opID(n))
			r := reportOf(o, store.NotApplied)
			r.RetryAfter = 30 * time.Minute
			b.advance(r)
		}
	}
	b.wait(window)
	b.submit(9)
	b.take(opID(9))
}
