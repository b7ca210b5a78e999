package dedup_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// scenario_update_test.go: the lines of a scenario as a Telegram server would deliver them.

const scenarioBot = 6001

// updates makes the bodies of a scenario's deliveries. A line has one body for ever, in whatever order and however often it
// is delivered; two lines never share an update_id.
type updates struct {
	people, chats map[string]int64
}

func newUpdates() *updates { return &updates{map[string]int64{}, map[string]int64{}} }

func numbered(m map[string]int64, name string, from, by int64) int64 {
	if _, ok := m[name]; !ok {
		m[name] = from + by*int64(len(m))
	}
	return m[name]
}

func (u *updates) person(name string) int64 { return numbered(u.people, name, 1001, 1) }
func (u *updates) group(name string) int64  { return numbered(u.chats, name, -5001, -1) }

type fields = map[string]any

func capital(name string) string { return strings.ToUpper(name[:1]) + name[1:] }

// body is the update of a step.
func (u *updates) body(st step) ([]byte, error) {
	r := &reader{step: st}
	id := int64(70_000 + st.line)
	if st.who == "update" {
		return u.file(r)
	}
	kind, msg := "message", fields{"date": 1_780_000_000}
	if err := u.actor(st.who, &kind, msg); err != nil {
		return nil, fmt.Errorf("line %d: %w", st.line, err)
	}
	if r.take("presses") {
		press := fields{"id": fmt.Sprint(9000 + st.line), "from": msg["from"], "chat_instance": "1", "data": r.quote()}
		r.take("under")
		n, err := strconv.Atoi(r.word())
		if err != nil || !r.done() {
			return nil, fmt.Errorf("line %d: a press is: presses \"data\" under 12", st.line)
		}
		press["message"] = fields{"message_id": n, "chat": msg["chat"], "date": 1_780_000_000, "from": fields{"id": scenarioBot, "is_bot": true}}
		return json.Marshal(fields{"update_id": id, "callback_query": press})
	}
	if r.take("edits") {
		kind, msg["edit_date"] = "edited_"+kind, 1_780_000_100+st.line
	}
	if err := u.message(r, msg); err != nil {
		return nil, fmt.Errorf("line %d: %w", st.line, err)
	}
	return json.Marshal(fields{"update_id": id, kind: msg})
}

// actor reads what stands before the colon: "anna", "anna in office", "channel news", "admin of office", "bot helper in office",
// "owner to anna", "anna to owner", "office".
func (u *updates) actor(who string, kind *string, msg fields) error {
	from := func(name string) fields {
		return fields{"id": u.person(name), "is_bot": false, "first_name": capital(name)}
	}
	private := func(name string) fields {
		return fields{"id": u.person(name), "type": "private", "first_name": capital(name)}
	}
	group := func(name string) fields {
		return fields{"id": u.group(name), "type": "supergroup", "title": capital(name)}
	}
	w := strings.Fields(who)
	switch {
	case len(w) == 1:
		msg["from"], msg["chat"] = from(w[0]), private(w[0])
	case len(w) == 2 && w[0] == "group":
		msg["chat"] = group(w[1])
	case len(w) == 2 && w[0] == "channel":
		*kind, msg["chat"] = "channel_post", fields{"id": u.group(w[1]), "type": "channel", "title": capital(w[1])}
		msg["sender_chat"] = msg["chat"]
	case len(w) == 3 && w[1] == "in":
		msg["from"], msg["chat"] = from(w[0]), group(w[2])
	case len(w) == 3 && w[0] == "admin" && w[1] == "of":
		msg["from"] = fields{"id": 1087968824, "is_bot": true, "first_name": "Group", "username": "GroupAnonymousBot"}
		msg["chat"] = group(w[2])
		msg["sender_chat"] = msg["chat"]
	case len(w) == 4 && w[0] == "bot" && w[2] == "in":
		msg["from"], msg["chat"] = fields{"id": u.person(w[1]), "is_bot": true, "first_name": capital(w[1])}, group(w[3])
	case len(w) == 3 && w[0] == "owner" && w[1] == "to":
		*kind, msg["business_connection_id"] = "business_message", "bc-1"
		msg["from"], msg["chat"] = from("owner"), private(w[2])
	case len(w) == 3 && w[1] == "to" && w[2] == "owner":
		*kind, msg["business_connection_id"] = "business_message", "bc-1"
		msg["from"], msg["chat"] = from(w[0]), private(w[0])
	default:
		return fmt.Errorf("nobody is called %q", who)
	}
	return nil
}

