package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// submit.go: a lead that the host makes itself, or found in the CRM.

// Submit stores a deal and the operation that creates it, once.
func (s *Store) Submit(ctx context.Context, sub store.Submission) (store.Operation, error) {
	var o store.Operation
	var isNew bool
	err := s.write(ctx, func(c *session) (err error) {
		now, err := s.begin(c, s.patience)
		if err != nil {
			return err
		}
		if o, isNew, err = submit(c, sub, now, true); err == nil {
			err = s.tell(c, s.dueNotice(isNew && o.State == store.Pending))
		}
		return err
	})
	if err != nil {
		s.setAside(ctx, err)
		return store.Operation{}, fmt.Errorf("postgres: submit: %w", err)
	}
	if isNew && o.State == store.Pending {
		s.hints.Tell(store.Hint{})
	}
	return o, submitted(o, isNew, sub)
}

// SubmitTx is Submit inside a transaction of the host, which may be one of any driver and pool on the same database. While
// it stays open, the same submission and new deals of the same contact wait for it, up to Options.LockTimeout; nothing else
// does. Other processes are told when it commits.
func (s *Store) SubmitTx(ctx context.Context, tx *sql.Tx, sub store.Submission) (store.Operation, error) {
	if tx == nil {
		return store.Operation{}, fmt.Errorf("postgres: submit: %w: tx is nil", store.ErrInvalid)
	}
	c := &session{ctx: ctx, st: s.st, tx: tx, bare: true}
	now, err := s.clock(c, `
		select {schema}.leadonce_clock(:fixed)`, args{"fixed": s.fixed()})
	if err != nil {
		return store.Operation{}, fmt.Errorf("postgres: submit: %w", unavailable(err))
	}
	// The ordering key stays as it is: its row would be the host's until it commits. A decision that is under way has not
	// seen this deal then, as if it had been made a moment earlier.
	o, isNew, err := submit(c, sub, now, false)
	if err == nil {
		err = s.tell(c, s.dueNotice(isNew && o.State == store.Pending))
	}
	if err != nil {
		return store.Operation{}, fmt.Errorf("postgres: submit: %w", unavailable(err))
	}
	return o, submitted(o, isNew, sub)
}

func submitted(o store.Operation, isNew bool, sub store.Submission) error {
	if !isNew && sub.Adopt == nil && o.Fields != nil && !bytes.Equal(o.Fields, sub.Operation.Fields) {
		return fmt.Errorf("postgres: submit: operation %s: %w", o.ID, store.ErrKeyReused)
	}
	return nil
}

// submitRows are the rows of a submission.
func submitRows(sub store.Submission, now time.Time) (d *sqlstore.Deal, o store.Operation, err error) {
	if sub.Adopt == nil {
		if d, err = sqlstore.NewDeal(sub.Deal, now); err == nil {
			o, err = sqlstore.NewOperation(sub.Operation, false, now)
		}
		return d, o, err
	}
	if d, err = sqlstore.AdoptDeal(sub.Deal, *sub.Adopt, now); err == nil {
		o, err = sqlstore.AdoptOperation(sub.Operation, *sub.Adopt, now)
	}
	return d, o, err
}

