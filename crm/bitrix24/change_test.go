package bitrix24_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/bitrix24"
)

// change_test.go: notes, updates and stages, and that a repeat of them changes nothing more.

// with returns an adapter for a portal that has one item, made from lead.
func with(t *testing.T, o *bitrix24.Options) (*bitrix24.Adapter, *portal) {
	t.Helper()
	p := &portal{}
	a, _ := start(t, p, o)
	if _, err := a.CreateLead(t.Context(), op, lead); err != nil {
		t.Fatal(err)
	}
	return a, p
}

func TestNote(t *testing.T) {
	for _, entity := range []bitrix24.Entity{bitrix24.Lead, bitrix24.Deal} {
		t.Run("a note is a comment of a "+entity.String(), func(t *testing.T) {
			a, p := with(t, &bitrix24.Options{Entity: entity})
			id, err := a.AddNote(t.Context(), op, "1", crm.Note{Text: "call back", Ref: "n-7"})
			if err != nil || id != "1" {
				t.Fatalf("%q, %v", id, err)
			}
			want := `{"fields":{"COMMENT":"call back\n(n-7)","ENTITY_ID":1,"ENTITY_TYPE":"` + entity.String() + `"}}`
			if got, _ := p.last("crm.timeline.comment.add"); got != want {
				t.Fatalf("sent %s", got)
			}
		})
	}
	t.Run("a lead that is not there is rejected", func(t *testing.T) {
		a, _ := with(t, nil)
		for _, id := range []string{"2", "", "-1", "x", "1/../2"} {
			_, err := a.AddNote(t.Context(), op, id, crm.Note{Text: "hi"})
			if o, _ := crm.OutcomeOf(err); o != crm.OutcomeRejected {
				t.Errorf("%q: %v: %v", id, o, err)
			}
		}
	})
}

func TestUpdate(t *testing.T) {
	for _, c := range []struct {
		name   string
		entity bitrix24.Entity
		u      crm.Lead
		want   string // empty: nothing is written
	}{
		{"a second phone is added", bitrix24.Lead, crm.Lead{Phone: "+7 901 555-01-23"},
			`{"entityTypeId":1,"fields":{"fm":{"n0":{"typeId":"PHONE","value":"+7 901 555-01-23","valueType":"WORK"}}},"id":1}`},
		{"a phone that is there is not added again", bitrix24.Lead, crm.Lead{Phone: "+7 900 555-01-23", Text: "Hello"}, ""},
		{"text goes below what a manager wrote", bitrix24.Lead, crm.Lead{Text: "More"},
			`{"entityTypeId":1,"fields":{"comments":"Hello\nMore"},"id":1}`},
		{"a deal takes the phone into its comments", bitrix24.Deal, crm.Lead{Phone: "+7 901 555-01-23", Name: "Anna"},
			`{"entityTypeId":2,"fields":{"comments":"Anna\n+7 900 555-01-23\na@example.com\n@anna\nHello` +
				`\n+7 901 555-01-23"},"id":1}`},
		{"fields go by their names", bitrix24.Lead, crm.Lead{Name: "Ann", Fields: map[string]any{"UTM_SOURCE": "x"}},
			`{"entityTypeId":1,"fields":{"name":"Ann","utmSource":"x"},"id":1}`},
		{"nothing to change", bitrix24.Lead, crm.Lead{}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, p := with(t, &bitrix24.Options{Entity: c.entity})
			if err := a.UpdateLead(t.Context(), op, "1", c.u); err != nil {
				t.Fatal(err)
			}
			if got, _ := p.last("crm.item.update"); got != c.want {
				t.Fatalf("sent %s", got)
			}
			before := len(p.items[0]["comments"].(string))
			phones, _ := p.items[0]["fm"].([]any)
			if err := a.UpdateLead(t.Context(), op, "1", c.u); err != nil {
				t.Fatal(err)
			}
			again, _ := p.items[0]["fm"].([]any)
			if len(p.items[0]["comments"].(string)) != before || len(again) != len(phones) {
				t.Fatalf("the repeat changed the item: %v", p.items[0])
			}
		})
	}
	t.Run("the reference can't be changed", func(t *testing.T) {
		a, p := with(t, nil)
		err := a.UpdateLead(t.Context(), op, "1", crm.Lead{Fields: map[string]any{"ORIGIN_ID": "x"}})
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeRejected || len(p.calls) != 1 {
			t.Fatalf("%v: %v", o, err)
		}
	})
}

func TestStage(t *testing.T) {
	for _, c := range []struct {
		name string
		s    crm.Stage
		want string
	}{
		{"from any stage", crm.Stage{To: "IN_PROCESS"}, "IN_PROCESS"},
		{"from a stage that may be left", crm.Stage{To: "IN_PROCESS", From: []string{"X", "NEW"}}, "IN_PROCESS"},
		{"a manager's decision stays", crm.Stage{To: "IN_PROCESS", From: []string{"X"}}, "NEW"},
		{"already there", crm.Stage{To: "NEW"}, "NEW"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, p := with(t, nil)
			if err := a.SetStage(t.Context(), op, "1", c.s); err != nil {
				t.Fatal(err)
			}
			_, writes := p.last("crm.item.update")
			if got := p.items[0]["stageId"]; got != c.want || writes > 0 != (c.want != "NEW") {
				t.Fatalf("in %v after %d writes", got, writes)
			}
		})
	}
	t.Run("no stage to move to is rejected", func(t *testing.T) {
		a, _ := with(t, nil)
		if o, _ := crm.OutcomeOf(a.SetStage(t.Context(), op, "1", crm.Stage{})); o != crm.OutcomeRejected {
			t.Fatal(o)
		}
	})
}

