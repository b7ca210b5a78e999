package crmhttp_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// client_test.go: what is sent, and what is made of an answer.

func TestHeaders(t *testing.T) {
	var hits atomic.Int32
	var last http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		last = r.Header
	}))
	defer s.Close()
	for _, name := range []string{"Idempotency-Key", "idempotency-key", "IDEMPOTENCY-KEY", "X-Idempotency-Key",
		"x-idempotency-KEY", "Idempotency_Key", " Idempotency-Key", "Idempotency-Key ", "Idempotency-Key:",
		"Connection", "content-length",
		"Transfer-Encoding", "Expect", "Host", "", "a b"} {
		t.Run(fmt.Sprintf("%q in a header map is refused before anything is sent", name), func(t *testing.T) {
			for where, c := range map[string]*crmhttp.Client{
				"request": crmhttp.New(nil),
				"options": crmhttp.New(&crmhttp.Options{Header: http.Header{name: {"S3CRET"}}}),
			} {
				r := crmhttp.Request{Method: "POST", URL: s.URL, Body: []byte("x")}
				if where == "request" {
					r.Header = http.Header{name: {"S3CRET"}}
				}
				_, err := c.Do(t.Context(), r)
				if o, _ := crm.OutcomeOf(err); o != crm.OutcomeNotApplied || strings.Contains(err.Error(), "S3CRET") {
					t.Fatalf("%s: %v: %v", where, o, err)
				}
			}
			if hits.Load() != 0 {
				t.Fatal("a request arrived")
			}
		})
	}
	t.Run("a header value that would break the request apart is refused", func(t *testing.T) {
		_, err := crmhttp.New(nil).Do(t.Context(), crmhttp.Request{URL: s.URL, IdempotencyKey: "a\r\nb"})
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeNotApplied || hits.Load() != 0 {
			t.Fatalf("%v: %v", o, err)
		}
	})
	t.Run("a declared key, the client's headers and the request's arrive", func(t *testing.T) {
		c := crmhttp.New(&crmhttp.Options{Header: http.Header{"Authorization": {"Bearer a"}, "X-A": {"client"}}})
		_, err := c.Do(t.Context(), crmhttp.Request{Method: "PATCH", URL: s.URL, Body: []byte("a=1"), IdempotencyKey: "k1",
			ContentType: "application/x-www-form-urlencoded", Header: http.Header{"x-a": {"request"}}})
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"Authorization": "Bearer a", "X-A": "request", "Idempotency-Key": "k1",
			"Content-Type": "application/x-www-form-urlencoded"} {
			if got := last.Get(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
	})
	t.Run("no key is sent that was not declared", func(t *testing.T) {
		if _, err := crmhttp.New(nil).PostJSON(t.Context(), s.URL, 1, nil); err != nil {
			t.Fatal(err)
		}
		if last.Get("Idempotency-Key")+last.Get("X-Idempotency-Key") != "" {
			t.Fatalf("%v", last)
		}
	})
	t.Run("user and password in the URL become basic authorization", func(t *testing.T) {
		withUser := strings.Replace(s.URL, "://", "://u:p@", 1)
		if _, err := crmhttp.New(nil).Do(t.Context(), crmhttp.Request{URL: withUser}); err != nil {
			t.Fatal(err)
		}
		if last.Get("Authorization") != "Basic dTpw" {
			t.Fatalf("%v", last)
		}
	})
}

// answering serves one fixed answer.
func answering(t *testing.T, status int, header http.Header, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestJSON(t *testing.T) {
	type answer struct {
		ID    json.Number
		Error string
		Any   any
	}
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   answer
	}{
		{"a 422 with JSON fills out", 422, `{"error":"phone"}`, answer{Error: "phone"}},
		{"a 502 with HTML keeps its status and leaves out alone", 502, "<html>", answer{Error: "before"}},
		{"a 500 without a body", 500, "", answer{Error: "before"}},
		{"a 204 needs no body", 204, "", answer{Error: "before"}},
		{"an id as a number keeps all digits", 201, `{"id":9007199254740993,"error":""}`, answer{ID: "9007199254740993"}},
		{"an id as a string", 201, `{"id":"12","error":""}`, answer{ID: "12"}},
		{"a number in an any keeps all digits", 200, `{"any":9007199254740993,"error":""}`,
			answer{Any: json.Number("9007199254740993")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := answer{Error: "before"}
			status, err := crmhttp.New(nil).PostJSON(t.Context(), answering(t, c.status, nil, c.body), struct{}{}, &out)
			if err != nil || status != c.status || out != c.want {
				t.Fatalf("status %d, %v, %+v", status, err, out)
			}
		})
	}
	t.Run("a type that does not fit names the field, not the value", func(t *testing.T) {
		var out answer
		_, err := crmhttp.New(nil).PostJSON(t.Context(), answering(t, 200, nil, `{"error":{"S3CRET":1}}`), struct{}{}, &out)
		if err == nil || !strings.Contains(err.Error(), `"error"`) && !strings.Contains(err.Error(), `"Error"`) ||
			strings.Contains(err.Error(), "S3CRET") {
			t.Fatal(err)
		}
	})
	for _, status := range []int{300, 400, 404, 429, 500, 502, 503} {
		t.Run(fmt.Sprintf("a look-up answered with %d is an error, not an empty result", status), func(t *testing.T) {
			var out struct{ IDs []string }
			got, err := crmhttp.New(nil).GetJSON(t.Context(), answering(t, status, nil, "<html>"), &out)
			if err == nil || got != status || crm.EvidenceOf(err).Status != status {
				t.Fatalf("status %d, %v", got, err)
			}
		})
	}
	t.Run("GetJSON decodes", func(t *testing.T) {
		var out struct{ IDs []string }
		url := answering(t, 200, nil, `{"ids":["1"]}`)
		if _, err := crmhttp.New(nil).GetJSON(t.Context(), url, &out); err != nil || len(out.IDs) != 1 {
			t.Fatal(err, out)
		}
	})
}

