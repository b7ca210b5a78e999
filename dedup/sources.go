package dedup

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"

	"github.com/leadonce/leadonce/store"
)

// sources.go: one door for bots that come and go.

// MiddlewareFor is Middleware for any number of sources behind one handler: bots that stand in a registry of the host's and
// come and go while the process runs. For a fixed handful use Middleware and a mux.
//
// find returns the source of a request (by its path, as a rule: r.PathValue) and the handler that gets the delivery after the
// commit, which may be nil.
//
//   - A nil Source: the request is answered 404, no row, and one log line a minute for all of them.
//   - An error: 503 with Retry-After, so that the sender repeats; the log has its text, without URLs. So it is if find panics,
//     or has not returned within AcceptTimeout: its context ends then, and it is left behind.
//
// It is called for every POST, genuine or not, before anything of it is read or believed, so it should be quick: keep the
// bots in memory, or the answers of your database for a while. The request that it gets has no body. Calls run side by side,
// InFlight at most, those left behind included; what comes beyond waits for its turn as long as a call may take. find may
// make a Source anew each time. A Source authenticates its own requests: that of bot A refuses one with the secret of bot B
// (401).
//
// The options and everything else are as with Middleware, and the limits count over all sources. But one bot (the account of
// an AccountSource; other sources count by their Go type) holds at most three quarters of the InFlight places, so that its
// flood, or its handler that hangs, leaves some to the others. Each bot's account is checked with its first deliveries as if
// AddAccount were set: a bot that the database does not know is a further one, and one that it knows under another tenant is
// refused.
//
// A nil store, a nil find and a negative setting are a programmer's bugs: MiddlewareFor panics.
func MiddlewareFor(st store.Store, find func(r *http.Request) (Source, http.Handler, error), o *MiddlewareOptions) http.Handler {
	d := newDoor("MiddlewareFor", st, o, true)
	if find == nil {
		panic("dedup.MiddlewareFor: find is nil: give it the func that tells the source of a request")
	}
	f := registry{door: d, find: find, rooms: make(chan struct{}, d.o.InFlight)}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, f.lookUp) })
}

var (
	errUnknown  = errors.New("there is no such source")
	errFindLate = errors.New("find did not return in time")
	errFind     = errors.New("find panicked")
)

// registry asks the host whose a request is.
type registry struct {
	door  *door
	find  func(r *http.Request) (Source, http.Handler, error)
	rooms chan struct{} // one for every call of find
}

type found struct {
	src  Source
	next http.Handler
	err  error
}

func (f registry) lookUp(r *http.Request) (origin, http.Handler, error) {
	nobody := origin{log: f.door.o.Logger}
	ctx, cancel := context.WithTimeout(r.Context(), f.door.o.AcceptTimeout)
	defer cancel()
	got, err := f.ask(r.Clone(ctx)) // its own: it may be left behind with it
	if err == nil && got.err != nil {
		err = findError{got.err}
	}
	switch {
	case err != nil:
		return nobody, nil, refuse(http.StatusServiceUnavailable, err)
	case isNil(got.src):
		return nobody, nil, refuse(http.StatusNotFound, errUnknown)
	}
	return newOrigin(got.src, f.door.o.Logger), got.next, nil
}

// ask calls find, and leaves it behind when the request's context ends.
func (f registry) ask(r *http.Request) (found, error) {
	ctx := r.Context()
	r.Body, r.GetBody = http.NoBody, nil
	select {
	case f.rooms <- struct{}{}:
	case <-ctx.Done():
		return found{}, fmt.Errorf("%w: %w", errFindLate, ctx.Err())
	}
	answer := make(chan found, 1)
	go func() {
		got := found{err: errFind} // also if the goroutine is ended by runtime.Goexit
		defer func() { answer <- got }()
		defer func() { <-f.rooms }()
		defer func() {
			if v := recover(); v != nil {
				f.door.panicked(origin{log: f.door.o.Logger}, "find", v)
			}
		}()
		var x found
		x.src, x.next, x.err = f.find(r)
		x.err = readable(x.err)
		got = x
	}()
	select {
	case got := <-answer:
		return got, nil
	case <-ctx.Done():
		return found{}, fmt.Errorf("%w: %w", errFindLate, ctx.Err())
	}
}

// isNil also takes the nil of a pointer type for nobody: what a map of *telegram.Source says of an unknown key.
func isNil(src Source) bool {
	v := reflect.ValueOf(src)
	return !v.IsValid() || (v.Kind() == reflect.Pointer && v.IsNil())
}

// findError is the host's, with a text that is fit for a log.
type findError struct{ err error }

func (e findError) Error() string { return fmt.Sprintf("find: %s", scrub(e.err)) }
func (e findError) Unwrap() error { return e.err }
