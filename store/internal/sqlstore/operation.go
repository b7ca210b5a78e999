package sqlstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// operation.go: the row of an operation.

// OperationsTable is the table of operations.
const OperationsTable = "leadonce_operations"

// Operation is a row of leadonce_operation_rows: an operation, and what its deal and its contact add (the last ones).
type Operation struct {
	Seq         int64  `db:"seq"`
	ID          string `db:"id"`
	Tenant      string `db:"tenant"`
	Kind        string `db:"kind"`
	OrderingKey string `db:"ordering_key"`
	ContactKey  string `db:"contact_key"`
	DealID      string `db:"deal_id"`
	DependsOn   string `db:"depends_on"`
	Blocked     int64  `db:"blocked"`
	State       string `db:"state"`
	Doubt       int64  `db:"doubt"`
	Version     int64  `db:"version"`
	Fields      []byte `db:"fields"`
	Revision    int64  `db:"revision"`
	Adapter     string `db:"adapter"`
	Guarantee   string `db:"guarantee"`
	WindowNS    int64  `db:"window_ns"`
	Attempts    int64  `db:"attempts"`
	Failures    int64  `db:"failures"`
	FirstSentAt int64  `db:"first_sent_at"`
	LastSentAt  int64  `db:"last_sent_at"`
	Unreturned  int64  `db:"unreturned"`
	DueAt       int64  `db:"due_at"`
	Owner       string `db:"owner"`
	Fence       int64  `db:"fence"`
	LeaseUntil  int64  `db:"lease_until"`
	CRMID       string `db:"crm_id"`
	ConflictID  string `db:"conflict_id"`
	Reason      string `db:"reason"`
	CreatedAt   int64  `db:"created_at"`
	UpdatedAt   int64  `db:"updated_at"`
	EndedAt     int64  `db:"ended_at"`
	Broken      int64  `db:"broken"`
	Token       int64  `db:"token"` // names the call that began it last; not every engine needs it

	LeadID   string `db:"lead_id"`   // crm_id of the deal
	CreateOp string `db:"create_op"` // create_op of the deal

	ContactID string `db:"contact_id"` // crm_id of the contact
	Seen      int64  `db:"seen"`       // a parameter only: the version that an update expects
}

// IsCreate reports whether the operation creates its deal.
func (r *Operation) IsCreate() bool { return r.CreateOp != "" && r.CreateOp == r.ID }

// ErrBroken is why a row that was set aside is not read again.
var ErrBroken = errors.New("set aside earlier, because it could not be read")

// Decode returns the operation. The error is a *store.CorruptError.
func (r *Operation) Decode() (store.Operation, error) {
	var c check
	o := store.Operation{
		ID: r.ID, Tenant: r.Tenant, Kind: r.Kind, OrderingKey: r.OrderingKey, ContactKey: r.ContactKey, DealID: r.DealID,
		DependsOn: r.DependsOn, Blocked: c.bit(r.Blocked, "blocked"), State: store.State(r.State),
		Doubt: c.bit(r.Doubt, "doubt"), Version: r.Version, Fields: blob(r.Fields), Revision: int(r.Revision),
		Adapter: r.Adapter, Guarantee: r.Guarantee, Window: time.Duration(r.WindowNS), Attempts: int(r.Attempts),
		Failures: int(r.Failures), FirstSentAt: Time(r.FirstSentAt), LastSentAt: Time(r.LastSentAt),
		Unreturned: c.bit(r.Unreturned, "unreturned"), DueAt: Time(r.DueAt), Owner: r.Owner, Fence: r.Fence,
		LeaseUntil: Time(r.LeaseUntil), CRMID: r.CRMID, ConflictID: r.ConflictID, Reason: r.Reason, LeadID: r.LeadID,
		ContactID: r.ContactID, CreatedAt: Time(r.CreatedAt), UpdatedAt: Time(r.UpdatedAt), EndedAt: Time(r.EndedAt),
	}
	c.that(r.ID != "", "id")
	c.that(r.Kind != "", "kind")
	c.that(slices.Contains(store.States(), o.State), "state")
	c.that(r.Version > 0, "version")
	c.that(r.Revision >= 0, "revision")
	c.that(r.WindowNS >= 0, "window_ns")
	c.that(r.Attempts >= 0, "attempts")
	c.that(r.Failures >= 0, "failures")
	c.that(r.Fence >= 0, "fence")
	c.that(r.CreatedAt > 0, "created_at")
	c.that(o.State != store.Sending || r.LeaseUntil > 0, "lease_until")
	c.that(len(r.Fields) == 0 || json.Valid(r.Fields), "fields")
	if err := c.err(); err != nil {
		return store.Operation{ID: r.ID}, r.Corrupt(err)
	}
	if r.Broken != 0 {
		return store.Operation{ID: r.ID}, r.Corrupt(ErrBroken)
	}
	return o, nil
}

