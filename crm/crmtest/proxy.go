package crmtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// proxy.go: what stands between the adapter and the CRM in a contract. It notes every request, and lets one go wrong.

// exchange is a request as it left the adapter.
type exchange struct {
	method, path, query string // the path without the proxy's own prefix
	header              http.Header
	body                []byte
	running             map[string]bool // the operations that were being called when it came
	rose                bool            // the watched number rose while the CRM had it
	answer              incoming
}

// incoming is the CRM's answer.
type incoming struct {
	status int
	header http.Header
	body   []byte
}

// mishap is what goes wrong with one request.
type mishap struct {
	name    string
	forward bool // the CRM gets the request, and acts, before things go wrong
	do      func(p *proxy, w http.ResponseWriter, r *http.Request, x *exchange)
}

// script chooses the mishap of a request; nil lets it pass.
type script func(*exchange) *mishap

type proxy struct {
	crm    string // where the CRM is served
	prefix string // a path that stands for a secret
	out    *http.Transport

	mu      sync.Mutex
	seen    []*exchange
	script  script
	running map[string]int // calls by operation id; "" where there is none
	count   func() int
	release chan struct{} // closed to end what hangs
}

func newProxy(crmURL, prefix string) *proxy {
	return &proxy{
		crm: crmURL, prefix: prefix, release: make(chan struct{}), running: map[string]int{},
		out: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		drop()
	}
	x := &exchange{
		method: r.Method, path: strings.TrimPrefix(r.URL.EscapedPath(), p.prefix), query: r.URL.RawQuery,
		header: r.Header.Clone(), body: body, running: map[string]bool{},
	}
	p.mu.Lock()
	for op := range p.running {
		x.running[op] = true
	}
	p.seen = append(p.seen, x)
	choose := p.script
	count := p.count
	p.mu.Unlock()

	var m *mishap
	if choose != nil {
		m = choose(x)
	}
	if m == nil || m.forward {
		before := 0
		if count != nil {
			before = count()
		}
		if err := p.pass(r, x); err != nil {
			drop()
		}
		x.rose = count != nil && count() > before
	}
	if m != nil {
		m.do(p, w, r, x)
		return
	}
	x.answer.write(w)
}

// pass hands the request to the CRM, which acts on it whether or not the adapter still waits.
func (p *proxy) pass(r *http.Request, x *exchange) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	target := p.crm + x.path
	if x.query != "" {
		target += "?" + x.query
	}
	out, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(x.body))
	if err != nil {
		return err
	}
	out.Header, out.Host = r.Header.Clone(), r.Host
	for _, hop := range []string{"Connection", "Keep-Alive", "Te", "Transfer-Encoding", "Upgrade", "Content-Length"} {
		out.Header.Del(hop)
	}
	res, err := p.out.RoundTrip(out)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	x.answer = incoming{res.StatusCode, res.Header, body}
	return err
}

func (a incoming) write(w http.ResponseWriter) {
	for k, v := range a.header {
		if k != "Content-Length" && k != "Connection" && k != "Transfer-Encoding" && k != "Date" {
			w.Header()[k] = v
		}
	}
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// begin sets what happens during a call; the number is where its requests start.
func (p *proxy) begin(opID string, s script) (mark int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running[opID]++
	p.script = s
	return len(p.seen)
}

func (p *proxy) end(opID string, mark int) []*exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running[opID]--; p.running[opID] == 0 {
		delete(p.running, opID)
	}
	if len(p.running) == 0 {
		p.script = nil
	}
	return slices.Clone(p.seen[mark:])
}

func (p *proxy) all() []*exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

func (p *proxy) watch(count func() int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = count
}

// letGo ends what hangs.
func (p *proxy) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.release)
	p.release = make(chan struct{})
}

func (p *proxy) hanging() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.release
}

func (x *exchange) contentType() string { return x.answer.header.Get("Content-Type") }

// The mishaps.

func losing(forward bool) *mishap {
	return &mishap{"the reply is lost", forward, func(*proxy, http.ResponseWriter, *http.Request, *exchange) { drop() }}
}

func resetting() *mishap {
	return &mishap{"the answer is reset midway", true, func(_ *proxy, w http.ResponseWriter, _ *http.Request, x *exchange) {
		cut(w, x.answer.status, x.contentType(), x.answer.body)
	}}
}

func truncating() *mishap {
	return &mishap{"the answer ends too early", true, func(_ *proxy, w http.ResponseWriter, _ *http.Request, x *exchange) {
		page(w, x.answer.status, x.contentType(), x.answer.body[:len(x.answer.body)/2])
	}}
}

// hanging calls once when the CRM has acted, and never answers.
func hanging(once func()) *mishap {
	return &mishap{"the CRM hangs", true, func(p *proxy, _ http.ResponseWriter, r *http.Request, _ *exchange) {
		once()
		select {
		case <-r.Context().Done():
		case <-p.hanging():
		}
		drop()
	}}
}

func slowing(d time.Duration) *mishap {
	return &mishap{"the CRM is slow", true, func(_ *proxy, w http.ResponseWriter, r *http.Request, x *exchange) {
		select {
		case <-r.Context().Done():
			drop()
		case <-time.After(d):
			x.answer.write(w)
		}
	}}
}

// bare is a status with a proxy's page, as it comes when the one behind took too long.
func bare(status int, forward bool) *mishap {
	name := fmt.Sprintf("a bare %d comes back", status)
	return &mishap{name, forward, func(_ *proxy, w http.ResponseWriter, _ *http.Request, _ *exchange) {
		page(w, status, "text/html", fmt.Appendf(nil, "<html><body>%d %s</body></html>", status, http.StatusText(status)))
	}}
}

func html(status int, forward bool) *mishap {
	name := fmt.Sprintf("a page of HTML comes back with %d", status)
	return &mishap{name, forward, func(_ *proxy, w http.ResponseWriter, _ *http.Request, _ *exchange) {
		page(w, status, "text/html", []byte("<html><body>Please log in</body></html>"))
	}}
}

// echoing is a server that quotes what it got, as error pages like to do.
func echoing() *mishap {
	return &mishap{"an error quotes the request", true, func(p *proxy, w http.ResponseWriter, r *http.Request, x *exchange) {
		body := fmt.Appendf(nil, `{"error":%q,"message":%q}`, r.URL.String(), x.body)
		page(w, http.StatusInternalServerError, "application/json", body)
	}}
}

func errorBody(status int) *mishap {
	name := fmt.Sprintf("an error comes back with %d", status)
	return &mishap{name, false, func(_ *proxy, w http.ResponseWriter, _ *http.Request, _ *exchange) {
		page(w, status, "application/json", []byte(`{"error":"internal error","errors":[{"message":"internal error"}]}`))
	}}
}

func redirecting(status int, to string) *mishap {
	return &mishap{fmt.Sprint(status), false, func(_ *proxy, w http.ResponseWriter, _ *http.Request, _ *exchange) {
		w.Header().Set("Location", to)
		w.WriteHeader(status)
	}}
}

func page(w http.ResponseWriter, status int, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	w.Write(body)
}
