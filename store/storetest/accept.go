package storetest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// accept.go: the door. One event per key and content, whatever comes twice, at once, or under a used id (I1–I4).

func acceptChecks() []check {
	return []check{
		{"an event is stored as it came", acceptStores},
		{"the same event twice adds nothing", acceptTwice},
		{"the same event in 64 concurrent calls is one row", acceptConcurrent},
		{"64 events in concurrent calls are 64 rows, each with its own receipt", acceptMany},
		{"two events under one id in concurrent calls are two rows", acceptRace},
		{"a quarantined event is kept raw and not planned", acceptQuarantine},
		{"events of one key are read in accept order", acceptOrder},
		{"odd bytes come back as they went in", acceptOddBytes},
		{"an event that can't be stored is refused with the field's name", acceptInvalid},
		{"an invalid event does not harm the ones beside it", acceptInvalidBeside},
		{"a call that was given up is safe to repeat", acceptGivenUp},
		{"a head start counts only while the accepting handle has a subscriber", acceptHeadStart},
	}
}

func acceptStores(b *bench) {
	e := eventOf("k:1", 1)
	e.ContentRev = "edit-5"
	e.Fingerprints = append(e.Fingerprints, store.Fingerprint{Version: 0, Sum: "old"})
	r := b.accept(e)
	if r.EventID == 0 || r.Epoch != 0 || r.Duplicate || r.Reused {
		b.Fatalf("receipt of a new event: %+v", r)
	}
	row := b.event(r.EventID)
	if row.State != store.EventPending || row.Attempts != 0 || row.AcceptedAt.IsZero() || !row.EndedAt.IsZero() {
		b.Errorf("row: state %s, attempts %d, accepted %s, ended %s", row.State, row.Attempts, row.AcceptedAt, row.EndedAt)
	}
	if len(row.Fingerprints) == 0 || row.Fingerprints[0] != e.Fingerprints[0] {
		b.Fatalf("the row carries the fingerprints %v, want the current one, %v, first", row.Fingerprints, e.Fingerprints[0])
	}
	e.Fingerprints, row.Fingerprints = nil, nil // older ones need not be stored
	if d := cmp.Diff(e, row.Event); d != "" {
		b.Errorf("the row differs from the event: %s", d)
	}
	if got := b.dueKeys(); !slices.Equal(got, []string{"k:1"}) {
		b.Errorf("due keys are %q", got)
	}
}

func acceptTwice(b *bench) {
	first := b.accept(eventOf("k:1", 1))
	again := b.accept(eventOf("k:1", 1))
	if again.EventID != first.EventID || !again.Duplicate || again.Reused || again.Epoch != 0 {
		b.Fatalf("first %+v, again %+v", first, again)
	}
	b.wantEvents(1)

	// A repeat adds nothing after the event was planned either.
	b.commit(opening(planOf(b.read("k:1")), "content-k:1-1", 1))
	late := b.accept(eventOf("k:1", 1))
	if late.EventID != first.EventID || !late.Duplicate {
		b.Fatalf("first %+v, late %+v", first, late)
	}
	b.wantEvents(1)
	if v := b.read("k:1"); len(v.Events) != 0 {
		b.Fatalf("a repeat brought the event back: %v", eventIDs(v.Events))
	}
}

// wantEvents checks how many events are stored.
func (b *bench) wantEvents(n int) []store.EventRow {
	b.Helper()
	rows := b.events(store.EventFilter{Limit: 1000})
	if len(rows) != n {
		b.Fatalf("there are %d events, want %d", len(rows), n)
	}
	return rows
}

// acceptAll accepts every event at the same moment, through st in turn.
func (b *bench) acceptAll(list []store.Event, sts ...Backend) ([]store.Receipt, []error) {
	receipts, errs := make([]store.Receipt, len(list)), make([]error, len(list))
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i, e := range list {
		wg.Go(func() {
			<-start
			receipts[i], errs[i] = sts[i%len(sts)].Accept(b.ctx, e)
		})
	}
	close(start)
	wg.Wait()
	return receipts, errs
}

