package crmtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// harness.go: calls an adapter through the proxy, and tells which of its requests create.

const (
	callTime = 5 * time.Second // the deadline of every call
	grace    = 2 * time.Second // how much later than the end of its context a call may return
	redirect = "/crmtest-redirected"
)

type harness struct {
	subject   Subject
	crm, door *Server
	proxy     *proxy
	base      string // what adapters are made for
	run       uint32 // makes this run's ids its own, for a CRM that remembers
	serial    atomic.Int64
	skipped   map[string]bool

	creating shape
	success  int // the status of a good create

	mu   sync.Mutex
	said []said
}

// said is an error that an adapter returned.
type said struct{ where, text string }

// shape is a request with the ids taken out.
type shape struct {
	method, path, body string
	shared             bool // other requests go to the same address
}

// result is what became of a call.
type result struct {
	id      string
	err     error
	took    time.Duration
	sent    []*exchange // everything that came through the proxy
	creates []*exchange // those that create
	created int
}

func newHarness(s Subject) (*harness, error) {
	h := &harness{subject: s, run: rand.Uint32(), skipped: map[string]bool{}}
	var err error
	if h.crm, err = serve(s.CRM); err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("/crmtest-secret-%08x", rand.Uint32())
	h.proxy = newProxy(h.crm.URL, prefix)
	if h.door, err = serve(h.proxy); err != nil {
		h.crm.Close()
		return nil, err
	}
	h.base = h.door.URL + prefix
	return h, nil
}

func (h *harness) close() {
	h.proxy.letGo()
	h.door.Close()
	h.crm.Close()
}

func (h *harness) adapter() crm.Adapter { return h.subject.Adapter(h.base) }

// create calls CreateLead while m happens to the first creating request.
func (h *harness) create(t scope, a crm.Adapter, op crm.Op, m *mishap) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callTime)
	defer cancel()
	return h.createWithin(t, ctx, a, op, h.first(op, m))
}

func (h *harness) createWithin(t scope, ctx context.Context, a crm.Adapter, op crm.Op, s script) result {
	t.Helper()
	r := h.call(t, ctx, op.ID, s, func(ctx context.Context) (string, error) {
		return a.CreateLead(ctx, op, h.subject.Lead)
	})
	r.created = h.subject.Created(op.ID)
	return r
}

// first lets m happen to the first request that creates for op, and to no other.
func (h *harness) first(op crm.Op, m *mishap) script {
	if m == nil {
		return nil
	}
	var once atomic.Bool
	return func(x *exchange) *mishap {
		if h.createsFor(x, op.ID) && once.CompareAndSwap(false, true) {
			return m
		}
		return nil
	}
}

func always(m *mishap) script { return func(*exchange) *mishap { return m } }

// call runs f for an operation (empty: for none); it has to return soon after ctx ends.
func (h *harness) call(t scope, ctx context.Context, opID string, s script, f func(context.Context) (string, error)) result {
	t.Helper()
	type returned struct {
		id    string
		err   error
		panic any
	}
	begin := time.Now()
	mark := h.proxy.begin(opID, s)
	done := make(chan returned, 1)
	go func() {
		var r returned
		defer func() {
			r.panic = recover()
			done <- r
		}()
		r.id, r.err = f(ctx)
	}()
	var got returned
	select {
	case got = <-done:
	case <-afterEnd(ctx):
		t.Errorf("the call did not return within %v after its context ended: hand ctx on to every request that is made "+
			"(http.NewRequestWithContext), and do not sleep without watching it", grace)
		h.proxy.letGo()
		select {
		case got = <-done:
		case <-time.After(grace):
			got.err = errors.New("the call never returned")
		}
	}
	r := result{id: got.id, err: got.err, took: time.Since(begin), sent: h.proxy.end(opID, mark)}
	if got.panic != nil {
		t.Errorf("the adapter panicked: %v", got.panic)
		r.err = errors.New("the adapter panicked")
	}
	for _, x := range r.sent {
		if h.createsFor(x, opID) {
			r.creates = append(r.creates, x)
		}
	}
	h.note(t.path, r.err)
	return r
}

