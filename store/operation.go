package store

import "time"

// operation.go: one effect on the CRM, and what is known about it.

// Operation is one effect: a lead to create, a note to add. ID is derived from what it is for, so the same effect decided
// twice is the same row.
type Operation struct {
	ID          string // the operation_id, a UUID
	Tenant      string
	Kind        string // "lead.create", "note.add", …: package crm names them; opaque here
	OrderingKey string
	ContactKey  string
	DealID      string
	DependsOn   string // the create that must be done first; empty for a create
	Blocked     bool   // that create is not done yet

	State   State
	Doubt   bool  // some earlier attempt may have been applied
	Version int64 // grows with every change

	Fields   []byte // JSON, opaque here; nil once erased. Freezes in Begin's commit
	Revision int    // counts the edits of Fields, and the times that a person had it tried again

	// What the adapter was and promised when the latest attempt began.
	Adapter   string
	Guarantee string
	Window    time.Duration

	Attempts    int       // calls begun since the beginning
	Failures    int       // attempts without success in a row: what back-off grows with
	FirstSentAt time.Time // when the first attempt since doubt could begin was committed; the window counts from here
	LastSentAt  time.Time
	// Unreturned means that some attempt since doubt began never came back to its own worker (crash, freeze, a call
	// abandoned at its deadline): an empty look-up then proves nothing.
	Unreturned bool

	DueAt      time.Time // pending, uncertain: not sent before; needs_reconciliation: not looked up before
	Owner      string    // who holds the lease, while sending
	Fence      int64     // fencing token: grows with every Begin and Repeat
	LeaseUntil time.Time

	CRMID      string // the id in the CRM, once done
	ConflictID string // another id that was confirmed later; a person acknowledges it
	Reason     string // why it stands where it stands: the last error or verdict
	LeadID     string // CRMID of the deal's create, where that is done: what a note is added to
	ContactID  string // CRMID of the contact, where its contact.ensure is done

	CreatedAt time.Time
	UpdatedAt time.Time
	EndedAt   time.Time // when it became done, failed or canceled
}

// Finished reports whether nothing more is done or decided about the operation. A failed one is not finished: it waits for
// a person.
func (o Operation) Finished() bool {
	return (o.State == Done && o.ConflictID == "") || o.State == Canceled
}

// Terms are what the adapter promises for one kind of operation now.
type Terms struct {
	Guarantee string // crm.GuaranteeKind; empty: a repeat may double
	Window    time.Duration
}

// Claim asks for operations to send.
type Claim struct {
	Owner   string           // unique to the process
	Limit   int              // how many free workers there are; none is claimed beyond it
	Lease   time.Duration    // how long they are ours; the call ends well before
	Quiet   time.Duration    // how long a CRM may still act on a request that was given up
	Adapter string           // the adapter's identity
	Terms   map[string]Terms // by kind; a kind that is missing has the zero Terms
	Tenant  *string          // only operations of this tenant; nil: of any
}

// Repeatable reports whether o, uncertain, may be sent again at now: it began under the same adapter and promise, and the
// window stays open until a call begun now could no longer have an effect.
func (c Claim) Repeatable(o Operation, now time.Time) bool {
	return c.Unchanged(o) && o.Guarantee != "" && now.Add(c.Lease+c.Quiet).Before(o.FirstSentAt.Add(o.Window))
}

// Unchanged reports whether o's latest attempt began under the adapter and the promise that hold now.
func (c Claim) Unchanged(o Operation) bool {
	t := c.Terms[o.Kind]
	return o.Adapter == c.Adapter && o.Guarantee == t.Guarantee && o.Window == t.Window
}

// Report tells what happened to an operation. Which fields are needed depends on the trigger; Advance says.
type Report struct {
	ID string
	On Trigger

	// The guard. A worker or the recovery of an expired lease passes Version and Fence of the operation as it was claimed or
	// read; everyone else the Version. Confirmed by a worker needs neither: evidence is never refused.
	Version int64
	Fence   int64

	CRMID      string        // Confirmed, Correct: the id in the CRM
	RetryAfter time.Duration // pending, uncertain: sent again no earlier; needs_reconciliation: looked up no earlier
	Reason     string        // short, without payload or secret
	Returned   bool          // the adapter call came back to the worker that reports
	Unsent     bool          // with NotApplied: the call was never made (drain, pause); counts as no attempt

	StartedAt time.Time // when the call began; zero if there was none
	Took      time.Duration
	Status    int    // HTTP status of the answer, 0 without one
	RequestID string // the vendor's id of the request

	By  string // who decided; needed for a person's triggers
	Why string // why, in that person's words
}

// TrailEntry is one deviation from the happy path, or one person's action.
type TrailEntry struct {
	At          time.Time
	OperationID string
	On          Trigger
	From, To    State
	Attempt     int
	StartedAt   time.Time
	Took        time.Duration
	Status      int
	RequestID   string
	Reason      string
	CRMID       string
	By, Why     string
	Seen        int64 // the operation's version before
}
