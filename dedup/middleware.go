package dedup

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/store"
)

// middleware.go: the door. Authentic, read, understood, committed, and only then answered with a 2xx.

// MiddlewareOptions are the settings of Middleware. Zero values mean the defaults.
type MiddlewareOptions struct {
	MaxBody       int64         // bytes of a body; what is longer is answered 413; default 1 MiB
	InFlight      int           // bodies held while they are read and stored; beyond it 503 at once; default 256
	AcceptTimeout time.Duration // how long the store may take for one event; then 503; default 5 s
	RetryAfter    time.Duration // what a 503 asks the sender to wait, in whole seconds; default 1 s
	HeadStart     time.Duration // how long an event is left to the accepting process; default 2 s
	InnerTimeout  time.Duration // how long the wrapped handler may take before it is left behind; default 10 s
	MaxReply      int64         // bytes that the wrapped handler may answer; what is longer is dropped; default 1 MiB

	// ForwardDuplicates calls the wrapped handler for every authentic delivery. Without it the handler is called once for each
	// event in the life of this process: by the request that stored it, or else by the first delivery that finds it stored. So
	// what a process stored and died before it called the handler is called for by the next one, when the sender repeats;
	// a handler may see an update twice over a crash or in two processes, as without the middleware, and misses none.
	ForwardDuplicates bool

	// AddAccount says that the source's bot is a further one beside those that the database knows for its tenant. Without it
	// an unknown bot is refused (503) as long as CheckAccounts would refuse it alone; a process with several bots calls
	// CheckAccounts with all of them at start instead. A bot that is known under another tenant is refused in any case.
	// MiddlewareFor takes it as set.
	AddAccount bool

	// OnDelivery is called after each answer, in the request's goroutine: for metrics. It must not block.
	OnDelivery func(Delivery)
	Logger     *slog.Logger // default slog.Default(); it never sees a payload, a header or a URL
}

// Delivery is what became of one request at the door.
type Delivery struct {
	// Status is what was answered: 200 stored (now or before) · 400 cut short · 401 not authentic · 404 no such source
	// (MiddlewareFor) · 405 not a POST · 413 too long · 503 not stored, to be repeated.
	Status int
	// Source, Bot, UpdateID and Kind are those of the event; empty if there is none.
	Source, Bot, UpdateID, Kind string
	Quarantined                 bool          // authentic, and not understood
	Receipt                     store.Receipt // of a stored event
	Inner                       InnerResult   // what the wrapped handler did
	Took                        time.Duration // until it was stored or refused; the wrapped handler comes after
	Err                         error         // why it is not 200
}

// Quarantiner is a Source that can put any body into quarantine. Middleware asks for it when Parse has panicked or returned
// what can't be stored, so that such a body is kept among the source's events; without it, it is kept under the source's
// Go type. why does not quote the body.
type Quarantiner interface {
	Quarantine(body []byte, why string) store.Event
}

// Middleware puts the store in front of a handler: a delivery is authenticated, read, parsed and committed, and answered
// with a 2xx only then. The handler comes after the commit, and nothing that it does takes the answer back. It may be nil.
//
//   - Another method than POST: 405. Not authentic: 401, before anything is read; no row, and one log line a
//     minute, without anything of the request.
//   - Longer than MaxBody: 413, before it is read where the length is announced. Cut short: 400, no row.
//   - Not stored, for whatever reason, or InFlight bodies are held already: 503 with Retry-After; no row that is known of.
//   - The source's bot or tenant is not what the database knows (CheckAccounts): 503 and an error in the log each minute. The
//     sender repeats, so that nothing is lost until the configuration is mended. It is looked at with the first deliveries,
//     until it was right once.
//   - Stored, now or before: 200. An authentic body that nobody understands is stored in quarantine: the sender would
//     repeat it until the end and hold back what comes after. The wrapped handler gets it like any other.
//
// The store is given AcceptTimeout and is not interrupted by a client that goes away: whatever it then commits is found as a
// duplicate by the next delivery. InFlight and the other limits count over all handlers that the returned func wraps. How
// slowly a sender may send is the http.Server's affair (ReadTimeout).
//
// The handler gets the request with its body restored and a context that keeps the request's values and outlives it: a bot
// library may pass it on with the update. It is canceled only when the handler itself is still running after InnerTimeout; the
// handler is then left behind, and what it still writes goes nowhere. What it answers with a 2xx within its time is passed
// on with its Content-Type (Telegram executes such a body), always with status 200; everything else is an empty 200. A
// panic is recovered, http.ErrAbortHandler too. No more than InFlight handlers run at once, those left behind included;
// beyond that the handler is skipped, never the store.
//
// A nil store or source and a negative setting are a programmer's bugs: Middleware panics.
func Middleware(st store.Store, src Source, o *MiddlewareOptions) func(http.Handler) http.Handler {
	d := newDoor("Middleware", st, o, false)
	if src == nil {
		panic("dedup.Middleware: the source is nil: make one with telegram.NewSource")
	}
	from := newOrigin(src, d.o.Logger)
	return func(next http.Handler) http.Handler {
		find := func(*http.Request) (origin, http.Handler, error) { return from, next, nil }
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { d.serve(w, r, find) })
	}
}

