package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// verdict.go: what a person decides. Twice is once, who and why are kept, and a page that has moved on is no ground (I16).

func verdictChecks() []check {
	return []check{
		{"a person's trigger needs a name", verdictNeedsName},
		{"a person's trigger again is the operation as it stands", verdictAgain},
		{"the same click in concurrent calls is one action", verdictConcurrent},
		{"another person on a page that has moved on is refused", verdictOther},
		{"a verdict is refused after evidence came in", verdictAfterEvidence},
		{"a person's Confirmed and Absent need the version that was seen", verdictGuarded},
		{"who and why are in the trail, with the version seen", verdictTrail},
		{"canceling a create ends what waits for it, in the same commit", verdictCascade},
		{"canceling a create leaves what went out already", verdictCascadeLeaves},
		{"canceling a note leaves its create and the other notes", verdictCancelNote},
		{"a canceled operation in doubt says so", verdictCancelDoubt},
		{"reopening sends again what is certainly not in the CRM", verdictReopen},
		{"reopening what is in doubt does not send it", verdictReopenDoubt},
		{"reopening a note whose create is not done blocks it again", verdictReopenBlocked},
		{"reopening a note whose create is done lets it go", verdictReopenUnblocked},
		{"after a restored backup nothing unfinished is sent, nor looked up to be absent", verdictRestored},
	}
}

func verdictNeedsName(b *bench) {
	n := 0
	for _, c := range []struct {
		on    store.Trigger
		state store.State
	}{{store.Cancel, store.Failed}, {store.Reopen, store.Failed}, {store.Restored, store.Failed}, {store.Correct,
		store.Done}, {store.Acknowledge, store.Done}} {
		n++
		o := b.atState(c.state, n)
		r := reportOf(o, c.on)
		r.By = ""
		_, err := b.st.Advance(b.ctx, r)
		b.wantErr(err, store.ErrInvalid, string(c.on)+" by nobody")
		b.wantNamed(err, "By")
		if d := cmp.Diff(o, b.op(o.ID)); d != "" {
			b.Fatalf("%s by nobody: %s", c.on, d)
		}
		b.finish(o.ID)
	}
}

// personal is a report by a person of any trigger.
func personal(o store.Operation, on store.Trigger) store.Report {
	r := reportOf(o, on)
	r.By, r.Why, r.Returned, r.Fence = "ann", "looked at it", false, 0
	return r
}

// verdicts are what a person may say, and where.
func verdicts() []struct {
	on    store.Trigger
	state store.State
} {
	return []struct {
		on    store.Trigger
		state store.State
	}{
		{store.Cancel, store.Pending}, {store.Cancel, store.NeedsReconciliation}, {store.Reopen, store.Failed},
		{store.Reopen, store.Canceled},
		{store.Restored, store.Failed}, {store.Acknowledge, store.Done}, {store.Correct, store.Done},
		{store.Absent, store.NeedsReconciliation}, {store.Confirmed, store.NeedsReconciliation},
	}
}

func verdictAgain(b *bench) {
	for n, c := range verdicts() {
		o := b.atState(c.state, n)
		if c.on == store.Acknowledge {
			o = b.advance(evidence(o.ID, "other"))
		}
		first := b.advance(personal(o, c.on))
		trail := b.trail(o.ID)
		b.wait(time.Second)
		again, err := b.st.Advance(b.ctx, personal(o, c.on)) // the version that was seen, not the current one
		if err != nil {
			b.Fatalf("%s from %s again: %v", c.on, c.state, err)
		}
		if d := cmp.Diff(first, again); d != "" {
			b.Fatalf("%s from %s again: %s", c.on, c.state, d)
		}
		if d := cmp.Diff(trail, b.trail(o.ID)); d != "" {
			b.Fatalf("%s from %s again left a trail: %s", c.on, c.state, d)
		}
		b.finish(o.ID)
	}
}

