package dedup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
)

// desk.go: what a person decides. It needs the store alone, so that a command line beside the bot can do it.

// Desk is where a person settles what could not be known. Every action carries who, why and the version that the person
// saw: it is refused with store.ErrMoved if the operation has changed since, and the same action again changes nothing.
type Desk struct {
	st    store.Store
	quiet time.Duration
}

// NewDesk returns a Desk over a store, with the default quiet period (Options.QuietPeriod). A Processor has one built in, with
// its own.
func NewDesk(st store.Store) *Desk { return &Desk{st, defaultQuiet} }

// Verdict says who decided about which operation, as they saw it, and why.
type Verdict struct {
	OperationID string
	Seen        int64  // store.Operation.Version on the page that the person looked at
	By          string // who; required
	Why         string
	// Force lets Absent hold although the quiet period is not over: for who knows that the CRM acts on that request no more.
	// The other verdicts do not heed it.
	Force bool
}

// ErrTooEarly is in the error of an Absent within the quiet period after the request; the error is an *EarlyError.
var ErrTooEarly = errors.New("too early to know")

// EarlyError says how early a verdict came. Its text carries no data of the lead.
type EarlyError struct {
	OperationID string
	Sent        time.Duration // how long ago the request was sent
	Until       time.Time     // when the CRM acts on it no more, as far as Options.QuietPeriod says
}

// Error says how long ago the request was sent, and when to look again.
func (e *EarlyError) Error() string {
	return fmt.Sprintf("operation %s: %v: the CRM may still act on the request of %v ago: look again after %s, or set Verdict.Force",
		e.OperationID, ErrTooEarly, e.Sent.Round(time.Second), e.Until.UTC().Format("15:04:05 UTC"))
}

// Unwrap makes it an ErrTooEarly.
func (e *EarlyError) Unwrap() error { return ErrTooEarly }

// Found says that the lead is in the CRM, under this id: the operation is done.
func (d *Desk) Found(ctx context.Context, v Verdict, crmID string) (store.Operation, error) {
	return d.pull(ctx, v, store.Confirmed, crmID)
}

// Absent says that the person has looked and the lead is not in the CRM: it is sent again. Within the quiet period after the
// request that proves nothing, because the CRM may act late: it is refused with ErrTooEarly (an *EarlyError says until when)
// unless Verdict.Force is set. A look-up, where the adapter has one, comes when that time is over and may settle it by itself.
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
	if on == store.Absent && !v.Force {
		if err := d.early(ctx, v); err != nil {
			return store.Operation{}, fmt.Errorf("dedup: %s: %w", on, err)
		}
	}
	op, err := d.st.Advance(ctx, store.Report{ID: v.OperationID, On: on, Version: v.Seen, By: v.By, Why: v.Why, CRMID: crmID})
	if err != nil {
		return op, fmt.Errorf("dedup: %w", err)
	}
	return op, nil
}

// early refuses absence while a request may be under way. Another version than the one seen is the store's to judge: it knows
// a repeat from a page that has moved on. No request can leave between this and Advance, which is guarded by the version.
func (d *Desk) early(ctx context.Context, v Verdict) error {
	r, ok := d.st.(store.Reader)
	if !ok {
		return fmt.Errorf("the store %T can't tell when it was sent: wait for the quiet period, %v, and set Verdict.Force", d.st, d.quiet)
	}
	op, err := r.Operation(ctx, v.OperationID)
	if err != nil {
		return err
	}
	now := time.Now()
	until := op.LastSentAt.Add(d.quiet)
	if op.Version != v.Seen || op.State != store.NeedsReconciliation || !now.Before(until) {
		return nil
	}
	return &EarlyError{OperationID: op.ID, Sent: max(now.Sub(op.LastSentAt), 0), Until: until}
}
