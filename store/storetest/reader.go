package storetest

import (
	"fmt"
	"slices"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// reader.go: questions about single rows, and the chain event ↔ operation ↔ crm_id from every end.

func readerChecks() []check {
	return []check{
		{"an operation that does not exist is ErrNotFound", readerMissing},
		{"the zero filters select all, oldest first", readerAll},
		{"operations are found by every field", readerOperations},
		{"given fields have to match all", readerAnd},
		{"events are found by every field", readerEvents},
		{"pages of operations are whole and don't overlap", readerPagesOfOperations},
		{"pages of events are whole and don't overlap", readerPagesOfEvents},
		{"a page is 100 rows, and at most 1000", readerLimits},
		{"the chain holds from every end", readerChain},
		{"the trail of nothing is empty", readerEmptyTrail},
		{"a parked event is retried by a person", readerRetryEvent},
		{"a parked album is retried whole", readerRetryAlbum},
		{"an event that is not parked is left as it is", readerRetryOther},
	}
}

func readerMissing(b *bench) {
	_, err := b.st.Operation(b.ctx, opID(404))
	b.wantErr(err, store.ErrNotFound, "read of nothing")
	if ops := b.ops(store.OperationFilter{CRMID: "404"}); len(ops) != 0 {
		b.Fatalf("a filter that matches nothing gave %v", ids(ops))
	}
	if rows := b.events(store.EventFilter{ID: 404}); len(rows) != 0 {
		b.Fatalf("a filter that matches nothing gave %v", eventIDs(rows))
	}
}

func readerAll(b *bench) {
	for _, n := range []int{3, 1, 2} {
		b.submit(n)
		b.accept(eventOf("k:1", n))
	}
	if got := ids(b.ops(store.OperationFilter{})); !slices.Equal(got, []string{opID(3), opID(1), opID(2)}) {
		b.Errorf("operations %v", got)
	}
	var got []string
	for _, r := range b.events(store.EventFilter{}) {
		got = append(got, r.UpdateID)
	}
	if !slices.Equal(got, []string{"k:1/3", "k:1/1", "k:1/2"}) {
		b.Errorf("events %v", got)
	}
}

func readerOperations(b *bench) {
	r, create := b.opened("k:1", 1)
	second, note := b.noted(create, 2)
	s := submissionOf(5)
	s.Operation.Tenant, s.Deal.Tenant = "", ""
	other, err := b.st.Submit(b.ctx, s)
	b.must(err)
	b.advance(evidence(create.ID, "77"))
	shop, none := "shop", ""
	for what, c := range map[string]struct {
		f    store.OperationFilter
		want []string
	}{
		"state": {store.OperationFilter{States: []store.State{store.Done}}, []string{create.ID}},
		"two states": {store.OperationFilter{States: []store.State{store.Done, store.Pending}}, []string{create.ID,
			note.ID, other.ID}},
		"another state":  {store.OperationFilter{States: []store.State{store.Failed}}, nil},
		"tenant":         {store.OperationFilter{Tenant: &shop}, []string{create.ID, note.ID}},
		"no tenant":      {store.OperationFilter{Tenant: &none}, []string{other.ID}},
		"kind":           {store.OperationFilter{Kind: kindNote}, []string{note.ID}},
		"crm id":         {store.OperationFilter{CRMID: "77"}, []string{create.ID, note.ID}},
		"event":          {store.OperationFilter{EventID: r.EventID}, []string{create.ID}},
		"another event":  {store.OperationFilter{EventID: second.EventID}, []string{note.ID}},
		"deal":           {store.OperationFilter{DealID: dealID(1)}, []string{create.ID, note.ID}},
		"contact":        {store.OperationFilter{Contact: "c:k:1"}, []string{create.ID, note.ID}},
		"conflict":       {store.OperationFilter{Conflict: true}, nil},
		"broken":         {store.OperationFilter{Broken: true}, nil},
		"nothing at all": {store.OperationFilter{}, []string{create.ID, note.ID, other.ID}},
	} {
		if got := ids(b.ops(c.f)); !slices.Equal(got, append([]string{}, c.want...)) {
			b.Errorf("by %s: %v, want %v", what, got, c.want)
		}
	}
}

func readerAnd(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	b.advance(evidence(create.ID, "77"))
	f := store.OperationFilter{DealID: dealID(1), Kind: kindNote, States: []store.State{store.Pending}, CRMID: "77"}
	if got := ids(b.ops(f)); !slices.Equal(got, []string{note.ID}) {
		b.Errorf("all match: %v", got)
	}
	f.States = []store.State{store.Done}
	if got := ids(b.ops(f)); len(got) != 0 {
		b.Errorf("one does not match: %v", got)
	}
	bot := store.EventFilter{Bot: "7001", UpdateID: "k:1/1", States: []store.EventState{store.EventPlanned}}
	if got := b.events(bot); len(got) != 1 {
		b.Errorf("all match: %v", eventIDs(got))
	}
	bot.States = []store.EventState{store.EventPending}
	if got := b.events(bot); len(got) != 0 {
		b.Errorf("one does not match: %v", eventIDs(got))
	}
}

func readerEvents(b *bench) {
	first, create := b.opened("k:1", 1)
	e := eventOf("k:2", 1)
	e.Tenant, e.Bot = "", "7002"
	second := b.accept(e)
	shop, none := "shop", ""
	for what, c := range map[string]struct {
		f    store.EventFilter
		want []int64
	}{
		"id":    {store.EventFilter{ID: second.EventID}, []int64{second.EventID}},
		"state": {store.EventFilter{States: []store.EventState{store.EventPlanned}}, []int64{first.EventID}},
		"two": {store.EventFilter{States: []store.EventState{store.EventPlanned, store.EventPending}},
			[]int64{first.EventID, second.EventID}},
		"tenant":    {store.EventFilter{Tenant: &shop}, []int64{first.EventID}},
		"no tenant": {store.EventFilter{Tenant: &none}, []int64{second.EventID}},
		"bot":       {store.EventFilter{Bot: "7002"}, []int64{second.EventID}},
		"update id": {store.EventFilter{UpdateID: "k:1/1"}, []int64{first.EventID}},
		"operation": {store.EventFilter{OperationID: create.ID}, []int64{first.EventID}},
		"another":   {store.EventFilter{OperationID: opID(404)}, nil},
	} {
		if got := eventIDs(b.events(c.f)); !slices.Equal(got, append([]int64{}, c.want...)) {
			b.Errorf("by %s: %v, want %v", what, got, c.want)
		}
	}
}

func readerPagesOfOperations(b *bench) {
	// All of one plan, and so of one moment; their ids are not in the order of their making.
	b.accept(eventOf("k:1", 1))
	p := planOf(b.read("k:1"))
	var want []string
	for n := range 25 {
		n = n * 7 % 25
		p = opening(p, fmt.Sprint("deal ", n), n)
		want = append(want, opID(n))
	}
	b.commit(p)
	whole := ids(b.ops(store.OperationFilter{}))
	sorted := slices.Clone(whole)
	slices.Sort(sorted)
	slices.Sort(want)
	if !slices.Equal(sorted, want) {
		b.Fatalf("all at once: %v", whole)
	}
	var got []string
	for f := (store.OperationFilter{Limit: 4}); len(got) <= 25; {
		page := b.ops(f)
		if len(page) > 4 {
			b.Fatalf("a page of %d", len(page))
		}
		if len(page) == 0 {
			break
		}
		got = append(got, ids(page)...)
		f.After = page[len(page)-1].ID
	}
	if !slices.Equal(got, whole) {
		b.Fatalf("in pages: %v, at once: %v", got, whole)
	}
}

func readerPagesOfEvents(b *bench) {
	var want, got []int64
	for n := range 25 {
		want = append(want, b.accept(eventOf(fmt.Sprintf("k:%d", n%3), n)).EventID)
	}
	for f := (store.EventFilter{Limit: 4}); len(got) <= 25; {
		page := b.events(f)
		if len(page) == 0 {
			break
		}
		got = append(got, eventIDs(page)...)
		f.After = page[len(page)-1].ID
	}
	if !slices.Equal(got, want) {
		b.Fatalf("in pages: %v, accepted: %v", got, want)
	}
}

func readerLimits(b *bench) {
	b.accept(eventOf("k:1", 1))
	p := planOf(b.read("k:1"))
	for n := range 1010 {
		p = opening(p, fmt.Sprint("deal ", n), n)
	}
	b.commit(p)
	for limit, want := range map[int]int{0: 100, 7: 7, 1000: 1000, 5000: 1000} {
		ops, err := b.st.Operations(b.ctx, store.OperationFilter{Limit: limit})
		if err == nil && len(ops) != want || err != nil && limit <= 1000 {
			b.Errorf("limit %d: %d rows, %v", limit, len(ops), err)
		}
	}
}

func readerChain(b *bench) {
	var events []int64
	for n := range 2 {
		events = append(events, b.accept(eventOf("k:1", n)).EventID)
	}
	b.commit(opening(planOf(b.read("k:1")), "album", 1))
	create := b.op(opID(1))
	r, note := b.noted(create, 3)
	b.advance(evidence(create.ID, "77"))

	for _, id := range events {
		if got := b.ops(store.OperationFilter{EventID: id}); len(got) != 1 || got[0].CRMID != "77" {
			b.Errorf("from event %d to %v", id, got)
		}
	}
	if got := ids(b.ops(store.OperationFilter{CRMID: "77"})); !slices.Equal(got, []string{create.ID, note.ID}) {
		b.Errorf("from the lead to %v", got)
	}
	if got := eventIDs(b.events(store.EventFilter{OperationID: create.ID})); !slices.Equal(got, events) {
		b.Errorf("from the create to %v, want %v", got, events)
	}
	if got := eventIDs(b.events(store.EventFilter{OperationID: note.ID})); !slices.Equal(got, []int64{r.EventID}) {
		b.Errorf("from the note to %v, want %d", got, r.EventID)
	}
}

func readerEmptyTrail(b *bench) {
	t, err := b.st.Trail(b.ctx, opID(404))
	if err != nil || len(t) != 0 {
		b.Fatalf("%+v, %v", t, err)
	}
}

// parked accepts an event and parks it after two attempts.
func (b *bench) parked(key string) int64 {
	b.Helper()
	r := b.accept(eventOf(key, 1))
	for _, state := range []store.EventState{store.EventPending, store.EventParked} {
		b.commit(store.Plan{Key: key, Version: b.read(key).Version,
			Events: []store.EventEnd{{ID: r.EventID, State: state, Reason: "the rule failed"}}})
	}
	return r.EventID
}

func readerRetryAlbum(b *bench) {
	var ends []store.EventEnd
	var items []int64
	for n := range 5 {
		e := eventOf("k:1", n)
		e.DealKey = "album"
		switch n {
		case 3:
			e.ContactKey = "somebody else's"
		case 4:
			e.DealKey = e.ContentID
		}
		id := b.accept(e).EventID
		items, ends = append(items, id), append(ends, store.EventEnd{ID: id, State: store.EventParked, Reason: "rule"})
	}
	b.commit(store.Plan{Key: "k:1", Events: ends})
	for range 2 { // again is nothing
		b.must(b.st.RetryEvent(b.ctx, items[1], "ann", "mended"))
		var got []int64
		for _, e := range b.read("k:1").Events {
			got = append(got, e.ID)
		}
		if !slices.Equal(got, items[:3]) {
			b.Fatalf("%v are pending again, want %v", got, items[:3])
		}
	}
}

func readerRetryEvent(b *bench) {
	id := b.parked("k:1")
	if row := b.event(id); row.State != store.EventParked || row.Attempts == 0 {
		b.Fatalf("%s after %d attempts", row.State, row.Attempts)
	}
	b.must(b.st.RetryEvent(b.ctx, id, "ann", "the rule is mended"))
	row := b.event(id)
	if row.State != store.EventPending || row.Attempts != 0 || !row.EndedAt.IsZero() {
		b.Fatalf("retried: %s, %d attempts, ended %s", row.State, row.Attempts, row.EndedAt)
	}
	b.wantNamed(fmt.Errorf("%s", row.Reason), "ann")
	b.wantNamed(fmt.Errorf("%s", row.Reason), "the rule is mended")
	b.wantDue("k:1")
	if got := eventIDs(b.read("k:1").Events); !slices.Equal(got, []int64{id}) {
		b.Fatalf("to be planned are %v", got)
	}
}

func readerRetryOther(b *bench) {
	r, _ := b.opened("k:1", 1)
	before := b.event(r.EventID)
	b.must(b.st.RetryEvent(b.ctx, r.EventID, "ann", "clicked twice"))
	if d := cmp.Diff(before, b.event(r.EventID)); d != "" {
		b.Fatalf("a planned event: %s", d)
	}
	id := b.parked("k:2")
	b.must(b.st.RetryEvent(b.ctx, id, "ann", "first"))
	first := b.event(id)
	b.must(b.st.RetryEvent(b.ctx, id, "ann", "second"))
	if d := cmp.Diff(first, b.event(id)); d != "" {
		b.Fatalf("a second click: %s", d)
	}
}