func verdictConcurrent(b *bench) {
	handles := []Backend{b.st, b.st}
	if b.Second != nil {
		handles[1] = b.Second()
	}
	o := b.atState(store.NeedsReconciliation, 1)
	before := len(b.trail(o.ID))
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = handles[i%2].Advance(b.ctx, personal(o, store.Absent)) })
	}
	wg.Wait()
	b.must(errors.Join(errs...))
	if got := b.op(o.ID); got.State != store.Pending || got.Version != o.Version+1 {
		b.Fatalf("%s, version %d after %d", got.State, got.Version, o.Version)
	}
	if n := len(b.trail(o.ID)) - before; n != 1 {
		b.Fatalf("one click left %d entries", n)
	}
}

func verdictOther(b *bench) {
	o := b.atState(store.NeedsReconciliation, 1)
	b.advance(personal(o, store.Absent))
	now := b.op(o.ID)
	for what, f := range map[string]func(*store.Report){
		"another person, the same verdict":    func(r *store.Report) { r.By = "bob" },
		"the same person, another verdict":    func(r *store.Report) { r.On = store.Cancel },
		"another person, another verdict":     func(r *store.Report) { r.By, r.On = "bob", store.Cancel },
		"a version that nobody ever saw":      func(r *store.Report) { r.Version = 999 },
		"the same person, found it after all": func(r *store.Report) { r.On, r.CRMID = store.Confirmed, "77" },
	} {
		r := personal(o, store.Absent)
		f(&r)
		_, err := b.st.Advance(b.ctx, r)
		b.wantErr(err, store.ErrMoved, what)
	}
	if d := cmp.Diff(now, b.op(o.ID)); d != "" {
		b.Fatal(d)
	}
}

func verdictAfterEvidence(b *bench) {
	o := b.atState(store.NeedsReconciliation, 1)
	b.advance(evidence(o.ID, "77"))
	for _, on := range []store.Trigger{store.Absent, store.Cancel} {
		_, err := b.st.Advance(b.ctx, personal(o, on))
		b.wantErr(err, store.ErrMoved, string(on)+" on a page from before the evidence")
	}
	b.wantUnclaimed("a confirmed operation that a person called absent")
}

func verdictGuarded(b *bench) {
	o := b.atState(store.NeedsReconciliation, 1)
	for _, on := range []store.Trigger{store.Confirmed, store.Absent} {
		for _, version := range []int64{0, o.Version - 1, o.Version + 1} {
			r := personal(o, on)
			r.Version = version
			_, err := b.st.Advance(b.ctx, r)
			b.wantErr(err, store.ErrMoved, fmt.Sprintf("a person's %s on version %d of %d", on, version, o.Version))
		}
	}
	r := personal(o, store.Confirmed)
	r.CRMID = ""
	_, err := b.st.Advance(b.ctx, r)
	b.wantErr(err, store.ErrInvalid, "a person's Confirmed without an id")
}

func verdictTrail(b *bench) {
	for n, c := range verdicts() {
		o := b.atState(c.state, n)
		got := b.advance(personal(o, c.on))
		t := b.trail(o.ID)
		if len(t) == 0 {
			b.Fatalf("%s from %s left no trail", c.on, c.state)
		}
		if e := t[len(t)-1]; e.By != "ann" || e.Why != "looked at it" || e.On != c.on || e.Seen != o.Version ||
			e.From != o.State || e.To != got.State || e.At.IsZero() {
			b.Fatalf("%s from %s left %+v", c.on, c.state, e)
		}
		b.finish(o.ID)
	}
}

func verdictCascade(b *bench) {
	_, create := b.opened("k:1", 1)
	_, first := b.noted(create, 2)
	_, second := b.noted(create, 3)
	_, other := b.opened("k:2", 4)
	_, elsewhere := b.noted(other, 5)
	b.advance(personal(create, store.Cancel))
	for _, n := range []store.Operation{first, second} {
		got := b.op(n.ID)
		if got.State != store.Canceled || got.Reason == "" || got.EndedAt.IsZero() || got.Version <= n.Version {
			b.Fatalf("a waiting note is %s, reason %q", got.State, got.Reason)
		}
		if t := b.trail(n.ID); len(t) == 0 || t[len(t)-1].To != store.Canceled {
			b.Fatalf("the waiting note's trail: %+v", t)
		}
	}
	if got := b.op(elsewhere.ID); got.State != store.Pending {
		b.Fatalf("the note of another deal is %s", got.State)
	}
}

