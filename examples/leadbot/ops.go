package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/leadonce/leadonce/store"
)

// ops.go: the ops commands: their flags, and what each may be given. What they print is in show.go, what they change in
// act.go.

// opsCommand is one command line.
type opsCommand struct {
	name string
	args []string // ids, after the flags

	db               place
	by, why          string
	all, yes, force  bool
	asJSON, fields   bool
	events           bool
	state, kind, crm string
	tenant           *string
	older, since     time.Duration
	limit            int
	filtered         bool // some filter flag was given

	out           io.Writer
	st            database
	now           time.Time
	done, refused int
}

func ops(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return usagef("ops: which command? list, show, shadow, found, absent, cancel, reopen, correct, acknowledge, retry or " +
			"restored")
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		return flag.ErrHelp
	}
	c := &opsCommand{name: args[0], out: out, now: time.Now()}
	do, err := c.handler()
	if err != nil {
		return err
	}
	if err := c.parse(args[1:]); err != nil {
		return err
	}
	c.st, err = c.db.openExisting(ctx)
	if err != nil {
		return err
	}
	defer c.st.Close()
	return do(ctx)
}

func (c *opsCommand) handler() (func(context.Context) error, error) {
	switch c.name {
	case "list":
		return c.list, nil
	case "show":
		return c.show, nil
	case "shadow":
		return c.shadow, nil
	case "retry":
		return c.retry, nil
	case "restored":
		return c.restored, nil
	}
	if _, ok := verdictNamed(c.name); ok {
		return c.settle, nil
	}
	return nil, usagef("ops: unknown command %q", c.name)
}

// parse also checks all that can be checked without the database.
func (c *opsCommand) parse(args []string) (err error) {
	f := flag.NewFlagSet("ops "+c.name, flag.ContinueOnError)
	c.db.flags(f)
	switch c.name {
	case "list":
		f.BoolVar(&c.events, "events", false, "")
		f.BoolVar(&c.asJSON, "json", false, "")
		f.IntVar(&c.limit, "limit", 100, "")
		c.filters(f)
	case "show":
		f.BoolVar(&c.fields, "fields", false, "")
		f.BoolVar(&c.asJSON, "json", false, "")
	case "shadow":
		f.DurationVar(&c.since, "since", 0, "")
		f.BoolVar(&c.asJSON, "json", false, "")
	default:
		f.StringVar(&c.by, "by", "", "")
		f.StringVar(&c.why, "why", "", "")
		f.BoolVar(&c.yes, "yes", false, "")
		if c.name == "absent" {
			f.BoolVar(&c.force, "force", false, "")
		}
		if c.takesFilters() {
			f.BoolVar(&c.all, "all", false, "")
			c.filters(f)
		}
	}
	if c.args, err = parse(f, args); err != nil {
		return err
	}
	f.Visit(func(g *flag.Flag) {
		switch g.Name {
		case "state", "kind", "crm-id", "tenant", "older":
			c.filtered = true
		}
	})
	return c.check()
}

// takesFilters is false where each operation needs its own id in the CRM, or all are meant anyway.
func (c *opsCommand) takesFilters() bool {
	v, ok := verdictNamed(c.name)
	return (ok && !v.needsCRMID) || c.name == "retry"
}

func (c *opsCommand) filters(f *flag.FlagSet) {
	f.DurationVar(&c.older, "older", 0, "")
	f.Func("tenant", "", func(s string) error { c.tenant = &s; return nil })
	if c.name != "retry" { // which is about parked events
		f.StringVar(&c.state, "state", "", "")
		f.StringVar(&c.kind, "kind", "", "")
		f.StringVar(&c.crm, "crm-id", "", "")
	}
}