type door struct {
	entry  entry
	o      MiddlewareOptions
	intake *slots[store.Account] // a place for every body that is held until it is stored
	rooms  *slots[store.Account] // one for every wrapped handler that runs

	handed handed // the events that the wrapped handler was called for

	loud    throttle  // refusals come by the thousand
	broken  throttle  // panics that anybody may cause
	unknown throttle  // and whoever finds the address may send what is not ours
	forged  throttles // or forgeries, to any bot
	wrong   throttles // a changed account is one mistake, however many deliveries meet it
}

// newDoor is that of name, for one source or for many.
func newDoor(name string, st store.Store, o *MiddlewareOptions, many bool) *door {
	var v MiddlewareOptions
	if o != nil {
		v = *o
	}
	bug := func(bad bool, format string, args ...any) {
		if bad {
			panic("dedup." + name + ": " + fmt.Sprintf(format, args...))
		}
	}
	bug(st == nil, "the store is nil: open one with sqlite.Open")
	bug(v.MaxBody < 0 || v.MaxBody > math.MaxInt32,
		"MiddlewareOptions.MaxBody is %d, must be 1 to 2^31-1 bytes, or 0 for 1 MiB", v.MaxBody)
	bug(v.MaxReply < 0, "MiddlewareOptions.MaxReply is %d, must not be negative", v.MaxReply)
	bug(v.InFlight < 0 || v.InFlight > 1e6, "MiddlewareOptions.InFlight is %d, must be 1 to 1000000, or 0 for 256", v.InFlight)
	for name, t := range map[string]time.Duration{"AcceptTimeout": v.AcceptTimeout, "RetryAfter": v.RetryAfter, "HeadStart": v.HeadStart,
		"InnerTimeout": v.InnerTimeout} {
		bug(t < 0, "MiddlewareOptions.%s is %v, must not be negative", name, t)
	}
	bug(v.HeadStart > time.Minute, "MiddlewareOptions.HeadStart is %v, must be at most 1m: nobody else plans the event before", v.HeadStart)
	v.MaxBody = cmp.Or(v.MaxBody, 1<<20)
	v.MaxReply = cmp.Or(v.MaxReply, 1<<20)
	v.InFlight = cmp.Or(v.InFlight, 256)
	v.AcceptTimeout = cmp.Or(v.AcceptTimeout, 5*time.Second)
	v.RetryAfter = cmp.Or(v.RetryAfter, time.Second)
	v.HeadStart = cmp.Or(v.HeadStart, 2*time.Second)
	v.InnerTimeout = cmp.Or(v.InnerTimeout, 10*time.Second)
	v.Logger = cmp.Or(v.Logger, slog.Default())
	return &door{o: v, intake: newSlots[store.Account](v.InFlight, many), rooms: newSlots[store.Account](v.InFlight, many),
		entry: entry{st: st, timeout: v.AcceptTimeout, headStart: v.HeadStart, accounts: newAccountCheck(v.AddAccount || many, many)}}
}

// refusal is why a delivery is not stored, and what is answered.
type refusal struct {
	status int
	err    error
}

func (e *refusal) Error() string { return e.err.Error() }
func (e *refusal) Unwrap() error { return e.err }

func refuse(status int, err error) error { return &refusal{status, err} }

// outcome sets what is answered to a delivery that came to err.
func (x *Delivery) outcome(err error) {
	var no *refusal
	switch {
	case err == nil:
		x.Status = http.StatusOK
	case errors.As(err, &no):
		x.Status, x.Err = no.status, no.err
	default:
		x.Status, x.Err = http.StatusServiceUnavailable, err
	}
}

var (
	errMethod    = errors.New("only POST is taken")
	errSaturated = errors.New("as many bodies as allowed are held already")
	errTooLong   = errors.New("the body is too long")
)

