package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// handled.go: what an unplanned event may repeat or change: an edit, a second press of a button, a late item of an album.

func handledChecks() []check {
	return []check{
		{"what an event repeats and is about is stored as it came", handledStored},
		{"an event with new content finds nothing that was handled", handledNothing},
		{"an edit finds the event of its content, what that caused, and its deal", handledEdit},
		{"an event without content repeats no other one without", handledNoContent},
		{"a second press finds the first", handledRepeat},
		{"an event without a repeat key repeats no other one without", handledNoRepeat},
		{"an edit of one item finds the whole album", handledAlbum},
		{"what is handled is found once, in accept order", handledOnce},
		{"what was handled under another ordering key is not found", handledOtherKey},
		{"what is not planned yet was not handled", handledUnplanned},
		{"an event that came to nothing was not handled, and hides none that was", handledIgnored},
		{"of one content the 16 most recent are found", handledLimit},
		{"of an album the 16 most recent other items are found", handledAlbumLimit},
		{"the operations of what was handled may be edited under the versions that were read", handledEdits},
		{"a broken handled event is named and left out, and what it caused stays decided", handledCorrupt},
		{"the contacts of the events are read, with their ids in the CRM", handledContacts},
		{"an operation shows the id of its contact, once that is known", handledContactID},
	}
}

// editOf is another revision of the n-th event of a key: the n+1000-th delivery.
func editOf(key string, n int) store.Event {
	e := eventOf(key, n+1000)
	e.ContentID, e.ContentRev, e.DealKey = eventOf(key, n).ContentID, "1", eventOf(key, n).DealKey
	return e
}

func handledIDs(v store.KeyView) []int64 {
	list := []int64{}
	for _, h := range v.Handled {
		list = append(list, h.ID)
	}
	return list
}

// wantHandled checks which handled events a reading of the key finds, and that no row is in it twice.
func (b *bench) wantHandled(key string, want ...int64) store.KeyView {
	b.Helper()
	v := b.read(key)
	b.wantOnce(v)
	if got := handledIDs(v); !slices.Equal(got, want) {
		b.Fatalf("handled before are %v, want %v", got, want)
	}
	return v
}

// wantOnce checks that no row is twice in a list of a reading.
func (b *bench) wantOnce(v store.KeyView) {
	b.Helper()
	seen := map[string]bool{}
	once := func(row string) {
		b.Helper()
		if seen[row] {
			b.Fatalf("%s is there twice", row)
		}
		seen[row] = true
	}
	for _, e := range v.Events {
		once(fmt.Sprint("event ", e.ID))
	}
	for _, h := range v.Handled {
		once(fmt.Sprint("event ", h.ID))
	}
	for _, d := range v.Deals {
		once("deal " + d.ID)
	}
	for _, o := range v.Operations {
		once("operation " + o.ID)
	}
	for _, c := range v.Contacts {
		once("contact " + c.Key)
	}
}

func dealIDs(list []store.Deal) []string {
	got := []string{}
	for _, d := range list {
		got = append(got, d.ID)
	}
	return got
}

func handledStored(b *bench) {
	e := eventOf("k:1", 1)
	e.RepeatKey, e.LeadRef = "press 7", "lead 9"
	row := b.event(b.accept(e).EventID)
	if row.RepeatKey != e.RepeatKey || row.LeadRef != e.LeadRef {
		b.Fatalf("repeat key %q, lead %q", row.RepeatKey, row.LeadRef)
	}
	if got := b.read("k:1").Events[0]; got.RepeatKey != e.RepeatKey || got.LeadRef != e.LeadRef {
		b.Fatalf("read for planning: repeat key %q, lead %q", got.RepeatKey, got.LeadRef)
	}
}

func handledNothing(b *bench) {
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	b.wantHandled("k:1")
}

