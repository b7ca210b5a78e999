package telegram

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// parse.go: from the bytes of an update to an event and its Enquiry.

// quarantinedKind is the Kind of an event whose body could not be understood.
const quarantinedKind = "quarantined"

// Parse turns one update into an event. The update needs a whole-numbered update_id and nothing else; every other field is
// read by itself, and what is missing or of a wrong type costs only itself.
//
// A body that is no JSON object with an update_id is returned with Quarantine set and the digest of its bytes as UpdateID;
// so is one that ends in the middle. Telegram would send the same bytes again for 24 hours and hold back everything that
// was written after them in the same chat, so they are kept, raw, for somebody to look at. Whether the connection broke
// in the middle is for the reader of the body to know: dedup.Middleware compares what it read with what was announced, and
// such a body never gets here.
//
// The only error is dedup.ErrIncomplete, for a body of nothing but white space. Telegram sends no such thing: a proxy has
// lost the body, and accepting its remains would lose every enquiry without a trace.
func (s *Source) Parse(body []byte) (store.Event, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return store.Event{}, fmt.Errorf("telegram: empty body: %w", dedup.ErrIncomplete)
	}
	var update object
	if err := json.Unmarshal(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), &update); err != nil || update == nil {
		return s.Quarantine(body, "not a JSON object"), nil // err may quote the body
	}
	id, ok := update.number("update_id")
	if !ok {
		return s.Quarantine(body, "no update_id"), nil
	}
	k, sole := kindOf(update)
	o := update.object(k.name)
	e := store.Event{Source: Name, Tenant: s.tenant, Bot: s.bot, UpdateID: strconv.FormatInt(id, 10), Hash: hexSum(body),
		Kind: k.name, Payload: body}
	q := s.enquiry(k, o)
	c := s.content(k, o, update, sole)
	e.ContentID, e.ContentRev, e.DealKey = c.id, c.rev, c.deal
	e.Fingerprints = []store.Fingerprint{{Version: FingerprintVersion, Sum: c.fingerprint}}
	q.ContentID, q.ContentRev, q.DealKey = c.id, c.rev, c.deal
	if c.deal != c.id {
		q.Group = c.deal
	}
	e.ContactKey = dedup.ContactKey(s.tenant, Name, q.Person.ID)
	e.OrderingKey = s.orderingKey(k, q, e.UpdateID)
	if k.shape == callback {
		e.RepeatKey = s.repeatKey(q, o)
	}
	if k.shape == message && !k.edit {
		s.migration(&q, o, e.OrderingKey)
	}
	return withEnquiry(e, q), nil
}

// Quarantine returns the event for an authentic body that can't be understood. Its UpdateID is "sha256:" and the digest of
// the bytes. why must not quote the body.
func (s *Source) Quarantine(body []byte, why string) store.Event {
	sum := hexSum(body)
	id := "sha256:" + sum
	e := store.Event{Source: Name, Tenant: s.tenant, Bot: s.bot, UpdateID: id, Hash: sum, Kind: quarantinedKind,
		Fingerprints: []store.Fingerprint{{Version: FingerprintVersion, Sum: sum}},
		OrderingKey:  dedup.OrderingKey(s.tenant, Name, s.bot, "event", id),
		ContentID:    id, DealKey: id, Payload: body, Quarantine: why}
	return withEnquiry(e, dedup.Enquiry{Source: Name, Tenant: s.tenant, Bot: s.bot, Kind: quarantinedKind, ContentID: id, DealKey: id})
}

func withEnquiry(e store.Event, q dedup.Enquiry) store.Event {
	raw, err := json.Marshal(q)
	if err != nil { // strings, numbers, and a time that unixTime keeps within what JSON can say
		panic("telegram: enquiry can't be written as JSON: " + err.Error())
	}
	e.Enquiry = raw
	return e
}

// enquiry fills in everything but the identities.
func (s *Source) enquiry(k kind, o object) dedup.Enquiry {
	q := dedup.Enquiry{Source: Name, Tenant: s.tenant, Bot: s.bot, Kind: k.name, Edited: k.edit, At: unixTime(o, "date"),
		EditedAt: unixTime(o, "edit_date")}
	msg := o
	if k.shape == callback {
		msg = o.object("message")
	}
	chat := msg.object("chat")
	if id := chat.id("id"); id != 0 {
		q.ChatID = strconv.FormatInt(id, 10)
		q.ChatType = chat.text("type")
		q.Private = k.shape != guest && (q.ChatType == "private" || (q.ChatType == "" && id > 0))
	}
	if id := msg.id("message_id"); id != 0 {
		q.Message = strconv.FormatInt(id, 10)
	} else {
		q.Message = o.text("inline_message_id")
	}
	q.Person, q.SenderChat = who(k, o, chat)
	q.HasPerson = q.Person.ID != ""
	q.Asks = q.HasPerson && k.asks
	if k.text != "" {
		q.Text = o.text(k.text)
	}
	if k.data != "" {
		q.Data = o.text(k.data)
	}
	switch k.shape {
	case message, business, channel, guest:
		fillMessage(&q, o)
	case other:
		fillOther(&q, o)
	}
	return q
}

// fillOther reads what only a few of the kinds that are no messages have.
func fillOther(q *dedup.Enquiry, o object) {
	orderInfo(q, o.object("order_info"))
	switch q.Kind {
	case "chat_join_request":
		q.Campaign = o.object("invite_link").text("name")
	case "my_chat_member", "chat_member":
		q.Service = o.object("new_chat_member").text("status") // "kicked" in a private chat: the person blocked the bot
	case "subscription":
		q.Service = o.text("state")
	}
}

// orderInfo reads what a person filled in when paying (https://core.telegram.org/bots/api#orderinfo).
func orderInfo(q *dedup.Enquiry, o object) {
	if phone := o.text("phone_number"); phone != "" {
		q.Phone = phone
	}
	q.Email = o.text("email")
}

// unixTime returns the zero time for what is no date between 1970 and 9999: Telegram writes 0 for "not known".
func unixTime(o object, field string) time.Time {
	n := o.id(field)
	if n <= 0 || n >= 253402300800 {
		return time.Time{}
	}
	return time.Unix(n, 0).UTC()
}
