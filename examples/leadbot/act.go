package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// act.go: what the ops commands change. Each reads the version, says what it is about to do, and leaves the refusal of what
// has moved on since to the store.

// verdict is a decision about operations.
type verdict struct {
	name       string
	meaning    string
	trigger    store.Trigger
	needsCRMID bool
	from       []store.State // what -all means without -state; empty: it has to be given
	conflicts  bool          // only operations with two CRM ids
	pull       func(*dedup.Desk, context.Context, dedup.Verdict, string) (store.Operation, error)
}

func verdicts() []verdict {
	plain := func(f func(*dedup.Desk, context.Context, dedup.Verdict) (store.Operation, error)) func(
		*dedup.Desk, context.Context, dedup.Verdict, string) (store.Operation, error) {
		return func(d *dedup.Desk, ctx context.Context, v dedup.Verdict, _ string) (store.Operation, error) {
			return f(d, ctx, v)
		}
	}
	return []verdict{
		{name: "found", meaning: "it is in the CRM, under this id", trigger: store.Confirmed, needsCRMID: true,
			pull: (*dedup.Desk).Found},
		{name: "absent", meaning: "it is not in the CRM: send it again", trigger: store.Absent,
			from: []store.State{store.NeedsReconciliation}, pull: plain((*dedup.Desk).Absent)},
		{name: "cancel", meaning: "send nothing more", trigger: store.Cancel, pull: plain((*dedup.Desk).Cancel)},
		{name: "reopen", meaning: "try it again", trigger: store.Reopen,
			from: []store.State{store.Failed}, pull: plain((*dedup.Desk).Reopen)},
		{name: "correct", meaning: "this is its id in the CRM", trigger: store.Correct, needsCRMID: true,
			pull: (*dedup.Desk).Correct},
		{name: "acknowledge", meaning: "the second record has been seen to", trigger: store.Acknowledge,
			from: []store.State{store.Done}, conflicts: true, pull: plain((*dedup.Desk).Acknowledge)},
	}
}

func verdictNamed(name string) (verdict, bool) {
	all := verdicts()
	if i := slices.IndexFunc(all, func(v verdict) bool { return v.name == name }); i >= 0 {
		return all[i], true
	}
	return verdict{}, false
}

// canFrom asks the state machine.
func (v verdict) canFrom(op store.Operation) bool {
	_, _, err := store.Next(op.State, op.Doubt, v.trigger)
	if v.name == "found" && op.State == store.Done {
		return false // would be a conflict: correct is meant
	}
	return err == nil && (!v.conflicts || op.ConflictID != "")
}

// settle gives one verdict on every operation that is meant.
func (c *opsCommand) settle(ctx context.Context) error {
	v, _ := verdictNamed(c.name)
	targets, err := c.targets(ctx, v)
	if err != nil {
		return err
	}
	if c.all && !c.yes && len(targets) > 0 {
		return usagef("ops %s: nothing was done. -yes does it to these %d", c.name, len(targets))
	}
	desk := dedup.NewDesk(c.st)
	skipped, until := 0, time.Time{}
	for _, t := range targets {
		op, err := v.pull(desk, ctx, dedup.Verdict{OperationID: t.id, Seen: t.version, By: c.by, Why: c.why, Force: c.force}, t.crmID)
		if early, ok := errors.AsType[*dedup.EarlyError](err); ok && c.all {
			skipped++
			if early.Until.After(until) {
				until = early.Until
			}
			continue
		}
		if err != nil {
			c.refuse(t.id, c.explain(ctx, t, err))
			continue
		}
		c.done++
		fmt.Fprintf(c.out, "%s: %s, version %d\n", op.ID, stateOf(op), op.Version)
	}
	if skipped > 0 {
		fmt.Fprintf(c.out, "%d left as they are: the CRM may still act on their requests until %s; then look and say it again, "+
			"or now with -force\n", skipped, clock(until))
	}
	return c.sum(len(targets))
}

// targets reads what is meant and says what is about to happen to it. An id that can't be read counts as refused.
func (c *opsCommand) targets(ctx context.Context, v verdict) ([]target, error) {
	var list []target
	if !c.all {
		for _, arg := range c.args {
			t, err := parseTarget(arg)
			if err != nil {
				return nil, err
			}
			op, err := c.st.Operation(ctx, t.id)
			if err != nil {
				c.refuse(t.id, err)
				continue
			}
			if t.version == 0 {
				t.version = op.Version
			}
			c.announce(v, op, t)
			list = append(list, t)
		}
		return list, nil
	}
	found, err := c.selectOperations(ctx, store.OperationFilter{States: v.from, Conflict: v.conflicts}, maxRows)
	if err != nil {
		return nil, err
	}
	for _, op := range found {
		t := target{id: op.ID, version: op.Version}
		c.announce(v, op, t)
		list = append(list, t)
	}
	return list, nil
}