func handledEdit(b *bench) {
	r, o := b.opened("k:1", 1)
	e := editOf("k:1", 1)
	e.DealKey, e.ContactKey = "another", "" // only through what was handled is the deal to be found
	b.accept(e)
	v := b.wantHandled("k:1", r.EventID)
	h := v.Handled[0]
	if h.State != store.EventPlanned || h.EndedAt.IsZero() || !slices.Equal(h.Operations, []string{o.ID}) {
		b.Fatalf("it is %s, ended %s, and caused %v", h.State, h.EndedAt, h.Operations)
	}
	if d := cmp.Diff(b.event(r.EventID), h.EventRow); d != "" {
		b.Fatalf("it is read otherwise than by Events: %s", d)
	}
	if len(v.Operations) != 1 {
		b.Fatalf("the operations are %v", ids(v.Operations))
	}
	if d := cmp.Diff(b.op(o.ID), v.Operations[0]); d != "" {
		b.Fatal(d)
	}
	if got := dealIDs(v.Deals); !slices.Equal(got, []string{dealID(1)}) {
		b.Fatalf("the deals are %v", got)
	}
}

func handledNoContent(b *bench) {
	for n := 1; n <= 2; n++ {
		e := eventOf("k:1", n)
		e.ContentID = ""
		b.accept(e)
		v := b.wantHandled("k:1")
		b.commit(planOf(v))
	}
}

func handledRepeat(b *bench) {
	first := eventOf("k:1", 1)
	first.RepeatKey = "press 7"
	r := b.accept(first)
	b.commit(opening(planOf(b.read("k:1")), first.DealKey, 1))
	again := eventOf("k:1", 2)
	again.RepeatKey = "press 7"
	b.accept(again)
	v := b.wantHandled("k:1", r.EventID)
	if !slices.Equal(v.Handled[0].Operations, []string{opID(1)}) || !slices.Equal(ids(v.Operations), []string{opID(1)}) {
		b.Fatalf("the first press caused %v, read are %v", v.Handled[0].Operations, ids(v.Operations))
	}
}

func handledNoRepeat(b *bench) {
	b.opened("k:1", 1)
	e := eventOf("k:1", 2)
	e.RepeatKey = "press 7"
	b.accept(e)
	b.commit(planOf(b.read("k:1")))
	b.accept(eventOf("k:1", 3))
	b.wantHandled("k:1")
}

func handledAlbum(b *bench) {
	var want []int64
	for n := range 3 {
		want = append(want, b.accept(eventOf("k:1", n)).EventID)
	}
	b.commit(opening(planOf(b.read("k:1")), "album", 1))
	b.opened("k:1", 9) // another enquiry of the same person
	b.accept(editOf("k:1", 1))
	for _, h := range b.wantHandled("k:1", want...).Handled {
		if !slices.Equal(h.Operations, []string{opID(1)}) {
			b.Fatalf("event %d caused %v", h.ID, h.Operations)
		}
	}
}

func handledOnce(b *bench) {
	var want []int64
	for n := range 3 {
		e := eventOf("k:1", n)
		e.RepeatKey = "press 7"
		want = append(want, b.accept(e).EventID)
	}
	b.commit(adding(opening(planOf(b.read("k:1")), "album", 1), noteFor(createOf("k:1", 1), 1)))
	for _, n := range []int{2, 0} { // each found by content, by repeat key and through two operations
		e := editOf("k:1", n)
		e.RepeatKey = "press 7"
		b.accept(e)
	}
	v := b.wantHandled("k:1", want...)
	if got := v.Handled[0].Operations; len(got) != 2 {
		b.Fatalf("the first item caused %v", got)
	}
	if got := ids(v.Operations); len(got) != 2 {
		b.Fatalf("the operations are %v", got)
	}
}

