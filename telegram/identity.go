package telegram

import (
	"encoding/json"
	"strconv"

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
func (s *Source) content(k kind, o, update object, sole bool) identity {
	parts, strong := contentParts(k, o)
	if !sole || parts == nil {
		// Nothing in it is an identity: then all of it is, except the number of the delivery.
		parts, strong = []string{"whole", k.name, whole(update)}, false
	}
	c := identity{id: s.contentID(parts...)}
	c.deal = c.id
	if group := o.text("media_group_id"); group != "" && sole {
		c.deal = s.contentID("album", o.text("business_connection_id"), o.object("chat").text("id"), group)
	}
	if k.edit {
		// The date alone would make two edits of one second the same.
		c.rev = o.text("edit_date") + "." + ids.Digest(whole(update))[:12]
	}
	if strong {
		c.fingerprint = ids.Digest(append([]string{"v1", k.name, o.text("date"), c.rev, sender(o)}, parts...)...)
	} else {
		c.fingerprint = ids.Digest("v1", whole(update))
	}
	return c
}

func (s *Source) contentID(parts ...string) string {
	return "t:" + ids.Digest(append([]string{Name, s.bot}, parts...)...)
}

// contentParts returns Telegram's own identity of the content, nil if there is none. strong tells that it is enough, with
// the dates and the sender, to know a repeated update by.
func contentParts(k kind, o object) (parts []string, strong bool) {
	if k.id != "" {
		if id := o.text(k.id); id != "" {
			return []string{k.name, id}, true
		}
		return nil, false
	}
	family := ""
	switch k.shape {
	case message, channel:
		family = "message"
	case business:
		family = "business"
	default:
		return nil, false
	}
	chat, id := o.object("chat").id("id"), o.id("message_id")
	if chat == 0 {
		return nil, false
	}
	parts = []string{family, o.text("business_connection_id"), itoa(chat)}
	dated := o.id("date") > 0 && (!k.edit || o.id("edit_date") > 0)
	switch eph := o.id("ephemeral_message_id"); {
	case id != 0:
		return append(parts, itoa(id)), dated
	case eph != 0 && o.id("date") > 0:
		// A message for one pair of eyes has message_id 0 and counts in a space of its own.
		return append(parts, "ephemeral", itoa(eph), sender(o), o.text("date")), dated
	}
	return nil, false
}

func sender(o object) string {
	if id := o.object("from").id("id"); id != 0 {
		return itoa(id)
	}
	return itoa(o.object("sender_chat").id("id"))
}

// whole is the canonical form of an update without the number of its delivery.
func whole(update object) string {
	rest := make(object, len(update))
	for name, raw := range update {
		if name != "update_id" {
			rest[name] = raw
		}
	}
	raw, err := json.Marshal(rest)
	if err != nil {
		panic("telegram: JSON that was read can't be written: " + err.Error())
	}
	return string(canonical(raw))
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
