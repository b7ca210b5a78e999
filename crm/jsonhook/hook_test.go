package jsonhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/jsonhook"
)

// hook_test.go: what is sent, what each answer means, and what the adapter offers.

var op = crm.Op{ID: "op-1", Key: "op-1:2", Kind: crm.KindCreate, Tenant: "acme"}

// hook returns an adapter for a server with one fixed answer, and where its last request is kept.
func hook(t *testing.T, status int, header http.Header, body string, o *jsonhook.Options) (crm.Adapter, *request) {
	t.Helper()
	last := &request{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last.header, last.url = r.Header, r.URL.String()
		last.body, _ = io.ReadAll(r.Body)
		last.n++
		for k, v := range header {
			w.Header()[k] = v
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	if o == nil {
		o = &jsonhook.Options{}
	}
	if o.LookupURL != "" {
		o.LookupURL = s.URL + o.LookupURL
	}
	a, err := jsonhook.New(s.URL+"/hook/S3CRET?key=S3CRET", o)
	if err != nil {
		t.Fatal(err)
	}
	return a, last
}

type request struct {
	header http.Header
	url    string
	body   []byte
	n      int
}

func TestAnswers(t *testing.T) {
	ids := func(o *jsonhook.Options) { o.IDOptional = true }
	for _, c := range []struct {
		name   string
		status int
		body   string
		set    func(*jsonhook.Options)
		id     string
		want   crm.Outcome // if id is empty
		after  time.Duration
	}{
		{"201 with an id as a string", 201, `{"id":"42"}`, nil, "42", 0, 0},
		{"200 with a large id as a number", 200, `{"id":9007199254740993}`, nil, "9007199254740993", 0, 0},
		{"200 with fields of other software", 200, `{"id":1,"code":0,"retry_after":null,"operation_id":"op-1"}`, nil, "1", 0, 0},
		{"200 about another operation", 200, `{"id":"42","operation_id":"op-2"}`, nil, "", crm.OutcomeUnknown, 0},
		{"200 without an id", 200, `{"message":"Workflow was started"}`, nil, "", crm.OutcomeUnknown, 0},
		{"200 with applied, but no id", 200, `{"applied":true}`, nil, "", crm.OutcomeUnknown, 0},
		{"200 with an empty id", 200, `{"id":""}`, nil, "", crm.OutcomeUnknown, 0},
		{"200 Accepted", 200, "Accepted", nil, "", crm.OutcomeUnknown, 0},
		{"200 without a body", 200, "", nil, "", crm.OutcomeUnknown, 0},
		{"204", 204, "", nil, "", crm.OutcomeUnknown, 0},
		{"200 Accepted where ids are optional", 200, "Accepted", ids, "op-1", 0, 0},
		{"200 without an id where ids are optional", 200, `{"message":"Workflow was started"}`, ids, "op-1", 0, 0},
		{"200 that denies where ids are optional", 200, `{"applied":false}`, ids, "", crm.OutcomeRejected, 0},
		{"502 where ids are optional", 502, "<html>", ids, "", crm.OutcomeUnknown, 0},
		{"409 with our operation", 409, `{"id":"7","operation_id":"op-1"}`, nil, "7", 0, 0},
		{"409 with an id alone", 409, `{"id":"7"}`, nil, "", crm.OutcomeUnknown, 0},
		{"409 with another operation", 409, `{"id":"7","operation_id":"op-2"}`, nil, "", crm.OutcomeUnknown, 0},
		{"409 alone where ids are optional", 409, "", ids, "", crm.OutcomeUnknown, 0},
		{"409 that denies", 409, `{"applied":false}`, nil, "", crm.OutcomeRejected, 0},
		{"422 that denies", 422, `{"applied":false,"code":"phone"}`, nil, "", crm.OutcomeRejected, 0},
		{"400 that denies", 400, `{"applied":false}`, nil, "", crm.OutcomeRejected, 0},
		{"422 alone", 422, `{"error":"phone"}`, nil, "", crm.OutcomeUnknown, 0},
		{"404 alone", 404, `{"code":404,"message":"The requested webhook is not registered."}`, nil, "", crm.OutcomeUnknown, 0},
		{"401 alone", 401, "", nil, "", crm.OutcomeUnknown, 0},
		{"429 alone", 429, "Too many requests", nil, "", crm.OutcomeUnknown, 0},
		{"503 alone", 503, "<html>", nil, "", crm.OutcomeUnknown, 0},
		{"429 that denies", 429, `{"applied":false}`, nil, "", crm.OutcomeNotApplied, 7 * time.Second},
		{"503 that denies, with its own wait", 503, `{"applied":false,"retry_after":30}`, nil,
			"", crm.OutcomeNotApplied, 30 * time.Second},
		{"500 that denies", 500, `{"applied":false}`, nil, "", crm.OutcomeNotApplied, 7 * time.Second},
		{"200 that denies and says later", 200, `{"applied":false,"retry_after":5}`, nil,
			"", crm.OutcomeNotApplied, 5 * time.Second},
		{"a wait beyond all bounds", 200, `{"applied":false,"retry_after":9223372036854775807}`, nil,
			"", crm.OutcomeNotApplied, 24 * time.Hour},
		{"401 that denies", 401, `{"applied":false}`, nil, "", crm.OutcomeUnavailable, 0},
		{"403 that denies", 403, `{"applied":false}`, nil, "", crm.OutcomeUnavailable, 0},
		{"an id beside a denial", 422, `{"applied":false,"id":"1"}`, nil, "", crm.OutcomeUnknown, 0},
		{"a denial that is cut off", 422, `{"applied":false`, nil, "", crm.OutcomeUnknown, 0},
		{"a denial in words", 422, `{"applied":"false"}`, nil, "", crm.OutcomeUnknown, 0},
		{"an id with a bare 500", 500, `{"id":"1"}`, nil, "", crm.OutcomeUnknown, 0},
		{"a redirect", 307, `{"applied":false}`, nil, "", crm.OutcomeUnknown, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := &jsonhook.Options{}
			if c.set != nil {
				c.set(o)
			}
			a, last := hook(t, c.status, http.Header{"Retry-After": {"7"}, "X-Request-Id": {"r-1"}}, c.body, o)
			id, err := a.CreateLead(t.Context(), op, crm.Lead{Text: "hello"})
			if c.id != "" {
				if id != c.id || err != nil {
					t.Fatalf("%q, %v, want %q", id, err, c.id)
				}
				return
			}
			if err == nil {
				t.Fatalf("made %q", id)
			}
			if got, after := crm.OutcomeOf(err); got != c.want || after != c.after {
				t.Fatalf("%v after %v, want %v after %v: %v", got, after, c.want, c.after, err)
			}
			if e := crm.EvidenceOf(err); e != (crm.Evidence{Status: c.status, RequestID: "r-1"}) {
				t.Fatalf("evidence %+v", e)
			}
			if last.n != 1 {
				t.Fatalf("%d requests", last.n)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	t.Run("an error repeats a code, and nothing else of what was sent or answered", func(t *testing.T) {
		for body, want := range map[string]bool{
			`{"applied":false,"code":"phone_format","message":"S3CRET"}`:      true,
			`{"applied":false,"code":"S3CRET is not a phone"}`:                false,
			`{"applied":false,"code":"` + strings.Repeat("S3CRET", 20) + `"}`: false,
		} {
			o := &jsonhook.Options{Secret: "S3CRET-S3CRET-S3CRET", Header: http.Header{"X": {"S3CRET"}}}
			a, _ := hook(t, 422, nil, body, o)
			_, err := a.CreateLead(t.Context(), op, crm.Lead{Text: "S3CRET"})
			if strings.Contains(err.Error(), "S3CRET") || strings.Contains(err.Error(), "phone_format") != want {
				t.Errorf("%s: %v", body, err)
			}
		}
	})
	t.Run("nor does one of the connection", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		a, err := jsonhook.New("http://u:S3CRET@"+l.Addr().String()+"/S3CRET?S3CRET", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.CreateLead(t.Context(), op, crm.Lead{Text: "S3CRET"})
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeNotApplied || strings.Contains(err.Error(), "S3CRET") {
			t.Fatalf("%v: %v", o, err)
		}
	})
	t.Run("the identity tells hooks apart, and tells no secret", func(t *testing.T) {
		seen := map[string]bool{}
		for _, u := range []string{"https://hook.example/S3CRET1", "https://hook.example/S3CRET2",
			"https://u:S3CRET@other.example/?S3CRET"} {
			a, err := jsonhook.New(u, nil)
			if err != nil {
				t.Fatal(err)
			}
			d, err := crm.Describe(a)
			if err != nil || seen[d.Identity] || strings.Contains(d.Identity, "S3CRET") ||
				!strings.HasPrefix(d.Identity, "jsonhook ") {
				t.Fatalf("%q %v", d.Identity, err)
			}
			seen[d.Identity] = true
		}
	})
}

type call = func(crm.Adapter) error

func TestRequests(t *testing.T) {
	all := []crm.Kind{crm.KindNote, crm.KindUpdate, crm.KindStage}
	const head, rest = `{"v":1,"kind":`, `,"operation_id":"op-1","key":"op-1:2","tenant":"acme",`
	calls := map[string]call{
		head + `"lead.create"` + rest + `"lead":{"name":"Anna","fields":{"n":9007199254740993}}}`: func(a crm.Adapter) error {
			l := crm.Lead{Name: "Anna", Fields: map[string]any{"n": json.Number("9007199254740993")}}
			_, err := a.CreateLead(t.Context(), op, l)
			return err
		},
		head + `"note.add"` + rest + `"lead_id":"42","note":{"text":"hi","ref":"r"}}`: func(a crm.Adapter) error {
			_, err := a.(crm.Noter).AddNote(t.Context(), op, "42", crm.Note{Text: "hi", Ref: "r"})
			return err
		},
		head + `"lead.update"` + rest + `"lead_id":"42","lead":{"phone":"1"}}`: func(a crm.Adapter) error {
			return a.(crm.Updater).UpdateLead(t.Context(), op, "42", crm.Lead{Phone: "1"})
		},
		head + `"stage.set"` + rest + `"lead_id":"42","stage":{"to":"won","from":["new"]}}`: func(a crm.Adapter) error {
			return a.(crm.Stager).SetStage(t.Context(), op, "42", crm.Stage{To: "won", From: []string{"new"}})
		},
	}
	for want, call := range calls {
		t.Run("the body is "+want, func(t *testing.T) {
			o := &jsonhook.Options{Calls: all, Secret: secret, Header: http.Header{"x-a": {"1"}}}
			a, last := hook(t, 200, nil, `{"id":"42"}`, o)
			for range 2 {
				if err := call(a); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(last.body, []byte(want)) {
					t.Fatalf("sent %s", last.body)
				}
			}
			if !jsonhook.Verify(secret, last.header.Get(jsonhook.SignatureHeader), last.body) || last.header.Get("X-A") != "1" {
				t.Fatalf("headers %v", last.header)
			}
			if last.header.Get("Idempotency-Key") != "" {
				t.Fatal("an idempotency key that nobody declared")
			}
		})
	}
	t.Run("a note, an update and a stage need no id in the answer", func(t *testing.T) {
		for body, call := range calls {
			a, _ := hook(t, 200, nil, `{"applied":true}`, &jsonhook.Options{Calls: all})
			if err := call(a); (err == nil) == strings.Contains(body, "lead.create") {
				t.Errorf("%s: %v", body, err)
			}
		}
	})
	t.Run("the idempotency key goes with a create only, and only if it is declared", func(t *testing.T) {
		o := jsonhook.Options{Calls: all, Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Hour}}
		for body, call := range calls {
			a, last := hook(t, 200, nil, `{"id":"42"}`, &o)
			if err := call(a); err != nil {
				t.Fatal(err)
			}
			want := ""
			if strings.Contains(body, "lead.create") {
				want = "op-1:2"
			}
			if got := last.header.Get("Idempotency-Key"); got != want {
				t.Errorf("%s: key %q", body, got)
			}
		}
	})
	t.Run("a signature under another secret does not verify", func(t *testing.T) {
		if jsonhook.Verify("another secret, long", jsonhook.Sign(secret, []byte("x")), []byte("x")) ||
			jsonhook.Verify(secret, jsonhook.Sign(secret, []byte("x")), []byte("y")) ||
			jsonhook.Verify("", jsonhook.Sign("", nil), nil) {
			t.Fatal("verified")
		}
	})
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   string
		fails  bool
	}{
		{"one", 200, `{"leads":[{"id":"42","operation_id":"op-1"}]}`, "[42]", false},
		{"two, one of them twice", 200,
			`{"leads":[{"id":1,"operation_id":"op-1"},{"id":2,"operation_id":"op-1"},{"id":"1","operation_id":"op-1"}]}`,
			"[1 2]", false},
		{"those of others are left out", 200, `{"leads":[{"id":1,"operation_id":"op-11"},{"id":2}]}`, "[]", false},
		{"none", 200, `{"leads":[]}`, "[]", false},
		{"JSON of something else is not none", 200, `{}`, "", true},
		{"null is not none", 200, `{"leads":null}`, "", true},
		{"a page is not none", 200, "<html>", "", true},
		{"a 404 is not none", 404, `{"leads":[]}`, "", true},
		{"a 503 is not none", 503, "", "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, last := hook(t, c.status, nil, c.body, &jsonhook.Options{LookupURL: "/find?a=b", Secret: secret})
			ids, err := a.(crm.Finder).FindLead(t.Context(), op)
			if (err != nil) != c.fails || err == nil && fmt.Sprint(ids) != c.want {
				t.Fatalf("%v, %v", ids, err)
			}
			if last.url != "/find?a=b&operation_id=op-1" {
				t.Fatalf("asked %s", last.url)
			}
			if !jsonhook.Verify(secret, last.header.Get(jsonhook.SignatureHeader), []byte("op-1")) {
				t.Fatal("not signed")
			}
			if err := a.(crm.Checker).Check(t.Context()); (err != nil) != c.fails {
				t.Fatalf("Check: %v", err)
			}
		})
	}
}

func TestOffer(t *testing.T) {
	kinds := []crm.Kind{crm.KindNote, crm.KindUpdate, crm.KindStage}
	for m := range 16 {
		o := &jsonhook.Options{}
		for i, k := range kinds {
			if m&(1<<i) != 0 {
				o.Calls = append(o.Calls, k)
			}
		}
		if m&8 != 0 {
			o.LookupURL = "https://backend.example/find"
		}
		t.Run(fmt.Sprintf("%v, look-up %t", o.Calls, m&8 != 0), func(t *testing.T) {
			a, err := jsonhook.New("https://backend.example/hook", o)
			if err != nil {
				t.Fatal(err)
			}
			for i, k := range kinds {
				if got, want := crm.Supports(a, k), m&(1<<i) != 0; got != want {
					t.Errorf("%s: %t", k, got)
				}
			}
			_, finder := a.(crm.Finder)
			_, checker := a.(crm.Checker)
			if finder != (m&8 != 0) || checker != finder ||
				crm.Supports(a, crm.KindContact) || !crm.Supports(a, crm.KindCreate) {
				t.Errorf("finder %t, checker %t", finder, checker)
			}
		})
	}
}

func TestNew(t *testing.T) {
	const ok = "https://backend.example/hook"
	for _, c := range []struct {
		name, url string
		o         jsonhook.Options
		want      string
	}{
		{"no URL", "", jsonhook.Options{}, "hookURL"},
		{"a URL of another scheme", "ftp://S3CRET.example", jsonhook.Options{}, "hookURL"},
		{"a URL that can't be parsed", "https://x/%S3CRET", jsonhook.Options{}, "hookURL"},
		{"a look-up URL that is none", ok, jsonhook.Options{LookupURL: "/S3CRET"}, "LookupURL"},
		{"own writes without a look-up", ok, jsonhook.Options{LookupReadsOwnWrites: true}, "LookupReadsOwnWrites"},
		{"a call that there is not", ok, jsonhook.Options{Calls: []crm.Kind{crm.KindContact}}, "Calls"},
		{"a short secret", ok, jsonhook.Options{Secret: "S3CRET"}, "Secret"},
		{"a key in disguise", ok, jsonhook.Options{Header: http.Header{"idempotency-key": {"S3CRET"}}}, "Header"},
		{"a key without a window", ok, jsonhook.Options{Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey}}, "Window"},
		{"a create at least once", ok, jsonhook.Options{Guarantee: crm.Guarantee{Kind: crm.AtLeastOnce}}, "Guarantee"},
	} {
		t.Run(c.name+" is refused by name", func(t *testing.T) {
			a, err := jsonhook.New(c.url, &c.o)
			if err == nil || a != nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "S3CRET") {
				t.Fatalf("%v, %v", a, err)
			}
		})
	}
	t.Run("the options can't be changed afterwards", func(t *testing.T) {
		o := &jsonhook.Options{Header: http.Header{"X-A": {"1"}}}
		a, last := hook(t, 200, nil, `{"id":"1"}`, o)
		o.Header.Set("X-A", "2")
		if _, err := a.CreateLead(t.Context(), op, crm.Lead{}); err != nil || last.header.Get("X-A") != "1" {
			t.Fatal(err, last.header)
		}
	})
}
