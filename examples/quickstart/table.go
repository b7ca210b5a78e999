package main

import (
	"fmt"
	"io"
	"strings"
)

// table.go: how it all is printed, in 100 columns.

const intro = `leadonce: %d scenarios, each with a database, a bot and a simulated CRM of its own.
Those with a crash take a while: the dead process's lease (%v) has to end first.
"sent" counts creating requests that reached the CRM, "leads" what it then holds.

`

const layout = "%-26s  %10v  %-11s %6v %4v %5v  %-20s  %s\n"

// row is how things stand at the end of a scenario; a scenario says beforehand how they have to.
type row struct {
	deliveries int    // HTTP requests that Telegram made
	answers    string // and what it got, in order: "2×503 200"
	events     int    // rows that they made
	sent       int    // creating requests that reached the CRM
	leads      int    // what the CRM holds
	notes      int    // and what is added to it
	states     string // of the operations, oldest first; " → " parts what stood before a person settled it
}

// differs names what came out otherwise than wanted.
func (r row) differs(want row) string {
	var list []string
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"deliveries", r.deliveries, want.deliveries}, {"answers", r.answers, want.answers},
		{"events", r.events, want.events}, {"sent", r.sent, want.sent}, {"leads", r.leads, want.leads},
		{"notes", r.notes, want.notes}, {"states", r.states, want.states},
	} {
		if f.got != f.want {
			list = append(list, fmt.Sprintf("%s %v, not %v", f.name, f.want, f.got))
		}
	}
	return strings.Join(list, "; ")
}

// settled reports whether a person has changed the state.
func (r row) settled() bool { return strings.Contains(r.states, " → ") }

// table prints rows and keeps the score.
type table struct {
	out              io.Writer
	group            string
	rows, failed     int
	lost, duplicated int
}

// add prints one scenario and judges it.
func (t *table) add(sc scenario, res result) {
	if t.rows == 0 {
		fmt.Fprintf(t.out, layout, "scenario", "deliveries", "answers", "events", "sent", "leads", "states", "verdict")
	}
	t.rows++
	name := sc.name
	if sc.group != t.group {
		t.group = sc.group
		fmt.Fprintln(t.out, sc.group)
	}
	if sc.group != "" {
		name = "  " + name
	}
	if res.deliveries > 0 { // else it did not get so far, and nothing was promised
		t.lost += max(0, sc.want.leads-res.leads) + max(0, sc.want.notes-res.notes)
	}
	t.duplicated += max(0, res.leads-sc.want.leads) + max(0, res.notes-sc.want.notes)

	verdict := "ok"
	if res.err != nil || res.row != sc.want {
		verdict = "FAILED"
		t.failed++
	}
	before, after, settled := strings.Cut(res.states, " → ")
	first := verdict
	if settled {
		first = ""
	}
	t.line(name, res.deliveries, res.answers, res.events, res.sent, res.leads, before, first)
	if settled {
		t.line("    a person: Desk.Found", "", "", "", "", "", "→ "+after, verdict)
	}
	if res.row != sc.want && res.row != (row{}) {
		fmt.Fprintf(t.out, "    expected %s\n", res.differs(sc.want))
	}
	if res.err != nil {
		fmt.Fprintf(t.out, "    error: %s\n", strings.ReplaceAll(res.err.Error(), "\n", "\n    error: "))
	}
}

func (t *table) line(cells ...any) {
	fmt.Fprintln(t.out, strings.TrimRight(fmt.Sprintf(layout, cells...), " \n"))
}

// lastLine is the verdict on all of it.
func (t *table) lastLine() string {
	if t.failed == 0 {
		return fmt.Sprintf("ok: %d scenarios, %d lost, %d duplicated", t.rows, t.lost, t.duplicated)
	}
	return fmt.Sprintf("FAILED: %d of %d scenarios, %d lost, %d duplicated", t.failed, t.rows, t.lost, t.duplicated)
}
