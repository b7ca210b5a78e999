package crmhttp

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// answer.go: what came back, and the few things about it that mean the same everywhere.

// Response is an answer, read whole.
type Response struct {
	Status    int
	Header    http.Header
	Body      []byte
	RequestID string // the vendor's id of the request; empty if no known header carries one
}

// OK reports whether the status is a 2xx.
func (r *Response) OK() bool { return r.Status >= 200 && r.Status <= 299 }

// WithEvidence adds the answer's status and request id to err.
func (r *Response) WithEvidence(err error) error {
	return crm.WithEvidence(err, crm.Evidence{Status: r.Status, RequestID: r.RequestID})
}

// Throttled marks err as certainly not applied, and to be sent again when Retry-After has passed. Use it only for the
// answer that the CRM documents as "refused before anything was done": a bare 429 or 503 may come from a proxy that gave
// up waiting for a CRM which then acted.
func (r *Response) Throttled(err error, now time.Time) error {
	return crm.NotApplied(r.WithEvidence(err), RetryAfter(r.Header, now))
}

// MaxRetryAfter is the longest wait that is taken from an answer.
const MaxRetryAfter = 24 * time.Hour

// RetryAfter returns how long the Retry-After header of h asks to wait, as seconds or as a date (RFC 9110, 10.2.3): 0
// without one, or with one that can't be read; MaxRetryAfter at most. A date is compared with the answer's own Date, where
// it has one, so that a clock that is wrong here does no harm.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if v == "" {
		return 0
	}
	if strings.Trim(v, "0123456789") == "" {
		seconds, err := strconv.ParseInt(v, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter)
}

var requestIDHeaders = []string{"X-Request-Id", "Request-Id", "X-Correlation-Id", "X-Trace-Id", "X-Amzn-Requestid", "Cf-Ray"}

const maxRequestID = 128

// requestIDOf returns the first id that is fit to be written into a log.
func (c *Client) requestIDOf(h http.Header) string {
	for _, name := range c.requestID {
		id := h.Get(name)
		if id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return id
		}
	}
	return ""
}

// ID returns an id that was decoded into an any: the string, or the number as it was written. Anything else is "".
func ID(v any) string {
	var id string
	switch v := v.(type) {
	case string:
		id = strings.TrimSpace(v)
	case json.Number:
		id = v.String()
	}
	switch id {
	case "0", "null", "undefined", "false": // what a failed insert leaves behind in some languages
		return ""
	}
	return id
}

const maxCode = 64

// Code returns an error code that was decoded into an any, if it is one: 64 letters, digits and _ - . at most. A sentence is
// "", since it may repeat what a person wrote, and that has no place in an error.
func Code(v any) string {
	s := ID(v)
	bad := strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("_-.", r)
	})
	if bad || len(s) > maxCode {
		return ""
	}
	return s
}
