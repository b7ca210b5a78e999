package dedup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// adopt.go: leads that were in the CRM before leadonce was, so that their people are not taken for new ones.

// Adoption is an open lead of the CRM's that becomes a deal here.
type Adoption struct {
	Person Person // ID, Source and Bot are needed: the deal is one of the person's private chat with that bot
	LeadID string // the lead's id in the CRM
	Stage  string // where it stands there; may be empty
	// LastActivity is when somebody last wrote about it: what ContinueWithin counts from. It is needed, since now would
	// revive a deal that has been dead for long. OpenedAt may be zero: then it counts as opened at LastActivity.
	OpenedAt, LastActivity time.Time
	Lead                   crm.Lead // what is known of it; may be zero. Nothing of it is sent
}

// Adopt stores an open lead of the CRM's as a deal whose create is done, so that what the person writes next continues it
// (ContinueWithin, UntilClosed: if it is no older than they allow, counted from LastActivity) and opens no second one. Nothing
// is sent, and no Run is needed. Import the open leads before the first Processor without Options.Shadow runs; under Shadow it
// works as well. Of several deals of one person the most recent is continued.
//
// Person.ID is the source's: for Telegram the numeric user id, which the CRM has to know. A lead without one can't be adopted.
//
// It may be called again at any time: a lead that is known already, adopted before or made by leadonce itself, adds nothing,
// and the operation that stands for it is returned. An error means: not known to be stored; call again. store.ErrInvalid
// is among its causes where a field is missing or can't be meant; the text names it.
func (p *Processor) Adopt(ctx context.Context, a Adoption) (store.Operation, error) {
	if _, err := p.serving(a.Person.Tenant); err != nil {
		return store.Operation{}, fmt.Errorf("dedup: adopt: %w", err)
	}
	sub, err := adoption(a, time.Now())
	if err != nil {
		return store.Operation{}, err
	}
	op, err := p.st.Submit(ctx, sub)
	// What is said of the lead may have changed since it was adopted; it is the same lead all the same.
	if err != nil && !errors.Is(err, store.ErrKeyReused) {
		return store.Operation{}, fmt.Errorf("dedup: adopt lead %q: %w", a.LeadID, err)
	}
	if op.ContactKey != sub.Operation.ContactKey {
		return op, fmt.Errorf("dedup: adopt lead %q: %w: it is known here already, and belongs to another person", a.LeadID, store.ErrInvalid)
	}
	return op, nil
}

func adoption(a Adoption, now time.Time) (store.Submission, error) {
	if a.OpenedAt.IsZero() {
		a.OpenedAt = a.LastActivity
	}
	if what := a.wrong(now); what != "" {
		return store.Submission{}, fmt.Errorf("dedup: adopt lead %q: %w: Adoption.%s", a.LeadID, store.ErrInvalid, what)
	}
	fields, err := json.Marshal(a.Lead)
	if err != nil {
		return store.Submission{}, fmt.Errorf("dedup: adopt lead %q: %w: Adoption.Lead: %w", a.LeadID, store.ErrInvalid, err)
	}
	who, tenant := a.Person, a.Person.Tenant
	ordering := OrderingKey(tenant, who.Source, who.Bot, "user", who.ID)
	contact := ContactKey(tenant, who.Source, who.ID)
	key := "adopt:" + a.LeadID
	// They hang on the lead alone: the same lead is the same deal, whoever is named.
	deal := ids.UUID("deal", tenant, "adopt", a.LeadID)
	op := ids.UUID(string(crm.KindCreate), deal)
	return store.Submission{
		Contact: store.Contact{Key: contact, Tenant: tenant, Source: who.Source, UserID: who.ID},
		Deal: store.Deal{ID: deal, Tenant: tenant, OrderingKey: ordering, ContactKey: contact, Key: key, Generation: 1,
			State: store.DealOpen, CreateOp: op},
		Operation: store.Operation{ID: op, Tenant: tenant, Kind: string(crm.KindCreate), OrderingKey: ordering, ContactKey: contact,
			DealID: deal, State: store.Pending, Fields: fields},
		Adopt: &store.Adoption{CRMID: a.LeadID, Opened: now.Sub(a.OpenedAt), Idle: now.Sub(a.LastActivity), Stage: a.Stage},
	}, nil
}

// wrong names the first field that can't be meant, and why; OpenedAt is filled in by then.
func (a Adoption) wrong(now time.Time) string {
	switch {
	case strings.TrimSpace(a.LeadID) == "" || !utf8.ValidString(a.LeadID) || strings.ContainsRune(a.LeadID, 0),
		len(a.LeadID) > maxHostKey:
		return fmt.Sprintf("LeadID must be UTF-8 without NUL, of 1 to %d bytes", maxHostKey)
	case a.Person.ID == "" || a.Person.Source == "" || a.Person.Bot == "":
		return "Person needs an ID, a Source and a Bot: the chat that continues the lead"
	case a.LastActivity.IsZero():
		return "LastActivity is missing: ContinueWithin counts from it; take the lead's last change where the CRM tells no more"
	case a.LastActivity.Unix() <= 0 || a.OpenedAt.Unix() <= 0:
		return "OpenedAt or LastActivity is before 1970: is it in the right unit?"
	case a.LastActivity.After(now):
		return fmt.Sprintf("LastActivity is %v in the future", a.LastActivity.Sub(now).Round(time.Millisecond))
	case a.OpenedAt.After(a.LastActivity):
		return "OpenedAt is after LastActivity"
	}
	return ""
}
