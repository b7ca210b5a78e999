package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// show.go: what the ops commands print. What goes to the CRM is printed on request only (-fields, shadow).

// maxRows is how many rows one command reads or changes.
const maxRows = 10_000

// list prints operations, or with -events events.
func (c *opsCommand) list(ctx context.Context) error {
	if c.events {
		return c.listEvents(ctx)
	}
	found, err := c.selectOperations(ctx, store.OperationFilter{States: unfinished()}, c.limit)
	if c.state == "" && c.crm == "" {
		conflicts, e := c.selectOperations(ctx, store.OperationFilter{Conflict: true}, c.limit)
		found, err = append(conflicts, found...), errors.Join(err, e)
		found = found[:min(len(found), c.limit)]
	}
	if c.asJSON {
		views := make([]opView, 0, len(found))
		for _, op := range found {
			views = append(views, newOpView(op, c.now, false))
		}
		return errors.Join(printJSON(c.out, views), err)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tKIND\tSTATE\tWAITS FOR\tAGE\tCRM ID\tREASON")
	for _, op := range found { // the reason in full: its end may say what to do
		fmt.Fprintf(w, "%s@%d\t%s\t%s\t%s\t%s\t%s\t%s\n", op.ID, op.Version, op.Kind, stateOf(op), waitsFor(op, c.now),
			age(c.now.Sub(op.CreatedAt)), printable(cmp.Or(op.CRMID, "-")), printable(op.Reason))
	}
	return errors.Join(w.Flush(), c.countLine(len(found)), err)
}

func (c *opsCommand) countLine(n int) error {
	more := ""
	switch {
	case n == 0 && c.state == "":
		more = " (unfinished ones are listed; -state all lists every one)"
	case n == c.limit:
		more = " (there may be more: -limit)"
	}
	_, err := fmt.Fprintf(c.out, "%d found%s\n", n, more)
	return err
}

func (c *opsCommand) listEvents(ctx context.Context) error {
	found, err := c.selectEvents(ctx, []store.EventState{store.EventParked, store.EventQuarantined}, c.limit)
	if c.asJSON {
		views := make([]eventView, 0, len(found))
		for _, e := range found {
			views = append(views, newEventView(e, c.now))
		}
		return errors.Join(printJSON(c.out, views), err)
	}
	return errors.Join(c.eventTable(found), c.countLine(len(found)), err)
}

func (c *opsCommand) eventTable(events []store.EventRow) error {
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "EVENT\tUPDATE\tKIND\tSTATE\tAGE\tREASON")
	for _, e := range events {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", e.ID, short(e.UpdateID), printable(e.Kind), e.State,
			age(c.now.Sub(e.AcceptedAt)), short(e.Reason))
	}
	return w.Flush()
}

// unfinished are the states of operations that something is still to happen to.
func unfinished() []store.State {
	return slices.DeleteFunc(store.States(), func(s store.State) bool { return s == store.Done || s == store.Canceled })
}

// selectOperations pages through what f and the filter flags match, up to limit; f.States holds where -state was not given.
// Rows may come together with an error about others that can't be read.
func (c *opsCommand) selectOperations(ctx context.Context, f store.OperationFilter, limit int) ([]store.Operation, error) {
	given, err := opStates(c.state)
	switch {
	case err != nil:
		return nil, err
	case given != nil:
		f.States = given
	case c.crm != "":
		f.States = nil // whoever names a lead means it, finished or not
	}
	f.Tenant, f.Kind, f.CRMID, f.Limit = c.tenant, c.kind, c.crm, 1000
	var found []store.Operation
	var bad error
	for len(found) < limit {
		page, err := c.st.Operations(ctx, f)
		bad = errors.Join(bad, err)
		for _, op := range page {
			f.After = op.ID
			if c.now.Sub(op.CreatedAt) >= c.older {
				found = append(found, op)
			}
		}
		if len(page) == 0 {
			break
		}
	}
	return found[:min(len(found), limit)], bad
}

func (c *opsCommand) selectEvents(ctx context.Context, otherwise []store.EventState, limit int) ([]store.EventRow, error) {
	given, err := eventStates(c.state)
	if err != nil {
		return nil, err
	}
	if given == nil {
		given = otherwise
	}
	f := store.EventFilter{States: given, Tenant: c.tenant, Limit: 1000}
	var found []store.EventRow
	var bad error
	for len(found) < limit {
		page, err := c.st.Events(ctx, f)
		bad = errors.Join(bad, err)
		for _, e := range page {
			f.After = e.ID
			if c.now.Sub(e.AcceptedAt) >= c.older {
				found = append(found, e)
			}
		}
		if len(page) == 0 {
			break
		}
	}
	return found[:min(len(found), limit)], bad
}

// shadow prints what leadbots with -shadow would have sent, with titles and texts: they are what it is looked at for.
func (c *opsCommand) shadow(ctx context.Context) error {
	var since time.Time
	if c.since > 0 {
		since = c.now.Add(-c.since)
	}
	found, err := dedup.ShadowReport(ctx, c.st, since)
	if err != nil {
		return err
	}
	if c.asJSON {
		views := make([]shadowView, 0, len(found))
		for _, e := range found {
			views = append(views, newShadowView(e))
		}
		return printJSON(c.out, views)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "AGE\tKIND\tTENANT\tDEAL\tLEAD\tSTATE\tWHAT")
	for _, e := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", age(c.now.Sub(e.At)), e.Kind, printable(cmp.Or(e.Tenant, "-")), e.DealID,
			printable(cmp.Or(e.LeadID, "-")), e.State, short(e.Summary))
	}
	_, err = fmt.Fprintf(w, "%d would have been sent; nothing was\n", len(found))
	return errors.Join(err, w.Flush())
}

