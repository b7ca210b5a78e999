package storetest

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/leadonce/leadonce/store"
)

// history.go: what the goroutines of a run were told, and whether it can all be true.

// history collects answers. Its methods may be called by any number of goroutines; the judge* ones when they are done.
type history struct {
	mu       sync.Mutex
	problems []string
	fresh    map[string]int              // event content → how many calls say that they stored it
	rows     map[string]int64            // event content → the row that the calls were told
	plans    map[int64]int               // event → how many committed plans ended it
	owners   map[string]string           // operation and fence → owner
	seen     map[string]map[int64]moment // operation → version → what was returned
}

// moment is an operation at one version, and the triggers that are said to have brought it there.
type moment struct {
	state store.State
	doubt bool
	fence int64
	by    []store.Trigger
}

func (h *history) problem(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

func (h *history) check(err error) {
	if err != nil {
		h.problem("%v", err)
	}
}

func (h *history) accepted(e store.Event, r store.Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rows == nil {
		h.rows, h.fresh = map[string]int64{}, map[string]int{}
	}
	key := e.UpdateID + " " + e.Hash
	if id, ok := h.rows[key]; ok && id != r.EventID {
		h.problems = append(h.problems, fmt.Sprintf("%s is the events %d and %d", key, id, r.EventID))
	}
	h.rows[key] = r.EventID
	if !r.Duplicate {
		h.fresh[key]++
	}
}

func (h *history) planned(p store.Plan) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plans == nil {
		h.plans = map[int64]int{}
	}
	for _, e := range p.Events {
		h.plans[e.ID]++
	}
}

// began writes down a claim.
func (h *history) began(o store.Operation, owner string) {
	on := store.Begin
	if o.Doubt {
		on = store.Repeat
		if !o.LastSentAt.Add(lease + quiet).Before(o.FirstSentAt.Add(o.Window)) {
			h.problem("%s was repeated at %s, its window began at %s", o.ID, o.LastSentAt, o.FirstSentAt)
		}
	}
	if o.State != store.Sending || o.Owner != owner || o.Blocked {
		h.problem("%s was claimed by %s and is %s of %q, blocked %v", o.ID, owner, o.State, o.Owner, o.Blocked)
	}
	h.moved(o, on)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owners == nil {
		h.owners = map[string]string{}
	}
	key := fmt.Sprint(o.ID, " fence ", o.Fence)
	if other, ok := h.owners[key]; ok {
		h.problems = append(h.problems, fmt.Sprintf("%s is owned by %s and %s", key, other, owner))
	}
	h.owners[key] = owner
}

// moved writes down an operation as it was returned; on is empty for one that was only read.
func (h *history) moved(o store.Operation, on store.Trigger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == nil {
		h.seen = map[string]map[int64]moment{}
	}
	if h.seen[o.ID] == nil {
		h.seen[o.ID] = map[int64]moment{}
	}
	m, ok := h.seen[o.ID][o.Version]
	if ok && (m.state != o.State || m.doubt != o.Doubt || m.fence != o.Fence) {
		h.problems = append(h.problems, fmt.Sprintf("%s version %d is %s doubt=%v fence %d and %s doubt=%v fence %d",
			o.ID, o.Version, m.state, m.doubt, m.fence, o.State, o.Doubt, o.Fence))
	}
	m.state, m.doubt, m.fence = o.State, o.Doubt, o.Fence
	if on != "" {
		m.by = append(m.by, on)
	}
	h.seen[o.ID][o.Version] = m
}

func (h *history) judgeEvents(rows []store.EventRow) {
	stored := map[string]int64{}
	for _, r := range rows {
		stored[r.UpdateID+" "+r.Hash] = r.ID
		if n := h.plans[r.ID]; n != 1 {
			h.problem("event %d was ended by %d plans", r.ID, n)
		}
	}
	if len(stored) != len(rows) || len(stored) != len(h.rows) {
		h.problem("%d rows of %d events, %d were accepted", len(rows), len(stored), len(h.rows))
	}
	for key, id := range h.rows {
		if h.fresh[key] != 1 || stored[key] != id {
			h.problem("%s: %d calls stored it, row %d, they were told %d", key, h.fresh[key], stored[key], id)
		}
	}
}

// judgeOperation follows an operation from version to version and asks the machine whether each step can be.
func (h *history) judgeOperation(o store.Operation) {
	at := pair{store.Pending, false}
	fence := int64(0)
	for _, version := range slices.Sorted(maps.Keys(h.seen[o.ID])) {
		m := h.seen[o.ID][version]
		to := pair{m.state, m.doubt}
		if m.fence < fence {
			h.problem("%s version %d: fence %d after %d", o.ID, version, m.fence, fence)
		}
		if !possible(at, to, m.by, o.DependsOn != "") {
			h.problem("%s version %d: from %v to %v by %v", o.ID, version, at, to, m.by)
		}
		at, fence = to, m.fence
	}
}

// pair is a state and its doubt.
type pair struct {
	state store.State
	doubt bool
}

// possible reports whether one of the triggers leads from one place to another. What waits for a create may have been
// dropped by its cancel in between, without an answer of its own; without a trigger nothing else may have happened.
func possible(from, to pair, by []store.Trigger, waits bool) bool {
	starts := []pair{from}
	if waits {
		if s, d, err := store.Next(from.state, from.doubt, store.Drop); err == nil {
			starts = append(starts, pair{s, d})
		}
	}
	for _, p := range starts {
		if len(by) == 0 && p == to {
			return true
		}
		for _, on := range by {
			if s, d, err := store.Next(p.state, p.doubt, on); err == nil && (pair{s, d}) == to {
				return true
			}
		}
	}
	return false
}
