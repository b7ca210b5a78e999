package sqlstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// deal.go: the rows of deals, contacts and the trail.

// DealsTable and TrailTable are the tables of deals and of the trail.
const (
	DealsTable = "leadonce_deals"
	TrailTable = "leadonce_trail"
)

// Deal is a row of leadonce_deals.
type Deal struct {
	ID           string `db:"id"`
	Tenant       string `db:"tenant"`
	OrderingKey  string `db:"ordering_key"`
	ContactKey   string `db:"contact_key"`
	DealKey      string `db:"deal_key"`
	HostKey      int64  `db:"host_key"`
	Generation   int64  `db:"generation"`
	State        string `db:"state"`
	Version      int64  `db:"version"`
	CreateOp     string `db:"create_op"`
	CRMID        string `db:"crm_id"`
	OpenedAt     int64  `db:"opened_at"`
	LastActivity int64  `db:"last_activity"`
	Stage        string `db:"stage"`
	StageVersion int64  `db:"stage_version"`
	StageAt      int64  `db:"stage_at"`
	Broken       int64  `db:"broken"`
}

// Decode returns the deal. The error is a *store.CorruptError.
func (r *Deal) Decode() (store.Deal, error) {
	var c check
	d := store.Deal{
		ID: r.ID, Tenant: r.Tenant, OrderingKey: r.OrderingKey, ContactKey: r.ContactKey, Key: r.DealKey,
		HostKey: c.bit(r.HostKey, "host_key"), Generation: int(r.Generation), State: store.DealState(r.State),
		Version: r.Version, CreateOp: r.CreateOp, CRMID: r.CRMID, OpenedAt: Time(r.OpenedAt),
		LastActivity: Time(r.LastActivity), Stage: r.Stage, StageVersion: r.StageVersion, StageAt: Time(r.StageAt),
	}
	c.that(r.ID != "", "id")
	c.that(d.State == store.DealOpen || d.State == store.DealClosed, "state")
	c.that(r.Version > 0, "version")
	c.that(r.Generation > 0, "generation")
	c.that(r.OpenedAt > 0, "opened_at")
	if err := c.err(); err != nil {
		return d, r.Corrupt(err)
	}
	if r.Broken != 0 {
		return d, r.Corrupt(ErrBroken)
	}
	return d, nil
}

// Corrupt names the row as one that can't be read.
func (r *Deal) Corrupt(err error) error {
	return &store.CorruptError{Table: DealsTable, ID: r.ID, Err: err}
}

// NewDeal returns the row of a deal that is opened at now. What the caller left out is filled in: open, generation 1. The
// error wraps store.ErrInvalid.
func NewDeal(d store.Deal, now time.Time) (*Deal, error) {
	for _, f := range []struct{ name, value string }{{"ID", d.ID}, {"OrderingKey", d.OrderingKey}, {"Key", d.Key}} {
		if f.value == "" {
			return nil, fmt.Errorf("%w: Deal.%s is empty", store.ErrInvalid, f.name)
		}
	}
	if d.State == "" {
		d.State = store.DealOpen
	}
	if d.State != store.DealOpen && d.State != store.DealClosed {
		return nil, fmt.Errorf("%w: Deal.State %q of %s is not a state", store.ErrInvalid, d.State, d.ID)
	}
	if d.Generation < 0 {
		return nil, fmt.Errorf("%w: Deal.Generation of %s is negative", store.ErrInvalid, d.ID)
	}
	return &Deal{
		ID: d.ID, Tenant: d.Tenant, OrderingKey: d.OrderingKey, ContactKey: d.ContactKey, DealKey: d.Key,
		HostKey: bit(d.HostKey), Generation: int64(max(d.Generation, 1)), State: string(d.State), Version: 1,
		CreateOp: d.CreateOp, OpenedAt: Micros(now), LastActivity: Micros(now),
	}, nil
}

// Contact is a row of leadonce_contacts.
type Contact struct {
	Key    string `db:"contact_key"`
	Tenant string `db:"tenant"`
	Source string `db:"source"`
	UserID string `db:"user_id"`
	CRMID  string `db:"crm_id"`
}

// NewContact returns the row of c. The error wraps store.ErrInvalid.
func NewContact(c store.Contact) (*Contact, error) {
	if c.Key == "" {
		return nil, fmt.Errorf("%w: Contact.Key is empty", store.ErrInvalid)
	}
	return &Contact{Key: c.Key, Tenant: c.Tenant, Source: c.Source, UserID: c.UserID}, nil
}

// Decode returns the contact.
func (r *Contact) Decode() store.Contact {
	return store.Contact{Key: r.Key, Tenant: r.Tenant, Source: r.Source, UserID: r.UserID, CRMID: r.CRMID}
}

// Trail is a row of leadonce_trail.
type Trail struct {
	ID          int64  `db:"id"`
	At          int64  `db:"at"`
	OperationID string `db:"operation_id"`
	Cause       string `db:"cause"`
	FromState   string `db:"from_state"`
	ToState     string `db:"to_state"`
	Attempt     int64  `db:"attempt"`
	StartedAt   int64  `db:"started_at"`
	TookNS      int64  `db:"took_ns"`
	Status      int64  `db:"status"`
	RequestID   string `db:"request_id"`
	Reason      string `db:"reason"`
	CRMID       string `db:"crm_id"`
	Person      string `db:"person"`
	Why         string `db:"why"`
	Seen        int64  `db:"seen"`
}

// EncodeTrail returns the row of t.
func EncodeTrail(t store.TrailEntry) *Trail {
	return &Trail{
		At: Micros(t.At), OperationID: t.OperationID, Cause: string(t.On), FromState: string(t.From), ToState: string(t.To),
		Attempt: int64(t.Attempt), StartedAt: Micros(t.StartedAt), TookNS: int64(t.Took), Status: int64(t.Status),
		RequestID: t.RequestID, Reason: t.Reason, CRMID: t.CRMID, Person: t.By, Why: t.Why, Seen: t.Seen,
	}
}

// Decode returns the entry. The error is a *store.CorruptError.
func (r *Trail) Decode() (store.TrailEntry, error) {
	t := store.TrailEntry{
		At: Time(r.At), OperationID: r.OperationID, On: store.Trigger(r.Cause), From: store.State(r.FromState),
		To: store.State(r.ToState), Attempt: int(r.Attempt), StartedAt: Time(r.StartedAt), Took: time.Duration(r.TookNS),
		Status: int(r.Status), RequestID: r.RequestID, Reason: r.Reason, CRMID: r.CRMID, By: r.Person, Why: r.Why,
		Seen: r.Seen,
	}
	var c check
	c.that(slices.Contains(store.Triggers(), t.On), "cause")
	c.that(r.FromState == "" || slices.Contains(store.States(), t.From), "from_state")
	c.that(r.ToState == "" || slices.Contains(store.States(), t.To), "to_state")
	c.that(r.At > 0, "at")
	if err := c.err(); err != nil {
		return t, &store.CorruptError{Table: TrailTable, ID: fmt.Sprint(r.ID), Err: err}
	}
	return t, nil
}