// message reads what was sent: `message 11 "text"`, `photo 12 of album A "caption"`, `contact 15 of bob "+7999"`, …
func (u *updates) message(r *reader, msg fields) error {
	noun, text := r.word(), "caption"
	if noun == "web" || noun == "live" {
		noun += " " + r.word()
	}
	if noun == "became" || noun == "was" {
		msg[map[string]string{"became": "migrate_to_chat_id", "was": "migrate_from_chat_id"}[noun]] = u.group(r.word())
		return nil
	}
	id, err := strconv.Atoi(r.word())
	if err != nil {
		return fmt.Errorf("%q has no number", r.text)
	}
	msg["message_id"] = id
	file := fields{"file_id": fmt.Sprintf("%s-%d", noun, id), "file_unique_id": fmt.Sprintf("u%d", id), "file_size": 1000}
	switch noun {
	case "message":
		text = "text"
	case "photo":
		file["width"], file["height"] = 90, 67
		msg["photo"] = []fields{file}
	case "document", "voice":
		file["file_name"] = fmt.Sprintf("%s-%d", noun, id)
		msg[noun] = file
	case "location", "live location":
		place := fields{"latitude": 55.5 + float64(r.line)/1000, "longitude": 37.5}
		if noun != "location" {
			place["live_period"] = 900
		}
		msg["location"] = place
	case "contact":
		owner := msg["from"].(fields)["id"]
		if r.take("of") {
			owner = u.person(r.word())
		}
		msg["contact"] = fields{"phone_number": r.quote(), "first_name": "X", "user_id": owner}
	case "web data":
		msg["web_app_data"] = fields{"data": r.quote(), "button_text": "Order"}
	case "joins":
		msg["new_chat_members"] = []any{msg["from"]}
	default:
		return fmt.Errorf("nobody sends a %q", noun)
	}
	if r.take("of", "album") {
		msg["media_group_id"] = "album-" + r.word()
	}
	if s := r.quote(); s != "" {
		msg[text] = s
		if strings.HasPrefix(s, "/") {
			cmd, _, _ := strings.Cut(s, " ")
			msg["entities"] = []fields{{"type": "bot_command", "offset": 0, "length": len(cmd)}}
		}
	}
	if !r.done() {
		return fmt.Errorf("%q is not understood", r.words[r.at])
	}
	return nil
}

// recorded is where updates that bots were really sent are kept, if they are.
const recorded = "../../shared/updates"

// file reads a recorded update. "with message.chat.id 8888888" mends what its reporter has masked.
func (u *updates) file(r *reader) ([]byte, error) {
	body, err := os.ReadFile(filepath.Join(recorded, r.word()))
	if err != nil {
		return nil, err
	}
	if !r.take("with") {
		return body, nil
	}
	var all fields
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.UseNumber()
	if err := d.Decode(&all); err != nil {
		return nil, err
	}
	path := strings.Split(r.word(), ".")
	at := all
	for _, name := range path[:len(path)-1] {
		at, _ = at[name].(fields)
	}
	if at == nil {
		return nil, fmt.Errorf("line %d: no field %v", r.line, path)
	}
	at[path[len(path)-1]] = json.Number(r.word())
	return json.Marshal(all)
}
