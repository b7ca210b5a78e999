package storetest

import (
	"errors"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// stage.go: what a CRM's hook says about a lead, and where its event is planned.

func stageChecks() []check {
	return []check{
		{"a hook finds the deal with its lead's id", stageDeal},
		{"a hook finds what is pending of its deal", stagePending},
		{"a hook finds no other tenant's deal", stageTenant},
		{"a hook of another key's lead is told that key", stageHome},
		{"of several homes the most recently opened is told", stageHomes},
		{"a hook whose lead is this key's too is told no other key", stageHere},
		{"a lead that nobody has is nowhere at home", stageNowhere},
		{"a stage is stored with its version and time, and is no activity", stageMove},
		{"a stage move closes and opens a deal only if it says so", stageState},
		{"a stage move under a stale version is ErrConflict", stageStale},
		{"a stage move to a state that is none is refused", stageInvalid},
		{"a deal that is touched and moved in one plan has both", stageTouch},
		{"a deal that is closed makes room for the next in the same plan", stageReplace},
		{"an event moves to another ordering key, and counts no attempt", stageMoveTo},
		{"an event that was moved waits as long as it is told", stageMoveRetry},
		{"an event moves only while it is pending, and to another key", stageMoveInvalid},
	}
}

// confirmed opens the n-th deal of a key and confirms its create with an id.
func (b *bench) confirmed(key string, n int, crmID string) store.Operation {
	b.Helper()
	_, o := b.opened(key, n)
	return b.advance(evidence(o.ID, crmID))
}

// hook accepts the n-th event of a key as a hook of a lead: it has no person.
func (b *bench) hook(key string, n int, lead string) store.Receipt {
	b.Helper()
	e := eventOf(key, n)
	e.ContactKey, e.ContentID, e.DealKey, e.LeadRef = "", "", "", lead
	return b.accept(e)
}

// wantDeals checks which deals a reading has.
func (b *bench) wantDeals(v store.KeyView, want ...string) {
	b.Helper()
	b.wantOnce(v)
	if got := dealIDs(v.Deals); !slices.Equal(got, want) {
		b.Fatalf("the deals are %v, want %v", got, want)
	}
}

func stageDeal(b *bench) {
	create := b.confirmed("k:1", 1, "77")
	b.confirmed("k:1", 2, "78")
	b.hook("k:1", 3, "77")
	v := b.read("k:1")
	b.wantDeals(v, dealID(1))
	if len(v.Operations) != 1 || v.Operations[0].ID != create.ID || len(v.Homes) != 0 {
		b.Fatalf("operations %v, homes %v", ids(v.Operations), v.Homes)
	}
}

func stagePending(b *bench) {
	create := b.confirmed("k:1", 1, "77")
	_, sent := b.noted(create, 2)
	b.take(sent.ID)
	_, note := b.noted(create, 3)
	other := b.confirmed("k:1", 4, "78")
	b.noted(other, 5)
	b.hook("k:1", 6, "77")
	v := b.read("k:1")
	b.wantDeals(v, dealID(1))
	if got := ids(v.Operations); !slices.Equal(got, []string{create.ID, note.ID}) {
		b.Fatalf("the operations are %v", got)
	}
}

func stageTenant(b *bench) {
	b.confirmed("k:1", 1, "77")
	for _, key := range []string{"k:1", "k:2"} {
		e := eventOf(key, 2)
		e.Tenant, e.ContactKey, e.LeadRef = "other shop", "", "77"
		b.accept(e)
		v := b.read(key)
		b.wantDeals(v)
		if len(v.Homes) != 0 {
			b.Fatalf("homes %v", v.Homes)
		}
	}
}

func stageHome(b *bench) {
	b.confirmed("k:1", 1, "77")
	b.hook("k:hook", 1, "77")
	v := b.read("k:hook")
	b.wantDeals(v)
	if d := cmp.Diff(map[string]string{"77": "k:1"}, v.Homes); d != "" {
		b.Fatal(d)
	}
}

func stageHomes(b *bench) {
	for n, key := range []string{"k:b", "k:c", "k:a"} {
		b.confirmed(key, n, "77")
		b.wait(time.Second)
	}
	b.hook("k:hook", 1, "77")
	if got := b.read("k:hook").Homes["77"]; got != "k:a" {
		b.Fatalf("it is at home in %q", got)
	}
}

func stageHere(b *bench) {
	b.confirmed("k:1", 1, "77")
	b.wait(time.Second)
	b.confirmed("k:2", 2, "77")
	b.hook("k:1", 3, "77")
	v := b.read("k:1")
	b.wantDeals(v, dealID(1))
	if len(v.Homes) != 0 {
		b.Fatalf("homes %v", v.Homes)
	}
}

func stageNowhere(b *bench) {
	b.opened("k:1", 1) // its create is not done: no id
	b.hook("k:hook", 1, "77")
	v := b.read("k:hook")
	b.wantDeals(v)
	if len(v.Homes) != 0 {
		b.Fatalf("homes %v", v.Homes)
	}
}

// moving reads a key after another event and begins a plan that moves its first deal.
func (b *bench) moving(key string, n int, m store.StageMove) (store.Deal, store.Plan) {
	b.Helper()
	b.accept(eventOf(key, n))
	v := b.read(key)
	p := planOf(v)
	m.DealID, m.Version = v.Deals[0].ID, v.Deals[0].Version
	p.Stages = []store.StageMove{m}
	return v.Deals[0], p
}

// deal reads the first deal of a key.
func (b *bench) deal(key string, n int) store.Deal {
	b.Helper()
	b.accept(eventOf(key, n))
	v := b.read(key)
	if len(v.Deals) == 0 {
		b.Fatalf("no deal under %s", key)
	}
	return v.Deals[0]
}

func stageMove(b *bench) {
	b.confirmed("k:1", 1, "77")
	b.wait(time.Hour)
	at := time.Date(2025, 3, 4, 5, 6, 7, 8000, time.UTC)
	want, p := b.moving("k:1", 2, store.StageMove{Stage: "won", StageVersion: 12, StageAt: at})
	b.commit(p)
	want.Stage, want.StageVersion, want.StageAt, want.Version = "won", 12, at, want.Version+1
	if d := cmp.Diff(want, b.deal("k:1", 3)); d != "" {
		b.Fatal(d)
	}
}

func stageState(b *bench) {
	b.confirmed("k:1", 1, "77")
	for n, c := range []struct{ say, want store.DealState }{
		{"", store.DealOpen}, {store.DealClosed, store.DealClosed}, {"", store.DealClosed}, {store.DealOpen, store.DealOpen},
	} {
		_, p := b.moving("k:1", 10+n, store.StageMove{Stage: "s", State: c.say})
		b.commit(p)
		if got := b.deal("k:1", 20+n); got.State != c.want {
			b.Fatalf("%d: told %q it is %s", n, c.say, got.State)
		}
	}
}

func stageStale(b *bench) {
	b.confirmed("k:1", 1, "77")
	for _, by := range []int64{-1, 1} {
		before, p := b.moving("k:1", 10+int(by), store.StageMove{Stage: "won"})
		p.Stages[0].Version += by
		_, err := b.st.CommitPlan(b.ctx, p)
		b.wantErr(err, store.ErrConflict, "a stage under another version")
		if d := cmp.Diff(before, b.deal("k:1", 20+int(by))); d != "" {
			b.Fatalf("a refused move changed the deal: %s", d)
		}
	}
	_, p := b.moving("k:1", 30, store.StageMove{Stage: "won"})
	p.Stages[0].DealID = dealID(99)
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a stage of a deal that is not there")
}

func stageInvalid(b *bench) {
	b.confirmed("k:1", 1, "77")
	_, p := b.moving("k:1", 2, store.StageMove{Stage: "won", State: "nearly"})
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrInvalid, "a state that is none")
}

