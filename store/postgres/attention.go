package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// attention.go: which ordering keys are due, and which operations need a verdict. Whose there are is asked first: from
// tenant to tenant through the index, past whatever waits for each. (An order by keeps the server to the index; for an
// exists it may read the table.) Then so much of each as is its part.

// turns are those of the tenants, of each question for itself.
type turns struct {
	keys, claims                  sqlstore.Turns
	sending, uncertain, reconcile sqlstore.Turns
}

// asked are the parameters of a question about tenants.
func (s *Store) asked(tenants []string) args {
	return args{"fixed": s.fixed(), "named": len(tenants), "tenants": sqlstore.JSONTexts(tenants)}
}

// asks are the parameters of a reading of several tenants' parts.
func (s *Store) asks(list []sqlstore.Ask) args {
	rows := make([]*sqlstore.Ask, len(list))
	for i := range list {
		rows[i] = &list[i]
	}
	return args{"fixed": s.fixed(), "asks": jsonRows(s.st.mapper, rows)}
}

// DueKeys returns up to limit ordering keys whose oldest unplanned event is due, several tenants' by turns.
func (s *Store) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	if limit < 1 {
		return nil, fmt.Errorf("postgres: due keys: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var keys []store.DueKey
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.single(ctx, func(c *session) error {
			due, err := s.dueTenants(c, tenants)
			if err != nil {
				return err
			}
			keys, _, err = sqlstore.Share(limit, due, &s.turns.keys,
				func(asks []sqlstore.Ask) (map[string]*sqlstore.Part[store.DueKey], error) {
					return dueKeys(c, s.asks(asks))
				})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: due keys: %w", err)
	}
	return keys, nil
}

// dueTenants are the tenants that something may be planned for.
func (s *Store) dueTenants(c *session, tenants []string) (list []string, err error) {
	rows, err := all[sqlstore.Ask](c, `
		with recursive tenants(tenant) as (
			select (select tenant from {schema}.leadonce_events where ended_at = 0 order by tenant limit 1) where :named = 0
			union all
			select (
				select e.tenant from {schema}.leadonce_events e where e.ended_at = 0 and e.tenant > t.tenant
				order by e.tenant limit 1)
			from tenants t where t.tenant is not null)
		select tenant
		from (select tenant from tenants union all select json_array_elements_text(cast(:tenants as json))) as t
		where (
			select e.due_at from {schema}.leadonce_events e where e.tenant = t.tenant and e.ended_at = 0
			order by e.due_at limit 1) <= (select {schema}.leadonce_clock(:fixed))`,
		s.asked(tenants))
	for _, r := range rows {
		list = append(list, r.Tenant)
	}
	return list, err
}

func dueKeys(c *session, a args) (map[string]*sqlstore.Part[store.DueKey], error) {
	parts := map[string]*sqlstore.Part[store.DueKey]{}
	return parts, each(c, `
		select k.ordering_key, k.tenant
		from json_to_recordset(cast(:asks as json)) as a(tenant text, ask bigint) cross join lateral (
			select e.ordering_key, e.tenant, e.due_at, e.id
			from {schema}.leadonce_events e
			where e.tenant = a.tenant and e.ended_at = 0 and e.due_at <= (select {schema}.leadonce_clock(:fixed)) and not exists (
				select 1
				from {schema}.leadonce_events o
				where o.ordering_key = e.ordering_key and o.ended_at = 0 and o.id < e.id)
			order by e.due_at, e.id
			limit a.ask) as k
		order by k.due_at, k.id`, a, func(row *sqlstore.Event, err error) bool {
		if err == nil {
			p := part(parts, row.Tenant)
			p.List = append(p.List, store.DueKey{Key: row.OrderingKey, Tenant: row.Tenant})
		}
		return true
	})
}

// part returns a tenant's.
func part[T any](parts map[string]*sqlstore.Part[T], tenant string) *sqlstore.Part[T] {
	if parts[tenant] == nil {
		parts[tenant] = new(sqlstore.Part[T])
	}
	return parts[tenant]
}

// operationsOf returns the operations that a query yields, of each tenant by themselves.
func operationsOf(c *session, query string, a args) (map[string]*sqlstore.Part[store.Operation], error) {
	parts := map[string]*sqlstore.Part[store.Operation]{}
	return parts, each(c, query, a, func(row *sqlstore.Operation, err error) bool {
		p := part(parts, row.Tenant)
		o, err := sqlstore.Decoded(row, err)
		if err != nil {
			p.Bad = append(p.Bad, err)
		} else {
			p.List = append(p.List, o)
		}
		return true
	})
}

// question is one kind of operations that need a verdict.
type question struct {
	state store.State
	turns *sqlstore.Turns
	which string // those of some tenants
}

func (s *Store) questions() []question {
	return []question{
		{store.Sending, &s.turns.sending, `
			select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
				coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
			from json_to_recordset(cast(:asks as json)) as a(tenant text, ask bigint)
				cross join lateral (
					select * from {schema}.leadonce_operations q
					where q.tenant = a.tenant and q.state = 'sending' and q.broken = 0
						and q.lease_until <= (select {schema}.leadonce_clock(:fixed))
					order by q.lease_until, q.seq
					limit a.ask) as o
				left join lateral (
					select d.crm_id, d.create_op from {schema}.leadonce_deals d where d.id = o.deal_id limit 1) as d on true
			order by o.lease_until, o.seq`},
		{store.Uncertain, &s.turns.uncertain, `
			select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
				coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
			from json_to_recordset(cast(:asks as json)) as a(tenant text, ask bigint)
				cross join lateral (
					select * from {schema}.leadonce_operations q
					where q.tenant = a.tenant and q.state = 'uncertain' and q.broken = 0
						and q.due_at <= (select {schema}.leadonce_clock(:fixed))
					order by q.due_at, q.seq
					limit a.ask) as o
				left join lateral (
					select d.crm_id, d.create_op from {schema}.leadonce_deals d where d.id = o.deal_id limit 1) as d on true
			order by o.due_at, o.seq`},
		{store.NeedsReconciliation, &s.turns.reconcile, `
			select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
				coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
			from json_to_recordset(cast(:asks as json)) as a(tenant text, ask bigint)
				cross join lateral (
					select * from {schema}.leadonce_operations q
					where q.tenant = a.tenant and q.state = 'needs_reconciliation' and q.broken = 0
						and q.due_at <= (select {schema}.leadonce_clock(:fixed))
					order by q.due_at, q.seq
					limit a.ask) as o
				left join lateral (
					select d.crm_id, d.create_op from {schema}.leadonce_deals d where d.id = o.deal_id limit 1) as d on true
			order by o.due_at, o.seq`},
	}
}

// questioned are the tenants that have operations which need a verdict, by their states.
func (s *Store) questioned(c *session, lookups bool, tenants []string) (map[store.State][]string, error) {
	type row struct {
		State  string `db:"state"`
		Tenant string `db:"tenant"`
	}
	a := s.asked(tenants)
	a["lookups"] = lookups
	rows, err := all[row](c, `
		with recursive
			named as (
				select json_array_elements_text(cast(:tenants as json)) as tenant),
			sending(tenant) as (
				select (select tenant from {schema}.leadonce_operations where state = 'sending' and broken = 0
					order by tenant limit 1)
				where :named = 0
				union all
				select (select o.tenant from {schema}.leadonce_operations o
					where o.state = 'sending' and o.broken = 0 and o.tenant > t.tenant order by o.tenant limit 1)
				from sending t where t.tenant is not null),
			uncertain(tenant) as (
				select (select tenant from {schema}.leadonce_operations where state = 'uncertain' and broken = 0
					order by tenant limit 1)
				where :named = 0
				union all
				select (select o.tenant from {schema}.leadonce_operations o
					where o.state = 'uncertain' and o.broken = 0 and o.tenant > t.tenant order by o.tenant limit 1)
				from uncertain t where t.tenant is not null),
			reconcile(tenant) as (
				select (select tenant from {schema}.leadonce_operations where state = 'needs_reconciliation' and broken = 0
					order by tenant limit 1)
				where :named = 0 and :lookups
				union all
				select (select o.tenant from {schema}.leadonce_operations o
					where o.state = 'needs_reconciliation' and o.broken = 0 and o.tenant > t.tenant order by o.tenant limit 1)
				from reconcile t where t.tenant is not null)
		select 'sending' as state, t.tenant
		from (select tenant from sending union all select tenant from named) as t
		where (
			select o.lease_until from {schema}.leadonce_operations o
			where o.tenant = t.tenant and o.state = 'sending' and o.broken = 0
			order by o.lease_until limit 1) <= (select {schema}.leadonce_clock(:fixed))
		union all
		select 'uncertain' as state, t.tenant
		from (select tenant from uncertain union all select tenant from named) as t
		where (
			select o.due_at from {schema}.leadonce_operations o
			where o.tenant = t.tenant and o.state = 'uncertain' and o.broken = 0
			order by o.due_at limit 1) <= (select {schema}.leadonce_clock(:fixed))
		union all
		select 'needs_reconciliation' as state, t.tenant
		from (select tenant from reconcile union all select tenant from named) as t
		where :lookups and (
			select o.due_at from {schema}.leadonce_operations o
			where o.tenant = t.tenant and o.state = 'needs_reconciliation' and o.broken = 0
			order by o.due_at limit 1) <= (select {schema}.leadonce_clock(:fixed))`, a)
	whose := map[store.State][]string{}
	for _, r := range rows {
		whose[store.State(r.State)] = append(whose[store.State(r.State)], r.Tenant)
	}
	return whose, err
}

// Attention returns operations that need a verdict, up to limit of each kind, several tenants' by turns.
func (s *Store) Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
	if limit < 1 {
		return nil, fmt.Errorf("postgres: attention: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var list []store.Operation
	var corrupt []error
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		list, corrupt = nil, nil
		return s.single(ctx, func(c *session) error {
			whose, err := s.questioned(c, lookups, tenants)
			if err != nil {
				return err
			}
			for _, q := range s.questions() {
				ops, bad, err := sqlstore.Share(limit, whose[q.state], q.turns,
					func(asks []sqlstore.Ask) (map[string]*sqlstore.Part[store.Operation], error) {
						return operationsOf(c, q.which, s.asks(asks))
					})
				if err != nil {
					return err
				}
				list, corrupt = append(list, ops...), append(corrupt, bad...)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: attention: %w", err)
	}
	s.setAside(ctx, corrupt...)
	return list, errors.Join(corrupt...)
}
