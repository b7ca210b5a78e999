package telegram

// kinds.go: the kinds of updates (Bot API 10.3, https://core.telegram.org/bots/api#update), one line each.

// shape is how the object of a kind is built.
type shape int

const (
	other    shape = iota
	message        // a Message
	business       // a Message of a business account: the owner's own ones come too
	channel        // a Message that a channel posted
	guest          // a Message of a chat that the bot is not in
	callback       // a CallbackQuery: its chat is that of the message with the button
)

// kind is what has to be known of one kind of update.
type kind struct {
	name  string
	shape shape
	edit  bool
	// who names the field of the acting user; empty where nobody acts. asChat names the field of the chat that acts instead.
	who, asChat string
	// asks: by default it is an enquiry.
	asks bool
	// id names the field with Telegram's own id of the thing; empty where there is none.
	id string
	// text and data name the fields that become Enquiry.Text and Enquiry.Data.
	text, data string
}

// kinds is in the order in which an update with several of them is read. Telegram sends one each.
var kinds = []kind{
	{name: "message", shape: message, who: "from", asChat: "sender_chat", asks: true},
	{name: "edited_message", shape: message, edit: true, who: "from", asChat: "sender_chat", asks: true},
	{name: "business_message", shape: business, who: "from", asks: true},
	{name: "edited_business_message", shape: business, edit: true, who: "from", asks: true},
	{name: "guest_message", shape: guest, who: "from", asChat: "guest_bot_caller_chat", asks: true, id: "guest_query_id"},
	{name: "callback_query", shape: callback, who: "from", asks: true, id: "id", text: "data", data: "data"},
	{name: "chat_join_request", who: "from", asks: true, text: "bio"},
	{name: "shipping_query", who: "from", asks: true, id: "id", data: "invoice_payload"},
	{name: "pre_checkout_query", who: "from", asks: true, id: "id", data: "invoice_payload"},
	{name: "purchased_paid_media", who: "from", asks: true, data: "paid_media_payload"},

	// Signs of interest, not enquiries.
	{name: "inline_query", who: "from", id: "id", text: "query"},
	{name: "chosen_inline_result", who: "from", text: "query", data: "result_id"},
	{name: "poll_answer", who: "user", asChat: "voter_chat"},
	{name: "message_reaction", who: "user", asChat: "actor_chat"},
	{name: "my_chat_member", who: "from"},
	{name: "chat_member", who: "from"},
	{name: "subscription", who: "user", data: "invoice_payload"},
	{name: "managed_bot", who: "user"},

	// Nobody asks.
	{name: "channel_post", shape: channel, asChat: "sender_chat"},
	{name: "edited_channel_post", shape: channel, edit: true, asChat: "sender_chat"},
	{name: "business_connection"},
	{name: "deleted_business_messages"},
	{name: "message_reaction_count"},
	{name: "poll"},
	{name: "chat_boost"},
	{name: "removed_chat_boost"},
	{name: "stopped_message_generation"},
}

// unknownKind is the kind of an update that names none, or one that is not fit to be a name.
const unknownKind = "unknown"

// kindOf finds what an update carries. An update has one kind; of several the first of the table counts, and sole is false.
func kindOf(update object) (k kind, sole bool) {
	n := 0
	for _, c := range kinds {
		if _, ok := update[c.name]; ok {
			if n == 0 {
				k = c
			}
			n++
		}
	}
	if n > 0 {
		return k, n == 1
	}
	first := "" // of several unknown ones the first by name, so that it is always the same
	for name := range update {
		if name != "update_id" && (first == "" || name < first) {
			first = name
		}
	}
	if !fitsName(first) {
		return kind{name: unknownKind}, false
	}
	return kind{name: first}, len(update) == 2
}

// fitsName reports whether s looks like a kind: it becomes a column, a log field and a label.
func fitsName(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '_' && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 64
}