func stageTouch(b *bench) {
	b.confirmed("k:1", 1, "77")
	b.wait(time.Hour)
	before, p := b.moving("k:1", 2, store.StageMove{Stage: "talking"})
	p.Touches = []store.Touch{{DealID: before.ID, Version: before.Version}}
	b.commit(p)
	got := b.deal("k:1", 3)
	if got.Stage != "talking" || got.LastActivity.Sub(before.LastActivity) < time.Hour || got.Version <= before.Version {
		b.Fatalf("it is %+v", got)
	}
	_, p = b.moving("k:1", 4, store.StageMove{Stage: "won"})
	p.Touches = []store.Touch{{DealID: before.ID, Version: before.Version}}
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a touch under a stale version beside a move")
}

func stageReplace(b *bench) {
	b.confirmed("k:1", 1, "77")
	before, p := b.moving("k:1", 2, store.StageMove{Stage: "lost", State: store.DealClosed})
	p = opening(p, before.Key, 2)
	p.Deals[0].HostKey, p.Deals[0].Generation = true, 2
	b.commit(p)
	b.accept(eventOf("k:1", 3))
	b.wantDeals(b.read("k:1"), dealID(1), dealID(2))
}

// moveTo is a plan that moves one event to another ordering key.
func (b *bench) moveTo(id int64, to string, retry time.Duration) store.Plan {
	b.Helper()
	return store.Plan{Key: "k:1", Version: b.read("k:1").Version,
		Events: []store.EventEnd{{ID: id, State: store.EventPending, MoveTo: to, Retry: retry}}}
}

