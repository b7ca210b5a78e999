package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// planevents.go: what a decision makes of events, and which ordering keys are due.

func planEventChecks() []check {
	return []check{
		{"a retried event is due later and counts the attempt", planRetry},
		{"a gathering event is due later and counts none", planGather},
		{"later events wait for the oldest unplanned one", planOldestHolds},
		{"a parked, ignored or stale event is out of the way", planEnds},
		{"at most 64 events are read, the oldest", planLimit},
		{"due keys come most overdue first and up to the limit", planDueOrder},
	}
}

func planRetry(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	for n := 1; n <= 2; n++ {
		v := b.read("k:1")
		p := store.Plan{Key: "k:1", Version: v.Version,
			Events: []store.EventEnd{{ID: r.EventID, State: store.EventPending, Reason: "the rule failed", Retry: time.Minute}}}
		b.commit(p)
		row := b.event(r.EventID)
		if row.State != store.EventPending || row.Attempts != n || row.Reason != "the rule failed" || !row.EndedAt.IsZero() {
			b.Fatalf("after attempt %d: %s, %d attempts, reason %q", n, row.State, row.Attempts, row.Reason)
		}
		b.wantDue()
		b.wait(time.Minute - time.Second)
		b.wantDue()
		b.wait(time.Second)
		b.wantDue("k:1")
	}
}

func planGather(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	b.commit(store.Plan{Key: "k:1", Events: []store.EventEnd{{ID: r.EventID, State: store.EventGathering,
		Retry: 2 * time.Second}}})
	row := b.event(r.EventID)
	if row.State != store.EventGathering || row.Attempts != 0 || !row.EndedAt.IsZero() {
		b.Fatalf("%s, %d attempts", row.State, row.Attempts)
	}
	b.wantDue()
	if v := b.read("k:1"); len(v.Events) != 1 {
		b.Fatal("a gathering event is not read")
	}
	b.wait(2 * time.Second)
	b.wantDue("k:1")
}

func planOldestHolds(b *bench) {
	first := b.accept(eventOf("k:1", 1))
	b.commit(store.Plan{Key: "k:1", Events: []store.EventEnd{{ID: first.EventID, State: store.EventPending,
		Retry: time.Minute}}})
	second := b.accept(eventOf("k:1", 2))
	b.accept(eventOf("k:2", 1))
	b.wantDue("k:2")
	if got := eventIDs(b.read("k:1").Events); !slices.Equal(got, []int64{first.EventID, second.EventID}) {
		b.Fatalf("to be planned are %v", got)
	}
}

func planEnds(b *bench) {
	for i, state := range []store.EventState{store.EventIgnored, store.EventParked, store.EventStale, store.EventPlanned} {
		key := fmt.Sprintf("k:%d", i)
		r := b.accept(eventOf(key, 1))
		b.commit(store.Plan{Key: key, Events: []store.EventEnd{{ID: r.EventID, State: state, Reason: "because"}}})
		if row := b.event(r.EventID); row.State != state || row.Reason != "because" || row.EndedAt.IsZero() {
			b.Fatalf("%s: the row is %s, reason %q, ended %s", state, row.State, row.Reason, row.EndedAt)
		}
		b.wantDue()
		if v := b.read(key); len(v.Events) != 0 {
			b.Fatalf("%s: to be planned are %v", state, eventIDs(v.Events))
		}
	}
}

func planLimit(b *bench) {
	var want []int64
	for n := range 70 {
		want = append(want, b.accept(eventOf("k:1", n)).EventID)
	}
	if got := eventIDs(b.read("k:1").Events); !slices.Equal(got, want[:64]) {
		b.Fatalf("read %d events, from %d to %d", len(got), got[0], got[len(got)-1])
	}
	b.commit(planOf(b.read("k:1")))
	if got := eventIDs(b.read("k:1").Events); !slices.Equal(got, want[64:]) {
		b.Fatalf("then %v, want %v", got, want[64:])
	}
}

func planDueOrder(b *bench) {
	for _, key := range []string{"k:c", "k:a", "k:b"} {
		b.accept(eventOf(key, 1))
		b.wait(time.Second)
	}
	b.accept(eventOf("k:c", 2))
	b.wantDue("k:c", "k:a", "k:b")
	keys, err := b.st.DueKeys(b.ctx, 2)
	b.must(err)
	if !slices.Equal(keysOf(keys), []string{"k:c", "k:a"}) {
		b.Fatalf("the first two due are %q", keys)
	}
}

func (b *bench) wantDue(want ...string) {
	b.Helper()
	if got := b.dueKeys(); !slices.Equal(got, want) {
		b.Fatalf("due are %q, want %q", got, want)
	}
}