func handledOtherKey(b *bench) {
	b.opened("k:1", 1)
	stranger := eventOf("k:2", 2)
	stranger.ContentID, stranger.RepeatKey = eventOf("k:1", 1).ContentID, "press 7"
	b.accept(stranger)
	b.wantHandled("k:2")
	// The other item of an album that became another key's.
	p := planOf(b.read("k:2"))
	p.Links = append(p.Links, store.Link{EventID: p.Events[0].ID, OperationID: opID(1)})
	b.commit(p)
	b.accept(editOf("k:1", 1))
	if v := b.read("k:1"); len(v.Handled) != 1 || v.Handled[0].OrderingKey != "k:1" {
		b.Fatalf("handled before are %v", handledIDs(v))
	}
	e := eventOf("k:1", 3)
	e.RepeatKey = "press 7"
	b.commit(planOf(b.read("k:1")))
	b.accept(e)
	b.wantHandled("k:1")
}

func handledUnplanned(b *bench) {
	b.accept(eventOf("k:1", 1))
	b.accept(editOf("k:1", 1))
	b.commit(opening(planOf(b.wantHandled("k:1")), "album", 1))
	late := b.accept(eventOf("k:1", 2)) // an item that waits for others
	p := planOf(b.read("k:1"))
	p.Events[0].State, p.Events[0].Retry = store.EventGathering, time.Minute
	p.Links = []store.Link{{EventID: late.EventID, OperationID: opID(1)}}
	b.commit(p)
	again := editOf("k:1", 1)
	again.UpdateID, again.Hash, again.Fingerprints = "again", "again", nil
	b.accept(again)
	if got := handledIDs(b.read("k:1")); len(got) != 2 || slices.Contains(got, late.EventID) {
		b.Fatalf("handled before are %v", got)
	}
}

func handledIgnored(b *bench) {
	first := b.accept(eventOf("k:1", 1))
	b.commit(planOf(b.read("k:1")))
	for n := range store.ViewHandled + 2 {
		again := editOf("k:1", 1)
		again.UpdateID, again.Hash, again.ContentRev = fmt.Sprint("again ", n), fmt.Sprint("again ", n), fmt.Sprint(n)
		again.Fingerprints = nil
		r := b.accept(again)
		v := b.read("k:1")
		b.commit(store.Plan{Key: "k:1", Version: v.Version, Events: []store.EventEnd{{ID: r.EventID, State: store.EventIgnored, Reason: "nothing new"}}})
	}
	b.accept(editOf("k:1", 1))
	b.wantHandled("k:1", first.EventID)
}

func handledLimit(b *bench) {
	var want []int64
	for n := range store.ViewHandled + 3 {
		e := eventOf("k:1", n)
		e.ContentID = "edited often"
		want = append(want, b.accept(e).EventID)
	}
	b.commit(planOf(b.read("k:1")))
	e := eventOf("k:1", 99)
	e.ContentID = "edited often"
	b.accept(e)
	b.wantHandled("k:1", want[3:]...)
}

func handledAlbumLimit(b *bench) {
	var all []int64
	for n := range store.ViewHandled + 3 {
		all = append(all, b.accept(eventOf("k:1", n)).EventID)
	}
	b.commit(opening(planOf(b.read("k:1")), "album", 1))
	for _, n := range []int{0, len(all) - 1} { // an old item, which is one more, and the latest, which is too
		b.accept(editOf("k:1", n))
	}
	b.wantHandled("k:1", append(all[:1:1], all[2:]...)...)
}

func handledEdits(b *bench) {
	_, o := b.opened("k:1", 1)
	r := b.accept(editOf("k:1", 1))
	v := b.read("k:1")
	p := planOf(v)
	p.Edits = []store.Edit{{OperationID: o.ID, Version: v.Operations[0].Version, Fields: []byte(`{"title":"edited"}`)}}
	p.Links = []store.Link{{EventID: r.EventID, OperationID: o.ID}}
	b.commit(p)
	if got := b.op(o.ID); string(got.Fields) != `{"title":"edited"}` || got.Revision != 1 {
		b.Fatalf("edited: %s, revision %d", got.Fields, got.Revision)
	}
	again := editOf("k:1", 1)
	again.UpdateID, again.Hash, again.Fingerprints = "again", "again", nil
	b.accept(again)
	if v := b.read("k:1"); len(v.Handled) != 2 || v.Handled[1].ID != r.EventID {
		b.Fatalf("after an edit %v were handled", handledIDs(v))
	}
}