func stageMoveTo(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	later := b.accept(eventOf("k:2", 1))
	b.commit(b.moveTo(r.EventID, "k:2", 0))
	row := b.event(r.EventID)
	if row.OrderingKey != "k:2" || row.State != store.EventPending || row.Attempts != 0 || !row.EndedAt.IsZero() {
		b.Fatalf("it is %s under %s, %d attempts", row.State, row.OrderingKey, row.Attempts)
	}
	if v := b.read("k:1"); len(v.Events) != 0 || v.Version == 0 {
		b.Fatalf("left behind are %v, version %d", eventIDs(v.Events), v.Version)
	}
	if got := eventIDs(b.read("k:2").Events); !slices.Equal(got, []int64{r.EventID, later.EventID}) {
		b.Fatalf("to be planned are %v", got)
	}
	b.wantDue("k:2")
	if again := b.accept(eventOf("k:1", 1)); !again.Duplicate || again.EventID != r.EventID {
		b.Fatalf("delivered again: %+v", again)
	}
	_, err := b.st.CommitPlan(b.ctx, b.moveTo(r.EventID, "k:3", 0))
	b.wantErr(err, store.ErrConflict, "an event of another key")
}

func stageMoveRetry(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	b.commit(b.moveTo(r.EventID, "k:2", time.Minute))
	b.wantDue()
	b.wait(time.Minute)
	b.wantDue("k:2")
	if n := b.event(r.EventID).Attempts; n != 0 {
		b.Fatalf("%d attempts", n)
	}
}

func stageMoveInvalid(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	before := b.event(r.EventID)
	for _, s := range store.EventStates() {
		p := b.moveTo(r.EventID, "k:2", 0)
		p.Events[0].State = s
		if s == store.EventPending {
			p.Events[0].MoveTo = "k:1"
		}
		if _, err := b.st.CommitPlan(b.ctx, p); !errors.Is(err, store.ErrInvalid) {
			b.Fatalf("%s, to %s: %v", s, p.Events[0].MoveTo, err)
		}
	}
	if d := cmp.Diff(before, b.event(r.EventID)); d != "" {
		b.Fatal(d)
	}
}