// show prints one operation, what caused it, and what happened to it.
func (c *opsCommand) show(ctx context.Context) error {
	t, err := parseTarget(c.args[0])
	if err != nil {
		return err
	}
	op, err := c.st.Operation(ctx, t.id)
	if err != nil {
		return fmt.Errorf("operation %s: %w", t.id, err)
	}
	events, err1 := c.st.Events(ctx, store.EventFilter{OperationID: op.ID, Limit: 1000})
	trail, err2 := c.st.Trail(ctx, op.ID)
	bad := errors.Join(err1, err2)
	if c.asJSON {
		page := opPage{opView: newOpView(op, c.now, c.fields), Events: []eventView{}, Trail: []trailView{}}
		for _, e := range events {
			page.Events = append(page.Events, newEventView(e, c.now))
		}
		for _, t := range trail {
			page.Trail = append(page.Trail, newTrailView(t))
		}
		return errors.Join(printJSON(c.out, page), bad)
	}
	if t.version != 0 && t.version != op.Version {
		fmt.Fprintf(c.out, "it has moved on since version %d:\n", t.version)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	for _, l := range c.lines(op) {
		if l[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", l[0], printable(l[1]))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "\nupdates: %d\n", len(events))
	if len(events) > 0 {
		if err := c.eventTable(events); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out, "\nwhat deviated: %d\n", len(trail))
	return errors.Join(printTrail(c.out, trail), c.hint(op), bad)
}

func (c *opsCommand) lines(op store.Operation) [][2]string {
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	fields := ""
	if c.fields {
		fields = cmp.Or(string(op.Fields), "erased")
	}
	return [][2]string{
		{"operation", op.ID}, {"version", fmt.Sprint(op.Version)}, {"kind", op.Kind}, {"state", stateOf(op)},
		{"reason", op.Reason}, {"crm id", op.CRMID}, {"conflict", op.ConflictID}, {"lead", op.LeadID}, {"tenant", op.Tenant},
		{"age", age(c.now.Sub(op.CreatedAt))}, {"created", at(op.CreatedAt)}, {"changed", at(op.UpdatedAt)},
		{"attempts", fmt.Sprint(op.Attempts)}, {"last sent", at(op.LastSentAt)}, {"next", at(op.DueAt)},
		{"adapter", op.Adapter}, {"guarantee", op.Guarantee}, {"deal", op.DealID}, {"waits for", op.DependsOn},
		{"fields", fields},
	}
}

func printTrail(out io.Writer, trail []store.TrailEntry) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, t := range trail {
		var about []string
		add := func(format string, v any, given bool) {
			if given {
				about = append(about, printable(fmt.Sprintf(format, v)))
			}
		}
		add("attempt %v", t.Attempt, t.Attempt > 0)
		add("took %v", t.Took.Round(time.Millisecond), t.Took > 0)
		add("status %v", t.Status, t.Status > 0)
		add("request %v", t.RequestID, t.RequestID != "")
		add("crm id %v", t.CRMID, t.CRMID != "")
		add("by %v", t.By, t.By != "")
		add("because: %v", t.Why, t.Why != "")
		add("%v", t.Reason, t.Reason != "" && t.Reason != t.Why)
		fmt.Fprintf(w, "%s\t%s\t%s → %s\t%s\n", t.At.UTC().Format(time.RFC3339), t.On, t.From, t.To, strings.Join(about, ", "))
	}
	return w.Flush()
}

// hint names the commands that can settle op, at the version that was just looked at.
func (c *opsCommand) hint(op store.Operation) error {
	var names []string
	for _, v := range verdicts() {
		if v.canFrom(op) {
			crmID := map[bool]string{true: "=CRM_ID"}[v.needsCRMID]
			names = append(names, fmt.Sprintf("  leadbot ops %s %s %s@%d%s -by WHO -why WHY   %s",
				v.name, c.db.args(), op.ID, op.Version, crmID, v.meaning))
		}
	}
	if len(names) == 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.out, "\na person can:\n%s\n", strings.Join(names, "\n"))
	return err
}

// waitsFor tells what a person has to do something about from what leadbot is still to look at: a doubt that nothing was found
// out about yet is looked up when the quiet period is over, and where the CRM has no look-up its reason then says so.
func waitsFor(op store.Operation, now time.Time) string {
	switch {
	case op.ConflictID != "", op.State == store.Failed:
		return "a person"
	case op.State != store.NeedsReconciliation:
		return "-"
	case strings.Contains(op.Reason, "a person must") || op.DueAt.Sub(now) > time.Hour:
		return "a person"
	}
	return "look-up at " + clock(op.DueAt)
}

// stateOf says in a word more than the state where that matters.
func stateOf(op store.Operation) string {
	switch {
	case op.ConflictID != "":
		return string(op.State) + " (conflict)"
	case op.Blocked && op.State == store.Pending:
		return string(op.State) + " (waits for its lead)"
	case op.Doubt && op.State == store.Canceled:
		return string(op.State) + " (may be in the CRM)"
	}
	return string(op.State)
}

// short is printable, and fits a column.
func short(s string) string {
	r := []rune(printable(s))
	if len(r) > 70 {
		return string(r[:69]) + "…"
	}
	return string(r)
}
