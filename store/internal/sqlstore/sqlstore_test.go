package sqlstore

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// sqlstore_test.go: the pure decisions. How they show through a store is storetest's.

var now = time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)

// sending is an operation on its second attempt since doubt began.
func sending() store.Operation {
	return store.Operation{
		ID: "o", Kind: "lead.create", State: store.Sending, Doubt: true, Version: 5, Fence: 2, Attempts: 2, Failures: 1,
		Fields: []byte(`{}`), FirstSentAt: now.Add(-time.Hour), LastSentAt: now.Add(-time.Minute), Owner: "w",
		LeaseUntil: now.Add(time.Minute), DueAt: now.Add(-time.Minute), CreatedAt: now.Add(-2 * time.Hour),
	}
}

func TestAdvance(t *testing.T) {
	fresh := sending()
	fresh.Doubt, fresh.Attempts, fresh.Failures = false, 1, 0
	settled := sending()
	settled.State, settled.Owner, settled.LeaseUntil, settled.Unreturned = store.NeedsReconciliation, "", time.Time{}, true
	failed := fresh
	failed.State, failed.EndedAt, failed.Owner, failed.LeaseUntil = store.Failed, now.Add(-time.Second), "", time.Time{}
	for _, c := range []struct {
		name   string
		from   store.Operation
		r      store.Report
		around Around
		want   func(*store.Operation) // from → what is expected
		quiet  bool                   // no entry in the trail
	}{
		{"an ordinary success leaves no trail", fresh, store.Report{On: store.Confirmed, CRMID: "77"}, Around{IsCreate: true},
			func(o *store.Operation) {
				o.State, o.CRMID, o.LeadID, o.EndedAt, o.Owner, o.LeaseUntil = store.Done, "77", "77", now, "", time.Time{}
			}, true},
		{"a call that was never made is no attempt", fresh,
			store.Report{On: store.NotApplied, Version: 5, Fence: 2, Unsent: true, RetryAfter: time.Second}, Around{CreateDone: true},
			func(o *store.Operation) {
				o.State, o.Attempts, o.DueAt, o.Owner, o.LeaseUntil = store.Pending, 0, now.Add(time.Second), "", time.Time{}
			}, false},
		{"not applied says nothing about the earlier attempt", sending(),
			store.Report{On: store.NotApplied, Version: 5, Fence: 2, Reason: "429"}, Around{CreateDone: true},
			func(o *store.Operation) {
				o.State, o.Failures, o.DueAt, o.Reason, o.Owner, o.LeaseUntil = store.Uncertain, 2, now, "429", "", time.Time{}
			}, false},
		{"a lost call that came back leaves the proof possible", sending(),
			store.Report{On: store.Lost, Version: 5, Fence: 2, Returned: true}, Around{CreateDone: true},
			func(o *store.Operation) {
				o.State, o.Failures, o.DueAt, o.Owner, o.LeaseUntil = store.NeedsReconciliation, 2, now, "", time.Time{}
			}, false},
		{"a lost call that never came back makes it impossible", sending(),
			store.Report{On: store.LostRepeatable, Version: 5, Fence: 2}, Around{CreateDone: true},
			func(o *store.Operation) {
				o.State, o.Failures, o.Unreturned, o.DueAt, o.Owner, o.LeaseUntil = store.Uncertain, 2, true, now, "", time.Time{}
			}, false},
		{"absence begins anew", settled, store.Report{On: store.Absent, Version: 5}, Around{CreateDone: true},
			func(o *store.Operation) {
				o.State, o.Doubt, o.Failures, o.Unreturned, o.FirstSentAt, o.DueAt = store.Pending, false, 0, false, time.Time{}, now
			}, false},
		{"reopened, it waits for its create", failed, store.Report{On: store.Reopen, Version: 5, By: "anna"}, Around{},
			func(o *store.Operation) {
				o.Revision, o.State, o.Blocked, o.FirstSentAt, o.EndedAt, o.DueAt = 1, store.Pending, true, time.Time{}, time.Time{}, now
				o.Reason = "reopen by a person"
			}, false},
		{"restored, nothing is proven", failed, store.Report{On: store.Restored, Version: 5, By: "anna"}, Around{},
			func(o *store.Operation) {
				o.State, o.Doubt, o.Unreturned, o.EndedAt, o.DueAt = store.NeedsReconciliation, true, true, time.Time{}, now
				o.Reason = "restored by a person"
			}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.from
			want.Version, want.UpdatedAt = 6, now
			c.want(&want)
			m, err := Advance(c.from, c.r, c.around, now)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, m.Op); d != "" {
				t.Errorf("(-want +got): %s", d)
			}
			if (m.Entry == nil) != c.quiet {
				t.Errorf("entry %+v", m.Entry)
			}
		})
	}
}