func handledCorrupt(b *bench) {
	var all []int64
	for n := range 3 {
		all = append(all, b.accept(eventOf("k:1", n)).EventID)
	}
	b.commit(opening(planOf(b.read("k:1")), "album", 1))
	bad := strconv.FormatInt(all[1], 10)
	b.corrupt(TableEvents, bad)
	b.accept(editOf("k:1", 0))
	for range 2 {
		v, err := b.st.ReadKey(b.ctx, "k:1")
		b.wantOnlyCorrupt(err, "read key", bad)
		if got := handledIDs(v); !slices.Equal(got, []int64{all[0], all[2]}) {
			b.Fatalf("handled before are %v", got)
		}
	}
	parked, err := b.st.Events(b.ctx, store.EventFilter{States: []store.EventState{store.EventParked}})
	b.wantOnlyCorrupt(err, "read events", bad)
	if len(parked) != 0 {
		b.Fatalf("an event that was planned can be retried: %v", eventIDs(parked))
	}
}

// kindContact is that of an operation without a deal: what it makes is the contact.
const kindContact = "contact.ensure"

// ensured stores the contact of a key, with an id in the CRM.
func (b *bench) ensured(key, crmID string) store.Operation {
	b.Helper()
	b.accept(eventOf(key, 500))
	p := planOf(b.read(key))
	p.Contacts = []store.Contact{contactOf(key)}
	b.commit(adding(p, store.Operation{ID: uuid(4, 1), Tenant: "shop", Kind: kindContact, OrderingKey: key,
		ContactKey: "c:" + key, State: store.Pending, Fields: []byte(`{"external_id":"7"}`)}))
	return b.advance(evidence(uuid(4, 1), crmID))
}

func handledContacts(b *bench) {
	b.ensured("k:1", "crm-7")
	b.accept(eventOf("k:1", 1))
	b.accept(eventOf("k:1", 2))
	stranger := eventOf("k:1", 3)
	stranger.ContactKey = "c:never stored"
	b.accept(stranger)
	nobody := eventOf("k:1", 4)
	nobody.ContactKey = ""
	b.accept(nobody)
	b.opened("k:2", 5)
	want := contactOf("k:1")
	want.CRMID = "crm-7"
	if d := cmp.Diff([]store.Contact{want}, b.read("k:1").Contacts); d != "" {
		b.Fatal(d)
	}
}

func handledContactID(b *bench) {
	_, create := b.opened("k:1", 1)
	if create.ContactID != "" {
		b.Fatalf("before it is known it is %q", create.ContactID)
	}
	if o := b.ensured("k:1", "crm-7"); o.ContactID != "crm-7" {
		b.Fatalf("the operation that made the contact shows %q", o.ContactID)
	}
	_, note := b.noted(create, 2)
	for _, id := range []string{create.ID, note.ID, uuid(4, 1)} {
		if o := b.op(id); o.ContactID != "crm-7" {
			b.Fatalf("operation %s shows %q", id, o.ContactID)
		}
	}
	b.accept(eventOf("k:1", 3))
	p := opening(planOf(b.read("k:1")), "form", 3)
	c := claimOf("a", 1)
	p.Claim = &c
	if begun := b.commit(p); len(begun) != 1 || begun[0].ContactID != "crm-7" {
		b.Fatalf("a plan began %+v", begun)
	}
	b.wait(time.Second)
	if got := b.take(create.ID); got.ContactID != "crm-7" {
		b.Fatalf("a claim returned %q", got.ContactID)
	}
	s := submissionOf(4)
	s.Contact, s.Operation.ContactKey, s.Deal.ContactKey = contactOf("k:1"), "c:k:1", "c:k:1"
	o, err := b.st.Submit(b.ctx, s)
	b.must(err)
	if o.ContactID != "crm-7" {
		b.Fatalf("a submission returned %q", o.ContactID)
	}
}
