package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// plan.go: committing a decision whole, or not at all.

// CommitPlan stores a decision, and begins some of its operations if Plan.Claim says so.
func (s *Store) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	if p.Key == "" {
		return nil, fmt.Errorf("sqlite: commit plan: %w: Plan.Key is empty", store.ErrInvalid)
	}
	if p.Claim != nil {
		if err := sqlstore.ValidClaim(*p.Claim); err != nil {
			return nil, fmt.Errorf("sqlite: commit plan: %w", err)
		}
	}
	other, err := sqlstore.OtherKey(p)
	if err != nil {
		return nil, fmt.Errorf("sqlite: commit plan: %w", err)
	}
	type result struct {
		begun []store.Operation
		due   bool
		told  []store.Hint
	}
	res := new(result)
	err = s.writer.do(ctx, false, func(c *conn) (err error) {
		t := planTx{c: c, p: p, other: other, now: s.now()}
		err = t.run()
		*res = result{t.begun, t.due, t.told}
		return err
	})
	if err != nil {
		s.setAside(ctx, []error{err})
		return nil, fmt.Errorf("sqlite: commit plan of %s: %w", p.Key, err)
	}
	if res.due {
		s.hints.Tell(store.Hint{})
	}
	for _, hint := range res.told {
		s.hints.Tell(hint)
	}
	return res.begun, nil
}

type planTx struct {
	c     *conn
	p     store.Plan
	other string // the ordering key that this one is merged with
	now   time.Time
	begun []store.Operation
	due   bool         // an operation is left for Claim
	told  []store.Hint // where events were moved to
}