func TestEvidence(t *testing.T) {
	for _, c := range []struct{ name, own, header, value, want string }{
		{"a common header is found", "", "X-Request-Id", "r-1", "r-1"},
		{"the vendor's own header comes first", "X-HubSpot-Correlation-Id", "X-Hubspot-Correlation-Id", "h-1", "h-1"},
		{"what can't be an id is left out", "", "X-Request-Id", "two words", ""},
		{"a very long one is left out", "", "X-Request-Id", strings.Repeat("r", 200), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			url := answering(t, 200, http.Header{c.header: {c.value}}, "no JSON")
			var out any
			_, err := crmhttp.New(&crmhttp.Options{RequestIDHeader: c.own}).PostJSON(t.Context(), url, 1, &out)
			if got := crm.EvidenceOf(err); got != (crm.Evidence{Status: 200, RequestID: c.want}) {
				t.Fatalf("%+v of %v", got, err)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	at := func(t time.Time) string { return t.Format(http.TimeFormat) }
	for _, c := range []struct {
		name, value, date string
		want              time.Duration
	}{
		{"none", "", "", 0},
		{"seconds", "30", "", 30 * time.Second},
		{"a date", at(now.Add(time.Minute)), "", time.Minute},
		{"a date is compared with the answer's own", at(now.Add(time.Hour + time.Minute)), at(now.Add(time.Hour)), time.Minute},
		{"a date that has passed", at(now.Add(-time.Minute)), "", 0},
		{"nonsense", "soon", "", 0},
		{"a negative number", "-5", "", 0},
		{"a number beyond all bounds", strings.Repeat("9", 40), "", crmhttp.MaxRetryAfter},
		{"seconds that would overflow", "9223372036854775807", "", crmhttp.MaxRetryAfter},
		{"a date in a hundred years", at(now.AddDate(100, 0, 0)), "", crmhttp.MaxRetryAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := http.Header{}
			h.Set("Retry-After", c.value)
			h.Set("Date", c.date)
			if got := crmhttp.RetryAfter(h, now); got != c.want {
				t.Fatalf("%v, want %v", got, c.want)
			}
		})
	}
	t.Run("a documented throttle is not applied, with its wait and its evidence", func(t *testing.T) {
		r := &crmhttp.Response{Status: 429, Header: http.Header{"Retry-After": {"7"}}, RequestID: "r"}
		err := r.Throttled(fmt.Errorf("slow down"), now)
		if o, after := crm.OutcomeOf(err); o != crm.OutcomeNotApplied || after != 7*time.Second ||
			crm.EvidenceOf(err) != (crm.Evidence{Status: 429, RequestID: "r"}) {
			t.Fatal(o, after, err)
		}
	})
}

func TestCode(t *testing.T) {
	for _, c := range []struct {
		name     string
		in       any
		id, code string
	}{
		{"a code", "QUERY_LIMIT-1.2", "QUERY_LIMIT-1.2", "QUERY_LIMIT-1.2"},
		{"a number", json.Number("9007199254740993"), "9007199254740993", "9007199254740993"},
		{"a sentence", "bad phone +7", "bad phone +7", ""},
		{"Cyrillic", "телефон", "телефон", ""},
		{"something long", strings.Repeat("a", 65), strings.Repeat("a", 65), ""},
		{"nothing", nil, "", ""},
		{"an object", map[string]any{"a": 1}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if id, code := crmhttp.ID(c.in), crmhttp.Code(c.in); id != c.id || code != c.code {
				t.Fatalf("%q, %q", id, code)
			}
		})
	}
}
