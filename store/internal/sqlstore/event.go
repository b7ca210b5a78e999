package sqlstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// event.go: the row of an event, and whether two deliveries under one key are the same event.

// EventsTable is the table of events.
const EventsTable = "leadonce_events"

// Event is a row of leadonce_events.
type Event struct {
	ID          int64  `db:"id"`
	Source      string `db:"source"`
	Tenant      string `db:"tenant"`
	Bot         string `db:"bot"`
	UpdateID    string `db:"update_id"`
	Epoch       int64  `db:"epoch"`
	Hash        string `db:"hash"`
	FPVersion   int64  `db:"fp_version"`
	FPSum       string `db:"fp_sum"`
	Kind        string `db:"kind"`
	OrderingKey string `db:"ordering_key"`
	ContactKey  string `db:"contact_key"`
	ContentID   string `db:"content_id"`
	ContentRev  string `db:"content_rev"`
	DealKey     string `db:"deal_key"`
	RepeatKey   string `db:"repeat_key"`
	LeadRef     string `db:"lead_ref"`
	Quarantine  string `db:"quarantine"`
	State       string `db:"state"`
	Reason      string `db:"reason"`
	Attempts    int64  `db:"attempts"`
	AcceptedAt  int64  `db:"accepted_at"`
	DueAt       int64  `db:"due_at"`
	EndedAt     int64  `db:"ended_at"`
	HeadStartNS int64  `db:"head_start_ns"`
	Broken      int64  `db:"broken"`
	Payload     []byte `db:"payload"`
	Enquiry     []byte `db:"enquiry"`

	// Token names the call that stored the row, so that a call whose answer was lost knows its own. Not every engine needs it.
	Token int64 `db:"token"`
}

// maxHeadStart: nobody else plans the event before, should the accepting process die.
const maxHeadStart = time.Minute

// NewEvent returns the row of an event that is accepted at now, at epoch 0. The error wraps store.ErrInvalid. headStart is
// what the accepting process is left with.
func NewEvent(e store.Event, headStart time.Duration, now time.Time) (*Event, error) {
	for _, f := range []struct{ name, value string }{
		{"Source", e.Source}, {"UpdateID", e.UpdateID}, {"Hash", e.Hash}, {"OrderingKey", e.OrderingKey},
	} {
		if f.value == "" {
			return nil, fmt.Errorf("%w: Event.%s is empty", store.ErrInvalid, f.name)
		}
	}
	if e.HeadStart < 0 {
		return nil, fmt.Errorf("%w: Event.HeadStart is negative", store.ErrInvalid)
	}
	r := &Event{
		Source: e.Source, Tenant: e.Tenant, Bot: e.Bot, UpdateID: e.UpdateID, Hash: e.Hash,
		Kind: e.Kind, OrderingKey: e.OrderingKey, ContactKey: e.ContactKey, ContentID: e.ContentID, ContentRev: e.ContentRev,
		DealKey: e.DealKey, RepeatKey: e.RepeatKey, LeadRef: e.LeadRef, Quarantine: e.Quarantine,
		State:      string(store.EventPending),
		AcceptedAt: Micros(now), DueAt: Micros(now.Add(min(headStart, maxHeadStart))), HeadStartNS: int64(e.HeadStart),
		// Copies: a caller whose context ends takes its buffers back while the commit is under way.
		Payload: bytes.Clone(blob(e.Payload)), Enquiry: bytes.Clone(blob(e.Enquiry)),
	}
	if len(e.Fingerprints) > 0 {
		r.FPVersion, r.FPSum = int64(e.Fingerprints[0].Version), e.Fingerprints[0].Sum
	}
	if e.Quarantine != "" {
		r.State, r.Reason, r.EndedAt = string(store.EventQuarantined), e.Quarantine, Micros(now)
	}
	return r, nil
}

// Same reports whether e is the event that was stored as r: the same bytes, or the same content in the version of the
// fingerprint that r carries.
func (r *Event) Same(e store.Event) bool {
	if r.Hash == Clean(e.Hash) {
		return true
	}
	for _, f := range e.Fingerprints {
		if r.FPSum != "" && int64(f.Version) == r.FPVersion && Clean(f.Sum) == r.FPSum {
			return true
		}
	}
	return false
}

