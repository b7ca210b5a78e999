package dedup_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/store"
)

// scenario_show_test.go: what has come of a scenario, in its words, and what must hold after every one.

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " / ") }

func titled(r crmtest.Record) string { return oneLine(r.Lead.Title) }

// outcome is everything that a scenario may expect, by section. merge takes a note or file that came twice under one operation
// as one: after a crash it may.
func (w *world) outcome(merge bool) sectioned {
	got := sectioned{}
	once := func(list []string) []string {
		slices.Sort(list)
		if merge {
			list = slices.Compact(list)
		}
		for i, s := range list { // without the operation, which only tells them apart
			_, list[i], _ = strings.Cut(s, "|")
		}
		slices.Sort(list)
		return list
	}
	var leads []string
	for _, r := range w.sim.Leads() {
		line := strconv.Quote(titled(r)) + " of " + cmp.Or(r.Lead.Name, "nobody")
		if r.Lead.Phone != "" {
			line += ", phone " + r.Lead.Phone
		}
		if r.Lead.ContactID != "" {
			line += ", with the contact"
		}
		if r.Stage != "new" {
			line += ", " + r.Stage
		}
		var more []string
		for _, n := range r.Notes {
			more = append(more, n.OpID+"|  note "+strconv.Quote(oneLine(n.Note.Text)))
		}
		for _, j := range w.files.of(r.ID) {
			more = append(more, j.Op.ID+"|  file "+j.File.ID)
		}
		leads = append(leads, strings.Join(append([]string{line}, once(more)...), "\n"))
	}
	slices.Sort(leads)
	for _, l := range leads {
		got["leads"] = append(got["leads"], strings.Split(l, "\n")...)
	}
	for _, c := range w.sim.Contacts() {
		got["contacts"] = append(got["contacts"], strings.TrimSpace(c.Contact.Name+" "+c.Contact.Phone))
	}
	slices.Sort(got["contacts"])
	ops := w.operations()
	count := map[string]int{}
	for _, op := range ops {
		count[op.Kind+" "+string(op.State)+why(op.State == store.Canceled, op.Reason)]++
	}
	got["operations"] = counted(count)
	count = map[string]int{}
	for _, ev := range w.events() {
		count[string(ev.State)+why(ev.State != store.EventPlanned, ev.Reason)]++
	}
	got["events"] = counted(count)
	got["deals"] = w.deals()
	return got
}

func why(tell bool, reason string) string {
	if !tell || reason == "" {
		return ""
	}
	if strings.HasPrefix(reason, "moved to ") {
		reason = "moved"
	}
	return ": " + strings.ReplaceAll(reason, ", ", "; ")
}

func counted(m map[string]int) (list []string) {
	for what, n := range m {
		list = append(list, fmt.Sprint(n, " ", what))
	}
	slices.Sort(list)
	return list
}

