package storetest

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/store"
)

// corrupt.go: one row that can't be read, in the way of every sweep (I12). It is named once, set aside and counted; the rows
// beside it go on.

func corruptChecks() []check {
	return []check{
		{"a broken operation keeps no other from being claimed", corruptClaim},
		{"a broken operation keeps no other from recovery", corruptAttention},
		{"a broken operation is named when it is read", corruptRead},
		{"a broken operation is named, not moved", corruptAdvance},
		{"a broken operation keeps no list from being read", corruptList},
		{"a broken operation is counted for a person", corruptStats},
		{"a broken note keeps its create from nothing", corruptCascade},
		{"a broken event is parked, and its key goes on", corruptEvent},
		{"a broken event keeps no key from being due", corruptDue},
		{"a broken deal keeps no key from being read", corruptDeal},
		{"a broken event is not swallowed when it comes again", corruptAgain},
	}
}

// onlyCorrupt returns the ids of the rows that an error names, and false if it says anything else.
func onlyCorrupt(err error) (rows []string, ok bool) {
	if c, is := err.(*store.CorruptError); is {
		return []string{c.ID}, true
	}
	var parts []error
	switch u := err.(type) {
	case interface{ Unwrap() []error }:
		parts = u.Unwrap()
	case interface{ Unwrap() error }:
		parts = []error{u.Unwrap()}
	}
	for _, p := range parts {
		r, is := onlyCorrupt(p)
		if !is {
			return nil, false
		}
		rows = append(rows, r...)
	}
	return rows, len(parts) > 0
}

// wantOnlyCorrupt accepts no error, or one that names nothing but the broken rows.
func (b *bench) wantOnlyCorrupt(err error, doing string, broken ...string) {
	b.Helper()
	if err == nil {
		return
	}
	rows, ok := onlyCorrupt(err)
	if !ok {
		b.Fatalf("%s: %v is more than corrupt rows", doing, err)
	}
	for _, id := range rows {
		if !slices.Contains(broken, id) {
			b.Fatalf("%s: the error names the row %s, broken are %v", doing, id, broken)
		}
	}
}

func corruptClaim(b *bench) {
	for n := range 4 {
		b.submit(n)
	}
	b.corrupt(TableOperations, opID(1))
	var got []string
	named := 0
	for range 4 {
		ops, err := b.st.Claim(b.ctx, claimOf("a", 2))
		b.wantOnlyCorrupt(err, "claim", opID(1))
		if err != nil {
			named++
		}
		got = append(got, ids(ops)...)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{opID(0), opID(2), opID(3)}) {
		b.Fatalf("claimed %v", got)
	}
	if named > 1 {
		b.Fatalf("named %d times: it is not set aside", named)
	}
	if s := b.stats(); s.Broken != 1 {
		b.Fatalf("%d rows are counted as broken", s.Broken)
	}
}

func corruptAttention(b *bench) {
	for n := range 3 {
		b.atState(store.Sending, n)
	}
	for n := range 3 {
		b.atState(store.NeedsReconciliation, 10+n)
	}
	b.wait(2 * lease)
	b.corrupt(TableOperations, opID(1))
	b.corrupt(TableOperations, opID(11))
	seen := map[string]bool{}
	for range 3 {
		ops, err := b.st.Attention(b.ctx, 2, true)
		b.wantOnlyCorrupt(err, "attention", opID(1), opID(11))
		for _, o := range ops {
			seen[o.ID] = true
			_, err := b.st.Advance(b.ctx, evidence(o.ID, "77"))
			b.must(err)
		}
	}
	if len(seen) != 4 || seen[opID(1)] || seen[opID(11)] {
		b.Fatalf("recovered %v", seen)
	}
}

// wantCorrupt ends the check unless err names the row.
func (b *bench) wantCorrupt(err error, id, doing string) {
	b.Helper()
	c, ok := errors.AsType[*store.CorruptError](err)
	if !ok || c.ID != id {
		b.Fatalf("%s: got error %v, want a *store.CorruptError of %s", doing, err, id)
	}
	if strings.Contains(err.Error(), "lead ") || strings.Contains(err.Error(), "hello") {
		b.Fatalf("%s: the error shows the payload: %v", doing, err)
	}
}

func corruptRead(b *bench) {
	b.submit(1)
	b.corrupt(TableOperations, opID(1))
	for range 2 {
		_, err := b.st.Operation(b.ctx, opID(1))
		b.wantCorrupt(err, opID(1), "read")
	}
	_, err := b.st.Submit(b.ctx, submissionOf(1))
	b.wantCorrupt(err, opID(1), "the same submission again")
}

func corruptAdvance(b *bench) {
	o := b.atState(store.Sending, 1)
	b.corrupt(TableOperations, o.ID)
	for _, on := range []store.Trigger{store.Lost, store.Confirmed, store.Restored} {
		_, err := b.st.Advance(b.ctx, reportOf(o, on))
		b.wantCorrupt(err, o.ID, string(on))
	}
}

