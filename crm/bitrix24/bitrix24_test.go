package bitrix24_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/bitrix24"
)

// bitrix24_test.go: what is sent, what each answer means, and what a webhook's URL may look like.

var op = crm.Op{ID: "0d7c6f0e-5a0e-5d0c-9d3a-0a8f6f0d7c11", Key: "k", Kind: crm.KindCreate}

// start serves p and returns an adapter for it, and what it logs.
func start(t *testing.T, p *portal, o *bitrix24.Options) (*bitrix24.Adapter, *bytes.Buffer) {
	t.Helper()
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	logged := &bytes.Buffer{}
	if o == nil {
		o = &bitrix24.Options{}
	}
	o.Logger = slog.New(slog.NewTextHandler(logged, nil))
	a, err := bitrix24.New(s.URL+hookPath, o)
	if err != nil {
		t.Fatal(err)
	}
	return a, logged
}

var lead = crm.Lead{Title: "Telegram: Anna", Name: "Anna", Phone: "+7 900 555-01-23", Email: "a@example.com",
	Username: "anna", Text: "Hello", Campaign: "spring", ContactID: "12",
	Fields: map[string]any{"UTM_SOURCE": "tg", "ufCrm_1700000000": json.Number("9007199254740993")}}

func TestCreate(t *testing.T) {
	const reference = `"originId":"0d7c6f0e-5a0e-5d0c-9d3a-0a8f6f0d7c11","originatorId":"leadonce"`
	for _, c := range []struct {
		name string
		o    bitrix24.Options
		l    crm.Lead
		want string
	}{
		{"a lead has name, multi-fields and text", bitrix24.Options{AssignedTo: 17, Stage: "NEW", Source: "WEB"}, lead,
			`{"entityTypeId":1,"fields":{"assignedById":17,"comments":"Hello","contactId":12,"fm":[` +
				`{"typeId":"PHONE","value":"+7 900 555-01-23","valueType":"WORK"},` +
				`{"typeId":"EMAIL","value":"a@example.com","valueType":"WORK"},` +
				`{"typeId":"IM","value":"anna","valueType":"TELEGRAM"}],"name":"Anna",` + reference + `,"sourceId":"WEB",` +
				`"stageId":"NEW","title":"Telegram: Anna","ufCrm_1700000000":9007199254740993,` +
				`"utmCampaign":"spring","utmSource":"tg"}}`},
		{"a deal has them in its comments", bitrix24.Options{Entity: bitrix24.Deal, Pipeline: 9, Stage: "C9:NEW"}, lead,
			`{"entityTypeId":2,"fields":{"categoryId":9,` +
				`"comments":"Anna\n+7 900 555-01-23\na@example.com\n@anna\nHello","contactId":12,` +
				reference + `,"stageId":"C9:NEW","title":"Telegram: Anna","ufCrm_1700000000":9007199254740993,` +
				`"utmCampaign":"spring","utmSource":"tg"}}`},
		{"what is zero is not sent", bitrix24.Options{}, crm.Lead{Text: "Hello"},
			`{"entityTypeId":1,"fields":{"comments":"Hello",` + reference + `}}`},
		{"original names of custom fields are announced", bitrix24.Options{},
			crm.Lead{Fields: map[string]any{"UF_CRM_1700000000": "x", "STATUS_ID": "IN_PROCESS"}},
			`{"entityTypeId":1,"fields":{"UF_CRM_1700000000":"x",` + reference + `,"stageId":"IN_PROCESS"},` +
				`"useOriginalUfNames":"Y"}`},
		{"the lead's fields win over those of the options",
			bitrix24.Options{Fields: map[string]any{"SOURCE_ID": "A", "utmSource": "b"}},
			crm.Lead{Fields: map[string]any{"sourceId": "C"}},
			`{"entityTypeId":1,"fields":{` + reference + `,"sourceId":"C","utmSource":"b"}}`},
	} {
		for _, asString := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ids as strings %t", c.name, asString), func(t *testing.T) {
				p := &portal{stringIDs: asString}
				a, logged := start(t, p, &c.o)
				id, err := a.CreateLead(t.Context(), op, c.l)
				if err != nil || id != "1" {
					t.Fatalf("%q, %v", id, err)
				}
				got, n := p.last("crm.item.add")
				if got != c.want || n != 1 {
					t.Fatalf("%d calls\n got %s\nwant %s", n, got, c.want)
				}
				if logged.Len() != 0 {
					t.Fatalf("a warning: %s", logged)
				}
			})
		}
	}
	t.Run("a lost reference is logged, and the lead is made all the same", func(t *testing.T) {
		a, logged := start(t, &portal{dropReference: true}, nil)
		if id, err := a.CreateLead(t.Context(), op, lead); err != nil || id != "1" {
			t.Fatalf("%q, %v", id, err)
		}
		if !strings.Contains(logged.String(), "look-ups will not find it") || !strings.Contains(logged.String(), op.ID) {
			t.Fatalf("logged %q", logged)
		}
	})
	t.Run("a field that was ignored is named, without its value", func(t *testing.T) {
		a, logged := start(t, &portal{}, nil)
		if _, err := a.CreateLead(t.Context(), op, crm.Lead{Fields: map[string]any{"utmSuorce": "S3CRET"}}); err != nil {
			t.Fatal(err)
		}
		if s := logged.String(); !strings.Contains(s, "field=utmSuorce") || strings.Contains(s, "S3CRET") {
			t.Fatalf("logged %q", logged)
		}
	})
	for name, l := range map[string]crm.Lead{
		"a reference of the host's own":   {Fields: map[string]any{"ORIGIN_ID": "x"}},
		"custom fields named in two ways": {Fields: map[string]any{"UF_CRM_1": "x", "ufCrm_2": "y"}},
		"a contact that is no number":     {ContactID: "c-1"},
		"a value that JSON can't hold":    {Fields: map[string]any{"x": json.Number("S3CRET")}},
	} {
		t.Run(name+" is rejected before anything is sent", func(t *testing.T) {
			p := &portal{}
			a, _ := start(t, p, nil)
			_, err := a.CreateLead(t.Context(), op, l)
			o, _ := crm.OutcomeOf(err)
			if o != crm.OutcomeRejected || len(p.calls) != 0 || strings.Contains(err.Error(), "S3CRET") {
				t.Fatalf("%v: %v, %d calls", o, err, len(p.calls))
			}
		})
	}
}

