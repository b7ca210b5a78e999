package postgres

import (
	"bytes"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// planwrite.go: all that a batch of plans writes, but for the drops of operations and merges, as one statement.

type planWrite struct {
	keys     []*keyWrite
	events   []*sqlstore.EndEvent
	contacts []*sqlstore.Contact
	deals    []*sqlstore.Deal
	changes  []*sqlstore.ChangeDeal
	ops      []*sqlstore.Operation
	edits    []*sqlstore.Operation
	links    []*linkRow
}

type keyWrite struct {
	Key     string `db:"ordering_key"`
	Version int64  `db:"version"`
	Token   int64  `db:"token"`
}

type linkRow struct {
	EventID     int64  `db:"event_id"`
	OperationID string `db:"operation_id"`
}

func (w *planWrite) join(o *planWrite) {
	w.keys, w.events, w.contacts = append(w.keys, o.keys...), append(w.events, o.events...), append(w.contacts, o.contacts...)
	w.deals, w.changes, w.ops = append(w.deals, o.deals...), append(w.changes, o.changes...), append(w.ops, o.ops...)
	w.edits, w.links = append(w.edits, o.edits...), append(w.links, o.links...)
}

func (w *moves) join(o *moves) {
	w.ops, w.trail, w.deals = append(w.ops, o.ops...), append(w.trail, o.trail...), append(w.deals, o.deals...)
	w.people, w.unblock, w.cancel = append(w.people, o.people...), append(w.unblock, o.unblock...), append(w.cancel, o.cancel...)
}

// prepare notes what a plan writes.
func (t *planTx) prepare(m *planCall) error {
	w, drops, err := planWrite{}, moves{}, error(nil)
	p := m.in
	w.keys = append(w.keys, &keyWrite{p.Key, p.Version, p.token})
	for _, e := range p.Events {
		row, err := sqlstore.NewEndEvent(p.Key, e, t.now)
		if err != nil {
			return err
		}
		w.events = append(w.events, row)
	}
	for _, contact := range p.Contacts {
		row, err := sqlstore.NewContact(contact)
		if err != nil {
			return err
		}
		w.contacts = append(w.contacts, row)
	}
	for _, d := range p.Deals {
		row, err := sqlstore.NewDeal(d, t.now)
		if err != nil {
			return err
		}
		w.deals = append(w.deals, row)
	}
	if w.changes, err = sqlstore.ChangeDeals(p.Plan, t.now); err != nil {
		return err
	}
	if err = t.prepareOperations(m, &w); err != nil {
		return err
	}
	for _, e := range p.Edits {
		row, err := t.at(e.OperationID, e.Version, false)
		if err != nil {
			return err
		}
		if bytes.Equal(row.op.Fields, e.Fields) {
			continue // the key that is sent stays the same with them
		}
		n, err := sqlstore.ApplyEdit(row.op, e, t.now)
		if err != nil {
			return err
		}
		w.edits = append(w.edits, sqlstore.EncodeOperation(n, row.op.Version))
	}
	for _, d := range p.Drops {
		row, err := t.at(d.OperationID, d.Version, false)
		if err != nil {
			return err
		}
		move, err := sqlstore.Drop(row.op, row.create, d.Reason, t.now)
		if err != nil {
			return err
		}
		drops.add(row, move)
	}
	for _, l := range p.Links {
		w.links = append(w.links, &linkRow{l.EventID, l.OperationID})
	}
	t.write.join(&w)
	t.drops.join(&drops)
	return nil
}

// prepareOperations notes the new operations. What is begun is stored as sending at once: one row to write.
func (t *planTx) prepareOperations(m *planCall, w *planWrite) error {
	m.out = committed{}
	for _, o := range m.in.Operations {
		create := t.ops[o.DependsOn]
		waits := o.DependsOn != "" && (create == nil || create.err != nil || create.op.State != store.Done)
		n, err := sqlstore.NewOperation(o, waits, t.now)
		if err != nil {
			return err
		}
		if create != nil && create.err == nil {
			n.LeadID = create.op.CRMID
		}
		begin := m.in.begins && len(m.out.begun) < m.in.Claim.Limit && !waits && n.Fields != nil
		if begin {
			if n, err = sqlstore.Begin(n, *m.in.Claim, t.now); err != nil {
				return err
			}
			m.out.begun = append(m.out.begun, n)
		}
		row := sqlstore.EncodeOperation(n, 0)
		row.Token = m.in.token
		w.ops = append(w.ops, row)
	}
	return nil
}

// run writes everything, and returns what was written: by kind, the ids; and the ids in the CRM of the contacts whose
// operations are begun.
//
// Deals are changed before others are opened: one that is closed makes room for the next one of its key.
func (w *planWrite) run(c *session) (got map[string]map[string]bool, people map[string]string, err error) {
	type written struct {
		Kind  string `db:"kind"`
		ID    string `db:"id"`
		CRMID string `db:"crm_id"`
	}
	m := c.st.mapper
	var contacts []string
	for _, o := range w.ops {
		if o.State == string(store.Sending) && o.ContactKey != "" {
			contacts = append(contacts, o.ContactKey)
		}
	}
	people = map[string]string{}
	got = map[string]map[string]bool{"key": {}, "event": {}, "changed": {}, "deal": {}, "operation": {}}
	rows, err := all[written](c, `
		with new_keys as (
			insert into {schema}.leadonce_keys (ordering_key, version, token)
			select ordering_key, 1, token
			from json_to_recordset(cast(:keys as json)) as r(ordering_key text, version bigint, token bigint)
			where version = 0
			order by ordering_key
			on conflict (ordering_key) do nothing
			returning ordering_key
		), moved_keys as (
			update {schema}.leadonce_keys k
			set version = k.version + 1, token = r.token
			from json_to_recordset(cast(:keys as json)) as r(ordering_key text, version bigint, token bigint)
			where k.ordering_key = any(array(select json_array_elements_text(cast(:planned as json))))
				and k.ordering_key = r.ordering_key and k.version = r.version
			returning k.ordering_key
		), ended as (
			update {schema}.leadonce_events e
			set state = r.state, reason = r.reason, attempts = e.attempts + r.attempt, due_at = r.due_at, ended_at = r.ended_at,
				ordering_key = r.new_key
			from json_to_recordset(cast(:events as json)) as r(id bigint, ordering_key text, new_key text, state text, reason text,
				attempt bigint, due_at bigint, ended_at bigint)
			where e.ordering_key = any(array(select json_array_elements_text(cast(:planned as json))))
				and e.id = r.id and e.ordering_key = r.ordering_key and e.ended_at = 0
			returning e.id
		), people as (
			insert into {schema}.leadonce_contacts (contact_key, tenant, source, user_id, crm_id)
			select contact_key, tenant, source, user_id, ''
			from json_populate_recordset(cast(null as {schema}.leadonce_contacts), cast(:contacts as json))
			order by contact_key
			on conflict (contact_key) do nothing
		), changed as (
			update {schema}.leadonce_deals d
			set last_activity = case r.touched when 1 then r.now else d.last_activity end,
				stage = case r.staged when 1 then r.stage else d.stage end,
				stage_version = case r.staged when 1 then r.stage_version else d.stage_version end,
				stage_at = case r.staged when 1 then r.stage_at else d.stage_at end,
				state = case r.state when '' then d.state else r.state end,
				version = d.version + 1
			from json_to_recordset(cast(:changes as json)) as r(id text, version bigint, touched smallint, now bigint,
				staged smallint, stage text, stage_version bigint, stage_at bigint, state text)
			where d.id = any(array(select json_array_elements_text(cast(:changed as json))))
				and d.id = r.id and d.version = r.version
			returning d.id
		), opened as (
			insert into {schema}.leadonce_deals (id, tenant, ordering_key, contact_key, deal_key, host_key, generation, state,
				version, create_op, crm_id, opened_at, last_activity)
			select id, tenant, ordering_key, contact_key, deal_key, host_key, generation, state,
				version, create_op, '', opened_at, last_activity
			from (select count(*) as n from changed) as before
				cross join json_populate_recordset(cast(null as {schema}.leadonce_deals), cast(:deals as json))
			where before.n >= 0
			on conflict do nothing
			returning id
		), made as (
			insert into {schema}.leadonce_operations (id, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked,
				state, doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at,
				last_sent_at, unreturned, due_at, owner, fence, lease_until, crm_id, conflict_id, reason, created_at,
				updated_at, ended_at, token, fields)
			select id, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked,
				state, doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at,
				last_sent_at, unreturned, due_at, owner, fence, lease_until, crm_id, conflict_id, reason, created_at,
				updated_at, ended_at, token, fields
			from json_populate_recordset(cast(null as {schema}.leadonce_operations), cast(:operations as json))
			on conflict (id) do nothing
			returning id
		), edited as (
			update {schema}.leadonce_operations o
			set fields = r.fields, revision = r.revision, version = r.version, updated_at = r.updated_at
			from json_to_recordset(cast(:edits as json)) as r(id text, seen bigint, fields bytea, revision bigint,
				version bigint, updated_at bigint)
			where o.id = any(array(select json_array_elements_text(cast(:edited as json))))
				and o.id = r.id and o.version = r.seen
		), linked as (
			insert into {schema}.leadonce_links (event_id, operation_id)
			select event_id, operation_id
			from json_populate_recordset(cast(null as {schema}.leadonce_links), cast(:links as json))
			on conflict (event_id, operation_id) do nothing
		)
		select 'key' as kind, ordering_key as id, '' as crm_id from new_keys
		union all select 'key', ordering_key, '' from moved_keys
		union all select 'event', cast(id as text), '' from ended
		union all select 'changed', id, '' from changed
		union all select 'deal', id, '' from opened
		union all select 'operation', id, '' from made
		union all
		select 'contact', contact_key, crm_id
		from {schema}.leadonce_contacts
		where contact_key = any(array(select json_array_elements_text(cast(:people as json)))) and crm_id <> ''`,
		args{"keys": jsonRows(m, w.keys), "events": jsonRows(m, w.events), "contacts": jsonRows(m, w.contacts),
			"deals": jsonRows(m, w.deals), "changes": jsonRows(m, w.changes), "operations": jsonRows(m, w.ops),
			"edits": jsonRows(m, w.edits), "planned": jsonColumn(w.keys, func(k *keyWrite) string { return k.Key }),
			"changed": jsonColumn(w.changes, func(d *sqlstore.ChangeDeal) string { return d.ID }),
			"edited":  jsonColumn(w.edits, func(o *sqlstore.Operation) string { return o.ID }),
			"links":   jsonRows(m, w.links), "people": sqlstore.JSONTexts(contacts)})
	for _, r := range rows {
		if r.Kind == "contact" {
			people[r.ID] = r.CRMID
		} else {
			got[r.Kind][r.ID] = true
		}
	}
	return got, people, err
}