// submit stores what is not there yet. moveKey lets a decision about the ordering key that is under way be made again.
func submit(c *session, sub store.Submission, now time.Time, moveKey bool) (o store.Operation, isNew bool, err error) {
	if sub.Adopt != nil {
		if err := sqlstore.ValidAdoption(*sub.Adopt, now); err != nil {
			return o, false, err
		}
		if err := lockLead(c, sub); err != nil {
			return o, false, err
		}
	}
	if o, err = load(c, sub.Operation.ID); !errors.Is(err, store.ErrNotFound) {
		return o, false, err
	}
	if sub.Adopt != nil {
		if o, err = adopted(c, sub); !errors.Is(err, store.ErrNotFound) {
			return o, false, err
		}
	}
	deal, o, err := submitRows(sub, now)
	if err != nil {
		return o, false, err
	}
	if moveKey {
		if _, err = c.exec(`
			insert into {schema}.leadonce_keys as k (ordering_key, version, token) values (:ordering_key, 1, 0)
			on conflict (ordering_key) do update set version = k.version + 1, token = 0
			returning 1`, deal); err != nil {
			return o, false, err
		}
	}
	if o.DependsOn != "" && sub.Adopt == nil {
		create, err := lock(c, []string{o.DependsOn}, nil)
		if err != nil {
			return o, false, err
		}
		l := create[sqlstore.Clean(o.DependsOn)]
		o.Blocked = l == nil || l.err != nil || l.op.State != store.Done
	}
	if err = insertContact(c, sub.Contact); err != nil {
		return o, false, err
	}
	n, err := c.exec(`
		insert into {schema}.leadonce_deals (id, tenant, ordering_key, contact_key, deal_key, host_key, generation, state,
			version, create_op, crm_id, opened_at, last_activity, stage, stage_version, stage_at)
		values (:id, :tenant, :ordering_key, :contact_key, :deal_key, :host_key, :generation, :state,
			:version, :create_op, :crm_id, :opened_at, :last_activity, :stage, :stage_version, :stage_at)
		on conflict do nothing
		returning 1`, deal)
	if err != nil {
		return o, false, err
	}
	if n == 0 {
		return submitLost(c, sub)
	}
	isNew, err = insertOperation(c, &o)
	if err == nil && !isNew {
		err = fmt.Errorf("operation %s: %w", o.ID, store.ErrConflict) // stored meanwhile, for another deal
	}
	return o, isNew, err
}

// insertOperation stores an operation unless its id is there, and tells it the id of its contact.
func insertOperation(c *session, o *store.Operation) (isNew bool, err error) {
	return c.get(&o.ContactID, `
		insert into {schema}.leadonce_operations (id, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked,
			state, doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at, last_sent_at,
			unreturned, due_at, owner, fence, lease_until, crm_id, conflict_id, reason, created_at, updated_at, ended_at,
			fields)
		values (:id, :tenant, :kind, :ordering_key, :contact_key, :deal_id, :depends_on, :blocked,
			:state, :doubt, :version, :revision, :adapter, :guarantee, :window_ns, :attempts, :failures, :first_sent_at,
			:last_sent_at, :unreturned, :due_at, :owner, :fence, :lease_until, :crm_id, :conflict_id, :reason, :created_at,
			:updated_at, :ended_at, :fields)
		on conflict (id) do nothing
		returning coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = :contact_key), '')`,
		sqlstore.EncodeOperation(*o, 0))
}

// lockLead lets those who adopt one lead wait for each other, until their transactions end.
func lockLead(c *session, sub store.Submission) error {
	_, err := c.exec(`
		select cast(pg_advisory_xact_lock(hashtextextended(:name, 0)) as text)`,
		args{"name": "leadonce adopt " + c.st.schema + " " + sqlstore.JSONTexts([]string{sub.Deal.Tenant, sub.Adopt.CRMID})})
	return err
}

// adopted returns the operation that creates the deal which has the lead already, or store.ErrNotFound.
func adopted(c *session, sub store.Submission) (o store.Operation, err error) {
	var id string
	found, err := c.get(&id, `
		select create_op
		from {schema}.leadonce_deals
		where crm_id = :crm_id and crm_id <> '' and tenant = :tenant
		order by opened_at desc, seq desc
		limit 1`, args{"crm_id": sub.Adopt.CRMID, "tenant": sub.Deal.Tenant})
	switch {
	case err != nil:
		return o, err
	case !found:
		return o, store.ErrNotFound
	}
	return load(c, id)
}

// submitLost is for a submission whose deal is there already: by the same submission, an unreadable row, or another one.
func submitLost(c *session, sub store.Submission) (store.Operation, bool, error) {
	o, err := load(c, sub.Operation.ID)
	if !errors.Is(err, store.ErrNotFound) {
		return o, false, err
	}
	bad, err := brokenDeal(c, sub.Deal)
	return o, false, errors.Join(err, cmpError(bad, conflict("deal", sub.Deal.ID)))
}

func cmpError(first, otherwise error) error {
	if first != nil {
		return first
	}
	return otherwise
}

func insertContact(c *session, contact store.Contact) error {
	if contact.Key == "" {
		return nil
	}
	row, err := sqlstore.NewContact(contact)
	if err != nil {
		return err
	}
	_, err = c.exec(`
		insert into {schema}.leadonce_contacts (contact_key, tenant, source, user_id, crm_id)
		values (:contact_key, :tenant, :source, :user_id, '')
		on conflict (contact_key) do nothing`, row)
	return err
}
