package postgres

import (
	"slices"

	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// planwrite.go: all that a batch of plans writes, as one statement.

type planWrite struct {
	keys     []*keyWrite
	events   []*sqlstore.EndEvent
	contacts []*sqlstore.Contact
	deals    []*sqlstore.Deal
	touches  []string
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
	w.deals, w.touches, w.ops = append(w.deals, o.deals...), append(w.touches, o.touches...), append(w.ops, o.ops...)
	w.edits, w.links = append(w.edits, o.edits...), append(w.links, o.links...)
}

func (w *moves) join(o *moves) {
	w.ops, w.trail, w.deals = append(w.ops, o.ops...), append(w.trail, o.trail...), append(w.deals, o.deals...)
	w.people, w.unblock, w.cancel = append(w.people, o.people...), append(w.unblock, o.unblock...), append(w.cancel, o.cancel...)
}

// run writes everything, and returns what was written: by kind, the ids.
func (w *planWrite) run(c *session, fixed int64) (map[string]map[string]bool, error) {
	type written struct {
		Kind string `db:"kind"`
		ID   string `db:"id"`
	}
	m := c.st.mapper
	slices.Sort(w.touches)
	got := map[string]map[string]bool{"key": {}, "event": {}, "deal": {}, "operation": {}}
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
			set state = r.state, reason = r.reason, attempts = e.attempts + r.attempt, due_at = r.due_at, ended_at = r.ended_at
			from json_to_recordset(cast(:events as json)) as r(id bigint, ordering_key text, state text, reason text,
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
		), opened as (
			insert into {schema}.leadonce_deals (id, tenant, ordering_key, contact_key, deal_key, host_key, generation, state,
				version, create_op, crm_id, opened_at, last_activity)
			select id, tenant, ordering_key, contact_key, deal_key, host_key, generation, state,
				version, create_op, '', opened_at, last_activity
			from json_populate_recordset(cast(null as {schema}.leadonce_deals), cast(:deals as json))
			on conflict do nothing
			returning id
		), touched as (
			update {schema}.leadonce_deals
			set last_activity = {schema}.leadonce_clock(:fixed), version = version + 1
			where id = any(array(select json_array_elements_text(cast(:touches as json))))
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
		select 'key' as kind, ordering_key as id from new_keys
		union all select 'key', ordering_key from moved_keys
		union all select 'event', cast(id as text) from ended
		union all select 'deal', id from opened
		union all select 'operation', id from made`,
		args{"keys": jsonRows(m, w.keys), "events": jsonRows(m, w.events), "contacts": jsonRows(m, w.contacts),
			"deals": jsonRows(m, w.deals), "touches": jsonTexts(w.touches), "operations": jsonRows(m, w.ops),
			"edits": jsonRows(m, w.edits), "planned": jsonColumn(w.keys, func(k *keyWrite) string { return k.Key }),
			"edited": jsonColumn(w.edits, func(o *sqlstore.Operation) string { return o.ID }),
			"links":  jsonRows(m, w.links), "fixed": fixed})
	for _, r := range rows {
		got[r.Kind][r.ID] = true
	}
	return got, err
}
