package stagehook_test

import (
	"errors"
	"net/url"
	"testing"
	"unicode/utf8"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/dedup/stagehook"
)

// parse_test.go: the ready ParseFuncs, on what they are meant for and on anything else.

func TestJSON(t *testing.T) {
	for body, want := range map[string]stagehook.Change{
		`{"lead_id":"4711"}`:                         {StageChange: dedup.StageChange{LeadID: "4711"}},
		`{"lead_id":9007199254740993,"event_id":-7}`: {EventID: "-7", StageChange: dedup.StageChange{LeadID: "9007199254740993"}},
		`{"lead_id":"1","event_id":null,"stage":"lost","closed":true,"version":9007199254740993,"more":[{}]}`: {
			StageChange: dedup.StageChange{LeadID: "1", Stage: "lost", Closed: true, Version: 9007199254740993}},
	} {
		t.Run(body, func(t *testing.T) {
			if got, err := stagehook.JSON([]byte(body)); err != nil || got != want {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
}

func TestBitrix24Form(t *testing.T) {
	dynamic := []string{"event", "ONCRMDYNAMICITEMUPDATE", "data[FIELDS][ENTITY_TYPE_ID]"}
	for _, c := range []struct {
		name   string
		entity int
		change []string
		lead   string
		other  bool // ErrOther; else, without a lead, another error
	}{
		{"a deal for deals", 2, nil, "7713", false},
		{"an event in small letters", 2, []string{"event", "onCrmDealUpdate"}, "7713", false},
		{"a lead for leads", 1, []string{"event", "ONCRMLEADUPDATE"}, "7713", false},
		{"a deal for leads, with the number of a lead", 1, nil, "", true},
		{"a lead for deals, with the number of a deal", 2, []string{"event", "ONCRMLEADUPDATE"}, "", true},
		{"an item of the smart process", 1032, append(dynamic, "1032"), "7713", false},
		{"an item of another smart process", 1032, append(dynamic, "1040"), "", true},
		{"an event of the one smart process", 1032, append(dynamic, "1032", "event", "ONCRMDYNAMICITEMUPDATE_1032"),
			"7713", false},
		{"an item of no smart process", 1032, []string{"event", "ONCRMDYNAMICITEMUPDATE"}, "", false},
		{"a deal that was deleted", 2, []string{"event", "ONCRMDEALDELETE"}, "", true},
		{"no event", 2, []string{"event", ""}, "", false},
		{"no item", 2, []string{"data[FIELDS][ID]", ""}, "", false},
		{"an item that is no number", 2, []string{"data[FIELDS][ID]", "D_7"}, "", false},
		{"an item below one", 2, []string{"data[FIELDS][ID]", "0"}, "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := stagehook.Bitrix24Form(c.entity)([]byte(bitrix(c.change...)))
			if got != (stagehook.Change{StageChange: dedup.StageChange{LeadID: c.lead}}) || (err == nil) != (c.lead != "") ||
				errors.Is(err, stagehook.ErrOther) != c.other {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// check holds of every body, whoever reads it.
func check(t *testing.T, s *stagehook.Source, body []byte) {
	e, err := s.Parse(body)
	if err != nil {
		if !errors.Is(err, dedup.ErrIncomplete) {
			t.Errorf("the error %v", err)
		}
		return
	}
	q := enquiry(t, e)
	if e.Source == "" || e.UpdateID == "" || e.Hash == "" || e.OrderingKey == "" || e.ContentID == "" || e.DealKey == "" ||
		len(e.Fingerprints) != 1 || q.HasPerson || q.Asks || e.ContactKey != "" || !utf8.ValidString(e.UpdateID+e.LeadRef) {
		t.Errorf("%+v", e)
	}
	if understood := e.Kind == stagehook.Kind; understood != (e.LeadRef != "") || understood != (q.Stage != nil) ||
		understood && (q.Stage.LeadID != e.LeadRef || e.Quarantine != "") {
		t.Errorf("%+v, %+v", e, q.Stage)
	}
}

func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		"", "{", "null", `{"lead_id":"1","at":"2026-08-24T09:30:00Z"}`, `{"lead_id":-1,"event_id":"\ud800"}`,
		`{"lead_id":"\u0000"}`, `{"LEAD_ID":1,"version":1e3}`, "{\"lead_id\":\"\xff\"}", `{"lead_id":"1","at":"9999-12-31T23:59:59-23:59"}`,
	} {
		f.Add([]byte(body))
	}
	s := must(f, "shop", stagehook.Token(stagehook.InHeader, "X-Token", token), stagehook.JSON)
	f.Fuzz(func(t *testing.T, body []byte) { check(t, s, body) })
}

func FuzzBitrix24Form(f *testing.F) {
	for _, body := range []string{
		bitrix(), bitrix("event", "ONCRMDYNAMICITEMUPDATE", "data[FIELDS][ENTITY_TYPE_ID]", "2"), "%", "a;b", "&&=",
		"event=ONX", url.Values{"data[FIELDS][ID]": {"1", "2"}}.Encode(),
	} {
		f.Add([]byte(body))
	}
	s := must(f, "bitrix24", stagehook.Token(stagehook.InForm, "auth[application_token]", token), stagehook.Bitrix24Form(2))
	f.Fuzz(func(t *testing.T, body []byte) { check(t, s, body) })
}
