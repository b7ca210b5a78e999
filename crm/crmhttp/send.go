package crmhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/leadonce/leadonce/crm"
)

// send.go: one request, one attempt, and what is certain about it afterwards.

// Request is one request to a CRM.
type Request struct {
	Method string // empty means GET
	URL    string // absolute; user:password@ in it becomes an Authorization header, unless there is one
	Header http.Header
	Body   []byte
	// ContentType describes Body; empty means no Content-Type header.
	ContentType string
	// IdempotencyKey is sent as Idempotency-Key. Set it only where the CRM documents that it answers a repeat with the
	// same key from memory.
	IdempotencyKey string
	// IdempotencyHeader is the header that carries IdempotencyKey, where it is another than Idempotency-Key.
	IdempotencyHeader string
}

// Do sends r once and returns the answer, whatever its status. An error is marked [crm.NotApplied] if the request
// certainly never left, and unmarked otherwise. An answer that came, but can't be used (a redirect, a body cut short or
// over the limit), is returned beside the error, without its body; the error carries its [crm.Evidence].
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	req, err := c.prepare(r)
	if err != nil {
		return nil, crm.NotApplied(fmt.Errorf("crmhttp: %w", err), 0)
	}
	where := req.Method + " " + req.URL.Scheme + "://" + req.URL.Host
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// The transport calls WroteHeaders before it flushes them, and returns an error only after its writing goroutine has
	// ended (go1.26, mapRoundTripError): a count of zero stays zero.
	var wrote atomic.Int32
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Add(1) }}
	answer, err := c.transport.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	switch {
	case err != nil && wrote.Load() == 0:
		return nil, crm.NotApplied(fmt.Errorf("crmhttp: %s: not sent: %w", where, cause(ctx, err)), 0)
	case err != nil:
		return nil, fmt.Errorf("crmhttp: %s: sent, but no answer came: %w", where, cause(ctx, err))
	}
	defer answer.Body.Close()
	resp := &Response{Status: answer.StatusCode, Header: answer.Header, RequestID: c.requestIDOf(answer.Header)}
	if err := c.read(ctx, resp, answer); err != nil {
		resp.Body = nil
		return resp, resp.WithEvidence(fmt.Errorf("crmhttp: %s: status %d: %w", where, resp.Status, err))
	}
	return resp, nil
}

// read fills resp.Body, or says why this answer can't be used.
func (c *Client) read(ctx context.Context, resp *Response, answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusSwitchingProtocols: // its body would be the bare connection
		return errors.New("the server switched protocols; this address is not a CRM's")
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return fmt.Errorf("a redirect%s, which is never followed: configure the final address", target(answer))
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, c.maxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("the answer was cut short: %w", cause(ctx, err))
	case int64(len(body)) > c.maxBody:
		return fmt.Errorf("the answer is larger than %d bytes (Options.MaxBody)", c.maxBody)
	}
	resp.Body = body
	return nil
}

// target names where a redirect leads, as far as that is no secret.
func target(answer *http.Response) string {
	to, err := answer.Location()
	if err != nil || to.Host == "" {
		return ""
	}
	return " to " + to.Scheme + "://" + to.Host
}

// prepare makes the http.Request. Its errors name no part of the URL but scheme and host.
func (c *Client) prepare(r Request) (*http.Request, error) {
	u, err := url.Parse(r.URL)
	switch {
	case err != nil: // the parser's own text repeats the URL
		return nil, errors.New("the URL can't be parsed; look at the adapter's configuration")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, errors.New("the URL is not an absolute http or https one; look at the adapter's configuration")
	}
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	if !token(method) {
		return nil, errors.New("the method is not a valid HTTP method")
	}
	header := http.Header{"User-Agent": {userAgent}}
	for _, h := range []http.Header{c.header, r.Header} {
		if err := CheckHeader(h); err != nil {
			return nil, err
		}
		for name, values := range h {
			header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
	if r.ContentType != "" {
		header.Set("Content-Type", r.ContentType)
	}
	if r.IdempotencyKey != "" {
		name := r.IdempotencyHeader
		if name == "" {
			name = "Idempotency-Key"
		}
		if !token(name) {
			return nil, errors.New("IdempotencyHeader is not a valid header name")
		}
		header.Set(name, r.IdempotencyKey)
	}
	if err := printable(header); err != nil {
		return nil, err
	}
	req := &http.Request{Method: method, URL: u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
	if len(r.Body) > 0 {
		// No GetBody: this body exists once.
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(r.Body)), int64(len(r.Body))
	}
	if u.User != nil && header.Get("Authorization") == "" {
		password, _ := u.User.Password()
		req.SetBasicAuth(u.User.Username(), password)
	}
	return req, nil
}

// framing are headers that decide how the request is put on the wire, which is not the caller's to decide.
var framing = []string{"Connection", "Content-Length", "Expect", "Host", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// CheckHeader returns why h can't be sent: an idempotency key in disguise, a header that the client sets itself, a name or
// value that HTTP does not allow. Every call checks its headers anyway; a constructor that takes some from its user can say
// so at once. The error repeats no value.
func CheckHeader(h http.Header) error {
	for name := range h {
		if err := allowed(name); err != nil {
			return err
		}
	}
	return printable(h)
}

// allowed refuses what must not come through a header map. Spellings are compared as a lenient server would read them.
func allowed(name string) error {
	key := http.CanonicalHeaderKey(strings.ReplaceAll(strings.TrimSpace(name), "_", "-"))
	switch {
	case strings.EqualFold(key, "Idempotency-Key"), strings.EqualFold(key, "X-Idempotency-Key"):
		return fmt.Errorf("header %s: an idempotency key is declared through Request.IdempotencyKey, "+
			"and only where the CRM documents one", key)
	case !token(name):
		return errors.New("a header's name is not valid")
	case slices.Contains(framing, key):
		return fmt.Errorf("header %s is set by the client itself", key)
	}
	return nil
}

// printable names the header whose value would break the request apart.
func printable(h http.Header) error {
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
				return fmt.Errorf("header %s: its value has a control character", name)
			}
		}
	}
	return nil
}

// token reports whether s may be a method or a header's name (RFC 9110, 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
