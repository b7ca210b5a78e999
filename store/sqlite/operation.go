package sqlite

import (
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// operation.go: reading and writing one operation inside a transaction.

// load reads one operation. The error is store.ErrNotFound, a *store.CorruptError, or the database's.
func load(c *conn, id string) (*sqlstore.Operation, store.Operation, error) {
	row, found := (*sqlstore.Operation)(nil), false
	var bad error
	err := each(c, `
		select * from leadonce_operation_rows where id = :id`, args{"id": id}, func(r *sqlstore.Operation, err error) bool {
		row, found, bad = r, true, err
		return false
	})
	switch {
	case err != nil:
		return nil, store.Operation{}, err
	case !found:
		return nil, store.Operation{}, fmt.Errorf("operation %s: %w", id, store.ErrNotFound)
	case bad != nil:
		return row, store.Operation{ID: id}, row.Corrupt(bad)
	}
	o, err := row.Decode()
	return row, o, err
}

// insertOperation stores a new operation, and reports whether it was new.
func insertOperation(c *conn, o store.Operation) (bool, error) {
	n, err := c.exec(`
		insert into leadonce_operations (id, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked, state,
			doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at, last_sent_at,
			unreturned, due_at, owner, fence, lease_until, crm_id, conflict_id, reason, created_at, updated_at, ended_at,
			fields)
		values (:id, :tenant, :kind, :ordering_key, :contact_key, :deal_id, :depends_on, :blocked, :state,
			:doubt, :version, :revision, :adapter, :guarantee, :window_ns, :attempts, :failures, :first_sent_at, :last_sent_at,
			:unreturned, :due_at, :owner, :fence, :lease_until, :crm_id, :conflict_id, :reason, :created_at, :updated_at,
			:ended_at, :fields)
		on conflict (id) do nothing`, sqlstore.EncodeOperation(o, 0))
	return n == 1, err
}

// save writes o over the row that has the version seen. Else the error is store.ErrMoved.
func save(c *conn, o store.Operation, seen int64) error {
	n, err := c.exec(`
		update leadonce_operations
		set blocked = :blocked, state = :state, doubt = :doubt, version = :version, revision = :revision, adapter = :adapter,
			guarantee = :guarantee, window_ns = :window_ns, attempts = :attempts, failures = :failures,
			first_sent_at = :first_sent_at, last_sent_at = :last_sent_at, unreturned = :unreturned, due_at = :due_at,
			owner = :owner, fence = :fence, lease_until = :lease_until, crm_id = :crm_id, conflict_id = :conflict_id,
			reason = :reason, updated_at = :updated_at, ended_at = :ended_at
		where id = :id and version = :seen and broken = 0`, sqlstore.EncodeOperation(o, seen))
	if err == nil && n != 1 {
		err = fmt.Errorf("operation %s: %w", o.ID, store.ErrMoved)
	}
	return err
}

// blocked reports whether the create that an operation depends on is not done.
func blocked(c *conn, dependsOn string) (bool, error) {
	if dependsOn == "" {
		return false, nil
	}
	var state string
	_, err := c.get(&state, `
		select state from leadonce_operations where id = :id`, args{"id": dependsOn})
	return state != string(store.Done), err
}

// apply writes what a report made of an operation.
func apply(c *conn, before store.Operation, isCreate bool, m sqlstore.Move, now time.Time) error {
	if m.Changed {
		if err := save(c, m.Op, before.Version); err != nil {
			return err
		}
	}
	if m.Entry != nil {
		if err := trail(c, *m.Entry); err != nil {
			return err
		}
	}
	if m.CRMID != "" {
		if err := storeCRMID(c, m.Op, isCreate, m.CRMID); err != nil {
			return err
		}
	}
	if m.Unblock {
		if _, err := c.exec(`
			update leadonce_operations
			set blocked = 0, version = version + 1, updated_at = :now
			where depends_on = :id and state = 'pending' and blocked = 1 and broken = 0`,
			args{"id": m.Op.ID, "now": sqlstore.Micros(now)}); err != nil {
			return err
		}
	}
	if m.Cancel {
		return cancelWaiting(c, m.Op.ID, now)
	}
	return nil
}

// storeCRMID keeps the id in the CRM with what the operation made: its deal, or (it has no deal) its contact.
func storeCRMID(c *conn, o store.Operation, isCreate bool, id string) error {
	switch {
	case isCreate:
		_, err := c.exec(`
			update leadonce_deals set crm_id = :crm_id, version = version + 1 where id = :id`,
			args{"id": o.DealID, "crm_id": id})
		return err
	case o.DealID == "" && o.ContactKey != "":
		_, err := c.exec(`
			update leadonce_contacts set crm_id = :crm_id where contact_key = :contact_key`,
			args{"contact_key": o.ContactKey, "crm_id": id})
		return err
	}
	return nil
}

// cancelWaiting drops what waits for a create that will not come. A row that can't be read is set aside.
func cancelWaiting(c *conn, create string, now time.Time) error {
	waiting, corrupt, err := readOperations(c, 0, `
		select * from leadonce_operation_rows where depends_on = :id and state = 'pending' and blocked = 1 and broken = 0`,
		args{"id": create})
	if err != nil {
		return err
	}
	for _, o := range waiting {
		m, err := sqlstore.Drop(o, false, sqlstore.CreateCanceled, now)
		if err == nil {
			err = apply(c, o, false, m, now)
		}
		if err != nil {
			return err
		}
	}
	return setAside(c, corrupt, now)
}

func trail(c *conn, t store.TrailEntry) error {
	_, err := c.exec(`
		insert into leadonce_trail (at, operation_id, cause, from_state, to_state, attempt, started_at, took_ns, status,
			request_id, reason, crm_id, person, why, seen)
		values (:at, :operation_id, :cause, :from_state, :to_state, :attempt, :started_at, :took_ns, :status,
			:request_id, :reason, :crm_id, :person, :why, :seen)`, sqlstore.EncodeTrail(t))
	return err
}

// readOperations returns up to limit operations (0: all) that a query of leadonce_operation_rows yields, and the rows that
// can't be read as *store.CorruptErrors.
func readOperations(c *conn, limit int, query string, arg any) (list []store.Operation, corrupt []error, err error) {
	err = each(c, query, arg, func(row *sqlstore.Operation, err error) bool {
		o, err := sqlstore.Decoded(row, err)
		if err != nil {
			corrupt = append(corrupt, err)
			return true
		}
		list = append(list, o)
		return limit == 0 || len(list) < limit
	})
	return list, corrupt, err
}
