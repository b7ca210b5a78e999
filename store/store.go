package store

import (
	"context"
	"database/sql"
	"time"
)

// store.go: the contract. storetest proves it of an implementation.

// Store keeps events and operations. Its methods may be called by any number of goroutines, and by any number of processes
// on the same database.
//
// A nil error means that the change is durable: it survives a kill of the process and, as far as disk and settings allow, a
// power cut. Any error means that the caller must assume nothing: the change may or may not have been made. Every method is
// idempotent, so the answer is to call it again with the same arguments. Errors wrap the sentinels of this package where
// they apply, and ErrUnavailable when nothing can be committed at all.
//
// A Store owns its clock and takes durations. A row that can't be read is set aside where it is met (Broken in Stats; an
// event becomes parked), reported as a *CorruptError joined to the error of the call, and never keeps the rows beside it
// from being returned: a slice may come together with an error that is nothing but CorruptErrors.
type Store interface {
	// Accept stores an event, once. Concurrent calls share commits, each with its own result.
	// The same event again → the same EventID, Duplicate true, and nothing is added. The same key with other content →
	// stored under the next epoch, Reused true. An event with Quarantine is stored quarantined.
	Accept(ctx context.Context, e Event) (Receipt, error)

	// Submit stores a deal and the operation that creates it, once. The same operation id again → the stored operation and,
	// if the fields differ, ErrKeyReused beside it. With Adopt the operation is stored as done, with the id in the CRM and the
	// ages that it names, nothing is sent, and a lead that some deal of the tenant has already → the operation that creates
	// that deal, and nothing is added.
	Submit(ctx context.Context, s Submission) (Operation, error)

	// DueKeys returns up to limit ordering keys whose oldest unplanned event is due, of the tenants named, or of all if none
	// is. A key is that event's tenant's. Of one tenant the most overdue come first.
	//
	// Several tenants share limit: each has an equal part of it, what one does not use is divided among the others, and their
	// keys come by turns. Where they are more than limit, successive calls through one handle go on from tenant to tenant. So
	// whatever waits for one tenant, the others' keys are found at once, at a cost that does not grow with it.
	DueKeys(ctx context.Context, limit int, tenants ...string) ([]DueKey, error)

	// ReadKey returns what a decision about an ordering key may look at; besides what the events themselves point to, the
	// deals with one of dealKeys.
	ReadKey(ctx context.Context, key string, dealKeys ...string) (KeyView, error)

	// CommitPlan stores a decision, and begins some of its operations if Plan.Claim says so; those are returned, in state
	// sending, with their lease. ErrConflict if the key, or an operation or deal that the decision read, edits, drops or
	// touches, has another version than it names; then nothing was stored. Each commit moves the key's version on.
	CommitPlan(ctx context.Context, p Plan) ([]Operation, error)

	// Claim begins or repeats up to c.Limit operations whose time has come, of one tenant oldest due first: pending without
	// doubt, not blocked, and with fields; or uncertain and c.Repeatable. They are returned in state sending, under a lease
	// and a new fencing token, and are ours only once the call returned nil. Nobody else gets them until the lease ends.
	//
	// Without c.Tenant several tenants share c.Limit as they do in DueKeys, also from call to call: with one free worker, they
	// take turns. With it the cost does not grow with what waits for other tenants.
	Claim(ctx context.Context, c Claim) ([]Operation, error)

	// Advance moves an operation as the trigger says, and returns it as it stands afterwards.
	//
	// Guards: Lost, LostRepeatable, NotApplied and Rejected need the Version and Fence under which it was claimed, else
	// ErrLeaseLost. Confirmed without By and with Version 0 is evidence and needs none. Everything else needs the current
	// Version, else ErrMoved. *MoveError where the machine has no move, for Begin and Repeat (those are Claim's), and for
	// everything but Confirmed and Cancel once the fields are erased. ErrInvalid where CRMID (Confirmed and Correct of a
	// create) or By (a person's triggers) is missing. ErrNotFound.
	//
	// Effects beside the state: Confirmed of a deal's create stores the id with the deal and unblocks what waited for it, of an
	// operation without a deal it stores the id with the contact;
	// another id than the stored one is kept as ConflictID and changes nothing else; the same id again changes nothing.
	// Cancel of a create cancels what waits for it. Absent and Reopen forget the first attempt's time. Reopen blocks an
	// operation whose create is not done. Inconclusive moves only DueAt and Reason, not the version. Every trigger but an
	// ordinary Confirmed leaves an entry in the trail.
	//
	// A person's trigger again, by the same person on the same seen version, returns the operation as it stands.
	Advance(ctx context.Context, r Report) (Operation, error)

	// Attention returns operations that need a verdict, up to limit of each: sending whose lease has ended; uncertain that
	// are due; with lookups also those in needs_reconciliation that are due. They are of the tenants named, or of all if none
	// is; several share each of the limits as they do in DueKeys, and of one tenant the longest due come first. It changes
	// nothing.
	Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]Operation, error)

	// Stats counts what is unfinished, with the age of the oldest, and what finished in the last 24 hours.
	Stats(ctx context.Context) (Stats, error)

	// Subscribe calls f, quickly and in any goroutine, when work may have become due through this handle (and through other
	// processes, where the database can tell): a hint, which may be missing or wrong. f should not block; one that blocks or
	// panics loses hints of its own and holds up nobody else. cancel ends it.
	Subscribe(f func(Hint)) (cancel func())
}

