package storetest

import (
	"bytes"

	"github.com/leadonce/leadonce/store"
)

// identity.go: which deliveries are the same event, and which only use the same id (I3, I4).

func identityChecks() []check {
	return []check{
		{"a reused id is the next epoch, and nothing is swallowed", acceptReused},
		{"a repeat matches an older epoch", acceptOlderEpoch},
		{"equal bytes are the same event though the fingerprint differs", acceptSameHash},
		{"an equal fingerprint is the same event though the bytes differ", acceptSameFingerprint},
		{"a row is compared in its own fingerprint version", acceptVersions},
		{"an equal sum in another fingerprint version is no match", acceptOtherVersion},
		{"events without fingerprint are told apart by their bytes", acceptNoFingerprint},
		{"tenants, bots and sources don't mix", acceptTenants},
	}
}

// reused is another event under the id of the first.
func reused(content string) store.Event {
	e := eventOf("k:1", 1)
	e.Hash, e.Fingerprints = "hash-"+content, []store.Fingerprint{{Version: 1, Sum: "fp-" + content}}
	e.ContentID, e.DealKey, e.Payload = content, content, []byte(content)
	return e
}

func acceptReused(b *bench) {
	ids := map[int64]bool{}
	for i, content := range []string{"first", "second", "third"} {
		r := b.accept(reused(content))
		if r.Epoch != i || r.Duplicate || r.Reused != (i > 0) {
			b.Fatalf("receipt of %s is %+v", content, r)
		}
		row := b.event(r.EventID)
		if row.Epoch != i || row.State != store.EventPending || string(row.Payload) != content {
			b.Fatalf("row of %s: epoch %d, state %s, payload %q", content, row.Epoch, row.State, row.Payload)
		}
		ids[r.EventID] = true
	}
	if len(ids) != 3 || len(b.read("k:1").Events) != 3 {
		b.Fatalf("three contents under one id are the rows %v, to be planned are %d", ids, len(b.read("k:1").Events))
	}
}

func acceptOlderEpoch(b *bench) {
	var first []store.Receipt
	for _, content := range []string{"first", "second", "third"} {
		first = append(first, b.accept(reused(content)))
	}
	for i, content := range []string{"first", "second", "third"} {
		again := b.accept(reused(content))
		if again.EventID != first[i].EventID || again.Epoch != i || !again.Duplicate {
			b.Fatalf("%s again: %+v, first %+v", content, again, first[i])
		}
	}
	b.wantEvents(3)
}

func acceptSameHash(b *bench) {
	first := b.accept(eventOf("k:1", 1))
	e := eventOf("k:1", 1)
	e.Fingerprints = []store.Fingerprint{{Version: 1, Sum: "other"}}
	if r := b.accept(e); !r.Duplicate || r.EventID != first.EventID {
		b.Fatalf("got %+v", r)
	}
}

func acceptSameFingerprint(b *bench) {
	first := b.accept(eventOf("k:1", 1))
	e := eventOf("k:1", 1)
	e.Hash, e.Payload = "other", []byte(`{"the same message":"with a new avatar"}`)
	if r := b.accept(e); !r.Duplicate || r.EventID != first.EventID {
		b.Fatalf("got %+v", r)
	}
	if row := b.event(first.EventID); row.Hash != eventOf("k:1", 1).Hash || bytes.Equal(row.Payload, e.Payload) {
		b.Fatal("the repeat overwrote the row")
	}
}

func acceptVersions(b *bench) {
	first := b.accept(eventOf("k:1", 1)) // carries version 1
	e := eventOf("k:1", 1)
	e.Hash = "other"
	e.Fingerprints = []store.Fingerprint{{Version: 2, Sum: "new"}, {Version: 1, Sum: "fp-k:1-1"}}
	if r := b.accept(e); !r.Duplicate || r.EventID != first.EventID {
		b.Fatalf("the same event after an upgrade: %+v", r)
	}
	e.Fingerprints = []store.Fingerprint{{Version: 2, Sum: "new"}, {Version: 1, Sum: "changed"}}
	r := b.accept(e) // another one; it carries version 2
	if r.Duplicate || !r.Reused || r.Epoch != 1 {
		b.Fatalf("another event after an upgrade: %+v", r)
	}
	e.Hash, e.Fingerprints = "third", []store.Fingerprint{{Version: 3, Sum: "newest"}, {Version: 2, Sum: "new"},
		{Version: 1, Sum: "x"}}
	if again := b.accept(e); !again.Duplicate || again.EventID != r.EventID {
		b.Fatalf("a row of version 2 met again by a source of version 3: %+v", again)
	}
}

func acceptOtherVersion(b *bench) {
	b.accept(eventOf("k:1", 1))
	e := eventOf("k:1", 1)
	e.Hash, e.Fingerprints = "other", []store.Fingerprint{{Version: 2, Sum: "fp-k:1-1"}}
	if r := b.accept(e); r.Duplicate || !r.Reused {
		b.Fatalf("got %+v", r)
	}
}

func acceptNoFingerprint(b *bench) {
	e := eventOf("k:1", 1)
	e.Fingerprints = nil
	first := b.accept(e)
	if r := b.accept(e); !r.Duplicate || r.EventID != first.EventID {
		b.Fatalf("the same bytes: %+v", r)
	}
	e.Hash = "other"
	if r := b.accept(e); r.Duplicate || !r.Reused {
		b.Fatalf("other bytes, neither with a fingerprint: %+v", r)
	}
}

func acceptTenants(b *bench) {
	change := map[string]func(*store.Event){
		"itself":         func(*store.Event) {},
		"another tenant": func(e *store.Event) { e.Tenant = "garage" },
		"no tenant":      func(e *store.Event) { e.Tenant = "" },
		"another bot":    func(e *store.Event) { e.Bot = "7002" },
		"another source": func(e *store.Event) { e.Source = "whatsapp" },
		"a seam moved":   func(e *store.Event) { e.Tenant, e.Bot = "shop7", "001" },
	}
	for name, f := range change {
		e := eventOf("k:1", 1)
		f(&e)
		if r := b.accept(e); r.Duplicate || r.Reused {
			b.Fatalf("%s: %+v", name, r)
		}
	}
	b.wantEvents(len(change))
	garage := "garage"
	if rows := b.events(store.EventFilter{Tenant: &garage}); len(rows) != 1 || rows[0].Tenant != garage {
		b.Fatalf("%d events of the other tenant", len(rows))
	}
}
