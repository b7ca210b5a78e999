package dedup

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// submit.go: leads that the host makes itself, at the end of a dialogue.

// SubmitSource is the source of submitted leads whose person names none.
const SubmitSource = "submit"

// Submit stores a lead to be created, and returns when that is durable: after a nil error the lead is never lost, and the
// host may say so to its user.
//
// key names this enquiry for ever: the same key again (a loop that ran twice after a crash, a second press) returns the same
// operation and adds nothing; with another lead it returns the first operation beside ErrKeyReused. Take the identity of
// what the user finished (the chat and the form's message), never an update_id. Any other error means: not known to be
// stored; call again with the same key.
//
// Submit always makes a lead of its own. A bot whose leads all come from dialogues takes a nil rule, or one that ignores the
// dialogue's messages: ContinueWithin would open a deal for the first of them. With Person.Source and Person.Bot set, what
// the person writes after the form continues the submitted lead. Keys of different tenants (Person.Tenant) are different.
func (p *Processor) Submit(ctx context.Context, key string, person Person, lead crm.Lead) (store.Operation, error) {
	sub, err := p.submission(key, person, lead)
	if err != nil {
		return store.Operation{}, err
	}
	return submitted(p.st.Submit(ctx, sub))
}

// SubmitTx is Submit inside a transaction of the host's own, on the store's database: the lead is stored if and only
// if tx commits, together with the host's rows. See store.Transactional for what an open transaction costs others.
func (p *Processor) SubmitTx(ctx context.Context, tx *sql.Tx, key string, person Person, lead crm.Lead) (store.Operation, error) {
	t, ok := p.st.(store.Transactional)
	if !ok {
		return store.Operation{}, fmt.Errorf("dedup: submit: the store %T has no transactions for a host", p.st)
	}
	sub, err := p.submission(key, person, lead)
	if err != nil {
		return store.Operation{}, err
	}
	return submitted(t.SubmitTx(ctx, tx, sub))
}

func (p *Processor) submission(key string, person Person, lead crm.Lead) (store.Submission, error) {
	if _, err := p.serving(person.Tenant); err != nil {
		return store.Submission{}, fmt.Errorf("dedup: submit: %w", err)
	}
	sub, err := newSubmission(key, person, lead)
	if err != nil {
		return store.Submission{}, err
	}
	return p.asDecided(sub), nil
}

func newSubmission(key string, person Person, lead crm.Lead) (store.Submission, error) {
	if strings.TrimSpace(key) == "" || !utf8.ValidString(key) || strings.ContainsRune(key, 0) || len(key) > maxHostKey {
		return store.Submission{}, fmt.Errorf("dedup: submit: %w: key must be UTF-8 without NUL, of 1 to %d bytes", store.ErrInvalid, maxHostKey)
	}
	fields, err := json.Marshal(lead)
	if err != nil {
		return store.Submission{}, fmt.Errorf("dedup: submit: %w: lead: %w", store.ErrInvalid, err)
	}
	if string(fields) == "{}" {
		return store.Submission{}, fmt.Errorf("dedup: submit: %w: the lead is empty", store.ErrInvalid)
	}
	tenant := person.Tenant
	source, bot, scope, id := SubmitSource, "", "user", person.ID
	if person.Source != "" && person.Bot != "" {
		source, bot = person.Source, person.Bot
	}
	if id == "" {
		source, bot, scope, id = SubmitSource, "", "key", key
	}
	ordering := OrderingKey(tenant, source, bot, scope, id)
	contact := ContactKey(tenant, source, person.ID)
	// The operation hangs on the key alone, not on the person: the same key is the same operation whoever is named.
	deal := ids.UUID("deal", tenant, SubmitSource, key)
	op := ids.UUID(string(crm.KindCreate), deal)
	return store.Submission{
		Contact: store.Contact{Key: contact, Tenant: tenant, Source: source, UserID: person.ID},
		Deal: store.Deal{ID: deal, Tenant: tenant, OrderingKey: ordering, ContactKey: contact, Key: "submit:" + key, Generation: 1,
			State: store.DealOpen, CreateOp: op},
		Operation: store.Operation{ID: op, Tenant: tenant, Kind: string(crm.KindCreate), OrderingKey: ordering, ContactKey: contact,
			DealID: deal, State: store.Pending, Fields: fields},
	}, nil
}

func submitted(op store.Operation, err error) (store.Operation, error) {
	if err != nil && !errors.Is(err, store.ErrKeyReused) {
		return store.Operation{}, fmt.Errorf("dedup: submit: %w", err)
	}
	return op, err
}

// ErrKeyReused is returned by Submit, beside the first operation, for a key that was used before with another lead.
var ErrKeyReused = store.ErrKeyReused
