package store

import "time"

// deal.go: people and their enquiries, and what a planning decision reads and writes.

// Contact is a person at a source.
type Contact struct {
	Key    string // tenant + source + user id
	Tenant string
	Source string
	UserID string
	CRMID  string // once a contact.ensure is done
}

// DealState is whether an enquiry can still be continued.
type DealState string

// The states of a deal. That its create failed or was canceled is told by the state of that operation.
const (
	DealOpen   DealState = "open"
	DealClosed DealState = "closed"
)

// Deal is one enquiry. It belongs to one ordering key; (OrderingKey, Key, Generation) is unique, and so is
// (OrderingKey, Key) among the open ones.
type Deal struct {
	ID           string // a UUID, derived from the three
	Tenant       string
	OrderingKey  string
	ContactKey   string
	Key          string
	HostKey      bool // the host chose Key; only such a key has a second generation
	Generation   int  // from 1
	State        DealState
	Version      int64
	CreateOp     string // the operation that creates it in the CRM
	CRMID        string // once that is done
	OpenedAt     time.Time
	LastActivity time.Time

	// Where the CRM says that it stands: the stage, the version and time that the CRM gave with it (0 where it gives none).
	Stage        string
	StageVersion int64
	StageAt      time.Time
}

// ViewEvents, ViewDeals and ViewHandled bound a KeyView: events in all, the most recent deals of each contact, and the most
// recent handled events of each content or act, and of each operation of these.
const (
	ViewEvents  = 64
	ViewDeals   = 16
	ViewHandled = 16
)

// KeyView is what a decision about one ordering key may look at: one consistent reading.
type KeyView struct {
	Key     string
	Version int64     // 0 if nothing was ever planned under the key
	Now     time.Time // the store's clock
	// Events are the unplanned ones in accept order, at most ViewEvents.
	Events []EventRow
	// Deals are those of this key that any of the events may concern: by its deal key (Deal.Key = Event.DealKey) or one that
	// was asked for, by its LeadRef (Deal.CRMID, of the same tenant), as the deal of an operation of Handled, and the most
	// recent ViewDeals of its contact; ordered by OpenedAt.
	Deals []Deal
	// Operations are the creates of these deals, what waits for them (pending and blocked), and those of Handled. Where an
	// event has a LeadRef, also whatever is pending of the deals with that id.
	Operations []Operation
	// Contacts are those of the events that are stored.
	Contacts []Contact
	// Handled are planned events of this key which the unplanned ones may repeat or change: those that share a ContentID or a
	// (not empty) RepeatKey with one of them, the most recent ViewHandled of each; and through their operations the other
	// events of these (an album's items), the same number of each. In accept order.
	Handled []Handled
	// Homes tells, for each LeadRef of the events that belongs to deals of other ordering keys only, the key of the most
	// recently opened.
	Homes map[string]string
	// MovedTo is the key that this one goes on under (Plan.Merge); empty if it was not merged.
	MovedTo string
}

// Seen is a row that a decision read, at the version that it read.
type Seen struct {
	ID      string
	Version int64
}

// Link ties an event to an operation that it caused or changed.
type Link struct {
	EventID     int64
	OperationID string
}

// Edit replaces the fields of an operation that is certainly not in the CRM (pending or failed, without doubt).
type Edit struct {
	OperationID string
	Version     int64
	Fields      []byte
}

// Ended is an operation that a plan drops (pending to canceled).
type Ended struct {
	OperationID string
	Version     int64
	Reason      string
}

// Touch moves a deal's last activity to now.
type Touch struct {
	DealID  string
	Version int64
}

// StageMove tells where the CRM says that a deal stands.
type StageMove struct {
	DealID       string
	Version      int64 // of the deal's row
	Stage        string
	StageVersion int64
	StageAt      time.Time
	State        DealState // open or closed; empty leaves it as it is
}

// Merge makes one ordering key go on under another: the deals and the unplanned events of From become those of To. A deal
// of From stays where it is if To has one with the same key and generation, or an open one with the same key.
type Merge struct {
	From, To string
}

// Plan is a decision about one ordering key. It is committed whole or not at all.
type Plan struct {
	Key        string
	Version    int64 // of the key when it was read; 0: the key must not exist yet
	SeenOps    []Seen
	SeenDeals  []Seen
	Events     []EventEnd
	Contacts   []Contact // made unless they exist
	Deals      []Deal    // new ones
	Touches    []Touch
	Stages     []StageMove
	Operations []Operation // new ones, pending; only the fields up to Revision are read. One that exists stays as it is
	Edits      []Edit
	Drops      []Ended
	Links      []Link
	// Merge, if given, merges Key into another one or another one into Key, after everything else. The version of the other
	// key moves too, so that no decision about it that is under way commits.
	Merge *Merge
	// Claim, if given, begins up to Claim.Limit of the new operations that are not blocked, in the same commit.
	Claim *Claim
}

// Submission is a lead that the host makes itself, without an event.
type Submission struct {
	Contact   Contact // stored unless Key is empty
	Deal      Deal
	Operation Operation
	// Adopt, if given, says that the lead is in the CRM already: nothing is sent, the operation is stored as done.
	Adopt *Adoption
}

// Adoption is what is known of a lead that was there before.
type Adoption struct {
	CRMID  string
	Opened time.Duration // how long ago
	Idle   time.Duration // how long ago somebody last wrote about it
	Stage  string
}