func (w *world) operations() []store.Operation {
	ops, err := w.st.Operations(context.Background(), store.OperationFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return ops
}

func (w *world) events() []store.EventRow {
	evs, err := w.st.Events(context.Background(), store.EventFilter{Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return evs
}

// deals are read where a decision would read them, by the lead of each create.
func (w *world) deals() (list []string) {
	for _, op := range w.operations() {
		if op.Kind != string(crm.KindCreate) {
			continue
		}
		var l crm.Lead
		if err := json.Unmarshal(op.Fields, &l); err != nil {
			w.t.Fatal(err)
		}
		line := strconv.Quote(oneLine(l.Title)) + " "
		if d, ok := w.dealOf(op); ok {
			line += string(d.State)
			if d.Stage != "" {
				line += ", " + d.Stage
			}
		}
		list = append(list, line)
	}
	slices.Sort(list)
	return list
}

func (w *world) dealOf(op store.Operation) (store.Deal, bool) {
	for _, ev := range w.events() {
		if ev.OrderingKey != op.OrderingKey || ev.State == store.EventStale {
			continue
		}
		v, err := w.st.ReadKey(context.Background(), ev.OrderingKey, w.dealKeys()...)
		if err != nil {
			w.t.Fatal(err)
		}
		for v.MovedTo != "" {
			if v, err = w.st.ReadKey(context.Background(), v.MovedTo, w.dealKeys()...); err != nil {
				w.t.Fatal(err)
			}
		}
		for _, d := range v.Deals {
			if d.ID == op.DealID {
				return d, true
			}
		}
	}
	return store.Deal{}, false
}

func (w *world) dealKeys() (keys []string) {
	for _, ev := range w.events() {
		if !slices.Contains(keys, ev.DealKey) {
			keys = append(keys, ev.DealKey)
		}
	}
	return append(keys, "host/a", "host/b")
}

// wrong says what does not hold, whatever the scenario is about: that every event has ended, that nothing is unfinished but
// what the scenario says, that no enquiry has a second lead, and that every lead is known.
func (w *world) wrong(want sectioned) (list []string) {
	expected := func(section, what string) bool {
		return slices.ContainsFunc(want[section], func(s string) bool {
			_, rest, _ := strings.Cut(s, " ")
			return rest == what || strings.HasPrefix(rest, what+":")
		})
	}
	for _, ev := range w.events() {
		switch ev.State {
		case store.EventPlanned, store.EventIgnored, store.EventStale:
		default:
			if !expected("events", string(ev.State)) {
				list = append(list, fmt.Sprintf("event %s %s is %s: %s", ev.Kind, ev.UpdateID, ev.State, ev.Reason))
			}
		}
	}
	known := map[string]bool{}
	for _, op := range w.operations() {
		if op.Kind == string(crm.KindCreate) {
			known[op.ID] = true
			if n := w.sim.Created(op.ID); n > 1 {
				list = append(list, fmt.Sprintf("%d leads of one enquiry", n))
			}
		}
		if op.State != store.Done && op.State != store.Canceled && !expected("operations", op.Kind+" "+string(op.State)) {
			list = append(list, fmt.Sprintf("%s is %s: %s", op.Kind, op.State, op.Reason))
		}
	}
	for _, r := range w.sim.Leads() {
		if !known[r.OpID] && r.OpID != "before" {
			list = append(list, fmt.Sprintf("lead %q is nobody's", titled(r)))
		}
		for _, s := range []string{"://", "api.telegram"} {
			if raw, _ := json.Marshal(r); strings.Contains(string(raw), s) {
				list = append(list, "a URL has reached the CRM: "+string(raw))
			}
		}
	}
	return list
}

// failing says what is wrong about a run's outcome, if that is none of those that may be.
func (w *world) failing(variant string) string {
	got, all := w.outcome(variant == "crashed"), ""
	for _, want := range w.sc.expected(variant) {
		why := differs(want, got)
		for _, s := range w.wrong(want) {
			why += "\n" + s
		}
		if why == "" {
			return ""
		}
		all = why // the last is what is expected of every run
	}
	return all
}

// differs compares the sections that are expected. A section that is only a number counts.
func differs(want, got sectioned) string {
	var b strings.Builder
	for _, section := range sections {
		lines, ok := want[section]
		if !ok {
			continue
		}
		have := got[section]
		if len(lines) == 1 {
			if n, err := strconv.Atoi(lines[0]); err == nil {
				if total(section, have) == n {
					continue
				}
				have = append(have, fmt.Sprintf("(%d of them)", total(section, have)))
			}
		}
		if !slices.Equal(slices.Sorted(slices.Values(lines)), slices.Sorted(slices.Values(have))) || !nested(lines, have) {
			fmt.Fprintf(&b, "\n%s:\n", section)
			for _, l := range have {
				fmt.Fprintf(&b, "  %s\n", strings.Replace(l, "  ", "    ", 1))
			}
			fmt.Fprintf(&b, " want\n")
			for _, l := range lines {
				fmt.Fprintf(&b, "  %s\n", strings.Replace(l, "  ", "    ", 1))
			}
		}
	}
	return b.String()
}

// total counts what a section tells of: its heads, or the sum of its counts.
func total(section string, lines []string) (n int) {
	for _, l := range lines {
		first, _, _ := strings.Cut(l, " ")
		switch count, err := strconv.Atoi(first); {
		case strings.HasPrefix(l, " "):
		case err == nil && (section == "events" || section == "operations"):
			n += count
		default:
			n++
		}
	}
	return n
}

// nested reports whether the same things stand under the same heads.
func nested(a, b []string) bool {
	under := func(list []string) (out []string) {
		head := ""
		for _, l := range list {
			if !strings.HasPrefix(l, " ") {
				head = l
			}
			out = append(out, head+l)
		}
		slices.Sort(out)
		return out
	}
	return slices.Equal(under(a), under(b))
}
