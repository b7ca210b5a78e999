package storetest

import (
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// advance.go: what moves an operation, whose word counts, and what is written down about it (I7, I9).

func advanceChecks() []check {
	return []check{
		{"every trigger moves from every state as the machine says", advanceTable},
		{"begin and repeat are a claim's alone", advanceBegin},
		{"an operation that does not exist is ErrNotFound", advanceMissing},
		{"a confirmed operation is done, with its id", advanceConfirmed},
		{"a report under a stale version is ErrLeaseLost", advanceStaleVersion},
		{"a report under a stale fence is ErrLeaseLost", advanceStaleFence},
		{"a worker whose lease was taken over is ErrLeaseLost", advanceTakenOver},
		{"a report again is ErrLeaseLost and changes nothing", advanceTwice},
		{"an expired lease is lost under the version and fence that were read", advanceRecovery},
		{"of a worker and the recovery that report at once one is ErrLeaseLost", advanceRecoveryRace},
		{"a verdict under a stale version is ErrMoved", advanceStaleVerdict},
		{"the ordinary way leaves no trail", advanceNoTrail},
		{"what deviates is in the trail, with what is known of the call", advanceTrail},
		{"a refused report leaves no trail", advanceRefusedTrail},
		{"the version grows with every move", advanceVersions},
	}
}

func advanceTable(b *bench) {
	n := 0
	for _, at := range places() {
		for _, on := range store.Triggers() {
			n++
			o := b.at(at, n)
			want, doubt, refused := store.Next(at.state, at.doubt, on)
			byClaim := on == store.Begin || on == store.Repeat
			got, err := b.st.Advance(b.ctx, reportOf(o, on))
			switch {
			case (refused != nil || byClaim) && err == nil:
				b.Errorf("%s from %s: got %s, want a *store.MoveError", on, at.name(), got.State)
			case refused != nil || byClaim:
				b.wantMoveError(err, o.ID, string(on)+" from "+at.name())
				if d := cmp.Diff(o, b.op(o.ID)); d != "" {
					b.Errorf("%s from %s was refused and changed the operation: %s", on, at.name(), d)
				}
			case err != nil:
				b.Errorf("%s from %s: %v", on, at.name(), err)
			case got.State != want || got.Doubt != doubt:
				b.Errorf("%s from %s: got %s doubt=%v, want %s doubt=%v", on, at.name(), got.State, got.Doubt, want, doubt)
			default:
				if d := cmp.Diff(got, b.op(o.ID)); d != "" {
					b.Errorf("%s from %s: returned and read differ: %s", on, at.name(), d)
				}
				ended := want == store.Done || want == store.Failed || want == store.Canceled
				if got.EndedAt.IsZero() == ended {
					b.Errorf("%s from %s: ended at %s in state %s", on, at.name(), got.EndedAt, got.State)
				}
			}
			b.finish(o.ID)
		}
	}
}

func advanceBegin(b *bench) {
	for n, c := range []struct {
		state store.State
		on    store.Trigger
	}{{store.Pending, store.Begin}, {store.Uncertain, store.Repeat}} {
		o := b.atState(c.state, n)
		_, err := b.st.Advance(b.ctx, reportOf(o, c.on))
		b.wantMoveError(err, o.ID, string(c.on)+" by Advance")
		b.finish(o.ID)
	}
}

func advanceMissing(b *bench) {
	for _, on := range store.Triggers() {
		if on == store.Begin || on == store.Repeat {
			continue
		}
		r := reportOf(store.Operation{ID: opID(404), Version: 1, Fence: 1}, on)
		_, err := b.st.Advance(b.ctx, r)
		b.wantErr(err, store.ErrNotFound, string(on)+" of nothing")
	}
	_, err := b.st.Advance(b.ctx, evidence(opID(404), "77"))
	b.wantErr(err, store.ErrNotFound, "evidence of nothing")
}

func advanceConfirmed(b *bench) {
	o := b.atState(store.Sending, 1)
	got := b.advance(store.Report{ID: o.ID, On: store.Confirmed, Version: o.Version, Fence: o.Fence, CRMID: "77",
		Returned: true})
	if got.State != store.Done || got.CRMID != "77" || got.Doubt || got.EndedAt.IsZero() || !got.Finished() {
		b.Fatalf("confirmed: %+v", got)
	}
	b.wantUnclaimed("a done operation")
}

// leased are the triggers that only the holder of the lease may pull.
func leased() []store.Trigger {
	return []store.Trigger{store.Lost, store.LostRepeatable, store.NotApplied, store.Rejected}
}

// wantLeaseLost reports and checks that nothing came of it.
func (b *bench) wantLeaseLost(r store.Report, when string) {
	b.Helper()
	before := b.op(r.ID)
	_, err := b.st.Advance(b.ctx, r)
	b.wantErr(err, store.ErrLeaseLost, string(r.On)+" "+when)
	if d := cmp.Diff(before, b.op(r.ID)); d != "" {
		b.Fatalf("%s %s changed the operation: %s", r.On, when, d)
	}
}

func advanceStaleVersion(b *bench) {
	o := b.atState(store.Sending, 1)
	for _, on := range leased() {
		for _, version := range []int64{o.Version - 1, o.Version + 1, 0} {
			r := reportOf(o, on)
			r.Version = version
			b.wantLeaseLost(r, "under another version")
		}
	}
}

func advanceStaleFence(b *bench) {
	o := b.atState(store.Sending, 1)
	for _, on := range leased() {
		for _, fence := range []int64{o.Fence - 1, o.Fence + 1, 0} {
			r := reportOf(o, on)
			r.Fence = fence
			b.wantLeaseLost(r, "under another fence")
		}
	}
}

func advanceTakenOver(b *bench) {
	old := b.atState(store.Sending, 1)
	b.wait(lease + time.Second)
	b.advance(reportOf(old, store.LostRepeatable)) // the recovery, by what it read
	now := b.take(old.ID)
	for _, on := range leased() {
		b.wantLeaseLost(reportOf(old, on), "by the worker before")
	}
	if now.Fence <= old.Fence {
		b.Fatalf("the fence went from %d to %d", old.Fence, now.Fence)
	}
	b.advance(reportOf(now, store.NotApplied))
}

func advanceTwice(b *bench) {
	for n, on := range leased() {
		o := b.atState(store.Sending, n)
		b.advance(reportOf(o, on))
		b.wantLeaseLost(reportOf(o, on), "again")
		b.finish(o.ID)
	}
}

func advanceRecovery(b *bench) {
	o := b.atState(store.Sending, 1)
	b.wait(lease + time.Second)
	read := b.op(o.ID)
	got := b.advance(store.Report{ID: o.ID, On: store.Lost, Version: read.Version, Fence: read.Fence,
		Reason: "lease expired"})
	if got.State != store.NeedsReconciliation || !got.Unreturned || got.Reason != "lease expired" {
		b.Fatalf("recovered: %s, unreturned %v, reason %q", got.State, got.Unreturned, got.Reason)
	}
}

func advanceRecoveryRace(b *bench) {
	other := b.st
	if b.Second != nil {
		other = b.Second()
	}
	for n := range 20 {
		o := b.atState(store.Sending, n)
		errs := make(chan error, 2)
		go func() { _, err := b.st.Advance(b.ctx, reportOf(o, store.NotApplied)); errs <- err }()
		go func() { _, err := other.Advance(b.ctx, reportOf(o, store.Lost)); errs <- err }()
		first, second := <-errs, <-errs
		if first == nil {
			first, second = second, first
		}
		b.must(second)
		b.wantErr(first, store.ErrLeaseLost, "the second of two reports")
		b.finish(o.ID)
	}
}

func advanceStaleVerdict(b *bench) {
	n := 0
	for _, c := range []struct {
		on    store.Trigger
		state store.State
	}{
		{store.WindowClosed, store.Uncertain}, {store.GuaranteeChanged, store.Uncertain}, {store.Absent,
			store.NeedsReconciliation},
		{store.Inconclusive, store.NeedsReconciliation}, {store.Drop, store.Pending}, {store.Cancel, store.Failed},
		{store.Reopen, store.Failed}, {store.Restored, store.Pending}, {store.Correct, store.Done},
		{store.Acknowledge, store.Done}, {store.Confirmed, store.NeedsReconciliation},
	} {
		n++
		o := b.atState(c.state, n)
		for _, version := range []int64{o.Version - 1, o.Version + 1} {
			r := reportOf(o, c.on)
			r.Version = version
			_, err := b.st.Advance(b.ctx, r)
			b.wantErr(err, store.ErrMoved, string(c.on)+" under another version")
		}
		if d := cmp.Diff(o, b.op(o.ID)); d != "" {
			b.Fatalf("%s under another version changed the operation: %s", c.on, d)
		}
		b.finish(o.ID)
	}
}

func advanceNoTrail(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	b.advance(reportOf(b.take(create.ID), store.Confirmed))
	b.advance(reportOf(b.take(note.ID), store.Confirmed))
	for _, id := range []string{create.ID, note.ID} {
		if t := b.trail(id); len(t) != 0 {
			b.Fatalf("trail of an ordinary success: %+v", t)
		}
	}
}

func advanceTrail(b *bench) {
	o := b.atState(store.Sending, 1)
	started := o.LastSentAt.Add(time.Second)
	lost := store.Report{ID: o.ID, On: store.LostRepeatable, Version: o.Version, Fence: o.Fence, Reason: "status 502",
		Returned:  true,
		StartedAt: started, Took: 1500 * time.Millisecond, Status: 502, RequestID: "req-1"}
	after := b.advance(lost)
	again := b.take(o.ID)
	b.advance(reportOf(again, store.Rejected))
	cancel := b.op(o.ID)
	b.advance(store.Report{ID: o.ID, On: store.Cancel, Version: cancel.Version, By: "ann", Why: "a test lead"})
	b.advance(store.Report{ID: o.ID, On: store.Confirmed, CRMID: "77"})

	t := b.trail(o.ID)
	if len(t) != 4 {
		b.Fatalf("the trail has %d entries, want 4: %+v", len(t), t)
	}
	if e := t[0]; e.OperationID != o.ID || e.On != store.LostRepeatable || e.From != store.Sending ||
		e.To != store.Uncertain || e.Attempt != 1 ||
		!e.StartedAt.Equal(started) || e.Took != lost.Took || e.Status != 502 || e.RequestID != "req-1" ||
		e.Reason != "status 502" ||
		e.Seen != o.Version || e.At.IsZero() || e.By != "" {
		b.Errorf("the lost attempt: %+v", e)
	}
	if e := t[1]; e.On != store.Rejected || e.From != store.Sending || e.To != store.NeedsReconciliation ||
		e.Attempt != 2 || e.Seen != again.Version {
		b.Errorf("the refused repeat: %+v", e)
	}
	if e := t[2]; e.On != store.Cancel || e.To != store.Canceled || e.By != "ann" || e.Why != "a test lead" ||
		e.Seen != cancel.Version {
		b.Errorf("the person's action: %+v", e)
	}
	if e := t[3]; e.On != store.Confirmed || e.From != store.Canceled || e.To != store.Done || e.CRMID != "77" {
		b.Errorf("the late evidence: %+v", e)
	}
	if after.Version <= o.Version {
		b.Errorf("version %d after %d", after.Version, o.Version)
	}
}

func advanceRefusedTrail(b *bench) {
	o := b.atState(store.Sending, 1)
	stale := reportOf(o, store.Lost)
	stale.Fence++
	_, err := b.st.Advance(b.ctx, stale)
	b.wantErr(err, store.ErrLeaseLost, "another fence")
	_, err = b.st.Advance(b.ctx, reportOf(o, store.Reopen))
	b.wantMoveError(err, o.ID, "reopen while it is sent")
	if !strings.Contains(err.Error(), o.ID) {
		b.Errorf("the error does not name the operation: %v", err)
	}
	if t := b.trail(o.ID); len(t) != 0 {
		b.Fatalf("trail of what did not happen: %+v", t)
	}
}

func advanceVersions(b *bench) {
	o := b.submit(1)
	last := o.Version
	for _, on := range []store.Trigger{store.Begin, store.NotApplied, store.Begin, store.LostRepeatable, store.Repeat,
		store.Rejected, store.Absent,
		store.Begin, store.Rejected, store.Reopen, store.Cancel, store.Reopen, store.Restored, store.Cancel, store.Confirmed} {
		o = b.step(o, on)
		if o.Version <= last {
			b.Fatalf("%s: version %d after %d", on, o.Version, last)
		}
		last = o.Version
	}
}