// DueKey is an ordering key with something to plan.
type DueKey struct {
	Key    string
	Tenant string // of the key's oldest unplanned event
}

// Hint says where work may have become due.
type Hint struct {
	OrderingKey string // an event was accepted under it; empty: an operation became due
	Tenant      string // of that event, as far as it is known; no more to be relied on than the hint
}

// Reader answers questions about single rows and the chain event ↔ operation ↔ crm_id. Both of our stores implement it.
type Reader interface {
	// Operation returns one operation, or ErrNotFound.
	Operation(ctx context.Context, id string) (Operation, error)
	// Operations returns operations that match every given field of f, oldest first.
	Operations(ctx context.Context, f OperationFilter) ([]Operation, error)
	// Events returns events that match every given field of f, oldest first.
	Events(ctx context.Context, f EventFilter) ([]EventRow, error)
	// Trail returns what deviated from the happy path of an operation, oldest first.
	Trail(ctx context.Context, operationID string) ([]TrailEntry, error)
}

// OperationFilter selects operations. The zero value selects all.
type OperationFilter struct {
	States   []State
	Tenant   *string
	Kind     string
	CRMID    string // as the operation's own id or as the lead that it belongs to
	EventID  int64  // caused or changed by this event
	DealID   string
	Contact  string
	Conflict bool   // only those with a ConflictID
	Broken   bool   // only ids of rows that can't be read: the other fields are empty
	After    string // the last id of the page before
	Limit    int    // 0: 100; at most 1000
}

// EventFilter selects events. The zero value selects all.
type EventFilter struct {
	ID          int64
	States      []EventState
	Tenant      *string
	Bot         string
	UpdateID    string
	OperationID string // events that caused or changed it
	After       int64  // the last id of the page before
	Limit       int    // 0: 100; at most 1000
}

// Operator settles events. Settling operations is Advance's.
type Operator interface {
	// RetryEvent makes a parked event pending again, with its attempts forgotten, and with it the parked items of its album
	// (the same DealKey, which is not their ContentID, of one contact). An event that is not parked any more is left as it is,
	// without an error. by and why are kept as its reason.
	RetryEvent(ctx context.Context, id int64, by, why string) error
}

// Accounts remembers whose events the store holds. Both of our stores implement it.
type Accounts interface {
	// Accounts lists those of a source, in any order.
	Accounts(ctx context.Context, source string) ([]Account, error)
	// AddAccount remembers one; again changes nothing.
	AddAccount(ctx context.Context, a Account) error
}

// Transactional stores inside a transaction of the host's own, atomically with the host's rows: nothing is stored if the host
// rolls back, and only the host's commit makes it durable. Only the event or the deal with its operation is inserted: no
// shared commit, no lease, no hint before the commit. Both of our stores implement it.
//
// tx must be one of the same database and schema. On SQLite an open transaction of the host holds the file: other writers
// wait for the busy timeout and then fail with ErrUnavailable (the middleware answers 503), so keep it short.
type Transactional interface {
	// AcceptTx is Accept inside tx.
	AcceptTx(ctx context.Context, tx *sql.Tx, e Event) (Receipt, error)
	// SubmitTx is Submit inside tx.
	SubmitTx(ctx context.Context, tx *sql.Tx, s Submission) (Operation, error)
}

// Count is how many rows stand in a state, and how long the oldest has.
type Count struct {
	State  string        // a State or EventState
	Reason string        // for canceled operations and ignored events: why; else empty
	N      int64         //
	Errors int64         // how many of them carry the error of a failed attempt
	Oldest time.Duration // age of the oldest by when it entered the store; 0 if there is none
}

// Stats is a reading of the whole store.
type Stats struct {
	Events           []Count // unplanned, parked and quarantined
	Operations       []Count // unfinished: pending, sending, uncertain, needs_reconciliation, failed
	RecentOperations []Count // operations that finished in the last 24 h: done, and canceled by reason
	RecentEvents     []Count // events that ended in the last 24 h: planned, ignored by reason, stale
	Blocked          Count   // pending operations whose create is failed, canceled or in doubt
	Conflicts        Count   // done with two different ids
	Broken           int64   // rows that can't be read
	Reused           int64   // events of the last 24 h whose key had been used before
}

// Settling counts what will settle by itself: pending (but not blocked), sending and uncertain.
func (s Stats) Settling() int64 {
	return s.count(Pending) + s.count(Sending) + s.count(Uncertain) - s.Blocked.N
}

// NeedPerson counts what waits for a person (or a look-up): needs_reconciliation, failed, conflicts, parked and quarantined
// events, and broken rows.
func (s Stats) NeedPerson() int64 {
	n := s.count(NeedsReconciliation) + s.count(Failed) + s.Conflicts.N + s.Broken
	for _, c := range s.Events {
		if c.State == string(EventParked) || c.State == string(EventQuarantined) {
			n += c.N
		}
	}
	return n
}

func (s Stats) count(st State) (n int64) {
	for _, c := range s.Operations {
		if c.State == string(st) {
			n += c.N
		}
	}
	return n
}