// Decode returns the event. The error is a *store.CorruptError, and then the row holds what could be read.
func (r *Event) Decode() (store.EventRow, error) {
	e := store.EventRow{
		Event: store.Event{
			Source: r.Source, Tenant: r.Tenant, Bot: r.Bot, UpdateID: r.UpdateID, Hash: r.Hash, Kind: r.Kind,
			OrderingKey: r.OrderingKey, ContactKey: r.ContactKey, ContentID: r.ContentID, ContentRev: r.ContentRev,
			DealKey: r.DealKey, RepeatKey: r.RepeatKey, LeadRef: r.LeadRef, Payload: blob(r.Payload), Enquiry: blob(r.Enquiry),
			Quarantine: r.Quarantine, HeadStart: time.Duration(r.HeadStartNS),
		},
		ID: r.ID, Epoch: int(r.Epoch), State: store.EventState(r.State), Reason: r.Reason, Attempts: int(r.Attempts),
		AcceptedAt: Time(r.AcceptedAt), DueAt: Time(r.DueAt), EndedAt: Time(r.EndedAt),
	}
	if r.FPSum != "" {
		e.Fingerprints = []store.Fingerprint{{Version: int(r.FPVersion), Sum: r.FPSum}}
	}
	var c check
	c.that(r.Source != "", "source")
	c.that(r.UpdateID != "", "update_id")
	c.that(r.OrderingKey != "", "ordering_key")
	c.that(r.Epoch >= 0, "epoch")
	c.that(r.Attempts >= 0, "attempts")
	c.that(r.AcceptedAt > 0, "accepted_at")
	known := slices.Contains(store.EventStates(), e.State)
	c.that(known, "state")
	c.that(!known || e.State.Unplanned() == (r.EndedAt == 0), "ended_at")
	c.that(len(r.Enquiry) == 0 || json.Valid(r.Enquiry), "enquiry")
	if err := c.err(); err != nil {
		return e, r.Corrupt(err)
	}
	return e, nil
}

// Corrupt names the row as one that can't be read.
func (r *Event) Corrupt(err error) error {
	return &store.CorruptError{Table: EventsTable, ID: fmt.Sprint(r.ID), Err: err}
}

// CorruptReason is why an event was parked that can't be read.
const CorruptReason = "the stored row can't be read"

// EndEvent is what a decision does to an event's row: it has the parameters of that update.
type EndEvent struct {
	ID      int64  `db:"id"`
	Key     string `db:"ordering_key"`
	NewKey  string `db:"new_key"` // the ordering key afterwards; the same unless the event is moved
	State   string `db:"state"`
	Reason  string `db:"reason"`
	Attempt int64  `db:"attempt"`
	DueAt   int64  `db:"due_at"`
	EndedAt int64  `db:"ended_at"`
}

// NewEndEvent checks a decision about an event of key. The error wraps store.ErrInvalid.
func NewEndEvent(key string, e store.EventEnd, now time.Time) (*EndEvent, error) {
	if !slices.Contains(store.EventStates(), e.State) {
		return nil, fmt.Errorf("%w: EventEnd.State %q of event %d is not a state", store.ErrInvalid, e.State, e.ID)
	}
	if e.Retry < 0 {
		return nil, fmt.Errorf("%w: EventEnd.Retry of event %d is negative", store.ErrInvalid, e.ID)
	}
	r := &EndEvent{ID: e.ID, Key: key, NewKey: key, State: string(e.State), Reason: e.Reason, DueAt: Micros(now.Add(e.Retry))}
	switch {
	case e.MoveTo == "":
		if e.State == store.EventPending {
			r.Attempt = 1
		}
	case e.State != store.EventPending:
		return nil, fmt.Errorf("%w: EventEnd.MoveTo of event %d, which becomes %s: only a pending one moves", store.ErrInvalid,
			e.ID, e.State)
	case Clean(e.MoveTo) == Clean(key):
		return nil, fmt.Errorf("%w: EventEnd.MoveTo of event %d is its own ordering key", store.ErrInvalid, e.ID)
	default:
		r.NewKey = e.MoveTo
	}
	if !e.State.Unplanned() {
		r.EndedAt = Micros(now)
	}
	return r, nil
}

// Joined returns the corrupt rows as one error, nil without any.
func Joined(corrupt []error) error { return errors.Join(corrupt...) }