func acceptConcurrent(b *bench) {
	handles := []Backend{b.st}
	if b.Second != nil {
		handles = append(handles, b.Second())
	}
	list := make([]store.Event, 64)
	for i := range list {
		list[i] = eventOf("k:1", 1)
	}
	receipts, errs := b.acceptAll(list, handles...)
	fresh := 0
	for i, r := range receipts {
		b.must(errs[i])
		if !r.Duplicate {
			fresh++
		}
		if r.EventID != receipts[0].EventID || r.Epoch != 0 || r.Reused {
			b.Fatalf("receipt %d is %+v, receipt 0 %+v", i, r, receipts[0])
		}
	}
	if fresh != 1 {
		b.Fatalf("%d of 64 calls say that they stored it, want 1", fresh)
	}
	b.wantEvents(1)
}

func acceptMany(b *bench) {
	list := make([]store.Event, 64)
	for i := range list {
		list[i] = eventOf(fmt.Sprintf("k:%d", i%5), i)
	}
	receipts, errs := b.acceptAll(list, b.st)
	for i, r := range receipts {
		b.must(errs[i])
		if row := b.event(r.EventID); r.Duplicate || r.Reused || row.UpdateID != list[i].UpdateID {
			b.Fatalf("receipt %d is %+v for %s and names the row of %s", i, r, list[i].UpdateID, row.UpdateID)
		}
	}
	b.wantEvents(64)
}

func acceptRace(b *bench) {
	handles := []Backend{b.st}
	if b.Second != nil {
		handles = append(handles, b.Second())
	}
	list := make([]store.Event, 40)
	for i := range list {
		list[i] = reused([]string{"first", "second"}[i/2%2])
	}
	receipts, errs := b.acceptAll(list, handles...)
	fresh, epochs := 0, map[string]int{}
	for i, r := range receipts {
		b.must(errs[i])
		if !r.Duplicate {
			fresh++
		}
		if e, ok := epochs[list[i].Hash]; ok && e != r.Epoch {
			b.Fatalf("%s has the epochs %d and %d", list[i].Hash, e, r.Epoch)
		}
		epochs[list[i].Hash] = r.Epoch
	}
	if fresh != 2 || epochs["hash-first"]+epochs["hash-second"] != 1 {
		b.Fatalf("%d calls stored, epochs %v; want 2, and the epochs 0 and 1", fresh, epochs)
	}
	b.wantEvents(2)
}

func acceptQuarantine(b *bench) {
	e := store.Event{Source: "telegram", Tenant: "shop", Bot: "7001", UpdateID: "sha:1", Hash: "sha:1",
		OrderingKey: "k:sha:1",
		Payload:     []byte("{not json"), Quarantine: "not JSON"}
	r := b.accept(e)
	row := b.event(r.EventID)
	if row.State != store.EventQuarantined || !bytes.Equal(row.Payload, e.Payload) || (row.Quarantine != "not JSON" &&
		row.Reason != "not JSON") {
		b.Fatalf("state %s, reason %q %q, payload %q", row.State, row.Quarantine, row.Reason, row.Payload)
	}
	if keys := b.dueKeys(); len(keys) != 0 {
		b.Fatalf("it is due under %q", keys)
	}
	if again := b.accept(e); !again.Duplicate || again.EventID != r.EventID {
		b.Fatalf("again: %+v", again)
	}
	// With an ordering key, too, it holds nobody back.
	e = eventOf("k:1", 1)
	e.Quarantine = "no chat"
	b.accept(e)
	b.accept(eventOf("k:1", 2))
	if v := b.read("k:1"); len(v.Events) != 1 || v.Events[0].UpdateID != "k:1/2" {
		b.Fatalf("to be planned are %v", eventIDs(v.Events))
	}
	if n := b.stats().NeedPerson(); n != 2 {
		b.Fatalf("%d need a person, want the 2 quarantined", n)
	}
}

