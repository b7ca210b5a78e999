package crmtest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// contract.go: what a user hands in, and the order in which it is examined.

// Subject is an adapter under test and the CRM that it talks to.
type Subject struct {
	// CRM is the CRM, or a stand-in for it. It is served on loopback, behind a proxy that breaks things.
	CRM http.Handler
	// Adapter makes an adapter for the CRM under baseURL, which has a path and no slash at the end. It is called many
	// times; each adapter is to be as fresh as after a restart of the process.
	Adapter func(baseURL string) crm.Adapter
	// Created counts the leads that the CRM has made for an operation id so far. It is called by several goroutines.
	Created func(opID string) int

	// What follows is optional.

	// Lead is what is created. The default has a title, a name, a phone and a text. Give one with Fields if the adapter
	// handles them specially.
	Lead crm.Lead
	// Stage is where the lead is moved if the adapter is a [crm.Stager]; the default is {To: "won"}.
	Stage crm.Stage
	// Creates tells whether a request that left the adapter is one that creates a lead. By default that is every request
	// with the method and path of the one that made the first lead; where look-ups go to the same address (GraphQL,
	// JSON-RPC), only one that also has the same body, ids aside. Set it where that is not true of the adapter.
	Creates func(method, path string, body []byte) bool
	// Foreign prepares the CRM so that creating op meets a uniqueness conflict with a record that does not carry op.ID.
	Foreign func(op crm.Op)
	// Skip gives the reason why a subtest, by the name that Contract gives it, does not apply. A reason is logged.
	Skip map[string]string
}

// Contract proves that an adapter keeps what it declares: each promise is a subtest. It starts s.CRM on loopback and puts a
// proxy in front of it that loses replies, cuts answers, redirects, hangs, and counts what the adapter really sends. A
// failure says what to change in the adapter. It takes a few seconds.
func Contract(t *testing.T, s Subject) {
	t.Helper()
	contract(testRunner{t}, s)
}

// runner is what Contract needs of a *testing.T, so that its own tests can watch a contract fail.
type runner interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Skipf(format string, args ...any)
	run(name string, f func(runner)) bool
}

type testRunner struct{ *testing.T }

func (t testRunner) run(name string, f func(runner)) bool {
	return t.Run(name, func(t *testing.T) { f(testRunner{t}) })
}

// scope is a subtest that knows where it stands.
type scope struct {
	runner
	path string
	h    *harness
}

// sub runs a subtest, unless the subject skips it.
func (t scope) sub(name string, f func(scope)) bool {
	t.Helper()
	path := name
	if t.path != "" {
		path = t.path + "/" + name
	}
	reason, skip := t.h.subject.Skip[path]
	if skip {
		t.h.skipped[path] = true
	}
	return t.run(name, func(r runner) {
		if skip {
			r.Skipf("skipped by the subject: %s", reason)
			return
		}
		f(scope{r, path, t.h})
	})
}

func contract(r runner, s Subject) {
	r.Helper()
	if s.CRM == nil || s.Adapter == nil || s.Created == nil {
		r.Fatalf("crmtest: a Subject needs CRM, Adapter and Created")
	}
	if s.Lead.Title == "" && s.Lead.Name == "" && s.Lead.Phone == "" && s.Lead.Text == "" {
		s.Lead.Title, s.Lead.Name = "Заявка из бота", "Анна Контрактова"
		s.Lead.Phone, s.Lead.Text = "+7 999 555-01-23", "Сколько стоит доставка в Казань?"
	}
	if s.Stage.To == "" {
		s.Stage = crm.Stage{To: "won"}
	}
	h, err := newHarness(s)
	if err != nil {
		r.Fatalf("%v", err)
	}
	defer h.close()
	t := scope{r, "", h}
	if !t.sub("a plain create returns an id and makes one record", h.plain) {
		r.Errorf("the other promises can't be examined before a plain create works")
		return
	}
	t.sub("the declaration is valid and stays the same", h.declaration)
	h.requests(t)
	h.mishaps(t)
	h.redirects(t)
	h.deadlines(t)
	h.repeats(t)
	h.lookups(t)
	h.others(t)
	h.stages(t)
	t.sub("eight goroutines make one lead each", h.concurrent)
	t.sub("nothing is sent after a call has returned", h.strays)
	t.sub("no error carries a secret or a person's data", h.secrets)
	for _, name := range slices.Sorted(maps.Keys(s.Skip)) {
		if !h.skipped[name] {
			r.Errorf("Subject.Skip names %q, which is not a subtest of this contract", name)
		}
	}
}

