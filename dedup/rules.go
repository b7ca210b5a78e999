package dedup

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// rules.go: the ready rules. Each ignores what is nobody's enquiry: posts of channels, anonymous administrators, bots, the
// owner's own messages in a business chat, reactions, service messages.

// DefaultUntilClosed is how long UntilClosed continues a deal that nobody writes about any more.
const DefaultUntilClosed = 30 * 24 * time.Hour

// ContinueWithin opens a deal for a person's first message and adds what the same person sends within d of the deal's last
// activity to it: as notes, and a phone number of their own as an update of the lead where the adapter has updates. It is
// refused with an adapter that has no notes.
//
// leadOf is asked for every event that asks something (Enquiry.Asks), so that what it ignores is no note either.
func ContinueWithin(d time.Duration, leadOf LeadFunc) Rule {
	r := &leadRule{leadOf: leadOf, within: d, kinds: []crm.Kind{crm.KindCreate, crm.KindNote}}
	if d <= 0 {
		r.bad = "ContinueWithin needs a positive duration"
	}
	return r
}

// UntilClosed continues a deal for as long as the CRM has not closed it (package dedup/stagehook tells), and its last activity
// is no older than fallback, since CRMs lose hooks; 0 means DefaultUntilClosed. It is refused with an adapter that has no
// notes.
func UntilClosed(fallback time.Duration, leadOf LeadFunc) Rule {
	r := &leadRule{leadOf: leadOf, within: cmp.Or(fallback, DefaultUntilClosed), kinds: []crm.Kind{crm.KindCreate, crm.KindNote}}
	if fallback < 0 {
		r.bad = "UntilClosed needs a duration that is not negative"
	}
	return r
}

// OnePerMessage opens a deal for every message. An album is one; what comes late of it becomes a note where the adapter has
// notes.
func OnePerMessage(leadOf LeadFunc) Rule {
	return &leadRule{leadOf: leadOf, kinds: []crm.Kind{crm.KindCreate}}
}

// Match picks events for Only.
type Match func(Enquiry) bool

// Command picks commands by their names, as "/order", in whatever case; without names, every command.
func Command(names ...string) Match {
	return func(e Enquiry) bool {
		named := func(name string) bool { return strings.EqualFold(name, e.Command) }
		return e.Command != "" && (len(names) == 0 || slices.ContainsFunc(names, named))
	}
}

// SharedContact picks messages with a phone number, the person's own (Enquiry.OwnPhone) or somebody else's.
func SharedContact(e Enquiry) bool { return e.Phone != "" }

// WebAppData picks what a web app sends (also a payment, a chosen inline result): made by the client, untrusted.
func WebAppData(e Enquiry) bool { return e.Data != "" && e.Text != e.Data }

// Button picks pressed buttons by what their data begins with; "" picks every one.
func Button(prefix string) Match {
	return func(e Enquiry) bool { return e.Data != "" && e.Text == e.Data && strings.HasPrefix(e.Data, prefix) }
}

// Only asks rule about events that some match picks, and ignores the others. It says what is taken, also of the messages that
// follow: text after a command is not, unless a match picks it. An edit of what was taken, and a late item of an album that
// was, are not asked about. A Match of your own is a func:
//
//	photos := func(e dedup.Enquiry) bool { return len(e.Files) > 0 }
//	dedup.Only(rule, dedup.Command("/order"), dedup.SharedContact, dedup.WebAppData, photos)
func Only(rule Rule, matches ...Match) Rule { return &onlyRule{rule, matches} }

type onlyRule struct {
	Rule
	matches []Match
}

func (r *onlyRule) validate() error {
	if r.Rule == nil {
		return errors.New("dedup: Only needs a rule")
	}
	if len(r.matches) == 0 || slices.ContainsFunc(r.matches, func(m Match) bool { return m == nil }) {
		return errors.New("dedup: Only needs at least one Match, and none of them nil: it would ignore everything")
	}
	if v, ok := r.Rule.(interface{ validate() error }); ok {
		return v.validate()
	}
	return nil
}

// Decide asks the inner rule about what is picked.
func (r *onlyRule) Decide(e Enquiry, h History) (Decision, error) {
	if !slices.ContainsFunc(r.matches, func(m Match) bool { return m(e) }) {
		return Decision{}, Ignore("not of the kinds that are taken")
	}
	return r.Rule.Decide(e, h)
}

// LeadFunc makes the lead of an enquiry, or returns Ignore.
type LeadFunc func(e Enquiry) (crm.Lead, error)

type leadRule struct {
	leadOf LeadFunc
	within time.Duration // 0: never continue
	kinds  []crm.Kind
	bad    string
}

// Kinds lists lead.create, and note.add where the rule continues deals.
func (r *leadRule) Kinds() []crm.Kind { return r.kinds }

func (r *leadRule) validate() error {
	switch {
	case r.leadOf == nil:
		return errors.New("dedup: the rule's LeadFunc is nil: it has to make a crm.Lead of an Enquiry")
	case r.bad != "":
		return fmt.Errorf("dedup: %s", r.bad)
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
			return Decision{Effects: continued(e, d.ID)}, nil
		}
	}
	return Decision{Effects: []Effect{Open{Lead: lead}}}, nil
}

// continued adds an enquiry to a deal.
func continued(e Enquiry, deal string) []Effect {
	if !e.OwnPhone {
		return []Effect{Note{DealID: deal, Text: e.Summary()}}
	}
	phone := Update{DealID: deal, Lead: crm.Lead{Phone: e.Phone, Email: e.Email}, Note: e.Summary()}
	if e.Text == "" && e.Location == "" && e.Data == "" && len(e.Files) == 0 {
		return []Effect{phone}
	}
	phone.Note, e.Phone = e.Phone, ""
	return []Effect{phone, Note{DealID: deal, Text: e.Summary()}}
}