func (c *opsCommand) check() error {
	if err := c.db.check(); err != nil {
		return err
	}
	changes := c.name != "list" && c.name != "show" && c.name != "shadow"
	wantsIDs := changes && c.name != "restored"
	switch {
	case changes && strings.TrimSpace(c.by) == "":
		return usagef("ops %s: -by is missing: who decides", c.name)
	case changes && strings.TrimSpace(c.why) == "":
		return usagef("ops %s: -why is missing: it is kept with the decision", c.name)
	case c.name == "show" && len(c.args) != 1:
		return usagef("ops show: give the id of one operation (leadbot ops list)")
	case !wantsIDs && c.name != "show" && len(c.args) > 0:
		return usagef("ops %s takes no ids", c.name)
	case wantsIDs && len(c.args) == 0 && !c.all:
		return usagef("ops %s: which? Give ids%s", c.name, map[bool]string{true: ", or -all with filters"}[c.takesFilters()])
	case wantsIDs && len(c.args) > 0 && (c.all || c.filtered):
		return usagef("ops %s: ids, or -all with filters, not both", c.name)
	case c.older < 0:
		return usagef("ops %s: -older must be positive", c.name)
	case c.since < 0:
		return usagef("ops shadow: -since must be positive")
	case c.name == "list" && (c.limit < 1 || c.limit > maxRows):
		return usagef("ops list: -limit must be 1 to %d", maxRows)
	}
	if c.name == "retry" {
		_, err := eventIDs(c.args)
		return err
	}
	if c.events {
		if c.kind != "" || c.crm != "" {
			return usagef("ops list: -kind and -crm-id are about operations, not -events")
		}
		_, err := eventStates(c.state)
		return err
	}
	if _, err := opStates(c.state); err != nil {
		return err
	}
	if v, _ := verdictNamed(c.name); c.all && c.state == "" && len(v.from) == 0 {
		return usagef("ops %s: -all needs -state: which ones", c.name)
	}
	return c.checkTargets()
}

// checkTargets reads every id, so that a bulk command with a slip does nothing at all.
func (c *opsCommand) checkTargets() error {
	v, ok := verdictNamed(c.name)
	seen := map[string]bool{}
	for _, arg := range c.args {
		t, err := parseTarget(arg)
		switch {
		case err != nil:
			return err
		case !ok && t.crmID != "":
			return usagef("ops %s: %s: no CRM id is wanted here", c.name, arg)
		case !ok:
		case v.needsCRMID && t.crmID == "":
			return usagef("ops %s: %s: write ID=CRM_ID", c.name, arg)
		case !v.needsCRMID && t.crmID != "":
			return usagef("ops %s: %s: no CRM id is wanted here", c.name, arg)
		case seen[t.id]:
			return usagef("ops %s: %s is given twice", c.name, t.id)
		}
		seen[t.id] = true
	}
	return nil
}

// target is ID, ID@VERSION, ID=CRM_ID or ID@VERSION=CRM_ID.
type target struct {
	id, crmID string
	version   int64 // 0: as it is now
}

func parseTarget(s string) (t target, err error) {
	s, t.crmID, _ = strings.Cut(s, "=")
	id, version, pinned := strings.Cut(s, "@")
	if t.id = id; id == "" {
		return t, usagef("an operation's id is empty")
	}
	if pinned {
		if t.version, err = strconv.ParseInt(version, 10, 64); err != nil || t.version < 1 {
			return t, usagef("%s: the version after @ must be a number from 1", s)
		}
	}
	return t, nil
}

// states reads a comma-separated list; none is nil, "all" is all of them.
func states[S ~string](list string, known []S) ([]S, error) {
	if list == "" {
		return nil, nil
	}
	if list == "all" {
		return known, nil
	}
	var found []S
next:
	for part := range strings.SplitSeq(list, ",") {
		for _, k := range known {
			if string(k) == strings.TrimSpace(part) {
				found = append(found, k)
				continue next
			}
		}
		return nil, usagef("-state: there is no state %q; there are %v", part, known)
	}
	return found, nil
}

func opStates(list string) ([]store.State, error) { return states(list, store.States()) }

func eventStates(list string) ([]store.EventState, error) { return states(list, store.EventStates()) }

// printable keeps what came from outside from steering the terminal, or from breaking the line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsGraphic(r) {
			return '·'
		}
		return r
	}, strings.ReplaceAll(s, "\n", " "))
}

// age rounds to what a person reads.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", int(d.Hours())/24)
	case d >= time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return max(d, 0).Round(time.Second).String()
}

// clock is a moment of today.
func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