func (c *opsCommand) announce(v verdict, op store.Operation, t target) {
	crmID := ""
	if t.crmID != "" {
		crmID = " (" + printable(t.crmID) + ")"
	}
	fmt.Fprintf(c.out, "%s %s@%d, %s, %s, %s old: %s%s\n", c.name, op.ID, t.version, op.Kind, stateOf(op),
		age(c.now.Sub(op.CreatedAt)), v.meaning, crmID)
}

// explain says how an operation stands that was not as it had been seen, and leaves out what the line begins with anyway.
func (c *opsCommand) explain(ctx context.Context, t target, err error) error {
	if early, ok := errors.AsType[*dedup.EarlyError](err); ok {
		return fmt.Errorf("too early to know: the CRM may still act on the request of %s ago: look again after %s, or say -force",
			age(early.Sent), clock(early.Until))
	}
	if move, ok := errors.AsType[*store.MoveError](err); ok {
		return &store.MoveError{From: move.From, Doubt: move.Doubt, On: move.On, Note: move.Note}
	}
	if !errors.Is(err, store.ErrMoved) {
		return err
	}
	op, e := c.st.Operation(ctx, t.id)
	if e != nil {
		return err
	}
	return fmt.Errorf("it is not at version %d any more but at %d, %s: look again (leadbot ops show %s)", t.version, op.Version,
		stateOf(op), t.id)
}

func (c *opsCommand) refuse(id string, err error) {
	c.refused++
	fmt.Fprintf(c.out, "%s: refused: %s\n", id, printable(err.Error()))
}

func (c *opsCommand) sum(n int) error {
	if n == 0 && c.refused == 0 {
		fmt.Fprintln(c.out, "nothing to do")
	}
	if c.refused > 0 {
		return fmt.Errorf("ops %s: %d done, %d refused", c.name, c.done, c.refused)
	}
	return nil
}

// retry plans parked events again.
func (c *opsCommand) retry(ctx context.Context) error {
	events, err := c.parked(ctx)
	if err != nil {
		return err
	}
	for _, e := range events {
		fmt.Fprintf(c.out, "retry event %d, update %s, %s, %s old: its rule is asked again\n", e.ID, short(e.UpdateID), e.State,
			age(c.now.Sub(e.AcceptedAt)))
	}
	if c.all && !c.yes && len(events) > 0 {
		return usagef("ops retry: nothing was done. -yes does it to these %d", len(events))
	}
	desk := dedup.NewDesk(c.st)
	for _, e := range events {
		id := strconv.FormatInt(e.ID, 10)
		if err := desk.Retry(ctx, e.ID, c.by, c.why); err != nil {
			c.refuse(id, err)
			continue
		}
		c.done++
		fmt.Fprintf(c.out, "%s: pending\n", id)
	}
	return c.sum(len(events))
}

// parked returns the events that are meant and parked; the store would leave another one as it is without a word.
func (c *opsCommand) parked(ctx context.Context) (list []store.EventRow, err error) {
	if c.all {
		return c.selectEvents(ctx, []store.EventState{store.EventParked}, maxRows)
	}
	ids, err := eventIDs(c.args)
	for _, id := range ids {
		name := strconv.FormatInt(id, 10)
		switch rows, err := c.st.Events(ctx, store.EventFilter{ID: id}); {
		case err != nil:
			c.refuse(name, err)
		case len(rows) == 0:
			c.refuse(name, store.ErrNotFound)
		case rows[0].State != store.EventParked:
			c.refuse(name, fmt.Errorf("it is not parked but %s", rows[0].State))
		default:
			list = append(list, rows[0])
		}
	}
	return list, err
}

func eventIDs(args []string) (ids []int64, err error) {
	for _, arg := range args {
		id, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || id < 1 {
			return nil, usagef("ops retry: %q is no event's number: leadbot ops list -events", arg)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// restored marks what may have been sent after the backup was taken.
func (c *opsCommand) restored(ctx context.Context) error {
	if !c.yes {
		found, err := c.selectOperations(ctx, store.OperationFilter{States: append(unfinished(), store.Canceled)}, maxRows)
		if err != nil {
			return err
		}
		return usagef("ops restored: nothing was done. -yes marks %d operations that are not known to be in the CRM: each is "+
			"then looked up or decided, never sent blindly. Do it once, while leadbot is stopped", len(found))
	}
	n, err := dedup.NewDesk(c.st).Restored(ctx, c.by, c.why)
	fmt.Fprintf(c.out, "%d operations marked\n", n)
	return err
}
