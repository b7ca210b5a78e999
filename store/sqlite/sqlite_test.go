package sqlite

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
)

// sqlite_test.go: what the other tests stand on.

// open returns a store on a new file, closed at the end of the test.
func open(t testing.TB, o *Options) *Store {
	t.Helper()
	return reopen(t, filepath.Join(t.TempDir(), "leads.db"), o)
}

func reopen(t testing.TB, path string, o *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// event returns an event with the update id.
func event(update, key string) store.Event {
	return store.Event{
		Source: "telegram", Bot: "7", UpdateID: update, Hash: "h" + update, Kind: "message",
		OrderingKey: key, ContactKey: "c:" + key, ContentID: "m" + update, DealKey: "m" + update,
		Payload: []byte(`{"update_id":` + update + `}`), Enquiry: []byte(`{}`),
		Fingerprints: []store.Fingerprint{{Version: 1, Sum: "f" + update}},
	}
}

// planFor returns the plan that makes one lead of the key's events, begun at once if claim is given.
func planFor(v store.KeyView, claim *store.Claim) store.Plan {
	id := v.Events[0].UpdateID
	p := store.Plan{Key: v.Key, Version: v.Version, Claim: claim,
		Deals:      []store.Deal{{ID: "d" + id, OrderingKey: v.Key, Key: "m" + id, ContactKey: "c:" + v.Key, CreateOp: "o" + id}},
		Operations: []store.Operation{lead("o"+id, "d"+id, v.Key)}}
	for _, e := range v.Events {
		p.Events = append(p.Events, store.EventEnd{ID: e.ID, State: store.EventPlanned})
		p.Links = append(p.Links, store.Link{EventID: e.ID, OperationID: "o" + id})
	}
	return p
}

func lead(id, deal, key string) store.Operation {
	return store.Operation{ID: id, Kind: "lead.create", OrderingKey: key, DealID: deal, Fields: []byte(`{"title":"x"}`)}
}

func claimOf(owner string, limit int) store.Claim {
	return store.Claim{Owner: owner, Limit: limit, Lease: time.Minute, Quiet: time.Minute, Adapter: "a"}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

var background = context.Background()
