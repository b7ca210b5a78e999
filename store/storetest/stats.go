package storetest

import (
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// stats.go: everything that is not over is counted, with its age (I10).

func statsChecks() []check {
	return []check{
		{"an empty store counts nothing", statsEmpty},
		{"operations are counted by state", statsOperations},
		{"events are counted by state", statsEvents},
		{"the oldest of a state is as old as its row", statsAge},
		{"errors are those of failed attempts", statsErrors},
		{"what finished is counted for a day, by reason", statsRecent},
		{"what waits for a create that failed is blocked and does not settle", statsBlocked},
		{"a conflict is counted", statsConflict},
		{"a reused id is counted for a day", statsReused},
	}
}

// counts sums up by state, or by state and reason where there is one.
func counts(list []store.Count) map[string]int64 {
	m := map[string]int64{}
	for _, c := range list {
		key := c.State
		if c.Reason != "" {
			key += "(" + c.Reason + ")"
		}
		if c.N != 0 {
			m[key] += c.N
		}
	}
	return m
}

func (b *bench) wantCounts(what string, got []store.Count, want map[string]int64) {
	b.Helper()
	if d := cmp.Diff(want, counts(got)); d != "" {
		b.Errorf("%s (-want +got): %s", what, d)
	}
}

func statsEmpty(b *bench) {
	s := b.stats()
	for what, list := range map[string][]store.Count{"events": s.Events, "operations": s.Operations, "recent": s.RecentOperations,
		"recent events": s.RecentEvents} {
		b.wantCounts(what, list, map[string]int64{})
	}
	if s.Blocked.N != 0 || s.Conflicts.N != 0 || s.Broken != 0 || s.Reused != 0 || s.Settling() != 0 || s.NeedPerson() != 0 {
		b.Errorf("%+v", s)
	}
}

func statsOperations(b *bench) {
	for n, at := range places() {
		o := b.at(at, n)
		if at.state == store.Pending {
			b.take(o.ID) // out of the way of the next one
			b.advance(reportOf(b.op(o.ID), store.Rejected))
		}
		if at.state == store.Uncertain {
			b.take(o.ID)
		}
	}
	b.submit(99)
	s := b.stats()
	b.wantCounts("operations", s.Operations, map[string]int64{"pending": 1, "sending": 3, "needs_reconciliation": 1,
		"failed": 2})
	if s.Settling() != 4 || s.NeedPerson() != 3 {
		b.Errorf("settling %d, for a person %d", s.Settling(), s.NeedPerson())
	}
	o := b.take(opID(99))
	b.advance(reportOf(o, store.LostRepeatable))
	b.wantCounts("operations", b.stats().Operations, map[string]int64{"uncertain": 1, "sending": 3,
		"needs_reconciliation": 1, "failed": 2})
}

func statsEvents(b *bench) {
	for i, state := range store.EventStates() {
		key := fmt.Sprintf("k:%d", i)
		e := eventOf(key, 1)
		if state == store.EventQuarantined {
			e.Quarantine = "not understood"
		}
		r := b.accept(e)
		if state != store.EventQuarantined && state != store.EventPending {
			b.commit(store.Plan{Key: key, Events: []store.EventEnd{{ID: r.EventID, State: state, Reason: "because",
				Retry: time.Minute}}})
		}
	}
	s := b.stats()
	got := map[string]int64{}
	for _, c := range s.Events {
		got[c.State] += c.N
	}
	if d := cmp.Diff(map[string]int64{"pending": 1, "gathering": 1, "waiting": 1, "parked": 1, "quarantined": 1},
		got); d != "" {
		b.Errorf("events (-want +got): %s", d)
	}
	recent := map[string]int64{}
	for _, c := range s.RecentEvents {
		recent[c.State] += c.N
		if c.State == string(store.EventIgnored) && c.Reason != "because" {
			b.Errorf("ignored for %q", c.Reason)
		}
	}
	if d := cmp.Diff(map[string]int64{"planned": 1, "ignored": 1, "stale": 1}, recent); d != "" {
		b.Errorf("recent events (-want +got): %s", d)
	}
	if s.NeedPerson() != 2 {
		b.Errorf("%d need a person", s.NeedPerson())
	}
}

func statsAge(b *bench) {
	b.submit(1)
	b.accept(eventOf("k:1", 1))
	b.wait(3 * time.Hour)
	b.submit(2)
	b.accept(eventOf("k:2", 1))
	s := b.stats()
	for what, list := range map[string][]store.Count{"events": s.Events, "operations": s.Operations} {
		if len(list) != 1 || list[0].N != 2 || list[0].Oldest < 3*time.Hour || list[0].Oldest > 3*time.Hour+time.Minute {
			b.Errorf("%s: %+v", what, list)
		}
	}
}

func statsErrors(b *bench) {
	o := b.atState(store.Sending, 1)
	b.advance(reportOf(o, store.NotApplied))
	b.submit(2)
	r := b.accept(eventOf("k:1", 1))
	b.commit(store.Plan{Key: "k:1", Events: []store.EventEnd{{ID: r.EventID, State: store.EventPending,
		Retry: time.Minute}}})
	b.accept(eventOf("k:2", 1))
	s := b.stats()
	for what, list := range map[string][]store.Count{"events": s.Events, "operations": s.Operations} {
		if len(list) != 1 || list[0].N != 2 || list[0].Errors != 1 {
			b.Errorf("%s: %+v", what, list)
		}
	}
}

func statsRecent(b *bench) {
	b.atState(store.Done, 1)
	b.atState(store.Done, 2)
	for n, reason := range []string{"unsupported", "unsupported", "moved"} {
		o := b.submit(10 + n)
		r := reportOf(o, store.Drop)
		r.Reason = reason
		b.advance(r)
	}
	want := map[string]int64{"done": 2, "canceled(unsupported)": 2, "canceled(moved)": 1}
	b.wantCounts("recent", b.stats().RecentOperations, want)
	b.wantCounts("operations", b.stats().Operations, map[string]int64{})
	b.wait(23 * time.Hour)
	b.wantCounts("recent after 23 h", b.stats().RecentOperations, want)
	b.wait(2 * time.Hour)
	b.wantCounts("recent after 25 h", b.stats().RecentOperations, map[string]int64{})
}

func statsBlocked(b *bench) {
	_, create := b.opened("k:1", 1)
	b.noted(create, 2)
	b.noted(create, 3)
	if s := b.stats(); s.Blocked.N != 0 || s.Settling() != 3 {
		b.Fatalf("while the create is pending: blocked %d, settling %d", s.Blocked.N, s.Settling())
	}
	b.advance(reportOf(b.take(create.ID), store.Rejected))
	b.wait(time.Hour)
	s := b.stats()
	if s.Blocked.N != 2 || s.Settling() != 0 || s.NeedPerson() != 1 || s.Blocked.Oldest < time.Hour {
		b.Fatalf("when it failed: blocked %+v, settling %d, for a person %d", s.Blocked, s.Settling(), s.NeedPerson())
	}
	b.advance(personal(b.op(create.ID), store.Reopen))
	b.finish(create.ID)
	if s := b.stats(); s.Blocked.N != 0 || s.Settling() != 2 {
		b.Fatalf("when it is done: blocked %d, settling %d", s.Blocked.N, s.Settling())
	}
}

func statsConflict(b *bench) {
	o := b.atState(store.Done, 1)
	b.wait(time.Hour)
	b.advance(evidence(o.ID, "other"))
	if s := b.stats(); s.Conflicts.N != 1 || s.Conflicts.Oldest < time.Hour {
		b.Fatalf("conflicts %+v", s.Conflicts)
	}
	b.wait(48 * time.Hour)
	if s := b.stats(); s.Conflicts.N != 1 {
		b.Fatal("a conflict is forgotten after a day")
	}
}

func statsReused(b *bench) {
	b.accept(reused("first"))
	b.accept(reused("first"))
	if s := b.stats(); s.Reused != 0 {
		b.Fatalf("a duplicate counts as reused: %d", s.Reused)
	}
	b.accept(reused("second"))
	if s := b.stats(); s.Reused != 1 {
		b.Fatalf("reused %d", s.Reused)
	}
	b.wait(25 * time.Hour)
	if s := b.stats(); s.Reused != 0 {
		b.Fatalf("after a day reused %d", s.Reused)
	}
}