// plain is the first call of all, and shows which request it is that creates.
func (h *harness) plain(t scope) {
	op := h.op(crm.KindCreate)
	h.proxy.watch(func() int { return h.subject.Created(op.ID) })
	r := h.create(t, h.adapter(), op, nil)
	h.proxy.watch(nil)
	switch {
	case r.err != nil:
		t.Fatalf("CreateLead against a CRM that works: %v\nIf the CRM refused the lead, set Subject.Lead to one that "+
			"it takes.", r.err)
	case r.id == "":
		t.Fatalf("CreateLead returned no id and no error: return the id from the CRM's answer; without one the " +
			"outcome counts as unknown")
	case len(r.sent) == 0:
		t.Fatalf("CreateLead did not use the base URL that Subject.Adapter was given: nothing came through the proxy")
	case r.created != 1:
		t.Fatalf("Created(op.ID) is %d after one create: put op.ID into a field of the lead, and count by that "+
			"field in Subject.Created", r.created)
	}
	h.learn(t, r, op)
}

func (h *harness) declaration(t scope) {
	a := h.adapter()
	d, err := crm.Describe(a)
	if err != nil {
		t.Fatalf("Describe: %v", err)
	}
	again, _ := crm.Describe(a)
	fresh, _ := crm.Describe(h.adapter())
	if d != again || d != fresh {
		t.Errorf("Describe returned %+v, then %+v, and %+v on a fresh adapter: an operation that began under another "+
			"declaration is never repeated by itself, so return the same every time", d, again, fresh)
	}
	t.Logf("%s declares %q for a create", d.Identity, d.Create.Kind)
}

// concurrent is for the race detector, too.
func (h *harness) concurrent(t scope) {
	const n = 8
	a := h.adapter()
	type made struct {
		op crm.Op
		r  result
	}
	results := make(chan made, n)
	for range n {
		op := h.op(crm.KindCreate)
		go func() { results <- made{op, h.create(t, a, op, nil)} }()
	}
	ids := map[string]bool{}
	for range n {
		m := <-results
		ids[m.r.id] = true
		if created := h.subject.Created(m.op.ID); m.r.err != nil || created != 1 {
			t.Errorf("with %d calls at once: err %v, %d leads: an adapter is used by several goroutines, so keep nothing "+
				"of a call in its fields", n, m.r.err, created)
		}
	}
	if len(ids) != n {
		t.Errorf("%d calls returned %d different ids: an answer was taken for that of another call", n, len(ids))
	}
}

// strays finds what was sent behind the caller's back.
func (h *harness) strays(t scope) {
	time.Sleep(50 * time.Millisecond) // no promise: only a chance for what is still on its way
	for _, x := range h.proxy.all() {
		late := len(x.running) == 0 && !safe(x.method)
		if ids := h.operations(x); h.creates(x) && len(ids) > 0 {
			late = !slices.ContainsFunc(ids, func(id string) bool { return x.running[id] })
		}
		if late {
			t.Errorf("%s %s was sent when its call had returned: do not go on in the background, dedup decides about repeats",
				x.method, x.path)
		}
	}
}

func safe(method string) bool { return method == http.MethodGet || method == http.MethodHead }

func (h *harness) op(k crm.Kind) crm.Op {
	id := fmt.Sprintf("%08x-0000-4000-8000-%012x", h.run, h.serial.Add(1))
	return crm.Op{ID: id, Key: id, Kind: k}
}
