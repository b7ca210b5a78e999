package postgres

import (
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// operation.go: reading and writing operations inside a transaction.
//
// Rows are locked in one order everywhere: keys, operations (creates before what waits for them), deals. So transactions of
// ours wait for each other, and seldom collide.

// load reads one operation. The error is store.ErrNotFound, a *store.CorruptError, or the database's.
func load(c *session, id string) (o store.Operation, err error) {
	list, corrupt, err := readOperations(c, `
		select * from {schema}.leadonce_operation_rows where id = :id`, args{"id": id})
	switch {
	case err != nil:
		return o, err
	case len(corrupt) > 0:
		return store.Operation{ID: id}, corrupt[0]
	case len(list) == 0:
		return o, fmt.Errorf("operation %s: %w", id, store.ErrNotFound)
	}
	return list[0], nil
}

// readOperations returns the operations that a query of leadonce_operation_rows yields, and the rows that can't be read as
// *store.CorruptErrors.
func readOperations(c *session, query string, arg any) (list []store.Operation, corrupt []error, err error) {
	err = each(c, query, arg, func(row *sqlstore.Operation, err error) bool {
		o, err := sqlstore.Decoded(row, err)
		if err != nil {
			corrupt = append(corrupt, err)
		} else {
			list = append(list, o)
		}
		return true
	})
	return list, corrupt, err
}

// locked is an operation that nobody else changes until the transaction ends.
type locked struct {
	op     store.Operation
	create bool  // it creates its deal
	err    error // it can't be read
}

// lock reads operations and, of those in dependents, the creates that they depend on. Ids that do not exist are left out.
func lock(c *session, ids, dependents []string) (map[string]*locked, error) {
	list := map[string]*locked{}
	if len(ids) == 0 {
		return list, nil
	}
	err := each(c, `
		select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
			coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
		from {schema}.leadonce_operations o left join {schema}.leadonce_deals d on d.id = o.deal_id
		where o.id = any(array(
			select json_array_elements_text(cast(:ids as json))
			union
			select w.depends_on
			from {schema}.leadonce_operations w
			where w.id = any(array(select json_array_elements_text(cast(:dependents as json)))) and w.depends_on <> ''))
		order by o.depends_on <> '', o.seq
		for no key update of o`,
		args{"ids": sqlstore.JSONTexts(ids), "dependents": sqlstore.JSONTexts(dependents)}, func(row *sqlstore.Operation, err error) bool {
			l := &locked{create: row.IsCreate(), err: err}
			l.op, l.err = sqlstore.Decoded(row, err)
			list[row.ID] = l
			return true
		})
	return list, err
}

// moves are what reports make of operations, to be written together. The operations are locked.
type moves struct {
	ops     []*sqlstore.Operation // Seen is the version that the row has
	trail   []*sqlstore.Trail
	deals   []*crmID
	people  []*crmID
	unblock []string
	cancel  []string
}

// crmID is an id in the CRM to be kept with a deal or a contact.
type crmID struct {
	ID    string `db:"id"`
	CRMID string `db:"crm_id"`
}

func (r *crmID) id() string { return r.ID }

func (w *moves) add(before *locked, m sqlstore.Move) {
	if m.Changed {
		w.ops = append(w.ops, sqlstore.EncodeOperation(m.Op, before.op.Version))
	}
	if m.Entry != nil {
		w.trail = append(w.trail, sqlstore.EncodeTrail(*m.Entry))
	}
	switch {
	case m.CRMID == "":
	case before.create:
		w.deals = append(w.deals, &crmID{m.Op.DealID, m.CRMID})
	case m.Op.DealID == "" && m.Op.ContactKey != "":
		w.people = append(w.people, &crmID{m.Op.ContactKey, m.CRMID})
	}
	if m.Unblock {
		w.unblock = append(w.unblock, m.Op.ID)
	}
	if m.Cancel {
		w.cancel = append(w.cancel, m.Op.ID)
	}
}

// write stores the moves by one statement, and drops what waits for creates that will not come. What waits for a create is
// looked for after the create was locked, so that none is missed. It reports whether something was unblocked.
//
// An update of many rows names their ids twice: as an array, by which the index finds them, and with their values.
func (w *moves) write(c *session, now time.Time) (unblocked bool, err error) {
	if len(w.ops)+len(w.trail) == 0 {
		return false, nil
	}
	type counts struct {
		Moved     int64 `db:"moved"`
		Unblocked int64 `db:"unblocked"`
	}
	m := c.st.mapper
	n, err := all[counts](c, `
		with moved as (
			update {schema}.leadonce_operations o
			set blocked = r.blocked, state = r.state, doubt = r.doubt, version = r.version, revision = r.revision,
				adapter = r.adapter, guarantee = r.guarantee, window_ns = r.window_ns, attempts = r.attempts, failures = r.failures,
				first_sent_at = r.first_sent_at, last_sent_at = r.last_sent_at, unreturned = r.unreturned, due_at = r.due_at,
				owner = r.owner, fence = r.fence, lease_until = r.lease_until, crm_id = r.crm_id,
				conflict_id = r.conflict_id, reason = r.reason, updated_at = r.updated_at, ended_at = r.ended_at,
				token = r.token
			from json_to_recordset(cast(:rows as json)) as r(id text, seen bigint, blocked smallint, state text,
				doubt smallint, version bigint, revision bigint, adapter text, guarantee text, window_ns bigint, attempts bigint,
				failures bigint, first_sent_at bigint, last_sent_at bigint, unreturned smallint, due_at bigint, owner text,
				fence bigint, lease_until bigint, crm_id text, conflict_id text, reason text, updated_at bigint,
				ended_at bigint, token bigint)
			where o.id = any(array(select json_array_elements_text(cast(:ids as json))))
				and o.id = r.id and o.version = r.seen and o.broken = 0
			returning 1
		), noted as (
			insert into {schema}.leadonce_trail (at, operation_id, cause, from_state, to_state, attempt, started_at, took_ns,
				status, request_id, reason, crm_id, person, why, seen)
			select at, operation_id, cause, from_state, to_state, attempt, started_at, took_ns,
				status, request_id, reason, crm_id, person, why, seen
			from json_populate_recordset(cast(null as {schema}.leadonce_trail), cast(:trail as json))
		), deals as (
			update {schema}.leadonce_deals d
			set crm_id = r.crm_id, version = d.version + 1
			from json_to_recordset(cast(:deals as json)) as r(id text, crm_id text)
			where d.id = any(array(select json_array_elements_text(cast(:deal_ids as json)))) and d.id = r.id
		), people as (
			update {schema}.leadonce_contacts p
			set crm_id = r.crm_id
			from json_to_recordset(cast(:people as json)) as r(id text, crm_id text)
			where p.contact_key = any(array(select json_array_elements_text(cast(:people_ids as json))))
				and p.contact_key = r.id
		), unblocked as (
			update {schema}.leadonce_operations
			set blocked = 0, version = version + 1, updated_at = :now
			where depends_on = any(array(select json_array_elements_text(cast(:unblock as json)))) and state = 'pending'
				and blocked = 1 and broken = 0
			returning 1
		)
		select (select count(*) from moved) as moved, (select count(*) from unblocked) as unblocked`,
		args{"rows": jsonRows(m, w.ops), "ids": jsonColumn(w.ops, func(o *sqlstore.Operation) string { return o.ID }),
			"trail": jsonRows(m, w.trail), "deals": jsonRows(m, w.deals), "deal_ids": jsonColumn(w.deals, (*crmID).id),
			"people": jsonRows(m, w.people), "people_ids": jsonColumn(w.people, (*crmID).id),
			"unblock": sqlstore.JSONTexts(w.unblock), "now": sqlstore.Micros(now)})
	if err == nil && (len(n) != 1 || n[0].Moved != int64(len(w.ops))) {
		err = fmt.Errorf("an operation that was locked is not as it was read: %w", store.ErrMoved)
	}
	if err != nil {
		return false, err
	}
	return n[0].Unblocked > 0, w.writeCanceled(c, now)
}

// writeCanceled drops what waits for creates that will not come. A row that can't be read is set aside.
func (w *moves) writeCanceled(c *session, now time.Time) error {
	if len(w.cancel) == 0 {
		return nil
	}
	var ids []string
	err := each(c, `
		select id from {schema}.leadonce_operations
		where depends_on = any(array(select json_array_elements_text(cast(:ids as json)))) and state = 'pending'
			and blocked = 1 and broken = 0`,
		args{"ids": sqlstore.JSONTexts(w.cancel)}, func(row *sqlstore.Operation, err error) bool {
			ids = append(ids, row.ID)
			return true
		})
	if err != nil || len(ids) == 0 {
		return err
	}
	waiting, err := lock(c, ids, nil)
	if err != nil {
		return err
	}
	var next moves
	var corrupt []error
	for _, l := range waiting {
		switch {
		case l.err != nil:
			corrupt = append(corrupt, l.err)
		case l.op.State == store.Pending && l.op.Blocked:
			m, err := sqlstore.Drop(l.op, false, sqlstore.CreateCanceled, now)
			if err != nil {
				return err
			}
			next.add(l, m)
		}
	}
	if _, err := next.write(c, now); err != nil {
		return err
	}
	return setAside(c, corrupt, now)
}
