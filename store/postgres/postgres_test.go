package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
)

// postgres_test.go: what the other tests stand on.

// open returns a store on a new database, closed at the end of the test.
func open(t testing.TB, o *Options) *Store {
	t.Helper()
	return reopen(t, pgtest.DSN(t), o)
}

func reopen(t testing.TB, dsn string, o *Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), dsn, o)
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

// pool returns connections of the host's own.
func pool(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(background, text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// event returns an event with the update id.
func event(update, key string) store.Event {
	return store.Event{
		Source: "telegram", Bot: "7", UpdateID: update, Hash: "h" + update, Kind: "message", OrderingKey: key, ContactKey: "c:" + key,
		ContentID: "m" + update, DealKey: "m" + update, Payload: []byte(`{"update_id":` + update + `}`), Enquiry: []byte(`{}`),
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

func submission(id, key string) store.Submission {
	return store.Submission{
		Contact:   store.Contact{Key: "c:" + key, Source: "host", UserID: key},
		Deal:      store.Deal{ID: "d" + id, OrderingKey: key, Key: "m" + id, ContactKey: "c:" + key, CreateOp: "o" + id},
		Operation: lead("o"+id, "d"+id, key),
	}
}

func claimOf(owner string, limit int) store.Claim {
	return store.Claim{Owner: owner, Limit: limit, Lease: time.Minute, Quiet: time.Minute, Adapter: "a"}
}

var background = context.Background()
