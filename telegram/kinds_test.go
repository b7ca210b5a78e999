package telegram_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// kinds_test.go: the table of kinds, from Telegram's documentation, held against a folder of real-shaped updates where one
// lies beside the checkout, and against our own small ones where not.

// fact is what the documentation says of a kind: is it an enquiry, whose, and does it name a chat of the bot's.
type fact struct {
	asks   bool
	person string // the field with the user
	chat   bool
}

var facts = map[string]fact{
	"message":                    {true, "from", true},
	"edited_message":             {true, "from", true},
	"channel_post":               {false, "", true},
	"edited_channel_post":        {false, "", true},
	"business_message":           {true, "from", true},
	"edited_business_message":    {true, "from", true},
	"guest_message":              {true, "from", true},
	"callback_query":             {true, "from", false}, // of its message, if it has one
	"chat_join_request":          {true, "from", true},
	"shipping_query":             {true, "from", false},
	"pre_checkout_query":         {true, "from", false},
	"purchased_paid_media":       {true, "from", false},
	"inline_query":               {false, "from", false},
	"chosen_inline_result":       {false, "from", false},
	"poll_answer":                {false, "user", false},
	"message_reaction":           {false, "user", true},
	"my_chat_member":             {false, "from", true},
	"chat_member":                {false, "from", true},
	"subscription":               {false, "user", false},
	"managed_bot":                {false, "user", false},
	"business_connection":        {},
	"deleted_business_messages":  {chat: true},
	"message_reaction_count":     {chat: true},
	"poll":                       {},
	"chat_boost":                 {chat: true},
	"removed_chat_boost":         {chat: true},
	"stopped_message_generation": {chat: true},
}

// odd are the updates that the table does not speak of, by the number of their file: person, asks, scope.
var odd = map[string]struct {
	person string
	asks   bool
	scope  string
}{
	"007": {"231287152", true, "user:231287152"},        // the message with the button is inaccessible
	"009": {"1111111", true, "user:1111111"},            // only an inline message
	"017": {"903526554", true, "chat:-1001003644360"},   // a button in a channel
	"018": {"12345678", true, "user:12345678"},          // from without is_bot
	"020": {"", false, "chat:456"},                      // a channel's post with a from
	"026": {"", false, "chat:1114121"},                  // foreign keys inside the post
	"030": {"", false, "user:987654321"},                // a bot asks to join
	"052": {"", false, "chat:-1001316546922"},           // an anonymous administrator's edit
	"053": {"", false, "event"},                         // a known kind, empty
	"059": {"", false, "user:1"},                        // nobody is named
	"062": {"", false, "chat:guest:-100"},               // the guest's caller is a bot
	"063": {"42", true, "chat:guest:-100555"},           //
	"064": {"", false, "event"},                         // no update_id
	"067": {"4", true, "chat:guest:5"},                  // a sender and a caller
	"068": {"1111111", false, "user:1111111"},           // the id is a number
	"084": {"", false, "chat:-1001316546922"},           // an anonymous administrator
	"087": {"", false, "event"},                         // a message without anything
	"098": {"1111111", true, "user:1111111"},            // a chat without a type
	"104": {"42", true, "chat:-100"},                    // forged privileges, from without first_name
	"132": {"12345", true, "user:12345"},                // via_bot
	"142": {"", false, "chat:-1001681418050"},           // an anonymous administrator's location
	"146": {"", false, "chat:-1004205300730"},           // migration
	"150": {"", false, "chat:-5433081065"},              // migration
	"157": {"", false, "event"},                         // the message is a string
	"159": {"", false, "user:11"},                       // photo: []
	"160": {"12345678", true, "user:1111111"},           // chat.id is not from.id
	"170": {"", false, "chat:-1001681418050"},           // an anonymous administrator's poll
	"175": {"", false, "user:12345678"},                 // the bot's own
	"176": {"", false, "event"},                         // fields are missing
	"182": {"9002", true, "user:9002"},                  // a payment without message_id and date
	"192": {"", false, "chat:-1"},                       // another bot
	"196": {"123", true, "chat:-5048869601"},            // a group's id beyond 32 bits
	"214": {"", false, "chat:-1001242092724"},           // a channel's post as a message
	"216": {"", false, "chat:-2001"},                    // 777000
	"217": {"555", true, "chat:-100999"},                // a forward
	"225": {"1208279729", true, "chat:-23391198558501"}, //
	"242": {"", false, "user:1"},                        // nobody is named
	"243": {"666", true, "user:666"},                    // from has only an id
	"247": {"789", false, "chat:-105156741"},            // a reaction in a channel
	"251": {"", false, "chat:-1002686605311"},           // a reaction of the chat itself
	"256": {"1111111", true, "user:1111111"},            // several kinds at once
	"257": {"1111111", true, "user:1111111"},            //
	"262": {"", false, "event"},                         // ids of 0
	"284": {"408158510", true, "user:408158510"},        // the update_id comes last
	"295": {"", false, "event"},                         // a known kind, empty
	"298": {"", false, "event"},                         // unknown kinds
	"299": {"", false, "event"},                         //
	"300": {"", false, "event"},                         //
	"301": {"", false, "event"},                         //
	"302": {"", false, "event"},                         //
	"303": {"", false, "event"},                         //
}

