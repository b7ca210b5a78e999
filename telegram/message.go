package telegram

import (
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/dedup"
)

// message.go: what a Message says (https://core.telegram.org/bots/api#message).

// services are the fields that make a Message a service message: Telegram or an administrator tells that something has
// happened. Payments, shared contacts and passport data are not among them: there a person gives something. A field
// that is not known counts as content, so that a new kind of content is no enquiry lost.
var services = []string{
	"new_chat_members", "new_chat_member", "left_chat_member", "chat_owner_left", "chat_owner_changed", "new_chat_title",
	"new_chat_photo", "delete_chat_photo", "group_chat_created", "supergroup_chat_created", "channel_chat_created",
	"message_auto_delete_timer_changed", "migrate_to_chat_id", "migrate_from_chat_id", "pinned_message", "refunded_payment",
	"connected_website", "write_access_allowed", "proximity_alert_triggered", "boost_added", "chat_background_set",
	"checklist_tasks_done", "checklist_tasks_added", "direct_message_price_changed", "paid_message_price_changed",
	"forum_topic_created", "forum_topic_edited", "forum_topic_closed", "forum_topic_reopened", "general_forum_topic_hidden",
	"general_forum_topic_unhidden", "giveaway_created", "giveaway_completed", "video_chat_scheduled", "video_chat_started",
	"video_chat_ended", "video_chat_participants_invited", "gift", "unique_gift", "gift_upgrade_sent",
	"suggested_post_approved", "suggested_post_approval_failed", "suggested_post_declined", "suggested_post_paid",
	"suggested_post_refunded", "managed_bot_created", "poll_option_added", "poll_option_deleted", "community_chat_added",
	"community_chat_removed",
}

// fileKinds are the fields that hold one file each; photo holds several sizes of one. animation comes before document,
// since Telegram sets both for it.
var fileKinds = []string{"animation", "document", "audio", "voice", "video", "video_note", "sticker"}

func fillMessage(q *dedup.Enquiry, o object) {
	q.Text = o.text("text")
	if q.Text == "" {
		q.Text = o.text("caption")
	}
	q.Files = files(o)
	place(q, o)
	if c := o.object("contact"); c != nil {
		q.Phone = c.text("phone_number")
		// Telegram itself puts user_id there; the number of somebody else has none, or another one.
		q.OwnPhone = q.Phone != "" && q.HasPerson && c.text("user_id") == q.Person.ID
	}
	if w := o.object("web_app_data"); w != nil {
		q.Data = w.text("data")
	}
	if p := o.object("successful_payment"); p != nil {
		q.Data = p.text("invoice_payload")
		orderInfo(q, p.object("order_info"))
	}
	q.Command, q.Campaign = command(o.text("text"))
	if r := o.object("reply_to_message"); r.id("message_id") != 0 && !r.has("forum_topic_created") {
		q.ReplyTo = strconv.FormatInt(r.id("message_id"), 10) // the first message of a topic stands for "not a reply"
	}
	if q.Text == "" && len(q.Files) == 0 {
		q.Service = service(o)
	}
	liveLocation := q.Edited && q.Location != "" // one edit for every few steps that somebody walks
	q.Asks = q.Asks && q.Service == "" && !liveLocation
}

func service(o object) string {
	for _, name := range services {
		if o.has(name) {
			return name
		}
	}
	return ""
}

// place reads a location or a venue. The numbers are kept as they are written, so no digit is lost or made up.
func place(q *dedup.Enquiry, o object) {
	l := o.object("location")
	if v := o.object("venue"); v != nil {
		l = v.object("location")
		if q.Text == "" {
			q.Text = strings.TrimSpace(v.text("title") + "\n" + v.text("address"))
		}
	}
	if lat, lon := l.text("latitude"), l.text("longitude"); coordinate(lat) && coordinate(lon) {
		q.Location = lat + "," + lon
	}
}

func coordinate(s string) bool {
	f, err := strconv.ParseFloat(s, 64)
	return err == nil && len(s) <= 32 && f >= -180 && f <= 180
}

func files(o object) (list []dedup.File) {
	add := func(kind string, f object) {
		if id := f.text("file_id"); id != "" {
			list = append(list, dedup.File{Kind: kind, ID: id, Name: f.text("file_name"), MIME: f.text("mime_type"),
				Size: max(0, f.id("file_size"))})
		}
	}
	var best object
	var most int64 = -1
	for _, raw := range o.list("photo") {
		size := asObject(raw)
		if n := pixels(size); n >= most && size.text("file_id") != "" { // they grow; of equals the last
			best, most = size, n
		}
	}
	add("photo", best)
	for _, kind := range fileKinds {
		if kind == "document" && o.has("animation") {
			continue
		}
		add(kind, o.object(kind))
	}
	return list
}

// pixels compares the sizes of one photo.
func pixels(size object) int64 {
	w, h := size.id("width"), size.id("height")
	if w <= 0 || h <= 0 || w > 1<<20 || h > 1<<20 {
		return 0
	}
	return w * h
}

// command splits "/start@shop_bot spring_sale" into "/start" and, for /start alone, the payload of the link that was
// followed (https://core.telegram.org/bots/features#deep-linking).
func command(text string) (name, campaign string) {
	word, rest, _ := strings.Cut(text, " ")
	if nl := strings.IndexAny(word, "\n\t"); nl >= 0 {
		word, rest = word[:nl], ""
	}
	word, _, _ = strings.Cut(word, "@")
	if len(word) < 2 || len(word) > 33 || word[0] != '/' || !allOf(word[1:], false) {
		return "", ""
	}
	if rest = strings.TrimSpace(rest); word == "/start" && len(rest) <= 64 && allOf(rest, true) {
		campaign = rest
	}
	return word, campaign
}

// allOf reports whether s is made of letters, digits and _, or also of -.
func allOf(s string, dash bool) bool {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c != '-' || !dash) && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return true
}