// run compares first, so that what the plan itself changes does not count as moved.
func (t *planTx) run() error {
	for _, step := range []func() error{
		t.moveKey, t.seen, t.events, t.contacts, t.changes, t.deals, t.operations, t.edits, t.drops, t.links, t.merge,
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func conflict(what, id string) error { return fmt.Errorf("%s %s: %w", what, id, store.ErrConflict) }

func (t *planTx) moveKey() error {
	a := args{"key": t.p.Key, "version": t.p.Version}
	var n int64
	var err error
	if t.p.Version == 0 {
		n, err = t.c.exec(`
			insert into leadonce_keys (ordering_key, version) values (:key, 1) on conflict (ordering_key) do nothing`, a)
	} else {
		n, err = t.c.exec(`
			update leadonce_keys set version = version + 1 where ordering_key = :key and version = :version`, a)
	}
	if err == nil && n != 1 {
		return conflict("ordering key", t.p.Key)
	}
	return err
}

func (t *planTx) seen() error {
	for _, o := range t.p.SeenOps {
		var version int64
		_, err := t.c.get(&version, `
			select version from leadonce_operations where id = :id`, args{"id": o.ID})
		if err != nil {
			return err
		}
		if version != o.Version {
			return conflict("operation", o.ID)
		}
	}
	for _, d := range t.p.SeenDeals {
		var version int64
		_, err := t.c.get(&version, `
			select version from leadonce_deals where id = :id`, args{"id": d.ID})
		if err != nil {
			return err
		}
		if version != d.Version {
			return conflict("deal", d.ID)
		}
	}
	return nil
}

func (t *planTx) events() error {
	for _, e := range t.p.Events {
		row, err := sqlstore.NewEndEvent(t.p.Key, e, t.now)
		if err != nil {
			return err
		}
		n, err := t.c.exec(`
			update leadonce_events
			set state = :state, reason = :reason, attempts = attempts + :attempt, due_at = :due_at, ended_at = :ended_at,
				ordering_key = :new_key
			where id = :id and ordering_key = :ordering_key and ended_at = 0`, row)
		if err != nil {
			return err
		}
		if n != 1 {
			return conflict("event", fmt.Sprint(e.ID))
		}
		if e.MoveTo != "" && e.Retry == 0 {
			if err := t.tell(e.MoveTo); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *planTx) contacts() error {
	for _, c := range t.p.Contacts {
		if err := insertContact(t.c, c); err != nil {
			return err
		}
	}
	return nil
}

func insertContact(c *conn, contact store.Contact) error {
	row, err := sqlstore.NewContact(contact)
	if err != nil {
		return err
	}
	_, err = c.exec(`
		insert into leadonce_contacts (contact_key, tenant, source, user_id, crm_id)
		values (:contact_key, :tenant, :source, :user_id, '')
		on conflict (contact_key) do nothing`, row)
	return err
}

func (t *planTx) operations() error {
	for _, o := range t.p.Operations {
		waits, err := blocked(t.c, o.DependsOn)
		if err != nil {
			return err
		}
		n, err := sqlstore.NewOperation(o, waits, t.now)
		if err != nil {
			return err
		}
		begin := t.p.Claim != nil && len(t.begun) < t.p.Claim.Limit && !waits && n.Fields != nil
		stored := n
		if begin { // pending and sending in one commit: one row to write
			if stored, err = sqlstore.Begin(n, *t.p.Claim, t.now); err != nil {
				return err
			}
		}
		isNew, err := insertOperation(t.c, stored)
		switch {
		case err != nil:
			return err
		case isNew && begin:
			if stored.LeadID, err = leadOf(t.c, stored); err != nil {
				return err
			}
			if stored.ContactID, err = contactIDOf(t.c, stored); err != nil {
				return err
			}
			t.begun = append(t.begun, stored)
		case isNew && !waits:
			t.due = true
		}
	}
	return nil
}

// leadOf returns the id in the CRM of the deal that an operation belongs to.
func leadOf(c *conn, o store.Operation) (id string, err error) {
	if o.DealID == "" || o.DependsOn == "" {
		return "", nil
	}
	_, err = c.get(&id, `
		select crm_id from leadonce_deals where id = :id`, args{"id": o.DealID})
	return id, err
}

// contactIDOf returns the id in the CRM of the person whom an operation is about.
func contactIDOf(c *conn, o store.Operation) (id string, err error) {
	if o.ContactKey == "" {
		return "", nil
	}
	_, err = c.get(&id, `
		select crm_id from leadonce_contacts where contact_key = :contact_key`, args{"contact_key": o.ContactKey})
	return id, err
}

// at reads an operation that the plan changes, at the version that the plan names.
func (t *planTx) at(id string, version int64) (*sqlstore.Operation, store.Operation, error) {
	row, o, err := load(t.c, id)
	if errors.Is(err, store.ErrNotFound) || (err == nil && o.Version != version) {
		err = conflict("operation", id)
	}
	return row, o, err
}

func (t *planTx) edits() error {
	for _, e := range t.p.Edits {
		_, o, err := t.at(e.OperationID, e.Version)
		if err != nil {
			return err
		}
		if bytes.Equal(o.Fields, e.Fields) {
			continue // the key that is sent stays the same with them
		}
		n, err := sqlstore.ApplyEdit(o, e, t.now)
		if err != nil {
			return err
		}
		if _, err = t.c.exec(`
			update leadonce_operations
			set fields = :fields, revision = :revision, version = :version, updated_at = :updated_at
			where id = :id and version = :seen`, sqlstore.EncodeOperation(n, o.Version)); err != nil {
			return err
		}
	}
	return nil
}

func (t *planTx) drops() error {
	for _, d := range t.p.Drops {
		row, o, err := t.at(d.OperationID, d.Version)
		if err != nil {
			return err
		}
		m, err := sqlstore.Drop(o, row.IsCreate(), d.Reason, t.now)
		if err == nil {
			err = apply(t.c, o, row.IsCreate(), m, t.now)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *planTx) links() error {
	for _, l := range t.p.Links {
		if _, err := t.c.exec(`
			insert into leadonce_links (event_id, operation_id) values (:event_id, :operation_id)
			on conflict (event_id, operation_id) do nothing`,
			args{"event_id": l.EventID, "operation_id": l.OperationID}); err != nil {
			return err
		}
	}
	return nil
}
