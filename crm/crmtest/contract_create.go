package crmtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// contract_create.go: what CreateLead sends, how often, and what it may say when things go wrong.

// volatile headers may differ between two calls of one operation.
var volatile = []string{"Date", "Authorization", "Cookie", "Traceparent", "Tracestate", "X-Request-Id", "X-Correlation-Id"}

func (h *harness) requests(t scope) {
	t.sub("one operation always makes the same request", func(t scope) {
		op := h.op(crm.KindCreate)
		a, fresh := h.adapter(), h.adapter()
		first := h.request(t, a, op)
		for who, next := range map[string]crm.Adapter{"the same adapter": a, "a fresh adapter": fresh} {
			if what := unequal(first, h.request(t, next, op)); what != "" {
				t.Errorf("the second request of one operation, by %s, differs in %s\nBuild it from op and the lead alone: no "+
					"random ids, no times, no counters, no order of a map.", who, what)
			}
		}
	})
	t.sub("two operations make different requests", func(t scope) {
		a := h.adapter()
		if unequal(h.request(t, a, h.op(crm.KindCreate)), h.request(t, a, h.op(crm.KindCreate))) == "" {
			t.Errorf("the requests of two operations can't be told apart: put op.ID into a field that the CRM keeps")
		}
	})
	t.sub("an idempotency key is sent only where one is declared", func(t scope) {
		d, _ := crm.Describe(h.adapter())
		x := h.request(t, h.adapter(), h.op(crm.KindCreate))
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			if x.header.Get(name) != "" && d.Create.Kind != crm.IdempotencyKey {
				t.Errorf("the header %s is sent, and no IdempotencyKey guarantee is declared: with it Go's transport sends a "+
					"POST again by itself. Remove it, or declare the guarantee that the CRM documents", name)
			}
		}
	})
}

// request returns the creating request of op. The CRM never gets it.
func (h *harness) request(t scope, a crm.Adapter, op crm.Op) *exchange {
	t.Helper()
	r := h.create(t, a, op, losing(false))
	if len(r.creates) == 0 {
		t.Fatalf("no creating request came (error: %v). If this adapter makes it in more than one way, set Subject.Creates", r.err)
	}
	return r.creates[0]
}

// unequal names the first thing in which two requests differ.
func unequal(a, b *exchange) string {
	if a.method != b.method {
		return "its method"
	}
	if a.path != b.path || a.query != b.query {
		return "its URL, " + differ([]byte(a.path+"?"+a.query), []byte(b.path+"?"+b.query))
	}
	for _, hs := range [][2]http.Header{{a.header, b.header}, {b.header, a.header}} {
		for name, v := range hs[0] {
			if !slices.Contains(volatile, name) && !slices.Equal(v, hs[1][name]) {
				return fmt.Sprintf("its header %s: %q and %q", name, v, hs[1][name])
			}
		}
	}
	if !bytes.Equal(a.body, b.body) {
		return "its body, " + differ(a.body, b.body)
	}
	return ""
}

// mishaps are what happens to a request that the CRM acts on, and then what happens instead of the CRM.
func (h *harness) mishaps(t scope) {
	acted := []*mishap{
		losing(true), resetting(), truncating(), html(h.success, true), echoing(), slowing(300 * time.Millisecond),
		bare(500, true), bare(502, true), bare(503, true), bare(504, true),
	}
	for _, m := range acted {
		t.sub("when "+m.name, func(t scope) { h.afterActing(t, h.adapter(), m) })
	}
	t.sub("when a connection is lost on reuse", func(t scope) {
		a := h.adapter()
		if r := h.create(t, a, h.op(crm.KindCreate), nil); r.err != nil {
			t.Fatalf("a plain create: %v", r.err)
		}
		h.afterActing(t, a, losing(true))
	})
	instead := []*mishap{losing(false), html(200, false), errorBody(200), bare(500, false), bare(503, false)}
	if h.success != 200 {
		instead = append(instead, html(h.success, false), errorBody(h.success))
	}
	t.sub("a lead that was never made is not reported as made", func(t scope) {
		for _, m := range instead {
			t.sub("when "+m.name, func(t scope) { h.withoutActing(t, m) })
		}
	})
	t.sub("a refused connection is not a refused lead", h.refusedConnection)
}

func (h *harness) afterActing(t scope, a crm.Adapter, m *mishap) {
	r := h.create(t, a, h.op(crm.KindCreate), m)
	t.sub("at most one creating request is sent", func(t scope) { h.once(t, r) })
	t.sub("a lead that may exist is not reported as certainly absent", func(t scope) { h.unmarked(t, r) })
}

