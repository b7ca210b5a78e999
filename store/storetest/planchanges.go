package storetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// planchanges.go: what a decision changes of what exists: touches, edits, drops and links (I5).

func planChangeChecks() []check {
	return []check{
		{"an operation that exists stays as it is", planExisting},
		{"a touch moves the deal's last activity", planTouch},
		{"an edit replaces the fields of a pending operation", planEdit},
		{"an edit of a failed operation leaves it to the person", planEditFailed},
		{"an edit is refused while the operation is sent or in doubt", planEditRefused},
		{"an edit under a stale version is ErrConflict", planEditStale},
		{"a drop cancels a pending operation and says why", planDrop},
		{"a drop of what is not pending is refused", planDropRefused},
		{"a link is found from both ends", planLinks},
		{"an album is several events and one operation", planAlbum},
	}
}

func planExisting(b *bench) {
	_, o := b.opened("k:1", 1)
	o = b.take(o.ID)
	r := b.accept(eventOf("k:1", 2))
	other := createOf("k:1", 1)
	other.Fields = []byte(`{"title":"decided again, with other words"}`)
	b.commit(adding(planOf(b.read("k:1")), other))
	if d := cmp.Diff(o, b.op(o.ID)); d != "" {
		b.Fatalf("the operation changed: %s", d)
	}
	if got := b.ops(store.OperationFilter{EventID: r.EventID}); len(got) != 1 {
		b.Fatalf("the second event is linked to %v", ids(got))
	}
}

func planTouch(b *bench) {
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	b.wait(time.Hour)
	v := b.read("k:1")
	p := planOf(v)
	p.Touches = []store.Touch{{DealID: dealID(1), Version: v.Deals[0].Version}}
	b.commit(p)
	b.accept(eventOf("k:1", 3))
	got := b.read("k:1").Deals[0]
	if moved := got.LastActivity.Sub(v.Deals[0].LastActivity); moved < time.Hour || got.Version <= v.Deals[0].Version {
		b.Fatalf("last activity moved by %s, version from %d to %d", moved, v.Deals[0].Version, got.Version)
	}
	if !got.OpenedAt.Equal(v.Deals[0].OpenedAt) {
		b.Fatal("a touch opened the deal anew")
	}
}

// editing is a plan that edits one operation under the version given.
func (b *bench) editing(o store.Operation, version int64) store.Plan {
	b.Helper()
	b.accept(eventOf(o.OrderingKey, 1000+int(b.read(o.OrderingKey).Version)))
	p := planOf(b.read(o.OrderingKey))
	p.Edits = []store.Edit{{OperationID: o.ID, Version: version, Fields: []byte(`{"title":"edited"}`)}}
	return p
}

func planEdit(b *bench) {
	_, o := b.opened("k:1", 1)
	b.commit(b.editing(o, o.Version))
	got := b.op(o.ID)
	if string(got.Fields) != `{"title":"edited"}` || got.Revision != o.Revision+1 || got.Version <= o.Version ||
		got.State != store.Pending {
		b.Fatalf("edited: fields %s, revision %d, version %d, %s", got.Fields, got.Revision, got.Version, got.State)
	}
	if sent := b.take(o.ID); string(sent.Fields) != `{"title":"edited"}` || sent.Revision != 1 {
		b.Fatalf("sent with %s, revision %d", sent.Fields, sent.Revision)
	}
}

func planEditFailed(b *bench) {
	o := b.atState(store.Failed, 1)
	b.commit(b.editing(o, o.Version))
	got := b.op(o.ID)
	if got.State != store.Failed || got.Revision != 1 || string(got.Fields) != `{"title":"edited"}` {
		b.Fatalf("edited: %s, revision %d, fields %s", got.State, got.Revision, got.Fields)
	}
	if ops := b.claim(claimOf("a", 5)); len(ops) != 0 {
		b.Fatalf("a failed operation was claimed: %v", ids(ops))
	}
}

