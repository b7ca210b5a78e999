package storetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// effects.go: what a report changes beside the state.

func effectChecks() []check {
	return []check{
		{"a retry is not due before its time", advanceRetryAfter},
		{"failures count attempts without success in a row", advanceFailures},
		{"an attempt that was never sent counts as none", advanceUnsent},
		{"an attempt that never returned is remembered as long as doubt lasts", advanceUnreturned},
		{"proof of absence forgets the first attempt", advanceAbsent},
		{"an inconclusive look-up moves only when it is looked up again", advanceInconclusive},
		{"a confirmed create unblocks what waits for it", advanceUnblocks},
		{"a confirmed create stores its id with the deal", advanceDealID},
		{"a create that is lost or refused leaves its notes waiting", advanceKeepsBlocked},
		{"an operation without fields takes only evidence and cancel", advanceErased},
	}
}

func advanceRetryAfter(b *bench) {
	for n, c := range []struct {
		from  store.State
		on    store.Trigger
		after time.Duration
	}{
		{store.Sending, store.NotApplied, 7 * time.Minute}, {store.Sending, store.LostRepeatable, time.Second},
		{store.Sending, store.Lost, quiet}, {store.NeedsReconciliation, store.Inconclusive, time.Hour},
		{store.NeedsReconciliation, store.Absent, time.Minute},
	} {
		o := b.atState(c.from, n)
		r := reportOf(o, c.on)
		r.RetryAfter = c.after
		got := b.advance(r)
		now := b.read("k:clock").Now
		if late := now.Add(c.after).Sub(got.DueAt); late < 0 || late > 10*time.Second {
			b.Errorf("%s with %s to wait: due %s before now + %s", c.on, c.after, late, c.after)
		}
		b.finish(o.ID)
	}
}

func advanceFailures(b *bench) {
	o := b.submit(1)
	for n, on := range []store.Trigger{store.NotApplied, store.LostRepeatable, store.NotApplied, store.Lost} {
		o = b.take(o.ID)
		o = b.advance(reportOf(o, on))
		if o.Failures != n+1 || o.Attempts != n+1 {
			b.Fatalf("after %d attempts without success: attempts %d, failures %d", n+1, o.Attempts, o.Failures)
		}
	}
}

func advanceUnsent(b *bench) {
	o := b.atState(store.Sending, 1)
	r := reportOf(o, store.NotApplied)
	r.Unsent, r.Returned, r.Reason = true, false, "draining"
	got := b.advance(r)
	if got.State != store.Pending || got.Attempts != 0 || got.Failures != 0 || got.Unreturned {
		b.Fatalf("%s, attempts %d, failures %d, unreturned %v", got.State, got.Attempts, got.Failures, got.Unreturned)
	}
	again := b.take(o.ID)
	if again.Attempts != 1 || again.Fence <= o.Fence {
		b.Fatalf("begun again: attempts %d, fence %d after %d", again.Attempts, again.Fence, o.Fence)
	}
	// With an earlier attempt in doubt, that one stays as it was.
	b.advance(reportOf(again, store.LostRepeatable))
	r = reportOf(b.take(o.ID), store.NotApplied)
	r.Unsent, r.Returned = true, false
	if got = b.advance(r); got.State != store.Uncertain || got.Attempts != 1 || got.Failures != 1 || got.Unreturned ||
		!got.FirstSentAt.Equal(again.FirstSentAt) {
		b.Fatalf("%s, attempts %d, failures %d, unreturned %v, first sent %s", got.State, got.Attempts, got.Failures,
			got.Unreturned, got.FirstSentAt)
	}
}

func advanceUnreturned(b *bench) {
	lost := func(o store.Operation, on store.Trigger, returned bool) store.Operation {
		b.Helper()
		r := reportOf(o, on)
		r.Returned = returned
		return b.advance(r)
	}
	if o := lost(b.atState(store.Sending, 1), store.Lost, true); o.Unreturned {
		b.Fatal("a call that came back counts as one that did not")
	}
	b.finish(opID(1))

	o := lost(b.atState(store.Sending, 2), store.LostRepeatable, false)
	if !o.Unreturned {
		b.Fatal("a call that did not come back is forgotten at once")
	}
	// Later attempts that return say nothing about the first.
	for _, on := range []store.Trigger{store.NotApplied, store.LostRepeatable, store.Lost} {
		if o = lost(b.take(o.ID), on, true); !o.Unreturned {
			b.Fatalf("%s of a later attempt made the first one return", on)
		}
	}
	o = b.advance(reportOf(o, store.Absent))
	if o.Unreturned {
		b.Fatal("doubt is over, and an attempt is still missed")
	}
	if o = lost(b.take(o.ID), store.Lost, true); o.Unreturned {
		b.Fatal("an attempt before doubt ended is missed in the next doubt")
	}
}

