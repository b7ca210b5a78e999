package storetest

import (
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// merge.go: one ordering key goes on under another: a group that became a supergroup.

func mergeChecks() []check {
	return []check{
		{"a key that was merged says where it goes on", mergeMovedTo},
		{"deals go on under the other key", mergeDeals},
		{"unplanned events go on under the other key, in accept order", mergeEvents},
		{"what was handled stays where it was", mergeHandled},
		{"a plan of the other key that is under way does not commit", mergeConflict},
		{"a plan of the merged key that is under way does not commit", mergeConflictOwn},
		{"either of the two keys may be the plan's", mergeEitherSide},
		{"keys that were never planned are merged too", mergeUnknown},
		{"a key that is merged back goes on itself", mergeBack},
		{"a deal stays if the other key has its key and generation", mergeSameGeneration},
		{"a deal stays if the other key has an open one with its key", mergeSameOpen},
		{"every generation of a deal goes along", mergeGenerations},
		{"operations that are under way end as they would have", mergeUnderWay},
		{"the plan itself is applied before its keys are merged", mergeAfterEverything},
		{"a merge that is not about the plan's key, or of a key with itself, is refused", mergeInvalid},
		{"a refused plan merges nothing", mergeRefused},
		{"merged again it is the same", mergeTwice},
	}
}

// merging is a plan of a key, as it stands now, that merges.
func (b *bench) merging(key, from, to string) store.Plan {
	b.Helper()
	p := store.Plan{Key: key, Version: b.read(key).Version}
	p.Merge = &store.Merge{From: from, To: to}
	return p
}

// asked reads a key with the deals of some deal keys.
func (b *bench) asked(key string, dealKeys ...string) store.KeyView {
	b.Helper()
	v, err := b.st.ReadKey(b.ctx, key, dealKeys...)
	b.must(err)
	b.wantOnce(v)
	return v
}

func mergeMovedTo(b *bench) {
	b.opened("k:old", 1)
	if got := b.read("k:old").MovedTo; got != "" {
		b.Fatalf("before: %q", got)
	}
	b.commit(b.merging("k:old", "k:old", "k:new"))
	if from, to := b.read("k:old").MovedTo, b.read("k:new").MovedTo; from != "k:new" || to != "" {
		b.Fatalf("the old key goes on under %q, the new one under %q", from, to)
	}
}

func mergeDeals(b *bench) {
	create := b.confirmed("k:old", 1, "77")
	want := b.deal("k:old", 2)
	b.commit(planOf(b.read("k:old")))
	b.commit(b.merging("k:old", "k:old", "k:new"))
	v := b.asked("k:new", want.Key)
	if len(v.Deals) != 1 || v.Deals[0].Version < want.Version {
		b.Fatalf("the deals are %+v", v.Deals)
	}
	want.OrderingKey, want.Version = "k:new", v.Deals[0].Version
	if d := cmp.Diff(want, v.Deals[0]); d != "" {
		b.Fatal(d)
	}
	if !slices.Equal(ids(v.Operations), []string{create.ID}) {
		b.Fatalf("the operations are %v", ids(v.Operations))
	}
	b.wantDeals(b.asked("k:old", want.Key))
}

func mergeEvents(b *bench) {
	first := b.accept(eventOf("k:old", 1))
	second := b.accept(eventOf("k:new", 1))
	third := b.accept(eventOf("k:old", 2))
	b.commit(store.Plan{Key: "k:old", Events: []store.EventEnd{
		{ID: first.EventID, State: store.EventGathering, Retry: time.Second},
		{ID: third.EventID, State: store.EventPending, Retry: time.Second, Reason: "the rule failed"}}})
	before := []store.EventRow{b.event(first.EventID), b.event(third.EventID)}
	b.commit(b.merging("k:old", "k:old", "k:new"))
	if got := eventIDs(b.read("k:new").Events); !slices.Equal(got, []int64{first.EventID, second.EventID, third.EventID}) {
		b.Fatalf("to be planned are %v", got)
	}
	if v := b.read("k:old"); len(v.Events) != 0 {
		b.Fatalf("left behind are %v", eventIDs(v.Events))
	}
	for _, want := range before {
		want.OrderingKey = "k:new"
		if d := cmp.Diff(want, b.event(want.ID)); d != "" {
			b.Fatalf("more than its key has changed: %s", d)
		}
	}
	b.wait(time.Second)
	b.wantDue("k:new")
}

func mergeHandled(b *bench) {
	r, _ := b.opened("k:old", 1)
	before := b.event(r.EventID)
	b.commit(b.merging("k:old", "k:old", "k:new"))
	if d := cmp.Diff(before, b.event(r.EventID)); d != "" {
		b.Fatal(d)
	}
}

func mergeConflict(b *bench) {
	b.accept(eventOf("k:new", 1))
	for n := range 2 { // the other key's first plan, and a later one
		under := planOf(b.read("k:new"))
		b.commit(b.merging("k:old", "k:old", "k:new"))
		_, err := b.st.CommitPlan(b.ctx, under)
		b.wantErr(err, store.ErrConflict, "a plan from before the merge")
		b.commit(planOf(b.read("k:new")))
		b.accept(eventOf("k:new", 2+n))
	}
}

func mergeConflictOwn(b *bench) {
	b.accept(eventOf("k:old", 1))
	under := planOf(b.read("k:old"))
	b.commit(b.merging("k:new", "k:old", "k:new"))
	_, err := b.st.CommitPlan(b.ctx, under)
	b.wantErr(err, store.ErrConflict, "a plan from before the merge")
}

func mergeEitherSide(b *bench) {
	b.opened("k:old", 1)
	r := b.accept(eventOf("k:old", 2))
	b.commit(b.merging("k:new", "k:old", "k:new"))
	v := b.asked("k:new")
	b.wantDeals(v, dealID(1))
	if got := eventIDs(v.Events); !slices.Equal(got, []int64{r.EventID}) || b.read("k:old").MovedTo != "k:new" {
		b.Fatalf("to be planned are %v, the old key goes on under %q", got, b.read("k:old").MovedTo)
	}
}

func mergeUnknown(b *bench) {
	b.commit(b.merging("k:old", "k:old", "k:new"))
	if old, other := b.read("k:old"), b.read("k:new"); old.MovedTo != "k:new" || old.Version == 0 || other.Version == 0 {
		b.Fatalf("the old key goes on under %q at version %d, the new one is at %d", old.MovedTo, old.Version, other.Version)
	}
}

func mergeBack(b *bench) {
	b.opened("k:old", 1)
	b.commit(b.merging("k:old", "k:old", "k:new"))
	b.commit(b.merging("k:old", "k:new", "k:old"))
	old, other := b.asked("k:old", eventOf("k:old", 1).DealKey), b.read("k:new")
	b.wantDeals(old, dealID(1))
	if old.MovedTo != "" || other.MovedTo != "k:old" {
		b.Fatalf("the old key goes on under %q, the new one under %q", old.MovedTo, other.MovedTo)
	}
}

// hosted opens the n-th deal of a key under a deal key of the host's.
func (b *bench) hosted(key string, n, generation int, s store.DealState) {
	b.Helper()
	b.accept(eventOf(key, n))
	p := opening(planOf(b.read(key)), "phone", n)
	d := &p.Deals[0]
	d.HostKey, d.Generation, d.State = true, generation, s
	b.commit(p)
}

func mergeSameGeneration(b *bench) {
	b.hosted("k:old", 1, 1, store.DealClosed)
	b.hosted("k:old", 2, 2, store.DealOpen)
	b.hosted("k:new", 3, 1, store.DealClosed)
	b.commit(b.merging("k:old", "k:old", "k:new"))
	b.wantDeals(b.asked("k:old", "phone"), dealID(1))
	b.wantDeals(b.asked("k:new", "phone"), dealID(2), dealID(3))
}

func mergeSameOpen(b *bench) {
	b.hosted("k:old", 1, 1, store.DealClosed)
	b.hosted("k:old", 2, 2, store.DealOpen)
	b.hosted("k:new", 3, 3, store.DealOpen)
	b.opened("k:old", 4)
	b.commit(b.merging("k:old", "k:old", "k:new"))
	b.wantDeals(b.asked("k:old", "phone"), dealID(1), dealID(2))
	b.wantDeals(b.asked("k:new", "phone", eventOf("k:old", 4).DealKey), dealID(3), dealID(4))
}

func mergeGenerations(b *bench) {
	b.hosted("k:old", 1, 1, store.DealClosed)
	b.hosted("k:old", 2, 2, store.DealOpen)
	b.hosted("k:old", 3, 3, store.DealClosed)
	b.commit(b.merging("k:old", "k:old", "k:new"))
	b.wantDeals(b.asked("k:new", "phone"), dealID(1), dealID(2), dealID(3))
	b.wantDeals(b.asked("k:old", "phone"))
}

func mergeUnderWay(b *bench) {
	_, create := b.opened("k:old", 1)
	_, note := b.noted(create, 2)
	sent := b.take(create.ID)
	b.commit(b.merging("k:old", "k:old", "k:new"))
	if d := cmp.Diff(sent, b.op(create.ID)); d != "" {
		b.Fatalf("the worker's operation changed: %s", d)
	}
	r := reportOf(sent, store.Confirmed)
	b.advance(r)
	b.take(note.ID)
	if v := b.asked("k:new", eventOf("k:old", 1).DealKey); v.Deals[0].CRMID != r.CRMID {
		b.Fatalf("the deal is %+v", v.Deals)
	}
}

func mergeAfterEverything(b *bench) {
	r := b.accept(eventOf("k:old", 1))
	p := opening(planOf(b.read("k:old")), "form", 1)
	p.Merge = &store.Merge{From: "k:old", To: "k:new"}
	b.commit(p)
	b.wantDeals(b.asked("k:new", "form"), dealID(1))
	if row := b.event(r.EventID); row.State != store.EventPlanned || row.OrderingKey != "k:old" {
		b.Fatalf("the event is %s under %s", row.State, row.OrderingKey)
	}
}

func mergeInvalid(b *bench) {
	for _, m := range []store.Merge{{From: "k:a", To: "k:b"}, {From: "k:1", To: "k:1"}, {To: "k:1"}, {From: "k:1"}} {
		_, err := b.st.CommitPlan(b.ctx, store.Plan{Key: "k:1", Merge: &m})
		b.wantErr(err, store.ErrInvalid, "a merge from "+m.From+" to "+m.To)
	}
	if v := b.read("k:1"); v.Version != 0 || v.MovedTo != "" {
		b.Fatalf("a refused merge left version %d, moved to %q", v.Version, v.MovedTo)
	}
}

func mergeRefused(b *bench) {
	b.opened("k:old", 1)
	other := b.read("k:new")
	p := b.merging("k:old", "k:old", "k:new")
	p.SeenOps = []store.Seen{{ID: opID(1), Version: 99}}
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a merge beside a stale operation")
	if v := b.read("k:new"); v.Version != other.Version || b.read("k:old").MovedTo != "" {
		b.Fatal("a refused plan merged")
	}
	b.wantDeals(b.asked("k:old", eventOf("k:old", 1).DealKey), dealID(1))
}

func mergeTwice(b *bench) {
	b.opened("k:old", 1)
	for range 2 {
		b.commit(b.merging("k:old", "k:old", "k:new"))
		b.wantDeals(b.asked("k:new", eventOf("k:old", 1).DealKey), dealID(1))
		if got := b.read("k:old").MovedTo; got != "k:new" {
			b.Fatalf("the old key goes on under %q", got)
		}
	}
}
