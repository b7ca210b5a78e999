package telegram_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/telegram"
)

// parse_test.go: bodies that no library should be shown, and none of which may be lost.

func TestOddBodies(t *testing.T) {
	s := source(t)
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	msg := `"message":{"message_id":1,"from":{"id":7},"chat":{"id":7,"type":"private"},"date":9,"text":"x"}`
	for _, c := range []struct {
		name, body string
		quarantine string
		updateID   string
	}{
		{"no JSON", "hello", "not a JSON object", ""},
		{"cut in the middle", `{"update_id":1,"mess`, "not a JSON object", ""},
		{"a list", `[{"update_id":1}]`, "not a JSON object", ""},
		{"null", "null", "not a JSON object", ""},
		{"a number", "17", "not a JSON object", ""},
		{"something behind the end", `{"update_id":1} {"update_id":2}`, "not a JSON object", ""},
		{"nested beyond reason", `{"update_id":1,"x":` + deep + `}`, "not a JSON object", ""},
		{"a form", "payload=%7B%7D", "not a JSON object", ""},
		{"no update_id", `{` + msg + `}`, "no update_id", ""},
		{"an update_id that is null", `{"update_id":null}`, "no update_id", ""},
		{"a fractional update_id", `{"update_id":1.5}`, "no update_id", ""},
		{"an update_id beyond 64 bits", `{"update_id":9223372036854775808}`, "no update_id", ""},
		{"an update_id in another case", `{"UPDATE_ID":1}`, "no update_id", ""},
		{"the largest update_id", `{"update_id":9223372036854775807}`, "", "9223372036854775807"},
		{"an update_id in quotes", `{"update_id":"12"}`, "", "12"},
		{"an update_id of 0", `{"update_id":0,` + msg + `}`, "", "0"},
		{"a byte order mark", "\xef\xbb\xbf" + `{"update_id":5}`, "", "5"},
		{"an update_id twice", `{"update_id":1,"update_id":2}`, "", "2"},
		{"bytes that are no UTF-8", "{\"update_id\":6,\"message\":{\"text\":\"\xff\xfe\"}}", "", "6"},
		{"half a surrogate pair", `{"update_id":7,"message":{"text":"\ud83d"}}`, "", "7"},
		{"a NUL", `{"update_id":8,"message":{"text":"a\u0000b"}}`, "", "8"},
		{"a number beyond every type", `{"update_id":9,"future":1e999999}`, "", "9"},
		{"a date beyond every calendar", `{"update_id":10,"message":{"date":999999999999999}}`, "", "10"},
		{"a negative date", `{"update_id":11,"message":{"date":-5}}`, "", "11"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, q := parse(t, s, []byte(c.body))
			sound(t, e, q, []byte(c.body))
			if e.Quarantine != c.quarantine {
				t.Fatalf("quarantine %q, want %q", e.Quarantine, c.quarantine)
			}
			want := c.updateID
			if c.quarantine != "" {
				want = "sha256:" + e.Hash
			}
			if e.UpdateID != want {
				t.Fatalf("update_id %q, want %q", e.UpdateID, want)
			}
		})
	}
	for _, body := range []string{"", " \r\n\t"} {
		t.Run(fmt.Sprintf("a body %q is incomplete, not an event", body), func(t *testing.T) {
			if _, err := s.Parse([]byte(body)); !errors.Is(err, dedup.ErrIncomplete) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestOneFieldCostsNoOther(t *testing.T) {
	s := source(t)
	whole := map[string]any{"message_id": 5, "from": map[string]any{"id": 7, "first_name": "A", "last_name": "B", "username": "ab", "language_code": "ru"},
		"chat": map[string]any{"id": 7, "type": "private"}, "date": 1780000000, "text": "/start promo", "media_group_id": "1",
		"contact":          map[string]any{"phone_number": "+7", "user_id": 7},
		"photo":            []any{map[string]any{"file_id": "f", "width": 1, "height": 1}},
		"reply_to_message": map[string]any{"message_id": 4}, "location": map[string]any{"latitude": 1.5, "longitude": 2.5}}
	of := func(m map[string]any) map[string]bool {
		body, err := json.Marshal(map[string]any{"update_id": 1, "message": m})
		if err != nil {
			t.Fatal(err)
		}
		e, q := parse(t, s, body)
		if e.Quarantine != "" {
			t.Fatalf("quarantined: %s", e.Quarantine)
		}
		return map[string]bool{"person": q.HasPerson, "chat": q.ChatID != "", "date": !q.At.IsZero(), "text": q.Text != "",
			"campaign": q.Campaign == "promo", "phone": q.Phone != "", "file": len(q.Files) > 0, "reply": q.ReplyTo != "",
			"place": q.Location != "", "album": q.Group != "", "message": q.Message != ""}
	}
	for what, ok := range of(whole) {
		if !ok {
			t.Fatalf("%s is not read at all", what)
		}
	}
	lost := map[string][]string{"message_id": {"message"}, "from": {"person"}, "chat": {"chat"}, "date": {"date"},
		"text": {"text", "campaign"}, "media_group_id": {"album"}, "contact": {"phone"}, "photo": {"file"}, "reply_to_message": {"reply"},
		"location": {"place"}}
	for field := range whole {
		for _, odd := range []any{nil, true, []any{}, []any{[]any{}}, map[string]any{}, -1.5} {
			t.Run(fmt.Sprintf("%s is %v", field, odd), func(t *testing.T) {
				m := map[string]any{}
				for k, v := range whole {
					m[k] = v
				}
				m[field] = odd
				got := of(m)
				for _, what := range lost[field] {
					delete(got, what)
				}
				for what, ok := range got {
					if !ok {
						t.Errorf("%s was lost with it", what)
					}
				}
			})
		}
	}
}

func TestFieldsOfAnEnquiry(t *testing.T) {
	s := source(t)
	t.Run("person, text and date", func(t *testing.T) {
		_, q := parse(t, s, named(t, "a text in a private chat"))
		want := dedup.Person{ID: "4001", Name: "Анна Ким", Username: "anna_k", Language: "ru"}
		if q.Person != want || q.Text != "Сколько стоит доставка?" || !q.At.Equal(time.Unix(1780000000, 0)) || q.ChatID != "4001" || !q.Private || q.Message != "11" {
			t.Errorf("%+v", q)
		}
	})
	t.Run("ids keep all their digits", func(t *testing.T) {
		_, q := parse(t, s, []byte(`{"update_id":1,"message":{"message_id":9007199254740993,"from":{"id":4503599627370497},"chat":{"id":-4503599627370497,"type":"supergroup"},"date":9}}`))
		if q.Person.ID != "4503599627370497" || q.ChatID != "-4503599627370497" || q.Message != "9007199254740993" {
			t.Errorf("%+v", q)
		}
	})
	t.Run("an order's e-mail", func(t *testing.T) {
		if _, q := parse(t, s, named(t, "a payment")); q.Email != "a@example.org" || q.Data != "order-77" || q.OwnPhone {
			t.Errorf("%+v", q)
		}
	})
	t.Run("the chat in whose name it was written", func(t *testing.T) {
		if _, q := parse(t, s, named(t, "an anonymous administrator")); q.SenderChat.ID != "-1009000000001" || q.HasPerson {
			t.Errorf("%+v", q)
		}
	})
	for _, c := range []struct{ text, command, campaign string }{
		{"/start", "/start", ""}, {"/start abc-DEF_1", "/start", "abc-DEF_1"}, {"/start@shop_bot x", "/start", "x"},
		{"/start  x ", "/start", "x"}, {"/start two words", "/start", ""}, {"/start " + strings.Repeat("x", 65), "/start", ""},
		{"/start пароль", "/start", ""}, {"/help x", "/help", ""}, {"/help\nx", "/help", ""}, {"/", "", ""}, {"/ x", "", ""},
		{"hello /start x", "", ""}, {"/a/b", "", ""}, {"", "", ""}, {"/" + strings.Repeat("x", 33), "", ""},
	} {
		t.Run(fmt.Sprintf("command in %.20q", c.text), func(t *testing.T) {
			text, err := json.Marshal(c.text)
			if err != nil {
				t.Fatal(err)
			}
			_, q := parse(t, s, fmt.Appendf(nil, `{"update_id":1,"message":{"text":%s}}`, text))
			if q.Command != c.command || q.Campaign != c.campaign {
				t.Errorf("got %q, %q", q.Command, q.Campaign)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range samples(f) {
		f.Add(s.body)
	}
	for _, odd := range []string{"", "{", "null", `{"update_id":1e3}`, `{"update_id":1,"message":{"photo":[[],{}]}}`, "\xef\xbb\xbf{}",
		`{"update_id":1,"message":{"from":{"id":"\ud800"}},"message":{"chat":[]}}`, `{"update_id":1,"x":-0,"y":1E400,"z":0.1e-7}`} {
		f.Add([]byte(odd))
	}
	s, err := telegram.NewSource(botID, "secret-of-the-test", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if strings.TrimSpace(string(body)) == "" {
			return
		}
		e, q := parse(t, s, body)
		sound(t, e, q, body)
		again, _ := parse(t, s, body)
		if again.UpdateID != e.UpdateID || again.Hash != e.Hash || again.ContentID != e.ContentID || again.ContentRev != e.ContentRev ||
			again.DealKey != e.DealKey || again.OrderingKey != e.OrderingKey || again.ContactKey != e.ContactKey ||
			again.Fingerprints[0] != e.Fingerprints[0] {
			t.Error("the same bytes gave another event")
		}
		if e.Quarantine != "" {
			return
		}
		d := json.NewDecoder(strings.NewReader(strings.TrimPrefix(string(body), "\ufeff")))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		rewritten, err := json.MarshalIndent(v, " ", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if other, _ := parse(t, s, rewritten); other.Fingerprints[0] != e.Fingerprints[0] || other.ContentID != e.ContentID ||
			other.DealKey != e.DealKey || other.OrderingKey != e.OrderingKey || other.ContactKey != e.ContactKey || other.ContentRev != e.ContentRev ||
			other.RepeatKey != e.RepeatKey {
			t.Errorf("re-encoded, it is another event: %s", rewritten)
		}
	})
}