// serviceWords are the parts of a file's name that tell a service message.
var serviceWords = []string{"boost-added", "chat-created", "chat-owner", "chat-photo", "chat-title", "checklist-tasks", "community-chat",
	"connected-website", "direct-message-price", "forum-topic", "giveaway-c", "chat-member", "managed-bot-created", "auto-delete-timer",
	"migrate-", "pinned-message", "poll-option", "proximity-alert", "refunded-payment", "video-chat", "write-access"}

// folder holds updates one a file; INDEX.tsv tells of each what is special.
const folder = "../../shared/updates"

// shared is an update of the folder, or one of our own, which say themselves what is special about them.
type shared struct {
	name string
	body []byte
	own  []string
}

// corpus returns the folder's updates, and whether they are there; else our own.
func corpus(t *testing.T) (all []shared, there bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		body, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, shared{name: filepath.Base(f), body: body})
	}
	if len(all) > 0 {
		return all, true
	}
	t.Logf("%s is not there: the table is held against testdata/updates.txt alone", folder)
	for _, s := range samples(t) {
		all = append(all, shared{s.name, s.body, s.want})
	}
	return all, false
}

// decoded reads an update the plain way, unlike the code under test.
func decoded(t *testing.T, body []byte) (kind string, o map[string]any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var u map[string]any
	if err := d.Decode(&u); err != nil {
		t.Fatal(err)
	}
	for k := range u {
		if k != "update_id" {
			kind = k
		}
	}
	o, _ = u[kind].(map[string]any)
	return kind, o
}

func str(o any, path ...string) string {
	for _, p := range path {
		m, _ := o.(map[string]any)
		o = m[p]
	}
	switch v := o.(type) {
	case json.Number:
		return v.String()
	case string:
		return v
	case bool:
		if v {
			return "true"
		}
	}
	return ""
}

func TestEveryKindOfUpdate(t *testing.T) {
	s := source(t)
	all, _ := corpus(t)
	seen := map[string]bool{}
	for _, u := range all {
		t.Run(u.name, func(t *testing.T) {
			e, q := parse(t, s, u.body)
			sound(t, e, q, u.body)
			seen[e.Kind] = true
			want, special := odd[u.name[:3]]
			switch {
			case u.own != nil:
				for _, w := range u.own {
					if scope, _, ok := strings.Cut(w, ":"); w == "event" || ok && (scope == "user" || scope == "chat") {
						want.scope = w
					}
				}
				want.asks = slices.Contains(u.own, "asks")
				if u.own[0] == "person" {
					want.person = u.own[1]
				}
			case !special:
				kind, o := decoded(t, u.body)
				f, known := facts[kind]
				if !known {
					t.Fatalf("the table does not know %q", kind)
				}
				want.person, want.asks, want.scope = byTable(f, kind, o, u.name)
			}
			if q.Person.ID != want.person || q.Asks != want.asks || scopeOf(e) != want.scope {
				t.Errorf("person %q, asks %v, scope %s; want %q, %v, %s", q.Person.ID, q.Asks, scopeOf(e), want.person, want.asks, want.scope)
			}
			if (e.Quarantine != "") != strings.HasPrefix(u.name, "064-") {
				t.Errorf("quarantine: %q", e.Quarantine)
			}
		})
	}
	for kind := range facts {
		if !seen[kind] {
			t.Errorf("no update of the kind %s", kind)
		}
	}
}

