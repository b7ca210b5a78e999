package crm

import "time"

// lead.go: what is sent. All of it is stored as JSON with the operation and freezes when the first attempt begins.

// Lead is one enquiry as the CRM shall see it. Zero fields are not sent.
type Lead struct {
	Title    string `json:"title,omitempty"`
	Name     string `json:"name,omitempty"`
	Phone    string `json:"phone,omitempty"`
	Email    string `json:"email,omitempty"`
	Username string `json:"username,omitempty"` // in the messenger, without @
	Text     string `json:"text,omitempty"`
	Campaign string `json:"campaign,omitempty"` // the payload of /start, a UTM mark: where the person came from
	// ContactID is the CRM's id of the person, where a contact.ensure has made one.
	ContactID string `json:"contact_id,omitempty"`
	// Fields are the CRM's own fields by their names there. Values are what encoding/json can write; an adapter sees them
	// as they come back from JSON, with numbers as json.Number, so that large ids keep all their digits.
	Fields map[string]any `json:"fields,omitempty"`
}

// Note is a text added to a lead that exists.
type Note struct {
	Text string `json:"text"`
	// Ref is a short visible reference, the same at every attempt. An adapter puts it into the note, so that a note
	// that came twice is recognised as one.
	Ref string `json:"ref,omitempty"`
}

// Stage is where a lead shall be moved.
type Stage struct {
	To string `json:"to"`
	// From are the stages that may be left; empty means any.
	From []string `json:"from,omitempty"`
}

// StageState is where a lead stands in the CRM.
type StageState struct {
	Stage string
	// Version grows with every change of the lead, where the CRM has such a number (a revision, its time of change in
	// milliseconds); else 0.
	Version int64
	At      time.Time // when it was changed last, by the CRM's clock: the version where there is no other; may be zero
	Closed  bool      // won or lost: nothing more is added to it
}

// File is something that a person attached, by the source's own id. It is never a URL: Telegram's file URLs contain the
// bot's token.
type File struct {
	Source string `json:"source"`
	Bot    string `json:"bot,omitempty"`
	Kind   string `json:"kind"` // "photo", "document", "voice", …
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`
	MIME   string `json:"mime,omitempty"`
	Size   int64  `json:"size,omitempty"` // in bytes; 0: not known
}

// Contact is a person.
type Contact struct {
	ExternalID string `json:"external_id"` // the person's id at the source
	Name       string `json:"name,omitempty"`
	Phone      string `json:"phone,omitempty"`
	Username   string `json:"username,omitempty"`
}
