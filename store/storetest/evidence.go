package storetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// evidence.go: a success that somebody saw is never refused and never lost, and never overwrites another one (I9).

func evidenceChecks() []check {
	return []check{
		{"late evidence is taken in every state", evidenceEverywhere},
		{"evidence of a worker whose lease was taken over is kept, and ends the new attempt's life", evidenceTakenOver},
		{"a confirmed operation remembers no doubt and no failures to be seen to", evidenceSettles},
		{"the same id again changes nothing", evidenceAgain},
		{"the same id in concurrent reports is no conflict", evidenceConcurrent},
		{"another id is kept as a conflict beside the first", evidenceConflict},
		{"a conflict is a person's, until it is acknowledged", evidenceAcknowledge},
		{"a mistyped id is corrected, with the deal and its notes", evidenceCorrect},
		{"a create needs an id", evidenceNoID},
		{"a note needs none", evidenceNoteWithoutID},
		{"a confirmed operation without fields is done", evidenceErased},
	}
}

func evidenceEverywhere(b *bench) {
	for n, at := range places() {
		if at.state == store.Done {
			continue
		}
		o := b.at(at, n)
		got := b.advance(evidence(o.ID, "77"))
		if got.State != store.Done || got.Doubt || got.CRMID != "77" || got.ConflictID != "" || got.Version <= o.Version ||
			got.EndedAt.IsZero() {
			b.Errorf("from %s: %s doubt=%v, id %q, conflict %q", at.name(), got.State, got.Doubt, got.CRMID, got.ConflictID)
		}
		if d := cmp.Diff(got, b.op(o.ID)); d != "" {
			b.Errorf("from %s: returned and read differ: %s", at.name(), d)
		}
		if ordinary := at.state == store.Sending && !at.doubt; !ordinary {
			t := b.trail(o.ID)
			if len(t) == 0 || t[len(t)-1].On != store.Confirmed || t[len(t)-1].From != at.state || t[len(t)-1].CRMID != "77" {
				b.Errorf("from %s: the trail does not end with it: %+v", at.name(), t)
			}
		}
	}
	b.wantUnclaimed("confirmed operations")
}

func evidenceTakenOver(b *bench) {
	old := b.atState(store.Sending, 1)
	b.wait(lease + time.Second)
	b.advance(reportOf(old, store.LostRepeatable))
	now := b.take(old.ID)
	b.advance(evidence(old.ID, "77"))
	b.wantLeaseLost(reportOf(now, store.Lost), "after the evidence")
	got := b.advance(evidence(now.ID, "77")) // the repeat was answered with the same lead
	if got.State != store.Done || got.CRMID != "77" || got.ConflictID != "" {
		b.Fatalf("%s, id %q, conflict %q", got.State, got.CRMID, got.ConflictID)
	}
}

func evidenceSettles(b *bench) {
	o := b.atState(store.Sending, 1)
	r := reportOf(o, store.Lost)
	r.Returned = false
	b.advance(r)
	got := b.advance(evidence(o.ID, "77"))
	if got.Doubt || !got.Finished() || got.Attempts != 1 || got.Owner != "" {
		b.Fatalf("%+v", got)
	}
	if s := b.stats(); s.Settling() != 0 || s.NeedPerson() != 0 {
		b.Fatalf("settling %d, for a person %d", s.Settling(), s.NeedPerson())
	}
}

func evidenceAgain(b *bench) {
	o := b.atState(store.Sending, 1)
	done := b.advance(evidence(o.ID, "77"))
	trail := b.trail(o.ID)
	for range 3 {
		b.wait(time.Minute)
		if d := cmp.Diff(done, b.advance(evidence(o.ID, "77"))); d != "" {
			b.Fatalf("the same id again: %s", d)
		}
	}
	if d := cmp.Diff(done, b.op(o.ID)); d != "" {
		b.Fatalf("the same id again, read: %s", d)
	}
	if d := cmp.Diff(trail, b.trail(o.ID)); d != "" {
		b.Fatalf("the same id again left a trail: %s", d)
	}
}

func evidenceConcurrent(b *bench) {
	o := b.atState(store.Sending, 1)
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() { _, err := b.st.Advance(b.ctx, evidence(o.ID, "77")); errs <- err }()
	}
	for range cap(errs) {
		b.must(<-errs)
	}
	if got := b.op(o.ID); got.State != store.Done || got.ConflictID != "" || got.Version != o.Version+1 {
		b.Fatalf("%s, conflict %q, version %d after %d", got.State, got.ConflictID, got.Version, o.Version)
	}
}

