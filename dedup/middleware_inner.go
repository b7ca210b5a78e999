package dedup

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store"
)

// middleware_inner.go: the wrapped handler, kept at arm's length: whatever it does, the delivery is stored and answered 200.

// InnerResult is what the wrapped handler did with a delivery.
type InnerResult string

// The results of a wrapped handler. Everything but InnerReplied is answered with an empty 200.
const (
	InnerNone     InnerResult = ""         // not called: there is none, or it was called for this event before
	InnerReplied  InnerResult = "replied"  // a 2xx; its body was passed on
	InnerRefused  InnerResult = "refused"  // another status
	InnerDropped  InnerResult = "dropped"  // a 2xx whose body is longer than MaxReply or has a Content-Encoding
	InnerPanicked InnerResult = "panicked" // or ended its goroutine
	InnerOverdue  InnerResult = "overdue"  // left behind after InnerTimeout
	InnerSkipped  InnerResult = "skipped"  // not called: InFlight of them are running
)

// forward calls the wrapped handler with its body restored, and returns its reply if that is to be passed on.
func (d *door) forward(r *http.Request, from origin, raw []byte, next http.Handler, x Delivery) (InnerResult, *innerReply) {
	if d.rooms.take(from.account, 1) == 0 {
		from.inner(x, InnerSkipped, 0)
		return InnerSkipped, nil
	}
	reply := &innerReply{header: http.Header{}, left: d.o.MaxReply}
	// The context is left alone when the handler has returned in time: a bot library passes it on with the update and
	// works with it for as long as it likes.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	leave := func() {
		reply.close()
		cancel(context.DeadlineExceeded)
	}
	in := r.Clone(ctx) // headers of its own: it may be left behind with them
	in.Body = io.NopCloser(bytes.NewReader(raw))
	in.GetBody = nil
	in.ContentLength = int64(len(raw))
	in.TransferEncoding = nil

	done := make(chan InnerResult, 1)
	go func() {
		result := InnerPanicked // also if the goroutine is ended by runtime.Goexit
		defer func() { done <- result }()
		defer d.rooms.give(from.account, 1) // before that: the next delivery may come at once
		defer func() {
			if v := recover(); v != nil {
				from.panicked("wrapped handler", v)
			}
		}()
		next.ServeHTTP(reply, in)
		result = InnerReplied
	}()
	timer := time.NewTimer(d.o.InnerTimeout)
	defer timer.Stop()
	var result InnerResult
	select {
	case result = <-done:
		reply.close()
	case <-timer.C:
		leave()
		result = InnerOverdue
	}
	if result == InnerReplied {
		result = reply.verdict()
	}
	from.inner(x, result, reply.status)
	if result != InnerReplied {
		return result, nil
	}
	return result, reply
}

// inner logs what the wrapped handler did not do.
func (from origin) inner(x Delivery, result InnerResult, status int) {
	if result != InnerReplied {
		from.logger().Warn("leadonce: the wrapped handler's answer is not passed on; the update is stored all the same",
			"result", string(result), "status", status, "bot", x.Bot, "update", x.UpdateID, "event", x.Receipt.EventID)
	}
}

// innerReply is the ResponseWriter of the wrapped handler. Once closed it takes nothing more, and nothing in it changes.
type innerReply struct {
	header http.Header // the handler's own while it runs

	mu      sync.Mutex
	status  int
	buf     bytes.Buffer
	left    int64
	tooLong bool
	closed  bool
}

// Header returns the header that the handler may fill.
func (w *innerReply) Header() http.Header { return w.header }

// WriteHeader keeps the first final status.
func (w *innerReply) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.status == 0 && status >= 200 && !w.closed {
		w.status = status
	}
}

// Write keeps what fits. It returns http.ErrHandlerTimeout once the handler was left behind, and http.ErrContentLength for
// what does not fit.
func (w *innerReply) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return 0, http.ErrHandlerTimeout
	case int64(len(p)) > w.left:
		w.tooLong = true
		return 0, http.ErrContentLength
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.left -= int64(len(p))
	return w.buf.Write(p)
}

func (w *innerReply) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// verdict is called when the handler has returned.
func (w *innerReply) verdict() InnerResult {
	encoding := w.header.Get("Content-Encoding")
	switch {
	case w.status != 0 && w.status/100 != 2:
		return InnerRefused
	case w.tooLong, encoding != "" && encoding != "identity":
		return InnerDropped
	}
	return InnerReplied
}

// handed remembers for which events the handler was called in this process, the most recent ones: a sender that repeats for 24
// hours repeats the most recent first.
type handed struct {
	mu        sync.Mutex
	now, then map[int64]bool
}

// maxHanded is how many are remembered at least.
const maxHanded = 50_000

// first reports whether the handler is to be called for this delivery.
func (h *handed) first(r store.Receipt) bool {
	if r.EventID == 0 { // a store that does not say
		return !r.Duplicate
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now[r.EventID] || h.then[r.EventID] {
		return false
	}
	if len(h.now) >= maxHanded || h.now == nil {
		h.then, h.now = h.now, map[int64]bool{}
	}
	h.now[r.EventID] = true
	return true
}