// once: the adapter never retries by itself.
func (h *harness) once(t scope, r result) {
	t.Helper()
	if n := len(r.creates); n > 1 || r.created > 1 {
		t.Errorf("CreateLead sent %d creating requests and the CRM made %d leads: send one and return what came of it, "+
			"unmarked; do not retry, and use a transport that does not either (crmhttp.New; keep-alives and HTTP/2 off, no "+
			"GetBody). If the others only read, set Subject.Creates", n, r.created)
	}
	if len(r.creates) == 0 {
		t.Errorf("no creating request was recognised (error: %v); set Subject.Creates", r.err)
	}
}

// unmarked: the CRM acted, so nothing may claim that it certainly did not.
func (h *harness) unmarked(t scope, r result) {
	t.Helper()
	if r.created == 0 {
		t.Errorf("the CRM made no lead of the request that reached it (error: %v)", r.err)
	}
	if r.err == nil {
		if r.id == "" {
			t.Logf("no id and no error: that counts as unknown; an error that says why would help whoever reads the log")
		}
		return
	}
	if o, _ := crm.OutcomeOf(r.err); o != crm.OutcomeUnknown {
		t.Errorf("the error is marked %q (%v), and the CRM has made the lead: a lost, broken or unreadable answer and a bare "+
			"5xx say nothing about what was done. Mark an error only after an answer that the CRM documents as certain, and "+
			"return every other one as it is", o, r.err)
	}
}

func (h *harness) withoutActing(t scope, m *mishap) {
	r := h.create(t, h.adapter(), h.op(crm.KindCreate), m)
	switch {
	case r.err == nil && r.id != "":
		t.Errorf("CreateLead returned the id %q, and the CRM has made nothing: take a lead for made only if the answer has "+
			"the CRM's success status and the id of the record, and no error in it", r.id)
	case r.err == nil:
		t.Logf("no id and no error: that counts as unknown; an error that says why would help whoever reads the log")
	}
}

func (h *harness) refusedConnection(t scope) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("%v", err)
	}
	l.Close()
	r := h.create(t, h.subject.Adapter("http://"+l.Addr().String()+h.proxy.prefix), h.op(crm.KindCreate), nil)
	o, _ := crm.OutcomeOf(r.err)
	switch {
	case r.err == nil:
		t.Errorf("CreateLead succeeded with nobody listening: it did not use the base URL")
	case o == crm.OutcomeRejected:
		t.Errorf("a refused connection is marked rejected, which fails the lead for good: crm.NotApplied is what fits")
	case o == crm.OutcomeUnknown:
		t.Logf("a refused connection is unmarked: correct, but the lead will wait for a look-up or a person. Nothing was " +
			"sent, so crm.NotApplied may say so (crmhttp does it)")
	}
}

// redirects: 307 and 308 would send the lead again, the others turn the create into a GET.
func (h *harness) redirects(t scope) {
	t.sub("a redirect is not followed", func(t scope) {
		for _, status := range []int{301, 302, 303, 307, 308} {
			t.sub(fmt.Sprint(status), func(t scope) {
				r := h.create(t, h.adapter(), h.op(crm.KindCreate), redirecting(status, h.base+redirect))
				for _, x := range r.sent {
					if x.path == redirect {
						t.Errorf("the redirect was followed with a %s: set CheckRedirect to return http.ErrUseLastResponse, or use "+
							"crmhttp; a 3xx to a create means that the configured URL is wrong", x.method)
					}
				}
				if r.err == nil && r.id != "" {
					t.Errorf("a redirect was taken for success (id %q)", r.id)
				}
			})
		}
	})
}

func (h *harness) deadlines(t scope) {
	t.sub("a hanging CRM is left when the context ends", func(t scope) {
		op := h.op(crm.KindCreate)
		ctx, cancel := context.WithTimeout(context.Background(), callTime)
		defer cancel()
		r := h.createWithin(t, ctx, h.adapter(), op, h.first(op, hanging(cancel)))
		if r.err == nil {
			t.Errorf("CreateLead returned %q without an error, and its context had ended without an answer", r.id)
		}
		h.once(t, r)
		h.unmarked(t, r)
	})
	t.sub("an ended context sends nothing", func(t scope) {
		op := h.op(crm.KindCreate)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		a := h.adapter()
		r := h.call(t, ctx, op.ID, nil, func(ctx context.Context) (string, error) { return a.CreateLead(ctx, op, h.subject.Lead) })
		if len(r.sent) > 0 || r.err == nil {
			t.Errorf("%d requests were sent under a context that had ended (error: %v): hand ctx on to every request",
				len(r.sent), r.err)
		}
	})
}
