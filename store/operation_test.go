package store

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// operation_test.go: when a repeat is harmless, and the small helpers of rows and counts.

func TestRepeatable(t *testing.T) {
	first := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	claim := Claim{Lease: time.Minute, Quiet: 2 * time.Minute, Adapter: "sim a",
		Terms: map[string]Terms{"lead.create": {"upsert", time.Hour}, "note.add": {"at_least_once", time.Hour}}}
	op := Operation{Kind: "lead.create", State: Uncertain, Doubt: true, Adapter: "sim a", Guarantee: "upsert",
		Window: time.Hour, FirstSentAt: first}
	edge := first.Add(time.Hour - claim.Lease - claim.Quiet)

	with := func(f func(*Operation)) Operation { o := op; f(&o); return o }
	for _, c := range []struct {
		name string
		op   Operation
		now  time.Time
		want bool
	}{
		{"right after the first attempt", op, first, true},
		{"a nanosecond before the edge", op, edge.Add(-1), true},
		{"exactly at the edge is not repeatable", op, edge, false},
		{"after the edge is not repeatable, though the window is still open", op, edge.Add(time.Second), false},
		{"long after the window is not repeatable", op, first.Add(24 * time.Hour), false},
		{"another adapter is not repeatable", with(func(o *Operation) { o.Adapter = "sim b" }), first, false},
		{"another guarantee is not repeatable", with(func(o *Operation) { o.Guarantee = "idempotency_key" }), first, false},
		{"a guarantee that it did not have when it began is not repeatable",
			with(func(o *Operation) { o.Guarantee, o.Window = "", 0 }), first, false},
		{"a shorter window is not repeatable", with(func(o *Operation) { o.Window = time.Hour - 1 }), first, false},
		{"a longer window is not repeatable", with(func(o *Operation) { o.Window = time.Hour + 1 }), first, false},
		{"a kind without terms is not repeatable", with(func(o *Operation) { o.Kind = "stage.set" }), first, false},
		{"a kind has its own terms", with(func(o *Operation) { o.Kind, o.Guarantee = "note.add", "at_least_once" }), first,
			true},
		{"a first attempt that was never sent is not repeatable", with(func(o *Operation) { o.FirstSentAt = time.Time{} }),
			first, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := claim.Repeatable(c.op, c.now); got != c.want {
				t.Fatalf("Repeatable is %v at %s", got, c.now)
			}
		})
	}
	t.Run("no guarantee is never repeatable, even if nothing changed and a window is given", func(t *testing.T) {
		c := claim
		c.Terms = map[string]Terms{"lead.create": {"", time.Hour}}
		o := with(func(o *Operation) { o.Guarantee = "" })
		if !c.Unchanged(o) || c.Repeatable(o, first) {
			t.Fatalf("unchanged %v, repeatable %v", c.Unchanged(o), c.Repeatable(o, first))
		}
	})
	t.Run("a window no longer than lease and quiet period is never repeatable", func(t *testing.T) {
		c := claim
		c.Terms = map[string]Terms{"lead.create": {"upsert", c.Lease + c.Quiet}}
		if c.Repeatable(with(func(o *Operation) { o.Window = c.Lease + c.Quiet }), first) {
			t.Fatal("repeatable")
		}
	})
	t.Run("without terms at all nothing is repeatable", func(t *testing.T) {
		if (Claim{Adapter: "sim a"}).Repeatable(op, first) {
			t.Fatal("repeatable")
		}
	})
}

func TestFinished(t *testing.T) {
	for _, c := range []struct {
		name string
		op   Operation
		want bool
	}{
		{"a done operation is finished", Operation{State: Done, CRMID: "1"}, true},
		{"a done operation with a conflict waits for a person", Operation{State: Done, CRMID: "1", ConflictID: "2"}, false},
		{"a canceled operation is finished", Operation{State: Canceled, Doubt: true}, true},
		{"a failed operation waits for a person", Operation{State: Failed}, false},
		{"a pending operation is not finished", Operation{State: Pending}, false},
		{"an operation being sent is not finished", Operation{State: Sending}, false},
		{"an uncertain operation is not finished", Operation{State: Uncertain}, false},
		{"an operation to reconcile is not finished", Operation{State: NeedsReconciliation}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.op.Finished() != c.want {
				t.Fatal(c.op.State)
			}
		})
	}
}

func TestStatsHelpers(t *testing.T) {
	s := Stats{
		Operations: []Count{{State: "pending", N: 10}, {State: "sending", N: 20}, {State: "uncertain", N: 40},
			{State: "needs_reconciliation", N: 100}, {State: "failed", N: 200}},
		Events: []Count{{State: "pending", N: 1000}, {State: "gathering", N: 1000}, {State: "waiting", N: 1000},
			{State: "parked", N: 400}, {State: "quarantined", N: 800}},
		RecentOperations: []Count{{State: "done", N: 5000}, {State: "canceled", Reason: "unsupported", N: 5000}},
		Blocked:          Count{N: 3},
		Conflicts:        Count{N: 1600},
		Broken:           3200,
	}
	t.Run("what is blocked does not settle by itself", func(t *testing.T) {
		if got := s.Settling(); got != 67 {
			t.Fatalf("Settling is %d", got)
		}
	})
	t.Run("a person is needed for verdicts, refusals, conflicts, parked and quarantined events, and broken rows",
		func(t *testing.T) {
			if got := s.NeedPerson(); got != 6300 {
				t.Fatalf("NeedPerson is %d", got)
			}
		})
	t.Run("several counts of one state add up", func(t *testing.T) {
		if got := (Stats{Operations: []Count{{State: "pending", N: 1}, {State: "pending", N: 2}}}).Settling(); got != 3 {
			t.Fatalf("Settling is %d", got)
		}
	})
	t.Run("an empty store needs nobody", func(t *testing.T) {
		if (Stats{}).Settling() != 0 || (Stats{}).NeedPerson() != 0 {
			t.Fatal("not zero")
		}
	})
}

func TestEventStates(t *testing.T) {
	unplanned := ""
	for _, s := range EventStates() {
		if s.Unplanned() {
			unplanned += " " + string(s)
		}
	}
	if unplanned != " pending gathering waiting" {
		t.Fatalf("unplanned are%s", unplanned)
	}
}

func TestErrors(t *testing.T) {
	t.Run("a MoveError names the operation, the trigger, the state and why", func(t *testing.T) {
		e := &MoveError{ID: "op-1", From: Sending, Doubt: true, On: Reopen, Note: "its fields are erased"}
		for _, want := range []string{"op-1", "sending", "with doubt", "reopen", "its fields are erased"} {
			if !strings.Contains(e.Error(), want) {
				t.Errorf("%q lacks %q", e, want)
			}
		}
	})
	t.Run("a CorruptError names the row and keeps its cause", func(t *testing.T) {
		e := &CorruptError{Table: "operations", ID: "op-1", Err: io.ErrUnexpectedEOF}
		if !errors.Is(e, io.ErrUnexpectedEOF) || !strings.Contains(e.Error(), "operations, id op-1") {
			t.Error(e)
		}
	})
}
