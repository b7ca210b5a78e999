package dedup

import (
	"errors"
	"net/http"
	"time"

	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// source.go: what comes in, in terms that no messenger owns.

// ErrUnauthentic is returned by Source.Authenticate for a request that the source did not send.
var ErrUnauthentic = errors.New("the request is not authentic")

// ErrIncomplete is returned by Source.Parse for a body that was cut short: nothing is stored, and the sender repeats it.
var ErrIncomplete = errors.New("the body is cut short")

// Source knows one sender of events: how it proves itself, and what its bodies mean. Its methods may be called by several
// goroutines at once.
type Source interface {
	// Authenticate returns nil if the request was sent by the source. body reads the whole body (under Middleware's limit)
	// and is called only by sources that sign it; every other source decides by the header alone, before anything is read.
	// An error that is not ErrUnauthentic (a body that can't be read) is one of the transport.
	Authenticate(r *http.Request, body func() ([]byte, error)) error

	// Parse turns an authentic body into an event; the Enquiry is stored with it. Unknown kinds and odd fields are ordinary.
	// An authentic body that can't be understood gives an event with Quarantine set and the body's hash as its UpdateID.
	// The only error is ErrIncomplete.
	Parse(body []byte) (store.Event, error)
}

// Enquiry is an event as a Rule sees it. It is stored as JSON: fields are added, never renamed.
type Enquiry struct {
	Source string `json:"source"`
	Tenant string `json:"tenant,omitempty"`
	Bot    string `json:"bot,omitempty"`
	Kind   string `json:"kind"` // the source's name: for Telegram "message", "callback_query", …

	// Person is who acts. HasPerson is false where nobody does: a poll's result, a post of a channel, an anonymous
	// administrator, the owner's own message in a business chat.
	Person    Person `json:"person"`
	HasPerson bool   `json:"has_person,omitempty"`
	// Asks tells that the source takes it for an enquiry by default: a person's message, button, order; not a reaction, a
	// service message, somebody who blocked the bot. The ready rules ignore what does not ask.
	Asks bool `json:"asks,omitempty"`
	// OwnPhone tells that Phone is the person's own number, as the source vouches for it.
	Phone    string `json:"phone,omitempty"`
	OwnPhone bool   `json:"own_phone,omitempty"`
	Email    string `json:"email,omitempty"`
	// SenderChat is the group or channel in whose name it was done, if it was. It is the Person too where somebody speaks
	// as a chat of their own elsewhere.
	SenderChat Person `json:"sender_chat,omitzero"`

	Text     string `json:"text,omitempty"`     // message text, caption, or the data of a pressed button
	Data     string `json:"data,omitempty"`     // the data of a pressed button or web app: made by the client, untrusted
	Campaign string `json:"campaign,omitempty"` // the payload of /start
	Command  string `json:"command,omitempty"`  // "/start", without the bot's name
	Service  string `json:"service,omitempty"`  // what kind of service message this is; empty for content
	Location string `json:"location,omitempty"` // "latitude,longitude" in degrees
	Files    []File `json:"files,omitempty"`

	ChatID   string    `json:"chat_id,omitempty"`
	ChatType string    `json:"chat_type,omitempty"` // "private", "group", "supergroup", "channel"
	Private  bool      `json:"private,omitempty"`
	Message  string    `json:"message,omitempty"` // the message's id in its chat
	ReplyTo  string    `json:"reply_to,omitempty"`
	Group    string    `json:"group,omitempty"` // items with one Group are one enquiry (an album)
	Edited   bool      `json:"edited,omitempty"`
	At       time.Time `json:"at,omitzero"` // when the source says that it happened
	EditedAt time.Time `json:"edited_at,omitzero"`

	// MovedFrom and MovedTo are ordering keys: this event tells that the one goes on under the other (a group that became
	// a supergroup). Such an event is no enquiry.
	MovedFrom string `json:"moved_from,omitempty"`
	MovedTo   string `json:"moved_to,omitempty"`

	// Stage is what the CRM tells about one of its leads; then there is no person, and no rule is asked.
	Stage *StageChange `json:"stage,omitempty"`

	// ContentID, ContentRev and DealKey are those of store.Event.
	ContentID  string `json:"content_id,omitempty"`
	ContentRev string `json:"content_rev,omitempty"`
	DealKey    string `json:"deal_key,omitempty"`
}

// StageChange is what a CRM's hook says about a lead.
type StageChange struct {
	LeadID string `json:"lead_id"`
	// Stage is where the lead stands; empty if the hook says only that something changed: then it is read
	// (crm.StageReader).
	Stage string `json:"stage,omitempty"`
	// Version grows with every change of the lead, where the CRM gives one; else 0, and At decides, and without that the
	// host's Options.Transitions.
	Version int64     `json:"version,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Closed  bool      `json:"closed,omitempty"` // won or lost
}

// Person is somebody at a source.
type Person struct {
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	Username string `json:"username,omitempty"`
	Language string `json:"language,omitempty"`
	// Tenant, Source and Bot are for Submit and Adopt: where the host met the person (of several tenants which; telegram.Name;
	// the bot's id). With Source and Bot a submitted lead is a deal of the person's private chat with that bot, which
	// ContinueWithin continues. A Source leaves them empty.
	Tenant string `json:"-"`
	Source string `json:"-"`
	Bot    string `json:"-"`
}

// File is something attached, by the source's own id. It is never a URL: Telegram's file URLs contain the bot's token.
type File struct {
	Kind string `json:"kind"` // "photo", "document", "voice", …
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	MIME string `json:"mime,omitempty"`
	Size int64  `json:"size,omitempty"`
}

// ContactKey names a person across events: tenant + source + user id. It is "" without a user id.
func ContactKey(tenant, source, userID string) string {
	if userID == "" {
		return ""
	}
	return "c:" + ids.Digest(tenant, source, userID)
}

// OrderingKey names a stream of events that are decided one after the other. scope says what part is: "user", "chat" or
// "event".
func OrderingKey(tenant, source, bot, scope, id string) string {
	return "k:" + ids.Digest(tenant, source, bot, scope, id)
}