// afterEnd delivers once ctx has been over for the time of grace.
func afterEnd(ctx context.Context) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(c) }) })
	return c
}

func (h *harness) note(where string, err error) {
	if err == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = append(h.said, said{where, err.Error()})
}

// learn takes from a plain create which request it was that made the lead, and whether look-ups go to the same address.
func (h *harness) learn(t scope, r result, op crm.Op) {
	creating := r.sent[len(r.sent)-1]
	for _, x := range r.sent {
		if x.rose {
			creating = x
			break
		}
	}
	h.creating, h.success = shapeOf(creating), creating.answer.status
	others := r.sent
	if f, finds := h.adapter().(crm.Finder); finds {
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		found := h.call(t, ctx, op.ID, nil, func(ctx context.Context) (string, error) {
			_, err := f.FindLead(ctx, op)
			return "", err
		})
		others = append(others, found.sent...)
	}
	for _, x := range others {
		if s := shapeOf(x); x != creating && s.method == h.creating.method && s.path == h.creating.path {
			h.creating.shared = true
		}
	}
}

// creates tells whether a request creates a lead.
func (h *harness) creates(x *exchange) bool {
	if h.subject.Creates != nil {
		return h.subject.Creates(x.method, x.path, x.body)
	}
	if x.method != h.creating.method {
		return false
	}
	s := shapeOf(x)
	if h.creating.shared && s.body != h.creating.body {
		return false
	}
	return s.path == h.creating.path
}

// createsFor tells whether a request creates the lead of one operation, as far as it names any.
func (h *harness) createsFor(x *exchange, opID string) bool {
	if !h.creates(x) {
		return false
	}
	ids := h.operations(x)
	return len(ids) == 0 || slices.Contains(ids, opID)
}

// operations returns the operation ids that a request carries.
func (h *harness) operations(x *exchange) []string {
	var b strings.Builder
	fmt.Fprint(&b, x.path, " ", x.query, " ", x.header, " ", string(x.body))
	return operationID.FindAllString(b.String(), -1)
}

// operationID is how a contract's operation ids look: see harness.op.
var operationID = regexp.MustCompile(`[0-9a-f]{8}-0000-4000-8000-[0-9a-f]{12}`)

// shapeOf takes the operation ids out of a request.
func shapeOf(x *exchange) shape {
	return shape{method: x.method, path: blank(x.path), body: blank(string(x.body))}
}

func blank(s string) string { return operationID.ReplaceAllString(s, "{op}") }

// secrets looks for what must not be in a log in every error that the adapter returned.
func (h *harness) secrets(t scope) {
	needles := map[string]string{h.proxy.prefix[1:]: "the path of the base URL, which may be a secret"}
	add := func(what, v string) {
		if len(v) >= 4 {
			needles[v] = what
			needles[url.QueryEscape(v)] = what
		}
	}
	l := h.subject.Lead
	for what, v := range map[string]string{
		"Title": l.Title, "Name": l.Name, "Phone": l.Phone, "Email": l.Email, "Username": l.Username, "Text": l.Text,
	} {
		add("the lead's "+what, v)
	}
	add("the lead's Phone", digits(l.Phone))
	add("the note's Text", noteText)
	add("a phone", otherPhone)
	for _, x := range h.proxy.all() {
		for _, name := range []string{"Authorization", "X-Api-Key", "Cookie"} {
			v := x.header.Get(name)
			if _, token, two := strings.Cut(v, " "); two {
				v = token
			}
			add("the "+name+" header", v)
		}
	}
	for _, e := range h.said {
		for needle, what := range needles {
			if strings.Contains(e.text, needle) {
				t.Errorf("the error of %q carries %s: errors end in logs, so name the call and the status alone; of a "+
					"*url.Error return only its Err, and never quote an answer", e.where, what)
				break
			}
		}
	}
}

func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, s)
}

// differ says where two byte strings part, with a few bytes around it.
func differ(a, b []byte) string {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	part := func(s []byte) []byte { return s[max(0, i-20):min(len(s), i+20)] }
	if bytes.Equal(a, b) {
		return "nowhere"
	}
	return fmt.Sprintf("at byte %d: %q and %q", i, part(a), part(b))
}
