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

// submit.go: leads that come without an event: made by the host, or in the CRM already.

// Submit stores a deal and the operation that creates it, once.
func (s *Store) Submit(ctx context.Context, sub store.Submission) (store.Operation, error) {
	type result struct {
		op    store.Operation
		isNew bool
	}
	res := new(result)
	err := s.writer.do(ctx, false, func(c *conn) (err error) {
		res.op, res.isNew, err = submit(c, sub, s.now())
		return err
	})
	if err != nil {
		s.setAside(ctx, []error{err})
		return store.Operation{}, fmt.Errorf("sqlite: submit: %w", err)
	}
	if res.isNew && res.op.State == store.Pending {
		s.hints.Tell(store.Hint{})
	}
	return res.op, submitted(res.op, res.isNew, sub)
}

// submitted is the error that goes with a submission's operation: the key was used before, for another lead. A lead that is
// adopted is told by its id in the CRM, not by its fields.
func submitted(o store.Operation, isNew bool, sub store.Submission) error {
	if !isNew && sub.Adopt == nil && o.Fields != nil && !bytes.Equal(o.Fields, sub.Operation.Fields) {
		return fmt.Errorf("sqlite: submit: operation %s: %w", o.ID, store.ErrKeyReused)
	}
	return nil
}

func submit(c *conn, sub store.Submission, now time.Time) (store.Operation, bool, error) {
	if sub.Adopt != nil {
		if err := sqlstore.ValidAdoption(*sub.Adopt, now); err != nil {
			return store.Operation{}, false, err
		}
	}
	_, stored, err := load(c, sub.Operation.ID)
	if !errors.Is(err, store.ErrNotFound) {
		return stored, false, err
	}
	if sub.Adopt != nil {
		if o, found, err := adopted(c, sub.Deal.Tenant, sub.Adopt.CRMID); err != nil || found {
			return o, false, err
		}
	}
	o, deal, err := wanted(c, sub, now)
	if err != nil {
		return store.Operation{}, false, err
	}
	if sub.Contact.Key != "" {
		if err := insertContact(c, sub.Contact); err != nil {
			return store.Operation{}, false, err
		}
	}
	if err := insertDeal(c, deal); err != nil {
		return store.Operation{}, false, err
	}
	if err := moveOn(c, sub.Deal.OrderingKey); err != nil {
		return store.Operation{}, false, err
	}
	if _, err := insertOperation(c, o); err != nil {
		return store.Operation{}, false, err
	}
	o.ContactID, err = contactIDOf(c, o)
	return o, true, err
}

// wanted returns what a submission stores, should none of it be there.
func wanted(c *conn, sub store.Submission, now time.Time) (o store.Operation, d *sqlstore.Deal, err error) {
	if sub.Adopt != nil {
		if o, err = sqlstore.AdoptOperation(sub.Operation, *sub.Adopt, now); err == nil {
			d, err = sqlstore.AdoptDeal(sub.Deal, *sub.Adopt, now)
		}
		return o, d, err
	}
	waits, err := blocked(c, sub.Operation.DependsOn)
	if err != nil {
		return o, nil, err
	}
	if o, err = sqlstore.NewOperation(sub.Operation, waits, now); err == nil {
		d, err = sqlstore.NewDeal(sub.Deal, now)
	}
	return o, d, err
}

// adopted returns the operation that creates the tenant's oldest deal with an id in the CRM, if it has one. The error is
// store.ErrNotFound for a deal whose operation is not there.
func adopted(c *conn, tenant, crmID string) (o store.Operation, found bool, err error) {
	var id string
	found, err = c.get(&id, `
		select d.create_op
		from leadonce_deals d left join leadonce_operations o on o.id = d.create_op
		where d.crm_id = :crm_id and d.crm_id <> '' and d.tenant = :tenant
		order by o.id is null, d.opened_at, d.rowid
		limit 1`, args{"crm_id": crmID, "tenant": tenant})
	if err == nil && found {
		_, o, err = load(c, id)
	}
	return o, found, err
}
