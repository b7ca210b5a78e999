package store

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine_test.go: every (state, doubt, trigger) against a golden matrix, and what the table must never allow. The golden
// file shows what the table says; the properties say why it may not say otherwise.

var update = flag.Bool("update", false, "rewrite testdata/machine.txt and the diagram in README.md")

// pair is a node of the graph.
type pair struct {
	state State
	doubt bool
}

func (p pair) String() string {
	if p.doubt {
		return string(p.state) + "?"
	}
	return string(p.state)
}

// pairs lists every node, also those that nothing leads to.
func pairs() (all []pair) {
	for _, s := range States() {
		all = append(all, pair{s, false}, pair{s, true})
	}
	return all
}

// edge is a move that Next allows.
type edge struct {
	from pair
	on   Trigger
	to   pair
}

// edges lists every move, from unreachable nodes too.
func edges() (all []edge) {
	for _, p := range pairs() {
		for _, on := range Triggers() {
			if s, d, err := Next(p.state, p.doubt, on); err == nil {
				all = append(all, edge{p, on, pair{s, d}})
			}
		}
	}
	return all
}

// reach returns every node that can be come to from start by triggers that pass allows, with one shortest way to each.
func reach(start pair, pass func(edge) bool) map[pair][]Trigger {
	ways := map[pair][]Trigger{start: {}}
	for queue := []pair{start}; len(queue) > 0; queue = queue[1:] {
		for _, e := range edges() {
			if _, known := ways[e.to]; e.from == queue[0] && !known && pass(e) {
				ways[e.to] = append(append([]Trigger{}, ways[e.from]...), e.on)
				queue = append(queue, e.to)
			}
		}
	}
	return ways
}

func anyMove(edge) bool { return true }

var born = pair{Pending, false}

// short names the columns of the matrix.
var short = map[State]string{Pending: "pend", Sending: "send", Uncertain: "unc", NeedsReconciliation: "recon",
	Done: "done", Failed: "fail", Canceled: "canc"}

// matrix writes the whole of Next as text.
func matrix() string {
	reachable := reach(born, anyMove)
	var b strings.Builder
	b.WriteString(`The state machine of an operation, as Next answers. Made by go test ./store -update;
read it before you commit it.

A column is a state, with ? where an earlier attempt may have been applied. A cell is the state and doubt after the
trigger; "." is refused. A column marked "never" can't be come to from pending by any sequence of triggers. uncertain and
needs_reconciliation are doubt themselves, so their columns with and without ? agree.

`)
	for _, s := range States() {
		fmt.Fprintf(&b, "  %-6s %s\n", short[s], s)
	}
	name := func(p pair) string { return short[p.state] + strings.TrimPrefix(p.String(), string(p.state)) }
	line := func(title string, cell func(pair) string) {
		fmt.Fprintf(&b, "%-18s", title)
		for _, p := range pairs() {
			fmt.Fprintf(&b, " %-6s", cell(p))
		}
		trimmed := strings.TrimRight(b.String(), " ")
		b.Reset()
		b.WriteString(trimmed + "\n")
	}
	b.WriteString("\n")
	line("", name)
	line("reachable", func(p pair) string {
		if _, ok := reachable[p]; ok {
			return "yes"
		}
		return "never"
	})
	for _, on := range Triggers() {
		line(string(on), func(p pair) string {
			s, d, err := Next(p.state, p.doubt, on)
			if err != nil {
				return "."
			}
			return name(pair{s, d})
		})
	}
	return b.String()
}

func TestMachine(t *testing.T) {
	const golden = "testdata/machine.txt"
	got := matrix()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatalf("%v (go test ./store -update makes it)", err)
	}
	want = bytes.ReplaceAll(want, []byte("\r\n"), []byte("\n"))
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
		t.Fatalf("the table no longer says what %s says (-golden +table):\n%s", golden, d)
	}
}