func corruptList(b *bench) {
	for n := range 3 {
		b.submit(n)
	}
	b.corrupt(TableOperations, opID(1))
	for range 2 {
		ops, err := b.st.Operations(b.ctx, store.OperationFilter{})
		b.wantOnlyCorrupt(err, "list", opID(1))
		got := slices.DeleteFunc(ids(ops), func(id string) bool { return id == opID(1) })
		if !slices.Equal(got, []string{opID(0), opID(2)}) {
			b.Fatalf("listed %v", got)
		}
	}
	b.claim(claimOf("a", 0))
	if _, err := b.st.Claim(b.ctx, claimOf("a", 5)); err != nil {
		b.wantOnlyCorrupt(err, "claim", opID(1))
	}
	ops, err := b.st.Operations(b.ctx, store.OperationFilter{Broken: true})
	b.wantOnlyCorrupt(err, "list of broken rows", opID(1))
	if !slices.Equal(ids(ops), []string{opID(1)}) || ops[0].Fields != nil {
		b.Fatalf("broken are %v", ids(ops))
	}
}

func corruptStats(b *bench) {
	b.submit(1)
	b.submit(2)
	b.corrupt(TableOperations, opID(1))
	_, err := b.st.Claim(b.ctx, claimOf("a", 5))
	b.wantOnlyCorrupt(err, "claim", opID(1))
	s := b.stats()
	if s.Broken != 1 || s.NeedPerson() != 1 || s.Settling() != 1 {
		b.Fatalf("broken %d, for a person %d, settling %d", s.Broken, s.NeedPerson(), s.Settling())
	}
}

func corruptCascade(b *bench) {
	_, create := b.opened("k:1", 1)
	_, broken := b.noted(create, 2)
	_, note := b.noted(create, 3)
	b.corrupt(TableOperations, broken.ID)
	o, err := b.st.Advance(b.ctx, evidence(create.ID, "77"))
	b.wantOnlyCorrupt(err, "confirm a create with a broken note", broken.ID)
	if o = b.op(create.ID); o.State != store.Done {
		b.Fatalf("the create is %s", o.State)
	}
	ops, err := b.st.Claim(b.ctx, claimOf("a", 5))
	b.wantOnlyCorrupt(err, "claim", broken.ID)
	if !slices.Equal(ids(ops), []string{note.ID}) {
		b.Fatalf("claimed %v", ids(ops))
	}
}

func corruptEvent(b *bench) {
	first := b.accept(eventOf("k:1", 1))
	bad := b.accept(eventOf("k:1", 2))
	last := b.accept(eventOf("k:1", 3))
	b.corrupt(TableEvents, strconv.FormatInt(bad.EventID, 10))
	v, err := b.st.ReadKey(b.ctx, "k:1")
	b.wantOnlyCorrupt(err, "read key", strconv.FormatInt(bad.EventID, 10))
	if got := eventIDs(v.Events); !slices.Equal(got, []int64{first.EventID, last.EventID}) {
		b.Fatalf("read %v", got)
	}
	b.commit(planOf(v))
	b.wantDue()
	if s := b.stats(); s.Broken == 0 && s.NeedPerson() == 0 {
		b.Fatal("nobody is told of the broken event")
	}
}

func corruptDue(b *bench) {
	bad := b.accept(eventOf("k:1", 1))
	b.accept(eventOf("k:2", 1))
	b.accept(eventOf("k:3", 1))
	id := strconv.FormatInt(bad.EventID, 10)
	b.corrupt(TableEvents, id)
	for range 3 { // what a planner does, round after round
		keys, err := b.st.DueKeys(b.ctx, 1)
		b.wantOnlyCorrupt(err, "due keys", id)
		for _, key := range keys {
			v, err := b.st.ReadKey(b.ctx, key.Key)
			b.wantOnlyCorrupt(err, "read key", id)
			if len(v.Events) > 0 {
				b.commit(planOf(v))
			}
		}
	}
	keys, err := b.st.DueKeys(b.ctx, 10)
	b.wantOnlyCorrupt(err, "due keys", id)
	if len(keys) != 0 {
		b.Fatalf("still due are %q", keys)
	}
	if n := len(b.events(store.EventFilter{States: []store.EventState{store.EventPlanned}})); n != 2 {
		b.Fatalf("%d events were planned", n)
	}
}

func corruptDeal(b *bench) {
	b.opened("k:1", 1)
	b.opened("k:1", 2)
	b.accept(eventOf("k:1", 3))
	b.corrupt(TableDeals, dealID(1))
	v, err := b.st.ReadKey(b.ctx, "k:1")
	b.wantOnlyCorrupt(err, "read key", dealID(1))
	if len(v.Events) != 1 || len(v.Deals) != 1 || v.Deals[0].ID != dealID(2) {
		b.Fatalf("read %d events and the deals %+v", len(v.Events), v.Deals)
	}
	b.commit(planOf(v))
	ops := b.claim(claimOf("a", 5))
	if !slices.Contains(ids(ops), opID(2)) {
		b.Fatalf("claimed %v", ids(ops))
	}
}

func corruptAgain(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	b.corrupt(TableEvents, strconv.FormatInt(r.EventID, 10))
	// It is a repeat of what is known, or it is kept: never an error for ever, which would block the sender.
	again, err := b.st.Accept(b.ctx, eventOf("k:1", 1))
	if err != nil {
		b.Fatalf("accept beside a broken row: %v", err)
	}
	if again.EventID == 0 || again.Duplicate != (again.EventID == r.EventID) {
		b.Fatalf("first %+v, again %+v", r, again)
	}
}