func acceptOrder(b *bench) {
	var want []int64
	for i := range 20 {
		want = append(want, b.accept(eventOf("k:1", 20-i)).EventID)
		b.accept(eventOf("k:2", i))
	}
	if got := eventIDs(b.read("k:1").Events); !slices.Equal(got, want) {
		b.Fatalf("accepted %v, read %v", want, got)
	}
}

func acceptOddBytes(b *bench) {
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // 1 MiB
	for i, payload := range [][]byte{[]byte("a\x00b"), []byte("\xff\xfe\x80 not UTF-8"), []byte("'; drop table x; --"),
		{}, big} {
		e := eventOf("k:1", i)
		e.Payload, e.Enquiry = payload, []byte("{\"text\":\"a\\u0000b \xff '; drop table x; --\"}")
		r := b.accept(e)
		row := b.event(r.EventID)
		if !bytes.Equal(row.Payload, payload) || !bytes.Equal(row.Enquiry, e.Enquiry) {
			b.Fatalf("payload %d: %d bytes came back as %d, the enquiry as %q", i, len(payload), len(row.Payload), row.Enquiry)
		}
		if again := b.accept(e); !again.Duplicate {
			b.Fatalf("payload %d again: %+v", i, again)
		}
	}
}

func acceptInvalid(b *bench) {
	for field, f := range map[string]func(*store.Event){
		"Source":      func(e *store.Event) { e.Source = "" },
		"UpdateID":    func(e *store.Event) { e.UpdateID = "" },
		"Hash":        func(e *store.Event) { e.Hash = "" },
		"OrderingKey": func(e *store.Event) { e.OrderingKey = "" },
	} {
		e := eventOf("k:1", 1)
		f(&e)
		_, err := b.st.Accept(b.ctx, e)
		b.wantErr(err, store.ErrInvalid, "accept without "+field)
		b.wantNamed(err, field)
	}
	b.wantEvents(0)
}

func acceptInvalidBeside(b *bench) {
	list := make([]store.Event, 64)
	for i := range list {
		list[i] = eventOf("k:1", i)
		if i%2 == 1 {
			list[i].UpdateID = ""
		}
	}
	_, errs := b.acceptAll(list, b.st)
	for i, err := range errs {
		if i%2 == 0 {
			b.must(err)
		} else {
			b.wantErr(err, store.ErrInvalid, "accept without UpdateID")
		}
	}
	b.wantEvents(32)
}

func acceptGivenUp(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	cancel()
	if r, err := b.st.Accept(ctx, eventOf("k:1", 1)); err == nil {
		// It may be stored, and then it has to be.
		if again := b.accept(eventOf("k:1", 1)); again.EventID != r.EventID || !again.Duplicate {
			b.Fatalf("a nil error for %+v, then %+v", r, again)
		}
	}
	b.accept(eventOf("k:1", 1))
	if again := b.accept(eventOf("k:1", 1)); !again.Duplicate {
		b.Fatalf("got %+v", again)
	}
	b.wantEvents(1)
}

func acceptHeadStart(b *bench) {
	other := b.second()
	due := func(want ...string) {
		b.Helper()
		list, err := other.DueKeys(b.ctx, 10)
		b.must(err)
		keys := keysOf(list)
		slices.Sort(keys)
		if !slices.Equal(keys, want) {
			b.Fatalf("due for another process are %q, want %q", keys, want)
		}
	}
	e := eventOf("k:1", 1)
	e.HeadStart = 2 * time.Second
	b.accept(e)
	due("k:1") // nobody listens here, so nobody would plan it

	cancel := b.st.Subscribe(func(store.Hint) {})
	e = eventOf("k:2", 1)
	e.HeadStart = 2 * time.Second
	b.accept(e)
	due("k:1")
	if v := b.read("k:2"); len(v.Events) != 1 {
		b.Fatal("the process that was hinted can't read the event")
	}
	b.wait(2*time.Second - time.Millisecond)
	due("k:1")
	b.wait(time.Millisecond)
	due("k:1", "k:2")

	cancel()
	e = eventOf("k:3", 1)
	e.HeadStart = 2 * time.Second
	b.accept(e)
	due("k:1", "k:2", "k:3")
}
