package dedup

import (
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// middleware_log.go: what the door says to whoever runs it. Nothing of what came in.

// log says what somebody has to know. It never quotes what came in.
func (d *door) log(x Delivery) {
	l := d.logger
	switch {
	case x.Status == http.StatusMethodNotAllowed:
	case x.Status == http.StatusUnauthorized:
		if ok, held := d.forged.allow(time.Now(), time.Minute); ok {
			l.Warn("leadonce: a request without a valid secret was refused; if nothing else arrives, compare its secret with the "+
				"one that was given to the sender", "like_it_since_the_last_line", held)
		}
	case errors.Is(x.Err, ErrAccountChanged):
		if ok, held := d.wrong.allow(time.Now(), time.Minute); ok {
			l.Error("leadonce: every delivery is refused and will be repeated by its sender, until this is mended", "error", x.Err,
				"like_it_since_the_last_line", held)
		}
	case x.Status != http.StatusOK:
		if ok, held := d.loud.allow(time.Now(), time.Second); ok {
			args := []any{"status", x.Status, "bot", x.Bot, "update", x.UpdateID, "like_it_since_the_last_line", held}
			if x.Status == http.StatusServiceUnavailable || errors.Is(x.Err, errTooLong) {
				args = append(args, "error", x.Err)
			} else {
				args = append(args, "error", "the body was cut short or can't be read")
			}
			l.Error("leadonce: a delivery was refused; its sender has to repeat it", args...)
		}
	case x.Quarantined && !x.Receipt.Duplicate:
		l.Warn("leadonce: an authentic body was not understood and is kept in quarantine", "bot", x.Bot, "event", x.Receipt.EventID)
	case x.Receipt.Reused:
		l.Warn("leadonce: the source has used an update id again for something else; both are kept", "bot", x.Bot,
			"update", x.UpdateID, "event", x.Receipt.EventID, "epoch", x.Receipt.Epoch)
	}
}

// sourceName tells a door from the others of a process: the source's account where it says that, else its type.
func sourceName(src Source) (name string) {
	name = fmt.Sprintf("%T", src)
	defer func() { _ = recover() }() // the host's code: what it says is only for the log
	if s, ok := src.(AccountSource); ok {
		a := s.Account()
		name = strings.TrimSpace(a.Source + " " + a.Bot + " " + a.Tenant)
	}
	return name
}

// panicked logs where, not what: the value may quote a payload.
func (d *door) panicked(who string, v any) {
	d.logger.Error("leadonce: a panic at the door was recovered", "in", who,
		"type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
}
