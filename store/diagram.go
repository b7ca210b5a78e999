package store

import (
	"fmt"
	"slices"
	"strings"
)

// diagram.go: the table as a picture.

// Diagram returns the state machine as a Mermaid state diagram, one arrow for each pair of states. It is made from the table
// that [Next] reads, and is the same every time: the README's copy of it is compared with it.
func Diagram() string {
	type arrow struct{ from, to State }
	labels := map[arrow][]string{}
	for _, t := range table {
		a := arrow{t.from, t.to}
		labels[a] = append(labels[a], t.label())
	}
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> pending\n")
	for _, from := range States() {
		for _, to := range States() {
			if l := labels[arrow{from, to}]; len(l) > 0 {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", from, to, strings.Join(l, ", "))
			}
		}
	}
	b.WriteString("    done --> [*]\n    canceled --> [*]\n")
	return b.String()
}

// label names the trigger, and the doubt where the same trigger leads elsewhere with another one.
func (t transition) label() string {
	forks := slices.ContainsFunc(table, func(u transition) bool {
		return u.on == t.on && u.from == t.from && u.to != t.to
	})
	switch {
	case forks && t.if_ == doubted:
		return string(t.on) + " with doubt"
	case forks && t.if_ == clean:
		return string(t.on) + " without doubt"
	}
	return string(t.on)
}
