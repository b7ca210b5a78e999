package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/leadonce/leadonce/crm/jsonhook"
)

// hooks_test.go: what the CRM tells about its leads.

const hookToken = "crm-token-0123456789"

func (s *server) hook(contentType, signature, body string) int {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.url+"/crm", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set(jsonhook.SignatureHeader, signature)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// planned counts the hooks that were decided.
func (s *server) planned() (n int) {
	for _, e := range read[[]eventView](s.t, s.ops("list", "-events", "-state", "planned", "-json")) {
		if e.Kind == "stage" {
			n++
		}
	}
	return n
}

func TestSignedHooks(t *testing.T) {
	s := launch(t, t.TempDir(), "sim", []string{"CRM_HOOK_TOKEN=" + hookToken + ", the-one-to-come-0123"}, nil, nil)
	s.accept(update(1, 42, "How much is an oil change?"))
	eventually(t, "the lead is done", func() bool { return len(s.in("done")) == 1 })
	won := fmt.Sprintf(`{"lead_id":%q,"stage":"won","version":2,"closed":true}`, s.in("done")[0].CRMID)

	t.Run("a hook that is not signed is answered 401 and leaves nothing", func(t *testing.T) {
		for _, signature := range []string{"", "v1=00", jsonhook.Sign("another-secret-0123", []byte(won))} {
			if got := s.hook("application/json", signature, won); got != http.StatusUnauthorized {
				t.Errorf("%q: %d", signature, got)
			}
		}
		if s.planned() != 0 {
			t.Error("it was stored")
		}
	})
	t.Run("what a person writes to a lead that is won becomes another one", func(t *testing.T) {
		if got := s.hook("application/json", jsonhook.Sign("the-one-to-come-0123", []byte(won)), won); got != http.StatusOK {
			t.Fatal(got)
		}
		eventually(t, "the hook is decided", func() bool { return s.planned() == 1 })
		s.accept(update(2, 42, "And tyres?"))
		eventually(t, "the second lead is done", func() bool { return len(s.in("done")) == 2 })
		if _, page := s.get("/sim/leads"); len(read[[]simLead](t, page)) != 2 {
			t.Error(page)
		}
	})
	t.Run("without a token there is no such path", func(t *testing.T) {
		if got := start(t, "sim").hook("application/json", jsonhook.Sign("", []byte(won)), won); got != http.StatusNotFound {
			t.Error(got)
		}
	})
}

// portal answers like a Bitrix24 whose only stage is the one that it is told.
type portal struct {
	mu      sync.Mutex
	stage   string
	methods []string
}

func (p *portal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct{ Fields map[string]any }
	json.NewDecoder(r.Body).Decode(&in)
	p.mu.Lock()
	defer p.mu.Unlock()
	method := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	p.methods = append(p.methods, method)
	it := map[string]any{"id": 7}
	if method == "crm.item.get" {
		it["stageId"], it["updatedTime"] = p.stage, "2026-08-25T16:16:04+03:00"
		it["stageSemanticId"] = map[bool]string{true: "F", false: "P"}[p.stage == "JUNK"]
	} else {
		it["id"] = 6 + len(p.methods)
		for name, v := range in.Fields {
			it[name] = v
		}
	}
	json.NewEncoder(w).Encode(map[string]any{"result": map[string]any{"item": it}})
}

func (p *portal) called(method string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.methods {
		if m == method {
			n++
		}
	}
	return n
}

func TestBitrix24Hooks(t *testing.T) {
	p := &portal{stage: "JUNK"}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	s := launch(t, t.TempDir(), "bitrix24",
		[]string{"CRM_HOOK_TOKEN=" + hookToken, "B24_WEBHOOK=" + srv.URL + "/rest/1/code/"}, nil, nil)
	s.accept(update(1, 42, "How much is an oil change?"))
	eventually(t, "the lead is done", func() bool { return len(s.in("done")) == 1 })
	deliver := func(event, token string) int {
		return s.hook("application/x-www-form-urlencoded", "", url.Values{"event": {event}, "data[FIELDS][ID]": {"7"},
			"auth[application_token]": {token}}.Encode())
	}

	t.Run("a hook with another token is answered 401", func(t *testing.T) {
		if got := deliver("ONCRMLEADUPDATE", "another-token-0123456789"); got != http.StatusUnauthorized {
			t.Error(got)
		}
	})
	t.Run("a hook about another kind of record reads nothing", func(t *testing.T) {
		if got := deliver("ONCRMDEALUPDATE", hookToken); got != http.StatusOK {
			t.Error(got)
		}
		out := s.ops("list", "-events", "-state", "all", "-json")
		if strings.Contains(out, `"stage"`) || !strings.Contains(out, `"other"`) {
			t.Error(out)
		}
	})
	t.Run("a hint makes the stage be read, and a lead that is junk is not continued", func(t *testing.T) {
		if got := deliver("ONCRMLEADUPDATE", hookToken); got != http.StatusOK {
			t.Fatal(got)
		}
		eventually(t, "the hint and the reading are decided", func() bool { return s.planned() == 2 })
		s.accept(update(2, 42, "And tyres?"))
		eventually(t, "the second lead is done", func() bool { return len(s.in("done")) == 3 })
		got := [...]int{p.called("crm.item.get"), p.called("crm.item.add"), p.called("crm.timeline.comment.add")}
		if got != [...]int{1, 2, 0} {
			t.Errorf("%v readings, leads, notes", got)
		}
	})
	t.Run("the log does not show the token", func(t *testing.T) {
		if strings.Contains(s.logged(), hookToken) {
			t.Error(s.logged())
		}
	})
}