// Decoded is what a row holds, or that it is corrupt: err is that of reading it.
func Decoded[T any](row interface {
	Decode() (T, error)
	Corrupt(err error) error
}, err error) (T, error) {
	if err != nil {
		var none T
		return none, row.Corrupt(err)
	}
	return row.Decode()
}

// Corrupt names the row as one that can't be read.
func (r *Operation) Corrupt(err error) error {
	return &store.CorruptError{Table: OperationsTable, ID: r.ID, Err: err}
}

// EncodeOperation returns the row of o. seen is the version that the stored row must have.
func EncodeOperation(o store.Operation, seen int64) *Operation {
	return &Operation{
		ID: o.ID, Tenant: o.Tenant, Kind: o.Kind, OrderingKey: o.OrderingKey, ContactKey: o.ContactKey, DealID: o.DealID,
		DependsOn: o.DependsOn, Blocked: bit(o.Blocked), State: string(o.State), Doubt: bit(o.Doubt), Version: o.Version,
		Fields: blob(o.Fields), Revision: int64(o.Revision), Adapter: o.Adapter, Guarantee: o.Guarantee,
		WindowNS: int64(o.Window), Attempts: int64(o.Attempts), Failures: int64(o.Failures),
		FirstSentAt: Micros(o.FirstSentAt), LastSentAt: Micros(o.LastSentAt), Unreturned: bit(o.Unreturned),
		DueAt: Micros(o.DueAt), Owner: o.Owner, Fence: o.Fence, LeaseUntil: Micros(o.LeaseUntil), CRMID: o.CRMID,
		ConflictID: o.ConflictID, Reason: o.Reason, CreatedAt: Micros(o.CreatedAt), UpdatedAt: Micros(o.UpdatedAt),
		EndedAt: Micros(o.EndedAt), Seen: seen,
	}
}

// NewOperation returns what is stored of an operation that a plan or a submission asks for. The error wraps
// store.ErrInvalid.
func NewOperation(o store.Operation, blocked bool, now time.Time) (store.Operation, error) {
	if o.ID == "" || o.Kind == "" {
		return o, fmt.Errorf("%w: Operation.ID or Operation.Kind is empty", store.ErrInvalid)
	}
	if len(o.Fields) > 0 && !json.Valid(o.Fields) {
		return o, fmt.Errorf("%w: Operation.Fields of %s is not JSON", store.ErrInvalid, o.ID)
	}
	if o.Revision < 0 {
		return o, fmt.Errorf("%w: Operation.Revision of %s is negative", store.ErrInvalid, o.ID)
	}
	return store.Operation{
		ID: o.ID, Tenant: o.Tenant, Kind: o.Kind, OrderingKey: o.OrderingKey, ContactKey: o.ContactKey, DealID: o.DealID,
		DependsOn: o.DependsOn, Blocked: blocked, State: store.Pending, Version: 1, Fields: blob(o.Fields),
		Revision: o.Revision, DueAt: now, CreatedAt: now, UpdatedAt: now,
	}, nil
}