func advanceAbsent(b *bench) {
	o := b.atState(store.NeedsReconciliation, 1)
	b.wait(10 * window)
	got := b.advance(reportOf(o, store.Absent))
	if got.State != store.Pending || got.Doubt || !got.FirstSentAt.IsZero() || got.CRMID != "" {
		b.Fatalf("absent: %s doubt=%v, first sent %s", got.State, got.Doubt, got.FirstSentAt)
	}
	again := b.take(o.ID)
	if again.FirstSentAt.Sub(o.FirstSentAt) < 10*window {
		b.Fatalf("the window still counts from %s", again.FirstSentAt)
	}
	b.advance(reportOf(again, store.LostRepeatable))
	b.take(o.ID)
}

func advanceInconclusive(b *bench) {
	o := b.atState(store.NeedsReconciliation, 1)
	r := reportOf(o, store.Inconclusive)
	r.RetryAfter, r.Reason = time.Hour, "two records"
	got := b.advance(r)
	if got.Version != o.Version || got.Reason != "two records" || !got.DueAt.After(o.DueAt) {
		b.Fatalf("version %d after %d, reason %q, due %s after %s", got.Version, o.Version, got.Reason, got.DueAt, o.DueAt)
	}
	got.DueAt, got.Reason, got.UpdatedAt = o.DueAt, o.Reason, o.UpdatedAt
	if d := cmp.Diff(o, got); d != "" {
		b.Fatalf("more changed: %s", d)
	}
	// So a person who looked before it can still decide.
	b.advance(reportOf(o, store.Cancel))
}

func advanceUnblocks(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	_, other := b.opened("k:2", 3)
	_, elsewhere := b.noted(other, 4)
	b.advance(evidence(create.ID, "77"))
	got := b.op(note.ID)
	if got.Blocked || got.State != store.Pending || got.LeadID != "77" {
		b.Fatalf("the note is %s, blocked %v, for lead %q", got.State, got.Blocked, got.LeadID)
	}
	if !b.op(elsewhere.ID).Blocked {
		b.Fatal("the note of another deal was unblocked")
	}
	b.finish(other.ID)
	b.advance(reportOf(b.op(elsewhere.ID), store.Cancel))
	b.take(note.ID)
}

func advanceDealID(b *bench) {
	_, create := b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	before := b.read("k:1").Deals[0]
	b.advance(evidence(create.ID, "77"))
	got := b.read("k:1").Deals[0]
	if got.CRMID != "77" || got.Version <= before.Version || got.State != store.DealOpen {
		b.Fatalf("the deal has the id %q, version %d after %d, %s", got.CRMID, got.Version, before.Version, got.State)
	}
}

func advanceKeepsBlocked(b *bench) {
	for n, on := range []store.Trigger{store.NotApplied, store.Lost, store.LostRepeatable, store.Rejected} {
		key := "k:" + string(on)
		_, create := b.opened(key, 10*n+1)
		_, note := b.noted(create, 10*n+2)
		b.advance(reportOf(b.take(create.ID), on))
		if got := b.op(note.ID); !got.Blocked || got.State != store.Pending || got.LeadID != "" {
			b.Fatalf("after %s of its create the note is %s, blocked %v, for lead %q", on, got.State, got.Blocked, got.LeadID)
		}
		b.finish(create.ID)
		b.advance(reportOf(b.op(note.ID), store.Cancel))
	}
}

func advanceErased(b *bench) {
	n := 0
	for _, at := range places() {
		for _, on := range store.Triggers() {
			if _, _, err := store.Next(at.state, at.doubt, on); err != nil || on == store.Begin || on == store.Repeat {
				continue
			}
			n++
			o := b.at(at, n)
			b.erase(o.ID)
			o = b.op(o.ID)
			_, err := b.st.Advance(b.ctx, reportOf(o, on))
			if on == store.Confirmed || on == store.Cancel {
				if err != nil {
					b.Errorf("%s of an erased operation from %s: %v", on, at.name(), err)
				}
			} else {
				b.wantMoveError(err, o.ID, string(on)+" of an erased operation from "+at.name())
			}
			b.finish(o.ID)
		}
	}
}
