package sqlstore

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// change_test.go: what a plan changes, and what an adoption stores, before any engine is asked.

func TestChangeDeals(t *testing.T) {
	at := now.Add(-time.Hour)
	for _, c := range []struct {
		name string
		p    store.Plan
		want []*ChangeDeal
		err  error
	}{
		{"a touch alone", store.Plan{Touches: []store.Touch{{DealID: "d", Version: 3}}},
			[]*ChangeDeal{{ID: "d", Version: 3, Touched: 1, Now: Micros(now)}}, nil},
		{"a touch and a move of one deal are one change", store.Plan{Touches: []store.Touch{{DealID: "d", Version: 3}},
			Stages: []store.StageMove{{DealID: "e", Version: 1, Stage: "new"},
				{DealID: "d", Version: 3, Stage: "won", StageVersion: 7, StageAt: at, State: store.DealClosed}}},
			[]*ChangeDeal{{ID: "d", Version: 3, Touched: 1, Now: Micros(now), Staged: 1, Stage: "won", StageVersion: 7,
				StageAt: Micros(at), State: "closed"}, {ID: "e", Version: 1, Now: Micros(now), Staged: 1, Stage: "new"}}, nil},
		{"of two moves the last one counts", store.Plan{Stages: []store.StageMove{
			{DealID: "d", Version: 3, Stage: "lost", State: store.DealClosed}, {DealID: "d", Version: 3, Stage: "new"}}},
			[]*ChangeDeal{{ID: "d", Version: 3, Now: Micros(now), Staged: 1, Stage: "new", State: "closed"}}, nil},
		{"a touch and a move under two versions", store.Plan{Touches: []store.Touch{{DealID: "d", Version: 3}},
			Stages: []store.StageMove{{DealID: "d", Version: 4}}}, nil, store.ErrConflict},
		{"a state that is none", store.Plan{Stages: []store.StageMove{{DealID: "d", State: "nearly"}}}, nil, store.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ChangeDeals(c.p, now)
			if !errors.Is(err, c.err) {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestOtherKey(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to string
		want     string
		err      error
	}{
		{"the plan's key moves", "k", "n", "n", nil},
		{"another key moves here", "n", "k", "n", nil},
		{"two other keys", "a", "b", "", store.ErrInvalid},
		{"one key", "k", "k", "", store.ErrInvalid},
		{"from nowhere", "", "k", "", store.ErrInvalid},
		{"to nowhere", "k", "", "", store.ErrInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := OtherKey(store.Plan{Key: "k", Merge: &store.Merge{From: c.from, To: c.to}})
			if got != c.want || !errors.Is(err, c.err) {
				t.Fatal(got, err)
			}
		})
	}
	if got, err := OtherKey(store.Plan{Key: "k"}); got != "" || err != nil {
		t.Fatal("without a merge:", got, err)
	}
}

func TestNewEndEvent(t *testing.T) {
	for _, c := range []struct {
		name string
		e    store.EventEnd
		want *EndEvent
	}{
		{"a retry counts", store.EventEnd{ID: 1, State: store.EventPending, Retry: time.Second},
			&EndEvent{ID: 1, Key: "k", NewKey: "k", State: "pending", Attempt: 1, DueAt: Micros(now.Add(time.Second))}},
		{"a move does not", store.EventEnd{ID: 1, State: store.EventPending, MoveTo: "n", Retry: time.Second},
			&EndEvent{ID: 1, Key: "k", NewKey: "n", State: "pending", DueAt: Micros(now.Add(time.Second))}},
		{"a move of what has ended is refused", store.EventEnd{ID: 1, State: store.EventPlanned, MoveTo: "n"}, nil},
		{"a move of what is gathering is refused", store.EventEnd{ID: 1, State: store.EventGathering, MoveTo: "n"}, nil},
		{"a move to where it is is refused", store.EventEnd{ID: 1, State: store.EventPending, MoveTo: "k"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := NewEndEvent("k", c.e, now)
			if (c.want == nil) != errors.Is(err, store.ErrInvalid) {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Fatal(d)
			}
		})
	}
}

func TestAdoption(t *testing.T) {
	for _, c := range []struct {
		name string
		a    store.Adoption
		ok   bool
	}{
		{"an id is enough", store.Adoption{CRMID: "77"}, true},
		{"no id", store.Adoption{Opened: time.Hour}, false},
		{"opened in the future", store.Adoption{CRMID: "77", Opened: -1}, false},
		{"written to in the future", store.Adoption{CRMID: "77", Idle: -1}, false},
		{"older than any clock", store.Adoption{CRMID: "77", Opened: 1 << 62}, false},
	} {
		if err := ValidAdoption(c.a, now); (err == nil) != c.ok || (err != nil && !errors.Is(err, store.ErrInvalid)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	a := store.Adoption{CRMID: "77\x00", Opened: time.Hour, Idle: time.Minute, Stage: "won"}
	d, err := AdoptDeal(store.Deal{ID: "d", OrderingKey: "k", Key: "x", CRMID: "of the caller's"}, a, now)
	if err != nil || d.CRMID != "77\uFFFD" || d.Stage != "won" || d.OpenedAt != Micros(now.Add(-time.Hour)) ||
		d.LastActivity != Micros(now.Add(-time.Minute)) || d.State != "open" {
		t.Errorf("%+v, %v", d, err)
	}
	o, err := AdoptOperation(store.Operation{ID: "o", Kind: "lead.create", DependsOn: "p"}, a, now)
	if err != nil || o.State != store.Done || o.CRMID != d.CRMID || o.LeadID != d.CRMID || !o.EndedAt.Equal(now) || o.Blocked {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestTheContactsIDGoesWithTheOperationThatMadeIt(t *testing.T) {
	o := sending()
	o.ContactKey = "c"
	r := store.Report{ID: "o", On: store.Confirmed, CRMID: "77"}
	if m, err := Advance(o, r, Around{}, now); err != nil || m.Op.ContactID != "77" {
		t.Fatalf("%+v, %v", m.Op, err)
	}
	o.DealID = "d"
	if m, err := Advance(o, r, Around{IsCreate: true}, now); err != nil || m.Op.ContactID != "" || m.Op.LeadID != "77" {
		t.Fatalf("of a deal: %+v, %v", m.Op, err)
	}
}