func TestMachineProperties(t *testing.T) {
	reachable := reach(born, anyMove)
	each := func(t *testing.T, f func(t *testing.T, e edge)) {
		t.Helper()
		for _, e := range edges() {
			f(t, e)
		}
	}

	t.Run("every state is come to, and every trigger and row of the table is used", func(t *testing.T) {
		for _, s := range States() {
			_, clean := reachable[pair{s, false}]
			_, doubted := reachable[pair{s, true}]
			if !clean && !doubted {
				t.Errorf("nothing leads to %s", s)
			}
		}
		used := map[Trigger]bool{}
		each(t, func(_ *testing.T, e edge) { used[e.on] = true })
		for _, on := range Triggers() {
			if !used[on] {
				t.Errorf("%s moves nothing", on)
			}
		}
		for i, row := range table {
			s, _, err := Next(row.from, row.if_ == doubted, row.on)
			if err != nil || s != row.to {
				t.Errorf("row %d (%s from %s) is shadowed by an earlier one: %s, %v", i, row.on, row.from, s, err)
			}
		}
	})

	t.Run("evidence is taken in every state and settles it", func(t *testing.T) {
		for _, p := range pairs() {
			s, d, err := Next(p.state, p.doubt, Confirmed)
			if err != nil || s != Done || d {
				t.Errorf("confirmed from %s gives %s doubt=%v, %v", p, s, d, err)
			}
		}
	})

	t.Run("after an unknown outcome no create leaves except by absence or a person", func(t *testing.T) {
		// Whatever happens from doubt, only proof of absence (found by a look-up, or said by a person) leads to a fresh
		// send. A Repeat is not fresh: the store takes it only inside the window of the CRM's own guarantee.
		notAbsent := func(e edge) bool { return e.on != Absent }
		for p := range reachable {
			if !p.doubt {
				continue
			}
			ways := reach(p, notAbsent)
			if way, ok := ways[born]; ok {
				t.Errorf("from %s back to pending without proof of absence: %v", p, way)
			}
			for q, way := range ways {
				if _, _, err := Next(q.state, q.doubt, Begin); err == nil {
					t.Errorf("from %s a fresh attempt without proof of absence: %v, begin", p, way)
				}
			}
		}
	})

	t.Run("doubt ends by Confirmed and Absent alone", func(t *testing.T) {
		each(t, func(t *testing.T, e edge) {
			if e.from.doubt && !e.to.doubt && e.on != Confirmed && e.on != Absent {
				t.Errorf("%s forgets the doubt of %s: %s", e.on, e.from, e.to)
			}
		})
	})

	t.Run("no doubt is ever fresh, failed or done", func(t *testing.T) {
		// pending and failed say "certainly not in the CRM", done says "in it": none of them can be in doubt.
		for _, p := range []pair{{Pending, true}, {Failed, true}, {Done, true}} {
			if way, ok := reachable[p]; ok {
				t.Errorf("%s is come to by %v", p, way)
			}
		}
	})

	t.Run("the two states of doubt always say so", func(t *testing.T) {
		each(t, func(t *testing.T, e edge) {
			if (e.to.state == Uncertain || e.to.state == NeedsReconciliation) && !e.to.doubt {
				t.Errorf("%s from %s gives %s without doubt", e.on, e.from, e.to)
			}
		})
	})

	t.Run("a restored backup is certain only of what it knows to be done", func(t *testing.T) {
		for p := range reachable {
			s, d, err := Next(p.state, p.doubt, Restored)
			if p.state == Done {
				if err == nil {
					t.Errorf("restored moves done to %s", s)
				}
			} else if err != nil || !d {
				t.Errorf("restored from %s gives %s doubt=%v, %v", p, s, d, err)
			}
		}
	})

	t.Run("only a Lost attempt and a restored backup begin doubt", func(t *testing.T) {
		each(t, func(t *testing.T, e edge) {
			own := e.from.state == Uncertain || e.from.state == NeedsReconciliation
			if !e.from.doubt && !own && e.to.doubt && e.on != Lost && e.on != LostRepeatable && e.on != Restored {
				t.Errorf("%s from %s begins doubt", e.on, e.from)
			}
		})
	})

	t.Run("a refusal of this attempt says nothing about an earlier one", func(t *testing.T) {
		for _, c := range []struct {
			on    Trigger
			never State
			want  State
		}{{NotApplied, Pending, Uncertain}, {Rejected, Failed, NeedsReconciliation}} {
			s, d, err := Next(Sending, true, c.on)
			if err != nil || s == c.never || s != c.want || !d {
				t.Errorf("%s with doubt gives %s doubt=%v, %v", c.on, s, d, err)
			}
		}
	})

	t.Run("only these lead to a state that acts or ends", func(t *testing.T) {
		allowed := map[State]string{
			Pending:  "not_applied absent reopen",
			Sending:  "begin repeat",
			Done:     "confirmed correct acknowledge",
			Failed:   "rejected",
			Canceled: "drop cancel restored",
		}
		each(t, func(t *testing.T, e edge) {
			if list, ok := allowed[e.to.state]; ok && !strings.Contains(" "+list+" ", " "+string(e.on)+" ") {
				t.Errorf("%s leads from %s to %s", e.on, e.from, e.to)
			}
		})
	})

	t.Run("a done operation never moves again", func(t *testing.T) {
		for p := range reach(pair{Done, false}, anyMove) {
			if p != (pair{Done, false}) {
				t.Errorf("done leads to %s", p)
			}
		}
	})

	t.Run("only a person takes an operation out of failed and canceled, or evidence", func(t *testing.T) {
		each(t, func(t *testing.T, e edge) {
			if (e.from.state == Failed || e.from.state == Canceled) && !e.on.Personal() && e.on != Confirmed {
				t.Errorf("%s moves %s", e.on, e.from)
			}
		})
	})

	t.Run("an unfinished operation can always be settled", func(t *testing.T) {
		for p := range reachable {
			ways := reach(p, anyMove)
			_, done := ways[pair{Done, false}]
			if !done {
				t.Errorf("%s never comes to done", p)
			}
		}
	})

	t.Run("a refused trigger is a MoveError and changes nothing", func(t *testing.T) {
		for _, p := range pairs() {
			for _, on := range append(Triggers(), "", "no such trigger") {
				s, d, err := Next(p.state, p.doubt, on)
				if err == nil {
					continue
				}
				own := p.state == Uncertain || p.state == NeedsReconciliation
				m, ok := errors.AsType[*MoveError](err)
				if !ok || m.From != p.state || m.On != on || m.Doubt != d {
					t.Errorf("%s from %s: %v", on, p, err)
				}
				if s != p.state || d != (p.doubt || own) {
					t.Errorf("%s from %s is refused and gives %s", on, p, pair{s, d})
				}
			}
		}
	})

	t.Run("an unknown state moves nowhere", func(t *testing.T) {
		for _, on := range Triggers() {
			if s, _, err := Next("paused", false, on); err == nil || s != "paused" {
				t.Errorf("%s moves an unknown state to %s, %v", on, s, err)
			}
		}
	})

	t.Run("a person's triggers are these", func(t *testing.T) {
		var got []Trigger
		for _, on := range Triggers() {
			if on.Personal() {
				got = append(got, on)
			}
		}
		if d := cmp.Diff([]Trigger{Cancel, Reopen, Restored, Correct, Acknowledge}, got); d != "" {
			t.Error(d)
		}
	})
}
