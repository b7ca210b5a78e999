package store

import "time"

// event.go: what came in at the door, and what became of it.

// EventState is where an event stands. Each is counted with its age (Stats).
type EventState string

// The states of an event. The first three are unplanned: they hold the later events of their ordering key back.
const (
	EventPending     EventState = "pending"     // stored, to be planned
	EventGathering   EventState = "gathering"   // an album that waits for its other items
	EventWaiting     EventState = "waiting"     // a stage hook for a crm_id that is not stored yet
	EventPlanned     EventState = "planned"     // its operations are stored
	EventIgnored     EventState = "ignored"     // decided to need nothing; Reason says why
	EventParked      EventState = "parked"      // its rule failed until the attempts were used up, or the row is corrupt; retriable
	EventQuarantined EventState = "quarantined" // authentic, and not understood; kept raw
	EventStale       EventState = "stale"       // a stage hook that came too late
)

// EventStates lists every state of an event.
func EventStates() []EventState {
	return []EventState{EventPending, EventGathering, EventWaiting, EventPlanned, EventIgnored, EventParked, EventQuarantined, EventStale}
}

// Unplanned reports whether the event still awaits a decision.
func (s EventState) Unplanned() bool {
	return s == EventPending || s == EventGathering || s == EventWaiting
}

// Fingerprint is a digest of an event's content identity in one version of the algorithm.
type Fingerprint struct {
	Version int
	Sum     string
}

// Event is one delivery, as a Source parsed it. Its key is (Source, Tenant, Bot, UpdateID).
type Event struct {
	Source   string // "telegram"
	Tenant   string // the host's name for the account; may be empty
	Bot      string // the receiving account at the source, for Telegram the numeric bot id
	UpdateID string // the source's id of the delivery; for a quarantined body its hash

	// Hash is a digest of the raw bytes. The same key with the same Hash, or with an equal Fingerprint of the version that
	// the stored row carries, is a duplicate; the same key with both different is another event under a reused id.
	Hash         string
	Fingerprints []Fingerprint // current version first; older ones that the source still computes after it

	Kind        string // the source's name for the kind of update
	OrderingKey string // events with one ordering key are planned in accept order
	ContactKey  string // the person; empty if the event has none
	ContentID   string // identity of the content (bot, chat, message): the same under two update ids
	ContentRev  string // revision of that content: empty, or the edit date
	DealKey     string // what the default deal key is made of: the media group if there is one, else ContentID
	RepeatKey   string // two events with one RepeatKey are one act done twice: a button pressed again. Empty: it never repeats
	LeadRef     string // a hook of the CRM's: the id there of the lead that it is about; else empty
	Payload     []byte // the raw body
	Enquiry     []byte // the source-neutral form of it, JSON; opaque here
	Quarantine  string // why the body could not be understood; the event is then stored quarantined

	// HeadStart leaves the event to the process that accepted it for so long before another one may plan it. It counts
	// only while the accepting handle has a subscriber, and is a minute at most.
	HeadStart time.Duration
}

// Receipt says what Accept did.
type Receipt struct {
	EventID   int64
	Epoch     int  // 0, or how many other events used this key before
	Duplicate bool // this very event was stored before; nothing was added
	Reused    bool // the key was stored before with another content: this is the next epoch
}

// EventRow is a stored event.
type EventRow struct {
	Event
	ID         int64
	Epoch      int
	State      EventState
	Reason     string
	Attempts   int // how often its rule failed
	AcceptedAt time.Time
	DueAt      time.Time // not planned before, unless Attempts is 0 and it is pending: then by anyone who was hinted
	EndedAt    time.Time // zero while unplanned
}

// EventEnd is a decision about one event.
type EventEnd struct {
	ID     int64
	State  EventState
	Reason string
	// Retry makes an unplanned event due so much later. With State pending it counts an attempt.
	Retry time.Duration
	// MoveTo, with State pending, leaves the event undecided and due under another ordering key. It counts no attempt.
	MoveTo string
}

// Handled is an event that was planned, and the operations that it caused or changed.
type Handled struct {
	EventRow
	Operations []string
}

// Account is a receiving account at a source whose events the store holds: operation ids are derived from it.
type Account struct {
	Source, Tenant, Bot string
}
