package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// attention.go: which ordering keys are due, and which operations need a verdict. Whose there are is asked first: from
// tenant to tenant through the index (>= '' keeps SQLite to it, whatever an analyze of the host's has told it), past
// whatever waits for each. Then so much of each as is its part.

// turns are those of the tenants, of each question for itself.
type turns struct {
	keys, claims                  sqlstore.Turns
	sending, uncertain, reconcile sqlstore.Turns
}

// DueKeys returns up to limit ordering keys whose oldest unplanned event is due, several tenants' by turns.
func (s *Store) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	if limit < 1 {
		return nil, fmt.Errorf("sqlite: due keys: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var keys []store.DueKey
	err := s.read.view(ctx, func(c *conn) error {
		a := asked(s.now(), tenants)
		due, err := texts(c, `
			with recursive tenants(tenant) as (
				select (select tenant from leadonce_events where ended_at = 0 and tenant >= '' order by tenant limit 1) where :named = 0
				union all
				select (select e.tenant from leadonce_events e where e.ended_at = 0 and e.tenant > tenants.tenant
					order by e.tenant limit 1)
				from tenants where tenants.tenant is not null)
			select tenant from (select tenant from tenants union all select value from json_each(:tenants)) as tenants
			where exists (
				select 1 from leadonce_events e where e.tenant = tenants.tenant and e.ended_at = 0 and e.due_at <= :now)`, a)
		if err != nil {
			return err
		}
		keys, _, err = sqlstore.Share(limit, due, &s.turns.keys, sqlstore.OneByOne(
			func(ask sqlstore.Ask) (*sqlstore.Part[store.DueKey], error) {
				a["tenant"], a["limit"] = ask.Tenant, ask.Limit
				return dueKeys(c, a)
			}))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: due keys: %w", err)
	}
	return keys, nil
}

func dueKeys(c *conn, a args) (*sqlstore.Part[store.DueKey], error) {
	p := new(sqlstore.Part[store.DueKey])
	return p, each(c, `
		select e.ordering_key, e.tenant
		from leadonce_events e
		where e.tenant = :tenant and e.ended_at = 0 and e.due_at <= :now and not exists (
			select 1 from leadonce_events o where o.ordering_key = e.ordering_key and o.ended_at = 0 and o.id < e.id)
		order by e.due_at, e.id
		limit :limit`, a, func(row *sqlstore.Event, err error) bool {
		if err == nil {
			p.List = append(p.List, store.DueKey{Key: row.OrderingKey, Tenant: row.Tenant})
		}
		return true
	})
}

// asked are the parameters of a question about tenants.
func asked(now time.Time, tenants []string) args {
	return args{"now": sqlstore.Micros(now), "named": len(tenants), "tenants": sqlstore.JSONTexts(tenants)}
}

// texts returns a query's column tenant.
func texts(c *conn, query string, a args) (list []string, err error) {
	var bad error
	err = each(c, query, a, func(row *sqlstore.Ask, err error) bool {
		list, bad = append(list, row.Tenant), err
		return bad == nil
	})
	return list, errors.Join(err, bad)
}

// question is one kind of operations that need a verdict.
type question struct {
	turns *sqlstore.Turns
	whose string // which tenants have such
	which string // those of one tenant
}

func (s *Store) questions(lookups bool) []question {
	list := []question{
		{&s.turns.sending, `
			with recursive tenants(tenant) as (
				select (select tenant from leadonce_operations where state = 'sending' and broken = 0 and tenant >= ''
					order by tenant limit 1)
				where :named = 0
				union all
				select (select o.tenant from leadonce_operations o
					where o.state = 'sending' and o.broken = 0 and o.tenant > tenants.tenant order by o.tenant limit 1)
				from tenants where tenants.tenant is not null)
			select tenant from (select tenant from tenants union all select value from json_each(:tenants)) as tenants
			where exists (
				select 1 from leadonce_operations o
				where o.tenant = tenants.tenant and o.state = 'sending' and o.broken = 0 and o.lease_until <= :now)`, `
			select * from leadonce_operation_rows
			where tenant = :tenant and state = 'sending' and broken = 0 and lease_until <= :now
			order by lease_until, seq`},
		{&s.turns.uncertain, `
			with recursive tenants(tenant) as (
				select (select tenant from leadonce_operations where state = 'uncertain' and broken = 0 and tenant >= ''
					order by tenant limit 1)
				where :named = 0
				union all
				select (select o.tenant from leadonce_operations o
					where o.state = 'uncertain' and o.broken = 0 and o.tenant > tenants.tenant order by o.tenant limit 1)
				from tenants where tenants.tenant is not null)
			select tenant from (select tenant from tenants union all select value from json_each(:tenants)) as tenants
			where exists (
				select 1 from leadonce_operations o
				where o.tenant = tenants.tenant and o.state = 'uncertain' and o.broken = 0 and o.due_at <= :now)`, `
			select * from leadonce_operation_rows
			where tenant = :tenant and state = 'uncertain' and broken = 0 and due_at <= :now
			order by due_at, seq`},
		{&s.turns.reconcile, `
			with recursive tenants(tenant) as (
				select (select tenant from leadonce_operations where state = 'needs_reconciliation' and broken = 0 and tenant >= ''
					order by tenant limit 1)
				where :named = 0
				union all
				select (select o.tenant from leadonce_operations o
					where o.state = 'needs_reconciliation' and o.broken = 0 and o.tenant > tenants.tenant
					order by o.tenant limit 1)
				from tenants where tenants.tenant is not null)
			select tenant from (select tenant from tenants union all select value from json_each(:tenants)) as tenants
			where exists (
				select 1 from leadonce_operations o
				where o.tenant = tenants.tenant and o.state = 'needs_reconciliation' and o.broken = 0 and o.due_at <= :now)`, `
			select * from leadonce_operation_rows
			where tenant = :tenant and state = 'needs_reconciliation' and broken = 0 and due_at <= :now
			order by due_at, seq`},
	}
	if !lookups {
		list = list[:2]
	}
	return list
}

// Attention returns operations that need a verdict, up to limit of each kind, several tenants' by turns.
func (s *Store) Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
	if limit < 1 {
		return nil, fmt.Errorf("sqlite: attention: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var list []store.Operation
	var corrupt []error
	err := s.read.view(ctx, func(c *conn) error {
		a := asked(s.now(), tenants)
		for _, q := range s.questions(lookups) {
			due, err := texts(c, q.whose, a)
			if err != nil {
				return err
			}
			ops, bad, err := sqlstore.Share(limit, due, q.turns, sqlstore.OneByOne(
				func(ask sqlstore.Ask) (p *sqlstore.Part[store.Operation], err error) {
					a["tenant"] = ask.Tenant
					p = new(sqlstore.Part[store.Operation])
					p.List, p.Bad, err = readOperations(c, int(ask.Limit), q.which, a)
					return p, err
				}))
			if err != nil {
				return err
			}
			list, corrupt = append(list, ops...), append(corrupt, bad...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: attention: %w", err)
	}
	s.setAside(ctx, corrupt)
	return list, errors.Join(corrupt...)
}
