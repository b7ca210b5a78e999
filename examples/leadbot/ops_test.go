package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// ops_test.go: a person settles what could not be known, beside the running server.

// lost starts a leadbot whose CRM has lost the answers to n enquiries.
func lost(t *testing.T, n int) (*server, *crmServer, []opView) {
	t.Helper()
	crm := newCRM(t)
	crm.lose(true)
	s := start(t, crm.hook())
	for i := range n {
		s.accept(update(i+1, 100+i, "a private question"))
	}
	var ops []opView
	eventually(t, "every answer is lost", func() bool {
		ops = s.in("needs_reconciliation")
		return len(ops) == n
	})
	return s, crm, ops
}

func TestOps(t *testing.T) {
	s, crm, ops := lost(t, 3)
	who := []string{"-by", "boris", "-why", "looked into the CRM"}
	with := func(args ...string) []string { return append(args, who...) }

	t.Run("list is a table with ids, states, ages and reasons, and without what was asked", func(t *testing.T) {
		out := s.ops("list")
		for _, want := range []string{"ID ", "KIND", "STATE", "WAITS FOR", "look-up at ", "AGE", "CRM ID", "REASON", ops[0].ID + "@", "lead.create",
			"needs_reconciliation", "3 found"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing:\n%s", want, out)
			}
		}
		if strings.Contains(out, "private question") || strings.Contains(out, "hook-path-secret") {
			t.Errorf("it shows too much:\n%s", out)
		}
	})
	t.Run("list filters by state, tenant, kind, age and number", func(t *testing.T) {
		for _, c := range []struct {
			n    int
			args []string
		}{
			{0, []string{"-state", "failed,done"}}, {3, []string{"-state", "failed,needs_reconciliation"}},
			{3, []string{"-tenant", "acme"}}, {0, []string{"-tenant", ""}}, {0, []string{"-kind", "note.add"}}, {0, []string{"-older", "1h"}},
			{2, []string{"-limit", "2"}},
		} {
			if got := read[[]opView](t, s.ops(append([]string{"list", "-json"}, c.args...)...)); len(got) != c.n {
				t.Errorf("%s: %d, want %d", c.args, len(got), c.n)
			}
		}
	})
	t.Run("stats tell that persons are needed and the CRM is paused", func(t *testing.T) {
		_, body := s.get("/stats")
		if p := read[statsPage](t, body); p.NeedPerson != 3 || !p.Paused || p.Operations[0].Oldest <= 0 {
			t.Error(body)
		}
	})
	t.Run("show prints the operation, its updates and its history; fields only on request", func(t *testing.T) {
		out := s.ops("show", ops[0].ID)
		for _, want := range []string{ops[0].ID, "needs_reconciliation", "updates: 1", "message", "what deviated: 1",
			"sending → needs_reconciliation",
			"leadbot ops found -db leads.db " + ops[0].ID + "@"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing:\n%s", want, out)
			}
		}
		if strings.Contains(out, "private question") || strings.Contains(out, "hook-path-secret") {
			t.Errorf("it shows too much:\n%s", out)
		}
		if out := s.ops("show", "-fields", ops[0].ID); !strings.Contains(out, "private question") {
			t.Errorf("no fields:\n%s", out)
		}
	})
	t.Run("show takes an id as list prints it, and says when it has moved on", func(t *testing.T) {
		now := fmt.Sprintf("%s@%d", ops[0].ID, ops[0].Version)
		if out := s.ops("show", now); !strings.Contains(out, ops[0].ID) || strings.Contains(out, "moved on") {
			t.Error(out)
		}
		if out := s.ops("show", ops[0].ID+"@1"); !strings.Contains(out, "moved on since version 1") {
			t.Error(out)
		}
	})
	t.Run("found at a version that has moved on is refused, and changes nothing", func(t *testing.T) {
		code, out, errOut := invoke(t, s.dir, append([]string{"ops"}, with("found", ops[0].ID+"@1=77")...)...)
		if code != exitFailed || !strings.Contains(out, "not at version 1 any more") || !strings.Contains(errOut, "0 done, 1 refused") {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
		if got := s.state(ops[0].ID); got != "needs_reconciliation" {
			t.Error(got)
		}
	})
	t.Run("found says what it does, makes it done, and the history tells who and why", func(t *testing.T) {
		out := s.ops(with("found", ops[0].ID+"=77")...)
		if !strings.Contains(out, "found "+ops[0].ID+"@") || !strings.Contains(out, "(77)") || !strings.Contains(out, ops[0].ID+": done") {
			t.Error(out)
		}
		if out := s.ops("show", ops[0].ID); !strings.Contains(out, "by boris, because: looked into the CRM") {
			t.Error(out)
		}
		if out := s.ops("list", "-crm-id", "77"); !strings.Contains(out, ops[0].ID) {
			t.Errorf("not found by its CRM id:\n%s", out)
		}
	})
	t.Run("correct mends a mistyped id", func(t *testing.T) {
		s.ops(with("correct", ops[0].ID+"=78")...)
		if got := s.in("done"); len(got) != 1 || got[0].CRMID != "78" {
			t.Errorf("%+v", got)
		}
	})
	t.Run("cancel ends it, and reopen of what may be in the CRM asks again", func(t *testing.T) {
		s.ops(with("cancel", ops[1].ID)...)
		if got := s.state(ops[1].ID); got != "canceled" {
			t.Error(got)
		}
		if out := s.ops("show", ops[1].ID); !strings.Contains(out, "may be in the CRM") {
			t.Error(out)
		}
		s.ops(with("reopen", ops[1].ID)...)
		if got := s.state(ops[1].ID); got != "needs_reconciliation" {
			t.Error(got)
		}
	})
	t.Run("absent right after the request is refused, and says until when", func(t *testing.T) {
		code, out, _ := invoke(t, s.dir, append([]string{"ops"}, with("absent", ops[2].ID)...)...)
		if code != exitFailed || !strings.Contains(out, "may still act on the request of") || !strings.Contains(out, " UTC, or say -force") {
			t.Errorf("exit %d\n%s", code, out)
		}
		if got := s.state(ops[2].ID); got != "needs_reconciliation" {
			t.Error(got)
		}
	})
	t.Run("absent -force makes the running server send it again", func(t *testing.T) {
		crm.lose(false)
		s.ops(with("absent", ops[2].ID, "-force")...)
		eventually(t, "it is done", func() bool { return s.state(ops[2].ID) == "done" })
		if got := crm.seen(ops[2].ID); got != 2 {
			t.Errorf("%d calls, want the lost one and the repeat", got)
		}
	})
	t.Run("a verdict that the state does not allow is refused", func(t *testing.T) {
		code, out, _ := invoke(t, s.dir, append([]string{"ops"}, with("absent", ops[2].ID)...)...)
		if code != exitFailed || !strings.Contains(out, "absent is not possible in state done") {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
	t.Run("an operation that is not there is refused, and the others are settled", func(t *testing.T) {
		code, out, errOut := invoke(t, s.dir, append([]string{"ops"}, with("cancel", "no-such-id", ops[1].ID)...)...)
		if code != exitFailed || !strings.Contains(errOut, "1 done, 1 refused") || s.state(ops[1].ID) != "canceled" {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
	})
	t.Run("nothing was sent that nobody asked for", func(t *testing.T) {
		for i, want := range []int{1, 1, 2} {
			if got := crm.seen(ops[i].ID); got != want {
				t.Errorf("operation %d: %d calls, want %d", i, got, want)
			}
		}
	})
	t.Run("the log quotes neither a question nor the hook's path", func(t *testing.T) {
		if log := s.logged(); strings.Contains(log, "private question") || strings.Contains(log, "hook-path-secret") {
			t.Error(log)
		}
	})
}

func TestOpsInBulk(t *testing.T) {
	s, crm, ops := lost(t, 3)
	crm.lose(false)
	all := []string{"ops", "absent", "-all", "-state", "needs_reconciliation", "-by", "boris", "-why", "the CRM was down"}
	t.Run("without -yes it says what it would do, does nothing, and exits 2", func(t *testing.T) {
		code, out, errOut := invoke(t, s.dir, all...)
		if code != exitUsage || strings.Count(out, "absent ") != 3 || !strings.Contains(errOut, "-yes does it to these 3") {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
		if got := s.in("needs_reconciliation"); len(got) != 3 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("the filter leaves out what is too young", func(t *testing.T) {
		if out := s.ops(append(all[1:], "-older", "1h", "-yes")...); !strings.Contains(out, "nothing to do") {
			t.Error(out)
		}
	})
	t.Run("several ids are settled by one command", func(t *testing.T) {
		out := s.ops("found", ops[0].ID+"=1", ops[1].ID+"=2", "-by", "boris", "-why", "seen")
		if strings.Count(out, ": done") != 2 {
			t.Error(out)
		}
	})
	t.Run("with -yes what is too early is left as it is, and counted", func(t *testing.T) {
		if out := s.ops(append(all[1:], "-yes")...); !strings.Contains(out, "1 left as they are") || !strings.Contains(out, "-force") {
			t.Error(out)
		}
		if got := s.state(ops[2].ID); got != "needs_reconciliation" {
			t.Error(got)
		}
	})
	t.Run("with -yes -force the rest is sent again", func(t *testing.T) {
		s.ops(append(all[1:], "-yes", "-force")...)
		eventually(t, "it is done", func() bool { return len(s.in("done")) == 3 })
		if crm.seen(ops[0].ID) != 1 || crm.seen(ops[1].ID) != 1 || crm.seen(ops[2].ID) != 2 {
			t.Error(crm.calls)
		}
	})
}

// book is a database without a server, with what a person may find in it.
func book(t *testing.T) (dir string, st *sqlite.Store) {
	t.Helper()
	dir = t.TempDir()
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, defaultDB), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return dir, st
}

// accepted stores an update and returns its event, claimed and planned by nobody.
func accepted(t *testing.T, st *sqlite.Store, body string) store.EventRow {
	t.Helper()
	src, err := telegram.NewSource(123456, secret, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := src.Parse([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := st.Accept(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return eventRow(t, st, r.EventID)
}

func eventRow(t *testing.T, st *sqlite.Store, id int64) store.EventRow {
	t.Helper()
	rows, err := st.Events(t.Context(), store.EventFilter{ID: id})
	if err != nil || len(rows) != 1 {
		t.Fatalf("event %d: %v, %v", id, rows, err)
	}
	return rows[0]
}

func TestRetry(t *testing.T) {
	dir, st := book(t)
	ctx := t.Context()
	var ids []int64
	for i := range 3 {
		e := accepted(t, st, update(i+1, 42+i, "hello"))
		end := []store.EventEnd{{ID: e.ID, State: store.EventParked, Reason: "rule: \x1b[31mbroken"}}
		if _, err := st.CommitPlan(ctx, store.Plan{Key: e.OrderingKey, Events: end}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.ID)
	}
	state := func(i int) store.EventState { return eventRow(t, st, ids[i]).State }
	retry := func(args ...string) (int, string) {
		code, out, errOut := invoke(t, dir, append([]string{"ops", "retry", "-by", "boris", "-why", "mended the rule"}, args...)...)
		return code, out + errOut
	}
	t.Run("list -events shows parked events, and nothing in them steers the terminal", func(t *testing.T) {
		code, out, _ := invoke(t, dir, "ops", "list", "-events")
		if code != exitOK || !strings.Contains(out, "parked") || !strings.Contains(out, "3 found") || strings.Contains(out, "\x1b") {
			t.Errorf("exit %d\n%q", code, out)
		}
	})
	t.Run("one event is pending again", func(t *testing.T) {
		if code, out := retry("1"); code != exitOK || state(0) != store.EventPending || state(1) != store.EventParked {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
	t.Run("an event that is not parked is refused", func(t *testing.T) {
		if code, out := retry("1"); code != exitFailed || !strings.Contains(out, "not parked but pending") {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
	t.Run("all of them need -yes", func(t *testing.T) {
		if code, out := retry("-all"); code != exitUsage || state(1) != store.EventParked || !strings.Contains(out, "these 2") {
			t.Errorf("exit %d\n%s", code, out)
		}
		if code, out := retry("-all", "-yes"); code != exitOK || state(1) != store.EventPending || state(2) != store.EventPending {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
}

func TestRestored(t *testing.T) {
	dir, st := book(t)
	op := submitted(t, st)
	args := []string{"ops", "restored", "-by", "boris", "-why", "the disk broke"}
	t.Run("without -yes it counts and does nothing", func(t *testing.T) {
		code, _, errOut := invoke(t, dir, args...)
		got, _ := st.Operation(t.Context(), op)
		if code != exitUsage || !strings.Contains(errOut, "marks 1 operations") || got.State != store.Pending {
			t.Errorf("exit %d, %s\n%s", code, got.State, errOut)
		}
	})
	t.Run("with -yes nothing unfinished is sent blindly", func(t *testing.T) {
		code, out, errOut := invoke(t, dir, append(args, "-yes")...)
		if got, _ := st.Operation(t.Context(), op); code != exitOK || got.State != store.NeedsReconciliation {
			t.Errorf("exit %d, %s\n%s%s", code, got.State, out, errOut)
		}
	})
}

// submitted stores one operation that waits to be sent.
func submitted(t *testing.T, st *sqlite.Store) string {
	t.Helper()
	const id = "11111111-2222-3333-4444-555555555555"
	deal := "11111111-2222-3333-4444-666666666666"
	op, err := st.Submit(t.Context(), store.Submission{
		Deal: store.Deal{ID: deal, OrderingKey: "k", Key: "submit:1", Generation: 1, State: store.DealOpen, CreateOp: id},
		Operation: store.Operation{ID: id, Kind: "lead.create", OrderingKey: "k", DealID: deal, State: store.Pending,
			Fields: []byte(`{"title":"x"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return op.ID
}

func TestAcknowledge(t *testing.T) {
	dir, st := book(t)
	id := submitted(t, st)
	for _, crmID := range []string{"1", "2"} {
		if _, err := st.Advance(t.Context(), store.Report{ID: id, On: store.Confirmed, CRMID: crmID}); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := invoke(t, dir, "ops", "list")
	t.Run("a conflict is not finished: list shows it", func(t *testing.T) {
		if code != exitOK || !strings.Contains(out, "done (conflict)") {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
	t.Run("acknowledge -all resolves it", func(t *testing.T) {
		code, out, errOut := invoke(t, dir, "ops", "acknowledge", "-all", "-yes", "-by", "boris", "-why", "merged")
		if op, _ := st.Operation(t.Context(), id); code != exitOK || op.ConflictID != "" || op.CRMID != "1" {
			t.Errorf("exit %d, %+v\n%s%s", code, op, out, errOut)
		}
	})
}

func TestStaleBetweenReadingAndActing(t *testing.T) {
	_, st := book(t)
	id := submitted(t, st)
	c := &opsCommand{name: "cancel", args: []string{id}, by: "boris", why: "w", st: &movesOn{Store: st}, out: t.Output()}
	if err := c.settle(t.Context()); err == nil || c.refused != 1 {
		t.Fatalf("%v, %d refused", err, c.refused)
	}
	if op, _ := st.Operation(t.Context(), id); op.State != store.NeedsReconciliation {
		t.Fatalf("%s, though what was canceled is not what had been looked at", op.State)
	}
}

// movesOn lets somebody else decide right after an operation was looked at.
type movesOn struct {
	*sqlite.Store
	once sync.Once
}

func (m *movesOn) Operation(ctx context.Context, id string) (op store.Operation, err error) {
	op, err = m.Store.Operation(ctx, id)
	m.once.Do(func() {
		_, e := m.Advance(ctx, store.Report{ID: id, Version: op.Version, On: store.Restored, By: "somebody else", Why: "w"})
		err = errors.Join(err, e)
	})
	return op, err
}

var _ database = (*movesOn)(nil)

func TestOpsUsage(t *testing.T) {
	dir, _ := book(t)
	who := []string{"-by", "b", "-why", "w"}
	for _, c := range []struct {
		args string
		who  bool
		says string
	}{
		{"", false, "which command"},
		{"frobnicate", false, "unknown command"},
		{"list x", false, "takes no ids"},
		{"list -state lost", false, `no state "lost"`},
		{"list -events -state failed", false, `no state "failed"`},
		{"list -events -kind x", false, "not -events"},
		{"list -limit 0", false, "-limit"},
		{"list -older -1h", false, "-older"},
		{"list -by me", false, "-by"},
		{"shadow x", false, "takes no ids"},
		{"shadow -since -1h", false, "-since"},
		{"shadow -by me", false, "-by"},
		{"show", false, "one operation"},
		{"show a b", false, "one operation"},
		{"show a@x", false, "version after @"},
		{"show a=1", false, "no CRM id is wanted"},
		{"absent a", false, "-by is missing"},
		{"absent a -by me", false, "-why is missing"},
		{"absent", true, "which?"},
		{"absent a -all", true, "not both"},
		{"absent a -state failed", true, "not both"},
		{"absent a=1", true, "no CRM id is wanted"},
		{"absent a@x", true, "version after @"},
		{"absent a a", true, "given twice"},
		{"found a", true, "write ID=CRM_ID"},
		{"found a=1 b=", true, "write ID=CRM_ID"},
		{"found -all", true, "-all"},
		{"cancel -all -yes", true, "-all needs -state"},
		{"retry x", true, "no event's number"},
		{"restored x", true, "takes no ids"},
		{"list -db mysql://h/leads", false, `no database "mysql"`},
		{"list -pooler", false, "-pooler"},
	} {
		t.Run("ops "+c.args+" exits 2 and says what is wrong", func(t *testing.T) {
			args := append([]string{"ops"}, strings.Fields(c.args)...)
			if c.who {
				args = append(args, who...)
			}
			code, _, errOut := invoke(t, dir, args...)
			if code != exitUsage || !strings.Contains(errOut, c.says) {
				t.Fatalf("exit %d, want %q:\n%s", code, c.says, errOut)
			}
		})
	}
	t.Run("a database that is not there is not made", func(t *testing.T) {
		empty := t.TempDir()
		code, _, errOut := invoke(t, empty, "ops", "list")
		left, _ := filepath.Glob(filepath.Join(empty, "*"))
		if code != exitFailed || !strings.Contains(errOut, "there is no file leads.db") || len(left) > 0 {
			t.Fatalf("exit %d, %s\n%s", code, left, errOut)
		}
	})
	t.Run("an operation that is not there exits 1", func(t *testing.T) {
		if code, _, errOut := invoke(t, dir, "ops", "show", "nothing"); code != exitFailed || !strings.Contains(errOut, "not found") {
			t.Fatalf("exit %d\n%s", code, errOut)
		}
	})
}

func TestVerdictsFollowTheMachine(t *testing.T) {
	t.Run("every trigger of a person has a command", func(t *testing.T) {
		var have []store.Trigger
		for _, v := range verdicts() {
			have = append(have, v.trigger)
		}
		have = append(have, store.Restored) // a command of its own
		for _, on := range append(slices.DeleteFunc(store.Triggers(), func(x store.Trigger) bool { return !x.Personal() }),
			store.Confirmed, store.Absent) {
			if !slices.Contains(have, on) {
				t.Errorf("none for %s", on)
			}
		}
	})
}

func TestWaitsFor(t *testing.T) {
	now := time.Date(2026, 1, 2, 22, 1, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		op   store.Operation
		want string
	}{
		{"a fresh doubt waits for its look-up", store.Operation{State: store.NeedsReconciliation, Reason: "EOF", DueAt: now.Add(2 * time.Minute)},
			"look-up at 22:03:00 UTC"},
		{"one that a look-up could not settle waits for a person", store.Operation{State: store.NeedsReconciliation,
			Reason: "look-up found nothing, so a person must look", DueAt: now.Add(2 * time.Minute)}, "a person"},
		{"one that is not looked up soon waits for a person", store.Operation{State: store.NeedsReconciliation, DueAt: now.Add(24 * time.Hour)},
			"a person"},
		{"a refused one waits for a person", store.Operation{State: store.Failed}, "a person"},
		{"a conflict waits for a person", store.Operation{State: store.Done, ConflictID: "2"}, "a person"},
		{"what goes on by itself waits for nobody", store.Operation{State: store.Pending}, "-"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := waitsFor(c.op, now); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