func TestAdvanceRefuses(t *testing.T) {
	erased := sending()
	erased.Fields = nil
	for _, c := range []struct {
		name string
		o    store.Operation
		r    store.Report
		want error // nil: a *store.MoveError
	}{
		{"a stale worker", sending(), store.Report{On: store.Lost, Version: 5, Fence: 1}, store.ErrLeaseLost},
		{"a stale page", sending(), store.Report{On: store.Restored, Version: 4, By: "anna"}, store.ErrMoved},
		{"nobody", sending(), store.Report{On: store.Restored, Version: 5}, store.ErrInvalid},
		{"a success without an id", sending(), store.Report{On: store.Confirmed}, store.ErrInvalid},
		{"a trigger that does not exist", sending(), store.Report{On: "explode"}, store.ErrInvalid},
		{"a claim by report", sending(), store.Report{On: store.Repeat, Version: 5}, nil},
		{"an erased operation", erased, store.Report{On: store.Lost, Version: 5, Fence: 2}, nil},
		{"what the machine has no move for", sending(), store.Report{On: store.Absent, Version: 5}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Advance(c.o, c.r, Around{IsCreate: true}, now)
			if m, ok := errors.AsType[*store.MoveError](err); c.want == nil && (!ok || m.ID != "o") {
				t.Fatalf("got %v, want a move error", err)
			}
			if c.want != nil && !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestBeginSetsWhatRepeatKeeps(t *testing.T) {
	c := store.Claim{Owner: "w", Lease: time.Minute, Adapter: "a",
		Terms: map[string]store.Terms{"lead.create": {Guarantee: "g", Window: time.Hour}}}
	pending := store.Operation{ID: "o", Kind: "lead.create", State: store.Pending, Version: 1, Unreturned: true}
	first, err := Begin(pending, c, now)
	if err != nil || first.State != store.Sending || !first.FirstSentAt.Equal(now) || first.Unreturned || first.Fence != 1 ||
		first.Version != 2 || first.Attempts != 1 || first.Guarantee != "g" || !first.LeaseUntil.Equal(now.Add(time.Minute)) {
		t.Fatalf("begin: %+v, %v", first, err)
	}
	first.State, first.Doubt, first.Unreturned = store.Uncertain, true, true
	again, err := Begin(first, c, now.Add(time.Minute))
	if err != nil || !again.FirstSentAt.Equal(now) || !again.Unreturned || again.Fence != 2 || again.Attempts != 2 ||
		!again.Doubt {
		t.Fatalf("repeat: %+v, %v", again, err)
	}
	first.State = store.Done
	if _, err := Begin(first, c, now); err == nil {
		t.Fatal("began what is done")
	}
}

func TestSame(t *testing.T) {
	row := Event{Hash: "h", FPVersion: 1, FPSum: "f1"}
	for _, c := range []struct {
		name string
		e    store.Event
		want bool
	}{
		{"the same bytes", store.Event{Hash: "h"}, true},
		{"the same content in the row's version",
			store.Event{Hash: "x", Fingerprints: []store.Fingerprint{{Version: 2, Sum: "f2"}, {Version: 1, Sum: "f1"}}}, true},
		{"the same sum in another version",
			store.Event{Hash: "x", Fingerprints: []store.Fingerprint{{Version: 2, Sum: "f1"}}}, false},
		{"neither", store.Event{Hash: "x", Fingerprints: []store.Fingerprint{{Version: 1, Sum: "f3"}}}, false},
		{"no fingerprint", store.Event{Hash: "x"}, false},
	} {
		if got := row.Same(c.e); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "plain": "plain", "Заявка 🙂": "Заявка 🙂",
		"a\x00b": "a\uFFFDb", "a\xffb": "a\uFFFDb", "\xf0\x28": "\uFFFD(",
	} {
		got := Clean(in)
		if got != want || Clean(got) != got {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