// code is an error as Bitrix24 writes it.
func code(c string) string { return `{"error":"` + c + `","error_description":"S3CRET"}` }

func TestAnswers(t *testing.T) {
	var never [2]time.Duration
	at := time.Now().Add(5 * time.Minute).Unix()
	reset := fmt.Sprintf(`{"error":"OPERATION_TIME_LIMIT","time":{"operating_reset_at":%d}}`, at)
	for _, c := range []struct {
		name   string
		status int
		body   string
		create crm.Outcome
		note   crm.Outcome
		after  [2]time.Duration // between
	}{
		{"too many requests", 503, code("QUERY_LIMIT_EXCEEDED"), crm.OutcomeNotApplied, crm.OutcomeNotApplied,
			[2]time.Duration{3 * time.Second, 3 * time.Second}},
		{"the method's time is used up", 429, reset, crm.OutcomeNotApplied, crm.OutcomeNotApplied,
			[2]time.Duration{4 * time.Minute, 5 * time.Minute}},
		{"the same without a time", 429, code("OPERATION_TIME_LIMIT"), crm.OutcomeNotApplied, crm.OutcomeNotApplied,
			[2]time.Duration{time.Minute, time.Minute}},
		{"blocked by hand", 503, code("OVERLOAD_LIMIT"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"a wrong webhook", 401, code("NO_AUTH_FOUND"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"an expired token", 401, code("expired_token"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"credentials", 403, code("INVALID_CREDENTIALS"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"a missing scope", 403, code("insufficient_scope"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"the plan", 403, code("ACCESS_DENIED"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"https required", 400, code("INVALID_REQUEST"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"an unknown method", 404, code("ERROR_METHOD_NOT_FOUND"), crm.OutcomeUnavailable, crm.OutcomeUnavailable, never},
		{"no right, in the method", 400, code("ACCESS_DENIED"), crm.OutcomeUnavailable, crm.OutcomeRejected, never},
		{"a wrong value", 400, code("CRM_FIELD_ERROR_VALUE_NOT_VALID"), crm.OutcomeRejected, crm.OutcomeRejected, never},
		{"a numeric code", 400, `{"error":100}`, crm.OutcomeRejected, crm.OutcomeRejected, never},
		{"not found", 400, code("NOT_FOUND"), crm.OutcomeRejected, crm.OutcomeRejected, never},
		{"a 405", 405, code("ERROR_BATCH_METHOD_NOT_ALLOWED"), crm.OutcomeRejected, crm.OutcomeRejected, never},
		{"an empty code", 400, code(""), crm.OutcomeUnknown, crm.OutcomeRejected, never},
		{"an internal error", 500, code("INTERNAL_SERVER_ERROR"), crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"an unexpected answer", 500, code("ERROR_UNEXPECTED_ANSWER"), crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a closed portal", 500, code("PORTAL_DELETED"), crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a bare 503", 503, "<html>S3CRET", crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a bare 429", 429, "", crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a bare 401", 401, "{}", crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a bare 400", 400, `{"message":"S3CRET"}`, crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a throttle's code under another status", 500, code("QUERY_LIMIT_EXCEEDED"), crm.OutcomeUnknown, crm.OutcomeUnknown,
			never},
		{"an error in a 200", 200, code("CRM_FIELD_ERROR_VALUE_NOT_VALID"), crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a page in a 200", 200, "<html>S3CRET", crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"no result in a 200", 200, "{}", crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"an empty result in a 200", 200, `{"result":[]}`, crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"an item without an id", 200, `{"result":{"item":{"title":"S3CRET"}}}`, crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"an id of nothing", 200, `{"result":{"item":{"id":0}}}`, crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"an item in a 502", 502, `{"result":{"item":{"id":1}}}`, crm.OutcomeUnknown, crm.OutcomeUnknown, never},
		{"a redirect", 302, "", crm.OutcomeUnknown, crm.OutcomeUnknown, never},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reply{status: c.status, body: c.body, header: http.Header{"Retry-After": {"3"}, "X-Request-Id": {"r-1"}}}
			p := &portal{next: map[string]reply{"crm.item.add": r, "crm.timeline.comment.add": r}}
			a, _ := start(t, p, nil)
			_, created := a.CreateLead(t.Context(), op, lead)
			_, noted := a.AddNote(t.Context(), op, "1", crm.Note{Text: "hi"})
			for call, err := range map[string]error{"create": created, "note": noted} {
				if err == nil {
					t.Fatalf("%s: no error", call)
				}
				want := map[string]crm.Outcome{"create": c.create, "note": c.note}[call]
				o, after := crm.OutcomeOf(err)
				if o != want || after < c.after[0] || after > c.after[1] {
					t.Errorf("%s: %v after %v, want %v: %v", call, o, after, want, err)
				}
				if strings.Contains(err.Error(), "S3CRET") {
					t.Errorf("%s tells too much: %v", call, err)
				}
				if e := crm.EvidenceOf(err); o != crm.OutcomeUnknown && e != (crm.Evidence{Status: c.status, RequestID: "r-1"}) {
					t.Errorf("%s: evidence %+v", call, e)
				}
			}
			if _, n := p.last("crm.item.add"); n != 1 {
				t.Errorf("%d creates", n)
			}
		})
	}
}

func TestFind(t *testing.T) {
	p := &portal{}
	a, _ := start(t, p, nil)
	deals, _ := start(t, p, &bitrix24.Options{Entity: bitrix24.Deal})
	upper := op
	upper.ID = strings.ToUpper(op.ID)
	for _, o := range []crm.Op{op, upper, op} {
		if _, err := a.CreateLead(t.Context(), o, lead); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		a    *bitrix24.Adapter
		op   crm.Op
		want string
	}{
		{"every lead with exactly this operation id is found", a, op, "[1 3]"},
		{"and no other", a, upper, "[2]"},
		{"a deal is not a lead", deals, op, "[]"},
		{"none", a, crm.Op{ID: "other"}, "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ids, err := c.a.FindLead(t.Context(), c.op)
			if err != nil || fmt.Sprint(ids) != c.want {
				t.Fatalf("%v, %v", ids, err)
			}
		})
	}
	for name, r := range map[string]reply{
		"an error":               {status: 400, body: code("INVALID_ARG_VALUE")},
		"an error in a 200":      {status: 200, body: code("INVALID_ARG_VALUE")},
		"a bare 502":             {status: 502},
		"a result of other form": {status: 200, body: `{"result":{}}`},
	} {
		t.Run(name+" is not an empty result, and fails the check", func(t *testing.T) {
			p.next = map[string]reply{"crm.item.list": r}
			if ids, err := a.FindLead(t.Context(), op); err == nil {
				t.Fatalf("%v", ids)
			}
			p.next = map[string]reply{"crm.item.list": r}
			if a.Check(t.Context()) == nil {
				t.Fatal("Check is content")
			}
		})
	}
	t.Run("the check changes nothing", func(t *testing.T) {
		if err := a.Check(t.Context()); err != nil || len(p.items) != 3 {
			t.Fatal(err)
		}
	})
}

func TestNew(t *testing.T) {
	const good = "https://portal.example/rest/1/S3CRETcode/"
	for _, c := range []struct {
		name, url string
		o         bitrix24.Options
		want      string
	}{
		{"no URL", "", bitrix24.Options{}, "absolute"},
		{"no scheme", "portal.example/rest/1/S3CRETcode/", bitrix24.Options{}, "absolute"},
		{"what can't be parsed", "https://portal.example/rest/1/%S3CRET/", bitrix24.Options{}, "absolute"},
		{"plain http", "http://portal.example/rest/1/S3CRETcode/", bitrix24.Options{}, "https"},
		{"a name that begins like this machine's", "http://localhost.example/rest/1/S3CRETcode/", bitrix24.Options{}, "https"},
		{"plain http to another machine", "http://10.0.0.1/rest/1/S3CRETcode/", bitrix24.Options{}, "https"},
		{"no code", "https://portal.example/rest/1/", bitrix24.Options{}, "/rest/"},
		{"no user", "https://portal.example/rest/S3CRETcode/", bitrix24.Options{}, "/rest/"},
		{"a method", good + "profile.json", bitrix24.Options{}, "without a method"},
		{"a query", good + "?auth=S3CRET", bitrix24.Options{}, "query"},
		{"a password", "https://u:S3CRET@portal.example/rest/1/S3CRETcode/", bitrix24.Options{}, "password"},
		{"an entity that is none", good, bitrix24.Options{Entity: 3}, "Entity"},
		{"a pipeline of leads", good, bitrix24.Options{Pipeline: 1}, "Pipeline"},
		{"a negative pipeline", good, bitrix24.Options{Entity: bitrix24.Deal, Pipeline: -1}, "Pipeline"},
		{"a negative user", good, bitrix24.Options{AssignedTo: -1}, "AssignedTo"},
		{"a reference of the host's own", good, bitrix24.Options{Fields: map[string]any{"originId": "S3CRET"}}, "Fields"},
	} {
		t.Run(c.name+" is refused by name", func(t *testing.T) {
			_, err := bitrix24.New(c.url, &c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "S3CRET") {
				t.Fatal(err)
			}
		})
	}
	for _, u := range []string{good, strings.TrimSuffix(good, "/"), good + "?",
		"https://portal.example/sub/rest/1/S3CRETcode"} {
		t.Run(u+" is taken, and identified without its code", func(t *testing.T) {
			a, err := bitrix24.New(u, nil)
			if err != nil {
				t.Fatal(err)
			}
			d, err := crm.Describe(a)
			if err != nil || d.Identity != "bitrix24 portal.example" || d.Create.Kind != crm.None || d.LookupReadsOwnWrites {
				t.Fatalf("%+v, %v", d, err)
			}
		})
	}
	t.Run("an error of the connection tells no code", func(t *testing.T) {
		s := httptest.NewServer(nil)
		s.Close()
		a, err := bitrix24.New(s.URL+hookPath, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.CreateLead(t.Context(), op, crm.Lead{Text: "S3CRET"})
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeNotApplied || strings.Contains(err.Error(), "S3CRET") {
			t.Fatalf("%v: %v", o, err)
		}
	})
}
