package dedup

import (
	"errors"
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

// Effect is one of Open, Note and Update.
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

// Update changes fields of the lead of a deal of the history.
type Update struct {
	DealID string
	Lead   crm.Lead
}

func (Open) effect()   {}
func (Note) effect()   {}
func (Update) effect() {}

type ignored struct{ reason string }

func (e *ignored) Error() string { return "ignored: " + e.reason }

// Ignore is what a rule returns for an event that needs nothing. The reason is kept, and counted.
func Ignore(reason string) error { return &ignored{reason} }

// LeadFunc makes the lead of an enquiry, or returns Ignore.
type LeadFunc func(e Enquiry) (crm.Lead, error)

// ContinueWithin opens a deal for a person's first message and adds what the same person sends within d of the deal's last
// activity to it, as notes. It is refused with an adapter that has no notes.
//
// leadOf is asked for every event that asks something (Enquiry.Asks), so that what it ignores is no note either.
func ContinueWithin(d time.Duration, leadOf LeadFunc) Rule {
	return &leadRule{leadOf: leadOf, within: d, kinds: []crm.Kind{crm.KindCreate, crm.KindNote}, bad: d <= 0}
}

// OnePerMessage opens a deal for every message. The further items of an album become notes of its first where the adapter
// has notes.
func OnePerMessage(leadOf LeadFunc) Rule {
	return &leadRule{leadOf: leadOf, kinds: []crm.Kind{crm.KindCreate}}
}

type leadRule struct {
	leadOf LeadFunc
	within time.Duration // 0: never continue
	kinds  []crm.Kind
	bad    bool
}

// Kinds lists lead.create, and note.add where the rule continues deals.
func (r *leadRule) Kinds() []crm.Kind { return r.kinds }

func (r *leadRule) validate() error {
	switch {
	case r.leadOf == nil:
		return errors.New("dedup: the rule's LeadFunc is nil: it has to make a crm.Lead of an Enquiry")
	case r.bad:
		return errors.New("dedup: ContinueWithin needs a positive duration")
	}
	return nil
}

// Decide continues the most recent deal that may be continued, else opens one.
func (r *leadRule) Decide(e Enquiry, h History) (Decision, error) {
	if !e.HasPerson {
		return Decision{}, Ignore("no person")
	}
	if !e.Asks {
		return Decision{}, Ignore("not an enquiry: " + strings.TrimSpace(e.Kind+" "+e.Service))
	}
	lead, err := r.leadOf(e)
	if err != nil {
		return Decision{}, err
	}
	for i := len(h.Deals) - 1; i >= 0 && r.within > 0; i-- {
		if d := h.Deals[i]; d.Continuable() && h.Now.Sub(d.LastActivity) <= r.within {
			return Decision{Effects: []Effect{Note{DealID: d.ID, Text: e.Summary()}}}, nil
		}
	}
	return Decision{Effects: []Effect{Open{Lead: lead}}}, nil
}

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
