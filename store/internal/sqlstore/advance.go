package sqlstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// advance.go: what a report makes of an operation. Pure: the engine reads, calls, and writes what it is told.

// Around is what stands beside an operation when a report about it comes in.
type Around struct {
	IsCreate   bool // it creates its deal
	CreateDone bool // the create that it depends on is done, or it depends on none
	Repeated   bool // this person's same trigger on the same seen version is in the trail already
}

// Move is what has to be written.
type Move struct {
	Op      store.Operation // as it stands afterwards
	Changed bool            // Op differs from the stored row; else nothing is written but Entry
	Entry   *store.TrailEntry
	CRMID   string // to be stored with the deal (of a create) or with the contact (of an operation without a deal)
	Unblock bool   // what waited for it can go
	Cancel  bool   // what waits for it is dropped
}

// PersonalRepeat reports whether r is a person's, so that the trail must be asked for Around.Repeated.
func PersonalRepeat(r store.Report) bool { return r.By != "" }

// Advance returns what r makes of o at now. The errors are those of store.Store.Advance; nothing is to be written then.
func Advance(o store.Operation, r store.Report, a Around, now time.Time) (Move, error) {
	r.CRMID = Clean(r.CRMID) // as it is stored: it is compared with what is
	if err := validReport(o, r, a); err != nil {
		return Move{}, err
	}
	if r.By != "" && a.Repeated {
		return Move{Op: o}, nil
	}
	if r.On == store.Begin || r.On == store.Repeat {
		return Move{}, moveError(o, r.On, "operations are begun by Claim and CommitPlan")
	}
	if err := guard(o, r); err != nil {
		return Move{}, err
	}
	if o.Fields == nil && r.On != store.Confirmed && r.On != store.Cancel {
		return Move{}, moveError(o, r.On, "its fields were erased")
	}
	if r.On == store.Confirmed && o.State == store.Done {
		return confirmedAgain(o, r, now), nil
	}
	to, doubt, err := store.Next(o.State, o.Doubt, r.On)
	if err != nil {
		return Move{}, moveError(o, r.On, "")
	}
	if r.On == store.Inconclusive {
		n := o
		n.DueAt, n.Reason = now.Add(r.RetryAfter), r.Reason
		return Move{Op: n, Changed: true, Entry: entry(o, n, r, now)}, nil
	}
	n := settle(o, to, doubt, r, a, now)
	if a.IsCreate && to == store.Done {
		n.LeadID = n.CRMID
	}
	m := Move{Op: n, Changed: true}
	if r.On != store.Confirmed || r.By != "" || o.State != store.Sending || o.Doubt {
		m.Entry = entry(o, n, r, now)
	}
	switch r.On {
	case store.Confirmed:
		m.CRMID, m.Unblock = n.CRMID, a.IsCreate
	case store.Correct:
		m.CRMID = n.CRMID
	case store.Cancel, store.Drop:
		m.Cancel = a.IsCreate
	}
	return m.withContact(), nil
}

// withContact: an operation without a deal made the contact whose id it shows.
func (m Move) withContact() Move {
	if m.CRMID != "" && m.Op.DealID == "" && m.Op.ContactKey != "" {
		m.Op.ContactID = m.CRMID
	}
	return m
}

func validReport(o store.Operation, r store.Report, a Around) error {
	switch {
	case !slices.Contains(store.Triggers(), r.On):
		return fmt.Errorf("%w: Report.On %q is not a trigger", store.ErrInvalid, r.On)
	case r.On.Personal() && r.By == "":
		return fmt.Errorf("%w: Report.By is empty, and %s is a person's", store.ErrInvalid, r.On)
	case r.On == store.Confirmed && a.IsCreate && r.CRMID == "", r.On == store.Correct && r.CRMID == "":
		return fmt.Errorf("%w: Report.CRMID is empty for %s of operation %s", store.ErrInvalid, r.On, o.ID)
	case r.RetryAfter < 0:
		return fmt.Errorf("%w: Report.RetryAfter is negative", store.ErrInvalid)
	}
	return nil
}

