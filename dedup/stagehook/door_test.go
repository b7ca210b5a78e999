package stagehook_test

import (
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/dedup/stagehook"
	"github.com/leadonce/leadonce/store"
)

// door_test.go: what is stored of what a CRM sends, and what it is answered.

func TestHooksAtTheDoor(t *testing.T) {
	header := stagehook.Token(stagehook.InHeader, "X-Token", token)
	const change = `{"event_id":"e-1","lead_id":"4711","stage":"won","version":18,"at":"2026-08-24T12:30:00+03:00","closed":true}`
	t.Run("a wrong token leaves no row", func(t *testing.T) {
		h := open(t, must(t, "shop", header, stagehook.JSON))
		h.post(t, http.StatusUnauthorized, "", change, "X-Token", "wrong-token-0123456789")
		h.post(t, http.StatusUnauthorized, "?X-Token="+token, change)
		h.rows(t, 0)
	})
	t.Run("a change is stored with all that is known of it", func(t *testing.T) {
		h := open(t, must(t, "shop", header, stagehook.JSON))
		h.post(t, http.StatusOK, "", change, "X-Token", token)
		e := h.rows(t, 1)[0]
		if e.Source != "shop" || e.Tenant != "omsk" || e.Bot != "" || e.UpdateID != "e-1" || e.Kind != stagehook.Kind ||
			e.State != store.EventPending || e.ContactKey != "" || e.ContentID == "" || e.DealKey != e.ContentID ||
			string(e.Payload) != change {
			t.Errorf("%+v", e)
		}
		if e.OrderingKey != dedup.OrderingKey("omsk", "shop", "", "lead", "4711") {
			t.Error("another ordering key")
		}
		q := enquiry(t, e.Event)
		at := time.Date(2026, 8, 24, 9, 30, 0, 0, time.UTC)
		want := dedup.StageChange{LeadID: "4711", Stage: "won", Version: 18, At: at, Closed: true}
		if q.Stage == nil || *q.Stage != want || !q.At.Equal(at) || q.HasPerson || q.Asks || q.Source != "shop" || q.Tenant != "omsk" ||
			q.Kind != stagehook.Kind || q.ContentID != e.ContentID || q.DealKey != e.DealKey {
			t.Errorf("%+v, stage %+v", q, q.Stage)
		}
	})
	t.Run("an event of the CRM's that comes again is a duplicate, even if it says when it was sent", func(t *testing.T) {
		h := open(t, must(t, "shop", header, stagehook.JSON))
		for _, body := range []string{change, change, strings.Replace(change, "{", `{"sent":"12:00:01",`, 1)} {
			h.post(t, http.StatusOK, "", body, "X-Token", token)
		}
		h.rows(t, 1)
	})
	t.Run("an event id that comes with another change is kept as another event", func(t *testing.T) {
		h := open(t, must(t, "shop", header, stagehook.JSON))
		for _, part := range [][2]string{
			{"", ""}, {"4711", "4712"}, {"won", "lost"}, {"18", "19"}, {"12:30:00", "12:30:01"}, {"true", "false"},
		} {
			h.post(t, http.StatusOK, "", strings.Replace(change, part[0], part[1], 1), "X-Token", token)
		}
		if rows := h.rows(t, 6); rows[5].Epoch != 5 {
			t.Errorf("epoch %d", rows[5].Epoch)
		}
	})
	t.Run("two hints with the same bytes are two events of one lead", func(t *testing.T) {
		form := stagehook.Token(stagehook.InForm, "auth[application_token]", token)
		h := open(t, must(t, "bitrix24", form, stagehook.Bitrix24Form(2)))
		h.post(t, http.StatusOK, "", bitrix())
		h.post(t, http.StatusOK, "", bitrix())
		rows := h.rows(t, 2)
		if rows[0].OrderingKey != rows[1].OrderingKey || rows[0].ContentID == rows[1].ContentID {
			t.Error("not two contents under one key")
		}
		q := enquiry(t, rows[0].Event)
		if q.Stage == nil || *q.Stage != (dedup.StageChange{LeadID: "7713"}) {
			t.Errorf("%+v", q.Stage)
		}
	})
	t.Run("a wrong token in a form leaves no row", func(t *testing.T) {
		form := stagehook.Token(stagehook.InForm, "auth[application_token]", oldToken)
		h := open(t, must(t, "bitrix24", form, stagehook.Bitrix24Form(2)))
		h.post(t, http.StatusUnauthorized, "", bitrix())
		h.post(t, http.StatusUnauthorized, "", "no form at all")
		h.post(t, http.StatusUnauthorized, "", "")
		h.rows(t, 0)
	})
	t.Run("a signed body is stored, and a forged one is not", func(t *testing.T) {
		auth := stagehook.HMAC(stagehook.Signature{Header: "Leadonce-Signature", Prefix: "v1="}, token)
		h := open(t, must(t, "shop", auth, stagehook.JSON))
		h.post(t, http.StatusUnauthorized, "", change, "Leadonce-Signature", "v1="+hex.EncodeToString(sign(oldToken, change)))
		h.post(t, http.StatusOK, "", change, "Leadonce-Signature", "v1="+hex.EncodeToString(sign(token, change)))
		h.rows(t, 1)
	})
	t.Run("a lost body is no event", func(t *testing.T) {
		h := open(t, must(t, "shop", header, stagehook.JSON))
		h.post(t, http.StatusBadRequest, "", " \n", "X-Token", token)
		h.rows(t, 0)
	})
}

