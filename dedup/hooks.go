package dedup

import (
	"context"
	"log/slog"
	"time"
)

// hooks.go: the host's code, kept at arm's length: a panic is recovered, a hang is left behind.

// hookRoom is how many hook calls may be under way; what comes beyond is dropped, counted and logged.
const hookRoom = 64

type hooks struct {
	log     *slog.Logger
	timeout time.Duration
	room    chan struct{}
	calls   inflight
	lost    func(hook string)
}

// call runs f in the background with the hooks' deadline.
func (h *hooks) call(name string, f func(context.Context, Outcome), o Outcome) {
	if f == nil {
		return
	}
	select {
	case h.room <- struct{}{}:
	default:
		h.drop(name, o, "too many hook calls are under way")
		return
	}
	h.calls.run(func() {
		ctx, cancel := context.WithTimeout(context.Background(), h.timeout)
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer func() { <-h.room }()
			defer close(done)
			defer func() {
				if recover() != nil {
					h.drop(name, o, "it panicked")
				}
			}()
			f(ctx, o)
		}()
		select {
		case <-done:
		case <-ctx.Done():
			select {
			case <-done:
			case <-time.After(h.timeout / 10):
				h.drop(name, o, "it ran past its time")
			}
		}
	})
}

func (h *hooks) drop(name string, o Outcome, why string) {
	h.log.Warn("leadonce: a hook did not finish", "hook", name, "why", why, "operation", o.OperationID, "event", o.EventID)
	h.lost(name)
}

// guard runs one of the observer's funcs: a panic there must not cost a lead.
func guard(log *slog.Logger, f func()) {
	defer func() {
		if recover() != nil {
			log.Error("leadonce: an Observer func panicked")
		}
	}()
	f()
}
