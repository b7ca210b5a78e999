package dedup

import (
	"fmt"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// rule.go: the business decision: what an enquiry makes of its contact's deals.

// Rule decides what one event does. It is called again whenever its answer could not be committed, so it must have no side
// effects; it is called by several goroutines at once, but never concurrently for one ordering key in one process.
type Rule interface {
	// Decide returns the effects of e, given the contact's deals, or an error: Ignore for an event that needs nothing; any
	// other is tried again with back-off, and after Options.RuleAttempts the event is parked.
	//
	// An album comes as one enquiry. An edit of what was taken before comes only while that is not sent, with the history as
	// it was then: its Open replaces the lead's fields. Repeats, late items of an album, later edits and a CRM's hooks are
	// not asked about.
	Decide(e Enquiry, h History) (Decision, error)
	// Kinds lists the kinds of operations that Decide may ask for. NewProcessor refuses a rule whose kinds the adapter
	// does not offer.
	Kinds() []crm.Kind
}

// History is what a rule may look at besides the event.
type History struct {
	Now   time.Time  // the store's clock
	Deals []DealView // of the event's contact, oldest first: at least the 16 most recent
}

// DealView is one enquiry of the contact.
type DealView struct {
	ID           string
	Key          string
	Open         bool        // not closed
	Create       store.State // of the operation that creates it in the CRM
	CRMID        string      // once created
	OpenedAt     time.Time
	LastActivity time.Time
	Stage        string // the last that the CRM told of; empty if it told of none
	StageAt      time.Time
}

// Continuable reports whether more may be added to the deal: it is open, and its create neither failed nor was canceled.
func (d DealView) Continuable() bool {
	return d.Open && d.Create != store.Failed && d.Create != store.Canceled
}

// Decision is what a rule wants done.
type Decision struct {
	Effects []Effect
	Reason  string // kept with an event that has no effects
}

// Effect is one of Open, Note, Update, SetStage and Close. Each becomes an operation of its own: one that fails, or is in
// doubt, holds only what depends on it, which is what belongs to the lead that a failed Open would have made.
type Effect interface{ effect() }

// Open opens a deal.
type Open struct {
	Lead crm.Lead
	// Key is the host's own name for the deal; empty means the identity of the content. Under a key of its own a deal is
	// unique while it is open; without one, the same content opens one deal, ever.
	Key string
}

// Note adds a note to a deal of the history.
type Note struct {
	DealID string
	Text   string
}

// Update changes fields of the lead of a deal of the history. Where the adapter has no updates it becomes a note.
type Update struct {
	DealID string
	Lead   crm.Lead
	Note   string // what that note says; empty: the phone, e-mail and text of Lead
}

// SetStage moves the lead of a deal of the history to another stage, if it stands in one of From: what a manager has decided
// meanwhile is not undone. Both are required.
type SetStage struct {
	DealID string
	To     string
	From   []string
}

// Close ends a deal of the history for us: nothing more is added to it. The CRM is told nothing; should it tell later that the
// lead is open, the deal is open again.
type Close struct {
	DealID string
}

func (Open) effect()     {}
func (Note) effect()     {}
func (Update) effect()   {}
func (SetStage) effect() {}
func (Close) effect()    {}

func (x Note) dealID() string     { return x.DealID }
func (x Update) dealID() string   { return x.DealID }
func (x SetStage) dealID() string { return x.DealID }
func (x Close) dealID() string    { return x.DealID }

func (x Update) note() string {
	if x.Note != "" {
		return x.Note
	}
	var b []string
	for _, s := range []string{x.Lead.Phone, x.Lead.Email, x.Lead.Text} {
		if s != "" {
			b = append(b, s)
		}
	}
	return strings.Join(b, "\n")
}

type ignored struct{ reason string }

func (e *ignored) Error() string { return "ignored: " + e.reason }

// Ignore is what a rule returns for an event that needs nothing. The reason is kept, and counted.
func Ignore(reason string) error { return &ignored{reason} }

// Summary puts an enquiry into words: the text, a phone, what is attached or where it is, and for one without any of these
// what it was. It is what a note says, and a fit Text for a lead that must not be empty.
func (e Enquiry) Summary() string {
	var b []string
	if e.Text != "" {
		b = append(b, e.Text)
	}
	if e.Phone != "" {
		b = append(b, e.Phone)
	}
	if e.Location != "" {
		b = append(b, "["+e.Location+"]")
	}
	if e.Data != "" && e.Data != e.Text {
		b = append(b, e.Data)
	}
	for _, f := range e.Files {
		b = append(b, strings.TrimSpace(fmt.Sprintf("[%s] %s", f.Kind, f.Name)))
	}
	if len(b) == 0 {
		b = append(b, "["+strings.TrimSpace(e.Kind+" "+e.Message)+"]")
	}
	text := strings.Join(b, "\n")
	if e.Edited {
		text = "✎ " + text
	}
	return text
}