func TestWhatIsNotUnderstoodIsKept(t *testing.T) {
	header := stagehook.Token(stagehook.InHeader, "X-Token", token)
	for name, body := range map[string]string{
		"garbage": "<html>", "JSON that is no object": `[1]`,
		"no lead": `{"event_id":"1","stage":"won"}`, "a blank lead": `{"lead_id":"  "}`,
		"a lead that is a fraction": `{"lead_id":1.5}`, "a lead that is a list": `{"lead_id":["1"]}`,
		"a time that is none": `{"lead_id":"1","at":"yesterday"}`, "a version below zero": `{"lead_id":"1","version":-1}`,
		"a version that is no number": `{"lead_id":"1","version":"x"}`, "a NUL": `{"lead_id":"1\u0000"}`,
		"a lead longer than any id": `{"lead_id":"` + strings.Repeat("1", 256) + `"}`, "two bodies": `{"lead_id":"1"}{"lead_id":"2"}`,
		"a stage of two lines":            `{"lead_id":"1","stage":"a\nb"}`,
		"an event id beyond every column": `{"lead_id":"1","event_id":"` + strings.Repeat("é", 128) + `"}`,
	} {
		t.Run(name+" is quarantined once, and answered 200", func(t *testing.T) {
			h := open(t, must(t, "shop", header, stagehook.JSON))
			h.post(t, http.StatusOK, "", body, "X-Token", token)
			h.post(t, http.StatusOK, "", body, "X-Token", token)
			e := h.rows(t, 1)[0]
			if e.State != store.EventQuarantined || e.Source != "shop" || e.Tenant != "omsk" || e.LeadRef != "" ||
				string(e.Payload) != body {
				t.Errorf("%+v", e)
			}
		})
	}
	for name, parse := range map[string]stagehook.ParseFunc{
		"an error":           func(b []byte) (stagehook.Change, error) { return stagehook.Change{}, errors.New("bad: " + string(b)) },
		"a panic":            func(b []byte) (stagehook.Change, error) { panic("bad: " + string(b)) },
		"a year beyond JSON": func([]byte) (stagehook.Change, error) { return at(time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)), nil },
		"a year before any":  func([]byte) (stagehook.Change, error) { return at(time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)), nil },
	} {
		t.Run(name+" of the ParseFunc quarantines the body, and quotes it nowhere", func(t *testing.T) {
			h := open(t, must(t, "shop", header, parse))
			h.post(t, http.StatusOK, "", "Anna's phone", "X-Token", token)
			e := h.rows(t, 1)[0]
			if e.State != store.EventQuarantined || e.Source != "shop" ||
				strings.Contains(e.Quarantine+string(e.Enquiry)+h.log.String(), "Anna") {
				t.Errorf("%+v\n%s", e, h.log)
			}
		})
	}
	t.Run("a time in an odd zone is kept as the instant that it is", func(t *testing.T) {
		parse := func([]byte) (stagehook.Change, error) {
			return at(time.Unix(1780000000, 0).In(time.FixedZone("odd", 30*3600))), nil
		}
		h := open(t, must(t, "shop", header, parse))
		h.post(t, http.StatusOK, "", "x", "X-Token", token)
		if q := enquiry(t, h.rows(t, 1)[0].Event); q.Stage == nil || !q.Stage.At.Equal(time.Unix(1780000000, 0)) {
			t.Errorf("%+v", q)
		}
	})
	t.Run("what is about something else is stored as an event of nobody's", func(t *testing.T) {
		form := stagehook.Token(stagehook.InForm, "auth[application_token]", token)
		h := open(t, must(t, "bitrix24", form, stagehook.Bitrix24Form(2)))
		h.post(t, http.StatusOK, "", bitrix("event", "ONCRMCONTACTUPDATE"))
		e := h.rows(t, 1)[0]
		q := enquiry(t, e.Event)
		if e.Kind != stagehook.KindOther || e.State != store.EventPending || e.LeadRef != "" || q.Stage != nil || q.HasPerson || q.Asks {
			t.Errorf("%+v", e)
		}
	})
}

