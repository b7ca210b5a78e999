package dedup

import (
	"errors"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store"
)

// middleware_log.go: what the door says to whoever runs it. Nothing of what came in.

// log says what somebody has to know. It never quotes what came in.
func (d *door) log(from origin, x Delivery) {
	now := time.Now()
	switch {
	case x.Status == http.StatusMethodNotAllowed:
	case x.Status == http.StatusNotFound:
		if ok, held := d.unknown.allow(now, time.Minute); ok {
			from.logger().Warn("leadonce: a request for a bot that is not known was refused", "like_it_since_the_last_line", held)
		}
	case x.Status == http.StatusUnauthorized:
		if ok, held := d.forged.allow(from.account, now, time.Minute); ok {
			from.logger().Warn("leadonce: a request without a valid secret was refused; if nothing else arrives, compare its secret "+
				"with the one that was given to the sender", "like_it_since_the_last_line", held)
		}
	case errors.Is(x.Err, ErrAccountChanged):
		if ok, held := d.wrong.allow(from.account, now, time.Minute); ok {
			from.logger().Error("leadonce: every delivery is refused and will be repeated by its sender, until this is mended",
				"error", x.Err, "like_it_since_the_last_line", held)
		}
	case x.Status != http.StatusOK:
		if ok, held := d.loud.allow(now, time.Second); ok {
			args := []any{"status", x.Status, "bot", x.Bot, "update", x.UpdateID, "like_it_since_the_last_line", held}
			if x.Status == http.StatusServiceUnavailable || errors.Is(x.Err, errTooLong) {
				args = append(args, "error", x.Err)
			} else {
				args = append(args, "error", "the body was cut short or can't be read")
			}
			from.logger().Error("leadonce: a delivery was refused; its sender has to repeat it", args...)
		}
	default:
		from.kept(x)
	}
}

// panicked tells of a panic that anybody may have caused, once a second.
func (d *door) panicked(from origin, who string, v any) {
	if ok, _ := d.broken.allow(time.Now(), time.Second); ok {
		from.panicked(who, v)
	}
}

// throttles are one for each account, as long as there are not too many: then those that are left share one.
type throttles struct {
	mu   sync.Mutex
	each map[store.Account]*throttle
	rest throttle
}

// maxThrottles is how many accounts may have a line of their own at one time.
const maxThrottles = 64

func (t *throttles) allow(who store.Account, now time.Time, every time.Duration) (ok bool, held int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.each[who]
	if one == nil && len(t.each) >= maxThrottles {
		maps.DeleteFunc(t.each, func(_ store.Account, old *throttle) bool { return old.over(now) })
	}
	switch {
	case one != nil:
	case len(t.each) >= maxThrottles:
		one = &t.rest
	default:
		if t.each == nil {
			t.each = map[store.Account]*throttle{}
		}
		one = &throttle{}
		t.each[who] = one
	}
	return one.allow(now, every)
}

// throttle lets one line through now and then, and counts the others.
type throttle struct {
	mu   sync.Mutex
	next time.Time
	held int
}

func (t *throttle) allow(now time.Time, every time.Duration) (ok bool, held int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		t.held++
		return false, 0
	}
	held, t.held, t.next = t.held, 0, now.Add(every)
	return true, held
}

// over reports whether it holds nothing back any more.
func (t *throttle) over(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !now.Before(t.next)
}
