package dedup

import (
	"sync"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// health.go: when an adapter is paused, so that an outage does not become a queue of clicks for a person.

// lostInRow is how many lost answers in a row pause the adapter.
const lostInRow = 3

// health decides how many operations may be begun. While paused, one probe at a time goes out, with growing waits.
type health struct {
	mu      sync.Mutex
	wait    func(n int) time.Duration
	now     func() time.Time
	lost    int // lost answers in a row
	pauses  int // pauses in a row: what the wait grows with
	paused  bool
	probing bool
	next    time.Time // when the next probe may go
	checked bool      // the adapter's Check has answered: the next probe is an operation
	changed func(paused bool, reason string, next time.Duration)
}

// allow returns how many of n may be begun now, and whether that one is a probe. Whoever gets a probe must call settle or
// unused.
func (h *health) allow(n int) (int, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.paused:
		return n, false
	case h.probing || n == 0 || h.now().Before(h.next):
		return 0, false
	}
	h.probing = true
	return 1, true
}

// toCheck reports whether the probe that was granted shall be the adapter's Check rather than an operation.
func (h *health) toCheck() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.checked
}

// checkedFine ends a probe by Check: the next one may go at once, and is an operation.
func (h *health) checkedFine() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing, h.checked, h.next = false, true, h.now()
}

// unused gives a probe back that found nothing to do.
func (h *health) unused() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
}

// isPaused tells a worker that has not called yet to leave it.
func (h *health) isPaused() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.paused
}

// settle takes note of a call's outcome. answered means that the CRM spoke for this operation (done or refused), which ends
// a pause; a call that certainly was not applied says nothing either way.
func (h *health) settle(probe, answered bool, o crm.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if probe {
		h.probing = false
	}
	switch {
	case answered:
		h.lost, h.pauses = 0, 0
		if h.paused {
			h.paused = false
			h.changed(false, "", 0)
		}
	case o == crm.OutcomeUnavailable:
		h.pause(probe, "unavailable")
	case o == crm.OutcomeUnknown:
		if h.lost++; h.lost >= lostInRow {
			h.pause(probe, "answers were lost")
		}
	case probe:
		h.pause(probe, "not applied")
	}
}

// pause starts a pause, or after a probe the next wait of it.
func (h *health) pause(probe bool, reason string) {
	if h.paused && !probe {
		return // calls that were under way when it began
	}
	h.pauses++
	d := h.wait(h.pauses)
	h.paused, h.checked, h.next = true, false, h.now().Add(d)
	h.changed(true, reason, d)
}