func (d *door) serve(w http.ResponseWriter, r *http.Request, find finder) {
	began := time.Now()
	var x Delivery
	var body []byte
	from, next, err := d.admit(r, find)
	if err == nil {
		body, err = d.take(w, r, from, &x)
	}
	x.Took = time.Since(began)
	x.outcome(err)
	var reply *innerReply
	if err == nil && next != nil && (d.handed.first(x.Receipt) || d.o.ForwardDuplicates) {
		x.Inner, reply = d.forward(r, from, body, next, x)
	}
	d.answer(w, x.Status, reply)
	d.log(from, x)
	if d.o.OnDelivery != nil {
		guard(d.o.Logger, func() { d.o.OnDelivery(x) })
	}
}

// finder tells whose request it is, and who gets it after the commit.
type finder func(r *http.Request) (origin, http.Handler, error)

// admit is what comes before anything of a request is believed or read.
func (d *door) admit(r *http.Request, find finder) (origin, http.Handler, error) {
	if r.Method != http.MethodPost {
		return origin{log: d.o.Logger}, nil, refuse(http.StatusMethodNotAllowed, errMethod)
	}
	return find(r)
}

// take brings a request to its commit and returns its body.
func (d *door) take(w http.ResponseWriter, r *http.Request, from origin, x *Delivery) (_ []byte, err error) {
	in := &body{door: d, who: from.account, w: w, r: r}
	defer in.release()
	defer func() {
		if v := recover(); v != nil {
			d.panicked(from, "source", v)
			err = refuse(http.StatusServiceUnavailable, errBadSource)
		}
	}()
	err = from.Authenticate(r, in.read)
	switch {
	case in.err != nil:
		return nil, in.err
	case errors.Is(err, ErrUnauthentic):
		return nil, refuse(http.StatusUnauthorized, ErrUnauthentic)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, err)
	}
	raw, err := in.read()
	if err != nil {
		return nil, err
	}
	e, err := from.parse(raw)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, ErrIncomplete)
	}
	return raw, d.entry.accept(r.Context(), from, e, raw, x)
}

// answer writes the status, and the wrapped handler's reply if there is one.
func (d *door) answer(w http.ResponseWriter, status int, reply *innerReply) {
	h := w.Header()
	switch status {
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(int((d.o.RetryAfter+time.Second-1)/time.Second)))
	}
	var out []byte
	if reply != nil {
		out = reply.buf.Bytes()
		if t, ok := reply.header["Content-Type"]; ok && len(out) > 0 {
			h["Content-Type"] = t
		}
	}
	h.Set("Content-Length", strconv.Itoa(len(out)))
	w.WriteHeader(status)
	_, _ = w.Write(out) // whoever is gone by now will deliver again, and find a duplicate
}

// body is the body of one request: read at most once, and holding a place from then on.
type body struct {
	door *door
	who  store.Account
	w    http.ResponseWriter
	r    *http.Request
	done bool
	held bool
	raw  []byte
	err  error
}

// read is what a Source gets.
func (b *body) read() ([]byte, error) {
	if !b.done {
		b.done = true
		b.raw, b.err = b.load()
	}
	return b.raw, b.err
}

func (b *body) load() ([]byte, error) {
	limit, announced := b.door.o.MaxBody, b.r.ContentLength
	if announced > limit {
		return nil, refuse(http.StatusRequestEntityTooLarge,
			fmt.Errorf("%d bytes are announced, %d allowed: %w", announced, limit, errTooLong))
	}
	if b.door.intake.take(b.who, 1) == 0 {
		return nil, refuse(http.StatusServiceUnavailable, errSaturated)
	}
	b.held = true
	if b.r.Body == nil {
		b.r.Body = http.NoBody
	}
	buf := bytes.NewBuffer(make([]byte, 0, max(announced, 0)+bytes.MinRead))
	_, err := buf.ReadFrom(http.MaxBytesReader(b.w, b.r.Body, limit))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, refuse(http.StatusRequestEntityTooLarge, fmt.Errorf("more than %d bytes: %w", limit, errTooLong))
	case err != nil:
		return nil, refuse(http.StatusBadRequest, fmt.Errorf("%w after %d bytes: %w", ErrIncomplete, buf.Len(), err))
	case int64(buf.Len()) < announced:
		return nil, refuse(http.StatusBadRequest, fmt.Errorf("%w: %d of %d bytes", ErrIncomplete, buf.Len(), announced))
	}
	return buf.Bytes(), nil
}

func (b *body) release() {
	if b.held {
		b.held = false
		b.door.intake.give(b.who, 1)
	}
}