func verdictCascadeLeaves(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	_, gone := b.noted(create, 3)
	done := b.advance(evidence(gone.ID, "n-1")) // somebody made it by hand
	b.advance(personal(create, store.Cancel))
	if d := cmp.Diff(done, b.op(gone.ID)); d != "" {
		b.Fatalf("a done note changed: %s", d)
	}
	if got := b.op(note.ID); got.State != store.Canceled {
		b.Fatalf("the waiting note is %s", got.State)
	}
}

func verdictCancelNote(b *bench) {
	_, create := b.opened("k:1", 1)
	_, first := b.noted(create, 2)
	_, second := b.noted(create, 3)
	b.advance(personal(first, store.Cancel))
	if d := cmp.Diff([]store.Operation{create, second}, []store.Operation{b.op(create.ID), b.op(second.ID)}); d != "" {
		b.Fatal(d)
	}
}

func verdictCancelDoubt(b *bench) {
	o := b.advance(personal(b.atState(store.NeedsReconciliation, 1), store.Cancel))
	if o.State != store.Canceled || !o.Doubt || !o.Finished() {
		b.Fatalf("%s doubt=%v", o.State, o.Doubt)
	}
}

func verdictReopen(b *bench) {
	for n, state := range []store.State{store.Failed, store.Canceled} {
		o := b.atState(state, n)
		got := b.advance(personal(o, store.Reopen))
		if got.State != store.Pending || got.Doubt || !got.EndedAt.IsZero() || !got.FirstSentAt.IsZero() || got.Unreturned {
			b.Fatalf("reopened from %s: %s doubt=%v, ended %s, first sent %s", state, got.State, got.Doubt, got.EndedAt,
				got.FirstSentAt)
		}
		again := b.take(o.ID)
		if !again.FirstSentAt.Equal(again.LastSentAt) {
			b.Fatal("the window counts from an attempt before")
		}
		b.finish(o.ID)
	}
}

func verdictReopenDoubt(b *bench) {
	o := b.advance(personal(b.atState(store.NeedsReconciliation, 1), store.Cancel))
	got := b.advance(personal(o, store.Reopen))
	if got.State != store.NeedsReconciliation || !got.Doubt {
		b.Fatalf("reopened: %s doubt=%v", got.State, got.Doubt)
	}
	b.wait(time.Hour)
	b.wantUnclaimed("reopened in doubt")
}

func verdictReopenBlocked(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	b.advance(personal(create, store.Cancel))
	got := b.advance(personal(b.op(note.ID), store.Reopen))
	if got.State != store.Pending || !got.Blocked {
		b.Fatalf("reopened: %s, blocked %v", got.State, got.Blocked)
	}
	b.wantUnclaimed("a note to a lead that was canceled")
	b.advance(evidence(create.ID, "77"))
	if got = b.op(note.ID); got.Blocked || got.LeadID != "77" {
		b.Fatalf("when the lead turns up: blocked %v, for lead %q", got.Blocked, got.LeadID)
	}
}

func verdictReopenUnblocked(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	note = b.advance(personal(note, store.Cancel))
	b.finish(create.ID)
	if got := b.advance(personal(b.op(note.ID), store.Reopen)); got.Blocked || got.LeadID == "" {
		b.Fatalf("reopened: blocked %v, for lead %q", got.Blocked, got.LeadID)
	}
	b.take(note.ID)
}

func verdictRestored(b *bench) {
	for n, at := range places() {
		if at.state == store.Done {
			continue
		}
		o := b.at(at, n)
		got := b.advance(personal(o, store.Restored))
		if !got.Doubt {
			b.Fatalf("restored from %s: %s without doubt", at.name(), got.State)
		}
		// The backup does not know whose calls were under way: an empty look-up proves nothing.
		if got.State == store.NeedsReconciliation && !got.Unreturned {
			b.Fatalf("restored from %s: every attempt counts as returned", at.name())
		}
		if at.state == store.Sending {
			b.wantLeaseLost(reportOf(o, store.NotApplied), "after a restore")
		}
		b.wait(time.Second)
		b.wantUnclaimed("restored from " + at.name())
		b.finish(o.ID)
	}
}
