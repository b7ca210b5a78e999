package telegram

import (
	"slices"
	"strconv"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/ids"
)

// identity.go: which updates carry the same content. A golden test holds these values still: operation ids are made of them.

// FingerprintVersion is the version of the algorithm behind store.Event.Fingerprints. A change of what is compared is a new
// version, computed beside the old one for as long as rows of the old one are kept.
const FingerprintVersion = 1

type identity struct {
	id, rev, deal string
	fingerprint   string
}

// content names the content of an update. sole tells that the update has the one kind that it may have.
//
// The fingerprint is made of all of it, not of the numbers that identify a message: a repeat that looks different to us is
// stored once more and then found to be the same content, which costs a row; another update that was taken for a repeat
// would be lost.
func (s *Source) content(k kind, o, update object, sole bool) identity {
	all := whole(update)
	parts := contentParts(k, o)
	if !sole || parts == nil {
		// Nothing in it is an identity: then all of it is, except the number of the delivery.
		parts = []string{"whole", k.name, all}
	}
	c := identity{id: s.contentID(parts...), fingerprint: ids.Digest("v1", all)}
	c.deal = c.id
	if group := o.text("media_group_id"); group != "" && sole {
		c.deal = s.contentID("album", o.text("business_connection_id"), o.object("chat").text("id"), group)
	}
	if k.edit {
		// The date alone would make two edits of one second the same.
		c.rev = o.text("edit_date") + "." + ids.Digest(all)[:12]
	}
	return c
}

func (s *Source) contentID(parts ...string) string {
	return "t:" + ids.Digest(append([]string{Name, s.bot}, parts...)...)
}

// contentParts returns Telegram's own identity of the content, nil if there is none.
func contentParts(k kind, o object) []string {
	if k.id != "" {
		if id := o.text(k.id); id != "" {
			return []string{k.name, id}
		}
		return nil
	}
	family := ""
	switch k.shape {
	case message, channel:
		family = "message"
	case business:
		family = "business"
	default:
		return nil
	}
	chat := o.object("chat").id("id")
	if chat == 0 {
		return nil
	}
	parts := []string{family, o.text("business_connection_id"), itoa(chat)}
	if id := o.id("message_id"); id != 0 {
		return append(parts, itoa(id))
	}
	if id := o.id("ephemeral_message_id"); id != 0 && o.id("date") > 0 {
		// A message for one pair of eyes has message_id 0 and counts in a space of its own.
		return append(parts, "ephemeral", itoa(id), sender(o), o.text("date"))
	}
	return nil
}

// repeatKey names the press of a button: who, under which message, which button. An impatient person's presses come as several
// callback queries, with ids and update_ids of their own. It is empty where one of the three is not told: two presses that
// nothing proves to be one are two.
func (s *Source) repeatKey(q dedup.Enquiry, o object) string {
	button := []string{"data", o.text("data")}
	if button[1] == "" {
		button = []string{"game", o.text("game_short_name")}
	}
	if !q.HasPerson || button[1] == "" {
		return ""
	}
	var under []string
	msg, inline := o.object("message"), o.text("inline_message_id")
	switch {
	case q.ChatID != "" && msg.id("message_id") != 0:
		under = []string{"message", q.ChatID, itoa(msg.id("message_id"))}
	case q.ChatID != "" && msg.id("ephemeral_message_id") != 0 && msg.id("date") > 0:
		under = []string{"ephemeral", q.ChatID, itoa(msg.id("ephemeral_message_id")), msg.text("date")}
	case inline != "":
		under = []string{"inline", inline}
	default:
		return ""
	}
	return "r:" + ids.Digest(slices.Concat([]string{Name, s.bot, q.Person.ID}, button, under)...)
}

func sender(o object) string {
	if id := o.object("from").id("id"); id != 0 {
		return itoa(id)
	}
	return itoa(o.object("sender_chat").id("id"))
}

// whole is the canonical form of an update without the number of its delivery.
func whole(update object) string {
	names := make([]string, 0, len(update))
	for name := range update {
		if name != "update_id" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var out []byte
	for _, name := range names {
		out = append(strconv.AppendQuote(out, name), ':')
		out = append(appendCanonical(out, update[name]), ',')
	}
	return string(out)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
