package telegram_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/telegram"
)

// acts_test.go: presses that come several times, edits and their time, and groups that move.

const press = `{"update_id":700000032,"callback_query":{"id":"9001","from":{"id":4001},"message":{"message_id":33,` +
	`"chat":{"id":4001,"type":"private"},"date":1780000025},"chat_instance":"1","data":"form:send"}}`

func TestPressesOfAButton(t *testing.T) {
	s := source(t)
	key := func(t *testing.T, change ...string) string {
		t.Helper()
		body := strings.NewReplacer(change...).Replace(press)
		if len(change) > 0 && body == press {
			t.Fatal("nothing was changed")
		}
		e, _ := parse(t, s, []byte(body))
		return e.RepeatKey
	}
	first := key(t)
	if first == "" {
		t.Fatal("a press has no repeat key")
	}
	t.Run("another callback of the same press has another content and the same repeat key", func(t *testing.T) {
		a, _ := parse(t, s, []byte(press))
		b, _ := parse(t, s, []byte(strings.NewReplacer("700000032", "700000099", `"9001"`, `"9044"`).Replace(press)))
		if a.ContentID == b.ContentID || a.UpdateID == b.UpdateID || a.RepeatKey != b.RepeatKey || a.OrderingKey != b.OrderingKey {
			t.Error("not one act in two contents")
		}
	})
	t.Run("a message that can't be seen any more is the same message", func(t *testing.T) {
		if key(t, "1780000025", "0") != first {
			t.Error("another key")
		}
	})
	for name, change := range map[string][]string{
		"another person":                  {`"from":{"id":4001}`, `"from":{"id":4002}`},
		"another message":                 {`"message_id":33`, `"message_id":34`},
		"the same number in another chat": {`"chat":{"id":4001`, `"chat":{"id":4002`},
		"another button":                  {"form:send", "form:sent"},
		"a game by the name of the data":  {`"data"`, `"game_short_name"`},
	} {
		t.Run(name+" is another act", func(t *testing.T) {
			if got := key(t, change...); got == "" || got == first {
				t.Errorf("the key is %q", got)
			}
		})
	}
	for name, change := range map[string][]string{
		"a bot that presses":    {`"from":{"id":4001}`, `"from":{"id":4001,"is_bot":true}`},
		"nobody who presses":    {`"from":{"id":4001},`, ``},
		"no number of message":  {`"message_id":33,`, ``},
		"no chat":               {`"chat":{"id":4001,"type":"private"},`, ``},
		"a button without data": {`,"data":"form:send"`, ``},
	} {
		t.Run(name+" repeats nothing", func(t *testing.T) {
			if got := key(t, change...); got != "" {
				t.Errorf("the key is %q", got)
			}
		})
	}
	t.Run("inline messages and messages for one pair of eyes are told apart by their own ids", func(t *testing.T) {
		seen := map[string]bool{"": true, first: true}
		for _, under := range []string{
			`"message":{"message_id":0,"ephemeral_message_id":33,`, `"message":{"message_id":0,"ephemeral_message_id":34,`,
			`"inline_message_id":"33","message":{"message_id":0,`, `"inline_message_id":"34","message":{"message_id":0,`,
		} {
			got := key(t, `"message":{"message_id":33,`, under)
			if seen[got] {
				t.Errorf("%s has the key %q", under, got)
			}
			seen[got] = true
		}
	})
	t.Run("another bot's button is another act", func(t *testing.T) {
		o, err := telegram.NewSource(botID+1, "secret-of-the-test", nil)
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := parse(t, o, []byte(press)); e.RepeatKey == first || e.RepeatKey == "" {
			t.Errorf("the key is %q", e.RepeatKey)
		}
	})
	t.Run("the key of a press never changes", func(t *testing.T) {
		// Golden: a press that was stored before an upgrade is repeated after it.
		if first != "r:716f8b865ed6db0e814ac72006279a46" {
			t.Error(first)
		}
	})
	t.Run("only a press repeats", func(t *testing.T) {
		for _, c := range samples(t) {
			if e, _ := parse(t, s, c.body); (e.RepeatKey != "") != (e.Kind == "callback_query") {
				t.Errorf("%s: %q", c.name, e.RepeatKey)
			}
		}
	})
}