func TestReadStage(t *testing.T) {
	for _, c := range []struct {
		entity bitrix24.Entity
		stage  string
		closed bool
	}{
		{bitrix24.Lead, "IN_PROCESS", false}, {bitrix24.Lead, "CONVERTED", true}, {bitrix24.Lead, "JUNK", true},
		{bitrix24.Deal, "C9:PREPARATION", false}, {bitrix24.Deal, "C9:WON", true}, {bitrix24.Deal, "LOSE", true},
	} {
		t.Run(fmt.Sprintf("a %s in %s is closed: %t", c.entity, c.stage, c.closed), func(t *testing.T) {
			a, p := with(t, &bitrix24.Options{Entity: c.entity})
			if err := a.SetStage(t.Context(), op, "1", crm.Stage{To: c.stage}); err != nil {
				t.Fatal(err)
			}
			at := time.Date(2026, 8, 25, 13, 16, 6, 0, time.UTC) // the second change
			want := crm.StageState{Stage: c.stage, Version: at.UnixMilli(), At: at, Closed: c.closed}
			if got, err := a.ReadStage(t.Context(), op, "1"); err != nil || got != want {
				t.Fatalf("%+v, %v; want %+v", got, err, want)
			}
			request := fmt.Sprintf(`{"entityTypeId":%d,"id":1}`, c.entity)
			if sent, _ := p.last("crm.item.get"); sent != request {
				t.Errorf("sent %s", sent)
			}
		})
	}
	const whole = `"id":1,"stageId":"UC_1","updatedTime":"2026-08-25T16:16:04.125+03:00"`
	for _, c := range []struct {
		name, item string
		ok, closed bool
	}{
		{"a portal's own stage counts by its group", whole + `,"stageSemanticId":"F","closed":"N"`, true, true},
		{"a deal without a group says itself that it is closed", whole + `,"stageSemanticId":null,"closed":"Y"`, true, true},
		{"a deal without a group says itself that it is open", whole + `,"closed":"N"`, true, false},
		{"a lead without a group is not guessed about", whole, false, false},
		{"an unknown group is not guessed about", whole + `,"stageSemanticId":"A"`, false, false},
		{"no stage is an error", `"id":1,"updatedTime":"2026-08-25T16:16:04+03:00","stageSemanticId":"P"`, false, false},
		{"no time is an error", `"id":1,"stageId":"NEW","stageSemanticId":"P"`, false, false},
		{"a time without an offset is an error",
			`"id":1,"stageId":"NEW","stageSemanticId":"P","updatedTime":"25.08.2026 16:16:04 S3CRET"`, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, p := with(t, nil)
			p.next = map[string]reply{"crm.item.get": {status: 200, body: `{"result":{"item":{` + c.item + `}}}`}}
			got, err := a.ReadStage(t.Context(), op, "1")
			if !c.ok {
				o, _ := crm.OutcomeOf(err)
				if err == nil || o != crm.OutcomeNotApplied || got != (crm.StageState{}) || strings.Contains(err.Error(), "S3CRET") {
					t.Fatalf("%+v, %v: %v", got, o, err)
				}
				return
			}
			if err != nil || got.Closed != c.closed || got.Stage != "UC_1" || got.Version != 1787663764125 {
				t.Fatalf("%+v, %v", got, err)
			}
		})
	}
}

// A change is a reading and a writing: only the writing can leave anything behind.
func TestChangeOutcomes(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *bitrix24.Adapter) error{
		"update": func(t *testing.T, a *bitrix24.Adapter) error {
			return a.UpdateLead(t.Context(), op, "1", crm.Lead{Text: "More"})
		},
		"stage": func(t *testing.T, a *bitrix24.Adapter) error {
			return a.SetStage(t.Context(), op, "1", crm.Stage{To: "IN_PROCESS"})
		},
		"reading": func(t *testing.T, a *bitrix24.Adapter) error {
			_, err := a.ReadStage(t.Context(), op, "1")
			return err
		},
	} {
		for _, c := range []struct {
			name, method string
			r            reply
			want         crm.Outcome
		}{
			{"an unknown end of the reading is not applied", "crm.item.get", reply{status: 502}, crm.OutcomeNotApplied},
			{"an error in a 200 of the reading is not applied", "crm.item.get",
				reply{status: 200, body: code("X")}, crm.OutcomeNotApplied},
			{"another item is not applied", "crm.item.get",
				reply{status: 200, body: `{"result":{"item":{"id":2}}}`}, crm.OutcomeNotApplied},
			{"a lead that is gone is rejected", "crm.item.get", reply{status: 400, body: code("")}, crm.OutcomeRejected},
			{"an unknown end of the writing is unknown", "crm.item.update", reply{status: 502, after: true}, crm.OutcomeUnknown},
			{"a refusal of the writing is rejected", "crm.item.update", reply{status: 400, body: code("")}, crm.OutcomeRejected},
		} {
			if name == "reading" && c.method != "crm.item.get" {
				continue
			}
			t.Run(name+": "+c.name, func(t *testing.T) {
				a, p := with(t, nil)
				p.next = map[string]reply{c.method: c.r}
				err := change(t, a)
				if o, _ := crm.OutcomeOf(err); err == nil || o != c.want || strings.Contains(err.Error(), "S3CRET") {
					t.Fatalf("%v: %v", o, err)
				}
			})
		}
	}
}
