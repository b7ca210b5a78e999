package dedup

import (
	"encoding/json"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// observe.go: what a host gets to see of the work: outcomes for its people, steps for its metrics.

// Outcome is what a hook is told.
type Outcome struct {
	OperationID string   // empty for a parked event
	Kind        crm.Kind // what it does: crm.KindCreate makes the lead; empty for a parked event
	Tenant      string
	State       string // a store.State; of a parked event store.EventParked
	CRMID       string // the id in the CRM, once done
	LeadID      string // the lead that a note or update belongs to
	ConflictID  string // another id that the CRM gave for the same operation
	Reason      string // why a person is needed; may quote the CRM's answer
	Lead        crm.Lead
	Version     int64 // what a verdict on it has to name as seen
	EventID     int64 // for a parked event, which has no operation
	Age         time.Duration
}

// Step is one move of an operation, without any of its content.
type Step struct {
	OperationID string
	Kind        crm.Kind
	Tenant      string
	On          store.Trigger
	State       store.State // after the move
	Owner       string
	Fence       int64
	Attempt     int
	Took        time.Duration // of the call, if there was one
}

// Observer is called, synchronously and concurrently, as the work goes on. Any func may be nil. None may block: they sit in
// the path of every lead. A panic is recovered and logged.
type Observer struct {
	Began      func(Step)                                      // an operation was claimed; its call follows
	Moved      func(Step)                                      // an operation has moved, committed
	Planned    func(Planned)                                   // a decision was committed
	Paused     func(tenant, reason string, next time.Duration) // its adapter is paused; next is when it is probed
	Resumed    func(tenant string)                             // tenant is empty with NewProcessor, which has one adapter for all
	StoreError func(call string, err error)                    // a call to the store failed; it will be tried again
	RuleError  func(eventID int64, parked bool)                // a rule failed on an event
	HookLost   func(hook string)                               // a hook was not called, panicked, or ran past its time
}

// Planned is one decision about the events of one ordering key.
type Planned struct {
	Tenant     string
	Events     int           // decided
	Operations int           // that follow from them; 0 where nothing does
	Took       time.Duration // from the reading to the commit
}

func step(op store.Operation, on store.Trigger, took time.Duration) Step {
	return Step{OperationID: op.ID, Kind: crm.Kind(op.Kind), Tenant: op.Tenant, On: on, State: op.State, Owner: op.Owner, Fence: op.Fence,
		Attempt: op.Attempts, Took: took}
}

func outcome(op store.Operation, now time.Time) Outcome {
	o := Outcome{OperationID: op.ID, Kind: crm.Kind(op.Kind), Tenant: op.Tenant, State: string(op.State), CRMID: op.CRMID, LeadID: op.LeadID,
		ConflictID: op.ConflictID, Reason: op.Reason, Version: op.Version, Age: now.Sub(op.CreatedAt)}
	if crm.Kind(op.Kind) == crm.KindCreate || crm.Kind(op.Kind) == crm.KindUpdate {
		_ = json.Unmarshal(op.Fields, &o.Lead) // best effort: the hook is a message, the database the truth
	}
	return o
}