func at(t time.Time) stagehook.Change {
	return stagehook.Change{StageChange: dedup.StageChange{LeadID: "1", Stage: "won", At: t}}
}

func TestSecretsStayWhereTheyAre(t *testing.T) {
	for _, in := range []stagehook.Place{stagehook.InHeader, stagehook.InQuery, stagehook.InForm} {
		t.Run("a token in the "+string(in)+" is neither stored nor logged", func(t *testing.T) {
			name := "auth[application_token]"
			if in == stagehook.InHeader {
				name = "X-Token"
			}
			h := open(t, must(t, "bitrix24", stagehook.Token(in, name, token), stagehook.Bitrix24Form(2)))
			query := ""
			if in == stagehook.InQuery {
				query = "?auth[application_token]=" + token
			}
			other := strings.ReplaceAll(bitrix(), "&auth%5Bapplication_token%5D="+token, "")
			other = strings.ReplaceAll(other, "auth%5Bapplication_token%5D="+token+"&", "")
			bodies := []string{other, "garbage=1"}
			if in == stagehook.InForm {
				bodies = []string{bitrix(), "garbage=1&auth[application_token]=" + token, "auth%5bapplication_token%5d=" + token + "&x=1"}
			}
			for _, b := range bodies {
				h.post(t, http.StatusOK, query, b, "X-Token", token)
				wrong := strings.NewReplacer(token, token[1:])
				h.post(t, http.StatusUnauthorized, wrong.Replace(query), wrong.Replace(b), "X-Token", token[1:])
			}
			for _, e := range h.rows(t, len(bodies)) {
				if strings.Contains(string(e.Payload)+string(e.Enquiry)+e.Quarantine+e.UpdateID, token) {
					t.Errorf("stored: %s", e.Payload)
				}
			}
			if strings.Contains(h.log.String(), token[1:]) {
				t.Errorf("logged: %s", h.log)
			}
		})
	}
	t.Run("what is stored of a form is read as before", func(t *testing.T) {
		s := must(t, "bitrix24", stagehook.Token(stagehook.InForm, "auth[application_token]", token), stagehook.Bitrix24Form(2))
		one, err1 := s.Parse([]byte(bitrix()))
		two, err2 := s.Parse(one.Payload)
		if err1 != nil || err2 != nil || two.LeadRef != "7713" || one.OrderingKey != two.OrderingKey {
			t.Errorf("%v %v %+v", err1, err2, two)
		}
	})
}