// guard refuses a report about an operation that has moved on.
func guard(o store.Operation, r store.Report) error {
	switch r.On {
	case store.Lost, store.LostRepeatable, store.NotApplied, store.Rejected:
		if o.Version != r.Version || o.Fence != r.Fence {
			return fmt.Errorf("%s of operation %s: %w", r.On, o.ID, store.ErrLeaseLost)
		}
		return nil
	case store.Confirmed:
		if r.By == "" && r.Version == 0 {
			return nil // evidence
		}
	}
	if o.Version != r.Version {
		return fmt.Errorf("%s of operation %s: %w", r.On, o.ID, store.ErrMoved)
	}
	return nil
}

// confirmedAgain is Confirmed of what is done: the same id is nothing new, another one is a conflict.
func confirmedAgain(o store.Operation, r store.Report, now time.Time) Move {
	if r.CRMID == "" || r.CRMID == o.CRMID || r.CRMID == o.ConflictID {
		return Move{Op: o}
	}
	n := o
	n.Version, n.UpdatedAt = o.Version+1, now
	m := Move{Changed: true}
	if o.CRMID == "" { // it was confirmed without an id
		n.CRMID, m.CRMID = r.CRMID, r.CRMID
	} else {
		n.ConflictID = r.CRMID
	}
	m.Op, m.Entry = n, entry(o, n, r, now)
	return m.withContact()
}

// settle returns o in its new state, with everything that follows from the trigger.
func settle(o store.Operation, to store.State, doubt bool, r store.Report, a Around, now time.Time) store.Operation {
	n := o
	n.State, n.Doubt, n.Version, n.UpdatedAt, n.Reason = to, doubt, o.Version+1, now, reason(r)
	if o.State == store.Sending && to != store.Sending {
		n.Owner, n.LeaseUntil = "", time.Time{}
	}
	switch to {
	case store.Pending, store.Uncertain, store.NeedsReconciliation:
		n.DueAt, n.EndedAt = now.Add(r.RetryAfter), time.Time{}
	case store.Done, store.Failed, store.Canceled:
		if o.State != to {
			n.EndedAt = now
		}
	}
	n.Blocked = to == store.Pending && !a.CreateDone
	switch r.On {
	case store.Confirmed:
		n.CRMID, n.Failures, n.Unreturned = r.CRMID, 0, false
	case store.NotApplied:
		if r.Unsent {
			n.Attempts = max(o.Attempts-1, 0)
		} else {
			n.Failures++
		}
	case store.Lost, store.LostRepeatable:
		n.Failures++
		n.Unreturned = o.Unreturned || !r.Returned
	case store.Restored:
		n.Unreturned = true
	case store.Absent:
		n.Failures, n.Unreturned, n.FirstSentAt = 0, false, time.Time{}
	case store.Reopen:
		n.Failures, n.FirstSentAt = 0, time.Time{}
		n.Unreturned = o.Unreturned && to != store.Pending
		if to == store.Pending {
			n.Revision++ // a CRM replays a stored refusal under the key that it was given for
		}
	case store.Correct:
		n.CRMID = r.CRMID
		if n.ConflictID == r.CRMID {
			n.ConflictID = ""
		}
		n.Reason = o.Reason
	case store.Acknowledge:
		n.ConflictID, n.Reason = "", o.Reason
	}
	return n
}

// reason is why the operation stands where it stands. A person's own words stay in the trail: they may hold anything, and
// reasons are counted.
func reason(r store.Report) string {
	if r.Reason == "" && r.By != "" && r.On != store.Confirmed {
		return string(r.On) + " by a person"
	}
	return r.Reason
}