func planEditRefused(b *bench) {
	for n, at := range places() {
		if at.state == store.Pending || (at.state == store.Failed && !at.doubt) {
			continue
		}
		o := b.at(at, n)
		plan := b.editing(o, o.Version)
		if _, err := b.st.CommitPlan(b.ctx, plan); err == nil {
			b.Fatalf("an edit was taken when %s", at.name())
		}
		if d := cmp.Diff(o, b.op(o.ID)); d != "" {
			b.Fatalf("a refused edit when %s changed the operation: %s", at.name(), d)
		}
		if got := b.read(o.OrderingKey); len(got.Events) != 1 || got.Version != plan.Version {
			b.Fatalf("a refused edit when %s committed the rest of the plan", at.name())
		}
		b.finish(o.ID)
	}
}

// finish settles an operation, so that it is not due beside the next.
func (b *bench) finish(id string) {
	b.Helper()
	b.advance(evidence(id, "crm-"+id[len(id)-4:]))
}

func planEditStale(b *bench) {
	_, o := b.opened("k:1", 1)
	_, err := b.st.CommitPlan(b.ctx, b.editing(o, o.Version+1))
	b.wantErr(err, store.ErrConflict, "an edit under another version")
	p := b.editing(o, o.Version)
	p.Edits[0].OperationID = opID(9)
	_, err = b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "an edit of an operation that does not exist")
	if d := cmp.Diff(o, b.op(o.ID)); d != "" {
		b.Fatal(d)
	}
}

func planDrop(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	b.accept(eventOf("k:1", 3))
	p := planOf(b.read("k:1"))
	p.Drops = []store.Ended{{OperationID: note.ID, Version: note.Version, Reason: "moved"}}
	b.commit(p)
	got := b.op(note.ID)
	if got.State != store.Canceled || got.Doubt || got.Reason != "moved" || got.EndedAt.IsZero() ||
		got.Version <= note.Version {
		b.Fatalf("dropped: %s doubt=%v, reason %q, version %d after %d", got.State, got.Doubt, got.Reason, got.Version,
			note.Version)
	}
	if b.op(create.ID).State != store.Pending {
		b.Fatal("the create went with its note")
	}
}

func planDropRefused(b *bench) {
	for n, at := range places() {
		if at.state == store.Pending {
			continue
		}
		o := b.at(at, n)
		b.accept(eventOf(o.OrderingKey, 1))
		p := planOf(b.read(o.OrderingKey))
		p.Drops = []store.Ended{{OperationID: o.ID, Version: o.Version, Reason: "moved"}}
		if _, err := b.st.CommitPlan(b.ctx, p); err == nil {
			b.Fatalf("a drop was taken when %s", at.name())
		}
		if d := cmp.Diff(o, b.op(o.ID)); d != "" {
			b.Fatalf("a refused drop when %s changed the operation: %s", at.name(), d)
		}
		b.finish(o.ID)
	}
}

func planLinks(b *bench) {
	r, o := b.opened("k:1", 1)
	b.opened("k:2", 2)
	if got := b.ops(store.OperationFilter{EventID: r.EventID}); !slices.Equal(ids(got), []string{o.ID}) {
		b.Fatalf("the event caused %v", ids(got))
	}
	if got := b.events(store.EventFilter{OperationID: o.ID}); !slices.Equal(eventIDs(got), []int64{r.EventID}) {
		b.Fatalf("the operation was caused by %v", eventIDs(got))
	}
}

func planAlbum(b *bench) {
	var want []int64
	for n := range 3 {
		want = append(want, b.accept(eventOf("k:1", n)).EventID)
	}
	b.commit(opening(planOf(b.read("k:1")), "album", 1))
	if got := eventIDs(b.events(store.EventFilter{OperationID: opID(1)})); !slices.Equal(got, want) {
		b.Fatalf("the operation was caused by %v, want %v", got, want)
	}
	b.wantOperations(1)
}