func TestEditedAt(t *testing.T) {
	s := source(t)
	t.Run("an edit tells its own time beside the message's", func(t *testing.T) {
		_, q := parse(t, s, named(t, "its edit"))
		if !q.At.Equal(time.Unix(1780000000, 0)) || !q.EditedAt.Equal(time.Unix(1780000060, 0)) {
			t.Errorf("at %v, edited at %v", q.At, q.EditedAt)
		}
	})
	t.Run("what was never edited tells none", func(t *testing.T) {
		if _, q := parse(t, s, named(t, "a text in a private chat")); !q.EditedAt.IsZero() {
			t.Errorf("edited at %v", q.EditedAt)
		}
	})
}

func TestMigration(t *testing.T) {
	s := source(t)
	of := func(t *testing.T, message string) (own, to, from string) {
		t.Helper()
		body := fmt.Appendf(nil, `{"update_id":1,%s}`, message)
		e, q := parse(t, s, body)
		sound(t, e, q, body)
		return e.OrderingKey, q.MovedTo, q.MovedFrom
	}
	chat := func(id string) string { return dedup.OrderingKey("", telegram.Name, fmt.Sprint(botID), "chat", id) }
	t.Run("both halves name the same pair of keys, though neither says who, when or under which number", func(t *testing.T) {
		oldKey, to, none := of(t, `"message":{"chat":{"id":-55,"type":"group"},"migrate_to_chat_id":-10042}`)
		newKey, none2, from := of(t, `"message":{"chat":{"id":-10042,"type":"supergroup"},"migrate_from_chat_id":-55}`)
		if oldKey != chat("-55") || newKey != chat("-10042") || to != newKey || from != oldKey || none+none2 != "" {
			t.Errorf("%s to %s, %s from %s", oldKey, to, newKey, from)
		}
	})
	t.Run("what was said in the two chats has these keys", func(t *testing.T) {
		own, _, _ := of(t, `"message":{"message_id":3,"from":{"id":7},"chat":{"id":-55,"type":"group"},"text":"x"}`)
		if _, _, from := of(t, `"message":{"chat":{"id":-10042},"migrate_from_chat_id":-55}`); own != from {
			t.Error("another key")
		}
	})
	for name, message := range map[string]string{
		"no chat":                   `"message":{"from":{"id":7},"migrate_to_chat_id":-10042}`,
		"a private chat":            `"message":{"chat":{"id":7,"type":"private"},"migrate_to_chat_id":-10042}`,
		"a move to itself":          `"message":{"chat":{"id":-55},"migrate_to_chat_id":-55}`,
		"a move to a person":        `"message":{"chat":{"id":-55},"migrate_to_chat_id":55}`,
		"a move to nothing":         `"message":{"chat":{"id":-55},"migrate_to_chat_id":null}`,
		"a text that came along":    `"message":{"chat":{"id":-55},"migrate_to_chat_id":-10042,"text":"x"}`,
		"an edit":                   `"edited_message":{"chat":{"id":-55},"migrate_to_chat_id":-10042}`,
		"a post of a channel":       `"channel_post":{"chat":{"id":-55},"migrate_to_chat_id":-10042}`,
		"a business chat":           `"business_message":{"chat":{"id":-55},"migrate_to_chat_id":-10042}`,
		"a reply to such a message": `"message":{"chat":{"id":-55},"reply_to_message":{"message_id":1,"migrate_to_chat_id":-10042}}`,
	} {
		t.Run(name+" moves nothing", func(t *testing.T) {
			if _, to, from := of(t, message); to+from != "" {
				t.Errorf("to %q, from %q", to, from)
			}
		})
	}
	t.Run("a tenant's group stays the tenant's", func(t *testing.T) {
		o, err := telegram.NewSource(botID, "secret-of-the-test", &telegram.Options{Tenant: "omsk"})
		if err != nil {
			t.Fatal(err)
		}
		_, q := parse(t, o, named(t, "migration, the old chat"))
		if q.MovedTo != dedup.OrderingKey("omsk", telegram.Name, fmt.Sprint(botID), "chat", "-1009000000004") {
			t.Error(q.MovedTo)
		}
	})
}
