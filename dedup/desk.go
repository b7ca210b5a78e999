package dedup

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadonce/leadonce/store"
)

// desk.go: what a person decides. It needs the store alone, so that a command line beside the bot can do it.

// Desk is where a person settles what could not be known. Every action carries who, why and the version that the person
// saw: it is refused with store.ErrMoved if the operation has changed since, and the same action again changes nothing.
type Desk struct{ st store.Store }

// NewDesk returns a Desk over a store. A Processor has one built in.
func NewDesk(st store.Store) *Desk { return &Desk{st} }

// Verdict says who decided about which operation, as they saw it, and why.
type Verdict struct {
	OperationID string
	Seen        int64  // store.Operation.Version on the page that the person looked at
	By          string // who; required
	Why         string
}

// Found says that the lead is in the CRM, under this id: the operation is done.
func (d *Desk) Found(ctx context.Context, v Verdict, crmID string) (store.Operation, error) {
	return d.pull(ctx, v, store.Confirmed, crmID)
}

// Absent says that the person has looked and the lead is not in the CRM: it is sent again.
func (d *Desk) Absent(ctx context.Context, v Verdict) (store.Operation, error) {
	return d.pull(ctx, v, store.Absent, "")
}

// Cancel sends nothing more for the operation, nor for what waits for it.
func (d *Desk) Cancel(ctx context.Context, v Verdict) (store.Operation, error) {
	return d.pull(ctx, v, store.Cancel, "")
}

// Reopen tries a failed or canceled operation again. If it may be in the CRM, that has to be settled first.
func (d *Desk) Reopen(ctx context.Context, v Verdict) (store.Operation, error) {
	return d.pull(ctx, v, store.Reopen, "")
}

// Correct mends the id of an operation that is done.
func (d *Desk) Correct(ctx context.Context, v Verdict, crmID string) (store.Operation, error) {
	return d.pull(ctx, v, store.Correct, crmID)
}

// Acknowledge says that a conflict has been seen to: the second record was merged or deleted in the CRM.
func (d *Desk) Acknowledge(ctx context.Context, v Verdict) (store.Operation, error) {
	return d.pull(ctx, v, store.Acknowledge, "")
}

// Retry plans a parked event again.
func (d *Desk) Retry(ctx context.Context, eventID int64, by, why string) error {
	op, ok := d.st.(store.Operator)
	if !ok {
		return fmt.Errorf("dedup: retry event %d: the store %T does not offer it", eventID, d.st)
	}
	return op.RetryEvent(ctx, eventID, by, why)
}

// Restored must be called once after the database came back from a backup, before any Processor runs: whatever is not known
// to be done may have been done since the backup, so it is looked up or decided, never sent blindly. Operations go to
// needs_reconciliation; events that were not planned yet, and may have been since, are parked: look into the CRM before
// Retry. It returns how many operations and events it marked; an error means that some could not be, and it can be called
// again.
func (d *Desk) Restored(ctx context.Context, by, why string) (n int, err error) {
	r, ok := d.st.(store.Reader)
	if !ok {
		return 0, fmt.Errorf("dedup: restored: the store %T can't list operations", d.st)
	}
	events, err := d.parkUnplanned(ctx, r, by)
	ops, err2 := d.doubtUnfinished(ctx, r, by, why)
	return events + ops, errors.Join(err, err2)
}

func (d *Desk) doubtUnfinished(ctx context.Context, r store.Reader, by, why string) (n int, errs error) {
	f := store.OperationFilter{States: []store.State{store.Pending, store.Sending, store.Uncertain, store.NeedsReconciliation,
		store.Failed, store.Canceled}, Limit: 1000}
	for {
		ops, err := r.Operations(ctx, f)
		if err != nil && !store.OnlyCorrupt(err) {
			return n, errors.Join(errs, fmt.Errorf("dedup: restored: %w", err))
		}
		for _, op := range ops {
			f.After = op.ID
			_, err := d.pull(ctx, Verdict{OperationID: op.ID, Seen: op.Version, By: by, Why: why}, store.Restored, "")
			var move *store.MoveError
			switch {
			case err == nil:
				n++
			case errors.As(err, &move) && op.Fields == nil: // erased: it is never sent again anyway
			default:
				errs = errors.Join(errs, err)
			}
		}
		if len(ops) < f.Limit {
			return n, errs
		}
	}
}

func (d *Desk) parkUnplanned(ctx context.Context, r store.Reader, by string) (n int, err error) {
	f := store.EventFilter{States: []store.EventState{store.EventPending, store.EventGathering, store.EventWaiting}, Limit: 1000}
	for {
		evs, err := r.Events(ctx, f)
		if err != nil && !store.OnlyCorrupt(err) {
			return n, fmt.Errorf("dedup: restored: %w", err)
		}
		for _, ev := range evs {
			f.After = ev.ID
			view, err := d.st.ReadKey(ctx, ev.OrderingKey)
			if err == nil || store.OnlyCorrupt(err) {
				_, err = d.st.CommitPlan(ctx, store.Plan{Key: ev.OrderingKey, Version: view.Version, Events: []store.EventEnd{{ID: ev.ID,
					State: store.EventParked, Reason: "restored by " + by + ": it may have become a lead since the backup; look before retrying"}}})
			}
			if err != nil {
				return n, fmt.Errorf("dedup: restored: event %d: %w", ev.ID, err)
			}
			n++
		}
		if len(evs) < f.Limit {
			return n, nil
		}
	}
}

func (d *Desk) pull(ctx context.Context, v Verdict, on store.Trigger, crmID string) (store.Operation, error) {
	switch {
	case v.OperationID == "" || v.By == "":
		return store.Operation{}, fmt.Errorf("dedup: %s: %w: the verdict has to name the operation and who decides", on, store.ErrInvalid)
	case v.Seen <= 0:
		return store.Operation{}, fmt.Errorf("dedup: %s: %w: the verdict has to name the version seen", on, store.ErrInvalid)
	case (on == store.Confirmed || on == store.Correct) && crmID == "":
		return store.Operation{}, fmt.Errorf("dedup: %s: %w: the id in the CRM is missing", on, store.ErrInvalid)
	}
	op, err := d.st.Advance(ctx, store.Report{ID: v.OperationID, On: on, Version: v.Seen, By: v.By, Why: v.Why, CRMID: crmID})
	if err != nil {
		return op, fmt.Errorf("dedup: %w", err)
	}
	return op, nil
}