func evidenceConflict(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	done := b.advance(evidence(create.ID, "77"))
	got := b.advance(evidence(create.ID, "78"))
	if got.State != store.Done || got.CRMID != "77" || got.ConflictID != "78" || got.Version <= done.Version ||
		got.Finished() {
		b.Fatalf("%s, id %q, conflict %q, version %d after %d", got.State, got.CRMID, got.ConflictID, got.Version,
			done.Version)
	}
	t := b.trail(create.ID)
	if len(t) == 0 || t[len(t)-1].CRMID != "78" {
		b.Fatalf("the trail does not end with the other id: %+v", t)
	}
	if b.op(note.ID).LeadID != "77" {
		b.Fatalf("the note now belongs to %q", b.op(note.ID).LeadID)
	}
	if list := ids(b.ops(store.OperationFilter{Conflict: true})); !slices.Equal(list, []string{create.ID}) {
		b.Fatalf("operations with a conflict: %v", list)
	}
	// A report of the id that stands, or of the other one again, changes nothing.
	for _, id := range []string{"77", "78"} {
		if d := cmp.Diff(got, b.advance(evidence(create.ID, id))); d != "" {
			b.Fatalf("%s again: %s", id, d)
		}
	}
}

func evidenceAcknowledge(b *bench) {
	o := b.atState(store.Done, 1)
	o = b.advance(evidence(o.ID, "other"))
	if s := b.stats(); s.Conflicts.N != 1 || s.NeedPerson() != 1 {
		b.Fatalf("conflicts %d, for a person %d", s.Conflicts.N, s.NeedPerson())
	}
	got := b.advance(reportOf(o, store.Acknowledge))
	if got.CRMID != o.CRMID || got.State != store.Done || !got.Finished() {
		b.Fatalf("acknowledged: %s, id %q, conflict %q", got.State, got.CRMID, got.ConflictID)
	}
	if s := b.stats(); s.Conflicts.N != 0 || s.NeedPerson() != 0 {
		b.Fatalf("afterwards conflicts %d, for a person %d", s.Conflicts.N, s.NeedPerson())
	}
	if t := b.trail(o.ID); len(t) == 0 || t[len(t)-1].On != store.Acknowledge || t[len(t)-1].By != "ann" {
		b.Fatalf("trail %+v", t)
	}
}

func evidenceCorrect(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	done := b.advance(evidence(create.ID, "7"))
	r := reportOf(done, store.Correct)
	r.CRMID = "77"
	got := b.advance(r)
	if got.State != store.Done || got.CRMID != "77" || got.Version <= done.Version {
		b.Fatalf("corrected: %s, id %q, version %d after %d", got.State, got.CRMID, got.Version, done.Version)
	}
	if n := b.op(note.ID); n.LeadID != "77" {
		b.Fatalf("the note belongs to the lead %q", n.LeadID)
	}
	b.accept(eventOf("k:1", 3))
	if d := b.read("k:1").Deals; len(d) != 1 || d[0].CRMID != "77" {
		b.Fatalf("the deal is %+v", d)
	}
	r.CRMID, r.Version = "", got.Version
	_, err := b.st.Advance(b.ctx, r)
	b.wantErr(err, store.ErrInvalid, "correct without an id")
}

func evidenceNoID(b *bench) {
	o := b.atState(store.Sending, 1)
	_, err := b.st.Advance(b.ctx, evidence(o.ID, ""))
	b.wantErr(err, store.ErrInvalid, "a create confirmed without an id")
	b.wantNamed(err, "CRMID")
	if d := cmp.Diff(o, b.op(o.ID)); d != "" {
		b.Fatal(d)
	}
}

func evidenceNoteWithoutID(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	b.finish(create.ID)
	b.take(note.ID)
	if got := b.advance(evidence(note.ID, "")); got.State != store.Done || !got.Finished() {
		b.Fatalf("%s, conflict %q", got.State, got.ConflictID)
	}
}

func evidenceErased(b *bench) {
	o := b.atState(store.NeedsReconciliation, 1)
	b.erase(o.ID)
	if got := b.advance(evidence(o.ID, "77")); got.State != store.Done || got.CRMID != "77" || got.Fields != nil {
		b.Fatalf("%s, id %q", got.State, got.CRMID)
	}
}