// Begin returns o as it stands once c has taken it at now: pending or uncertain to sending, under a lease.
func Begin(o store.Operation, c store.Claim, now time.Time) (store.Operation, error) {
	on := store.Begin
	if o.State == store.Uncertain {
		on = store.Repeat
	}
	to, doubt, err := store.Next(o.State, o.Doubt, on)
	if err != nil {
		return o, moveError(o, on, "")
	}
	n := o
	n.State, n.Doubt, n.Version, n.UpdatedAt = to, doubt, o.Version+1, now
	n.Attempts, n.LastSentAt = o.Attempts+1, now
	if on == store.Begin {
		n.FirstSentAt = now
		n.Unreturned = false
	}
	t := c.Terms[o.Kind]
	n.Adapter, n.Guarantee, n.Window = c.Adapter, t.Guarantee, t.Window
	n.Owner, n.Fence, n.LeaseUntil = c.Owner, o.Fence+1, now.Add(c.Lease)
	return n, nil
}

// ValidClaim returns an error that wraps store.ErrInvalid for a claim that can't be granted.
func ValidClaim(c store.Claim) error {
	switch {
	case c.Owner == "":
		return fmt.Errorf("%w: Claim.Owner is empty", store.ErrInvalid)
	case c.Lease <= 0:
		return fmt.Errorf("%w: Claim.Lease is %v, must be above 0", store.ErrInvalid, c.Lease)
	case c.Limit < 0:
		return fmt.Errorf("%w: Claim.Limit is negative", store.ErrInvalid)
	case c.Quiet < 0:
		return fmt.Errorf("%w: Claim.Quiet is negative", store.ErrInvalid)
	}
	return nil
}

// Drop returns what becomes of o, pending, when it is dropped: by a plan, or since its create was canceled. It needs no
// fields.
func Drop(o store.Operation, isCreate bool, why string, now time.Time) (Move, error) {
	to, doubt, err := store.Next(o.State, o.Doubt, store.Drop)
	if err != nil {
		return Move{}, moveError(o, store.Drop, "")
	}
	r := store.Report{ID: o.ID, On: store.Drop, Reason: why}
	n := settle(o, to, doubt, r, Around{}, now)
	return Move{Op: n, Changed: true, Entry: entry(o, n, r, now), Cancel: isCreate}, nil
}

// CreateCanceled is why an operation was dropped that waited for a create.
const CreateCanceled = "its create was canceled"

// ApplyEdit returns o with other fields. The error wraps store.ErrInvalid if o may be in the CRM, or its fields were erased.
func ApplyEdit(o store.Operation, e store.Edit, now time.Time) (store.Operation, error) {
	if (o.State != store.Pending && o.State != store.Failed) || o.Doubt || o.Fields == nil {
		return o, fmt.Errorf("%w: Edit of operation %s, which is %s: only what is certainly not in the CRM, and was not erased, "+
			"can be edited", store.ErrInvalid, o.ID, o.State)
	}
	checked, err := NewOperation(store.Operation{ID: o.ID, Kind: o.Kind, Fields: e.Fields}, false, now)
	if err != nil {
		return o, err
	}
	n := o
	n.Fields, n.Revision, n.Version, n.UpdatedAt = checked.Fields, o.Revision+1, o.Version+1, now
	return n, nil
}

func entry(o, n store.Operation, r store.Report, now time.Time) *store.TrailEntry {
	return &store.TrailEntry{
		At: now, OperationID: o.ID, On: r.On, From: o.State, To: n.State, Attempt: o.Attempts, StartedAt: r.StartedAt,
		Took: r.Took, Status: r.Status, RequestID: r.RequestID, Reason: r.Reason, CRMID: r.CRMID, By: r.By, Why: r.Why,
		Seen: o.Version,
	}
}

func moveError(o store.Operation, on store.Trigger, note string) error {
	return &store.MoveError{ID: o.ID, From: o.State, Doubt: o.Doubt, On: on, Note: note}
}