// byTable applies the table to an ordinary update.
func byTable(f fact, kind string, o map[string]any, name string) (person string, asks bool, scope string) {
	if f.person != "" && str(o, f.person, "is_bot") != "true" {
		person = str(o, f.person, "id")
	}
	asks = f.asks && person != ""
	for _, w := range serviceWords {
		asks = asks && !(strings.HasPrefix(kind, "message") && strings.Contains(name, w))
	}
	chat, typ := str(o, "chat", "id"), str(o, "chat", "type")
	if kind == "callback_query" {
		chat, typ = str(o, "message", "chat", "id"), str(o, "message", "chat", "type")
	}
	switch {
	case kind == "guest_message":
		scope = "chat:guest:" + chat
	case chat != "" && (typ == "private" || typ == "" && !strings.HasPrefix(chat, "-")):
		scope = "user:" + chat
	case chat != "":
		scope = "chat:" + chat
	case person != "":
		scope = "user:" + person
	default:
		scope = "event"
	}
	return person, asks, scope
}

func TestPairsOfUpdates(t *testing.T) {
	all, there := corpus(t)
	s := source(t)
	get := func(number, own string, mend ...string) (store.Event, dedup.Enquiry) {
		i := sort.Search(len(all), func(i int) bool { return there && all[i].name >= number })
		body := named(t, own)
		if there && i < len(all) && strings.HasPrefix(all[i].name, number) {
			body = all[i].body
			for i := 0; i+1 < len(mend); i += 2 {
				body = bytes.ReplaceAll(body, []byte(mend[i]), []byte(mend[i+1]))
			}
		} else if there {
			t.Fatalf("no update %s", number)
		}
		return parse(t, s, body)
	}
	t.Run("one message delivered under two update_ids", func(t *testing.T) {
		a, _ := get("187", "a text in a private chat")
		b, _ := get("188", "the same text under another update_id", "8888888888", "8888888") // masked by its reporter
		if a.ContentID != b.ContentID || a.DealKey != b.DealKey || a.OrderingKey != b.OrderingKey || a.UpdateID == b.UpdateID || a.Hash == b.Hash {
			t.Error("not one content under two ids")
		}
	})
	t.Run("a message and its edit", func(t *testing.T) {
		a, _ := get("190", "a text in a private chat")
		b, q := get("055", "its edit")
		if a.ContentID != b.ContentID || a.ContentRev == b.ContentRev || a.OrderingKey != b.OrderingKey || a.ContactKey != b.ContactKey || !q.Edited {
			t.Error("not two revisions of one content")
		}
	})
	t.Run("a channel's post and its edit", func(t *testing.T) {
		a, _ := get("019", "a channel's post")
		b, _ := get("048", "its edit")
		if there && a.ContentID != b.ContentID {
			t.Error("not one content")
		}
	})
	t.Run("two items of an album", func(t *testing.T) {
		a, p := get("078", "an album, first item")
		b, q := get("079", "an album, second item with the caption")
		if a.DealKey != b.DealKey || a.ContentID == b.ContentID || p.Group == "" || p.Group != q.Group {
			t.Error("not two contents of one deal")
		}
	})
	t.Run("two photos that are no album", func(t *testing.T) {
		a, p := get("162", "a document")
		b, q := get("163", "a venue")
		if a.DealKey == b.DealKey || a.ContentID == b.ContentID || p.Group != "" || q.Group != "" {
			t.Error("taken for one")
		}
	})
	t.Run("a migration is two service messages", func(t *testing.T) {
		a, p := get("150", "migration, the old chat")
		b, q := get("146", "migration, the new chat")
		if a.ContentID == b.ContentID || a.OrderingKey == b.OrderingKey || p.Service != "migrate_to_chat_id" || q.Service != "migrate_from_chat_id" || p.Asks || q.Asks {
			t.Error("wrong")
		}
	})
}
