package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// claim.go: taking operations to send, and reporting what became of them.

// Claim begins or repeats up to c.Limit operations whose time has come.
func (s *Store) Claim(ctx context.Context, cl store.Claim) ([]store.Operation, error) {
	if err := sqlstore.ValidClaim(cl); err != nil {
		return nil, fmt.Errorf("sqlite: claim: %w", err)
	}
	if cl.Limit == 0 {
		return nil, nil
	}
	type result struct {
		begun   []store.Operation
		corrupt []error
	}
	res := new(result)
	err := s.writer.do(ctx, false, func(c *conn) (err error) {
		res.begun, res.corrupt, err = s.claim(c, cl, s.now())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: claim: %w", err)
	}
	return res.begun, errors.Join(res.corrupt...)
}

func (s *Store) claim(c *conn, cl store.Claim, now time.Time) (begun []store.Operation, corrupt []error, err error) {
	var tenants []string
	if cl.Tenant != nil {
		tenants = []string{*cl.Tenant}
	} else if tenants, err = claimants(c, now); err != nil {
		return nil, nil, err
	}
	list, corrupt, err := sqlstore.Share(cl.Limit, tenants, &s.turns.claims, sqlstore.OneByOne(
		func(ask sqlstore.Ask) (*sqlstore.Part[store.Operation], error) { return dueOf(c, cl, ask, now) }))
	if err != nil {
		return nil, nil, err
	}
	for _, o := range list {
		taken, err := sqlstore.Begin(o, cl, now)
		if err == nil {
			err = save(c, taken, o.Version)
		}
		if err != nil {
			return nil, nil, err
		}
		begun = append(begun, taken)
	}
	return begun, corrupt, setAside(c, corrupt, now)
}

// claimants are the tenants that something may be claimed for.
func claimants(c *conn, now time.Time) ([]string, error) {
	return texts(c, `
		with recursive
			pending(tenant) as (
				select (select tenant from leadonce_operations where state = 'pending' and blocked = 0 and broken = 0 and tenant >= ''
					order by tenant limit 1)
				union all
				select (select o.tenant from leadonce_operations o
					where o.state = 'pending' and o.blocked = 0 and o.broken = 0 and o.tenant > pending.tenant
					order by o.tenant limit 1)
				from pending where pending.tenant is not null),
			uncertain(tenant) as (
				select (select tenant from leadonce_operations where state = 'uncertain' and broken = 0 and tenant >= ''
					order by tenant limit 1)
				union all
				select (select o.tenant from leadonce_operations o
					where o.state = 'uncertain' and o.broken = 0 and o.tenant > uncertain.tenant order by o.tenant limit 1)
				from uncertain where uncertain.tenant is not null)
		select tenant from pending
		where exists (
			select 1 from leadonce_operations o where o.tenant = pending.tenant and o.state = 'pending' and o.blocked = 0
				and o.broken = 0 and o.due_at <= :now)
		union all
		select tenant from uncertain
		where exists (
			select 1 from leadonce_operations o where o.tenant = uncertain.tenant and o.state = 'uncertain'
				and o.broken = 0 and o.due_at <= :now)`, args{"now": sqlstore.Micros(now)})
}

// dueOf returns what may be begun or repeated of a tenant's, oldest due first.
func dueOf(c *conn, cl store.Claim, ask sqlstore.Ask, now time.Time) (*sqlstore.Part[store.Operation], error) {
	due := args{"now": sqlstore.Micros(now), "adapter": cl.Adapter, "tenant": ask.Tenant,
		"open_until": sqlstore.Micros(now.Add(cl.Lease + cl.Quiet))}
	p := new(sqlstore.Part[store.Operation])
	var err error
	p.List, p.Bad, err = readOperations(c, int(ask.Limit), `
		select * from leadonce_operation_rows
		where tenant = :tenant and state = 'pending' and blocked = 0 and broken = 0 and due_at <= :now and doubt = 0
			and fields is not null
		order by due_at, seq`, due)
	if err != nil {
		return nil, err
	}
	n := int64(0)
	err = each(c, `
		select * from leadonce_operation_rows
		where tenant = :tenant and state = 'uncertain' and broken = 0 and due_at <= :now and adapter = :adapter
			and guarantee <> '' and first_sent_at + window_ns / 1000 >= :open_until and fields is not null
		order by due_at, seq`, due, func(row *sqlstore.Operation, err error) bool {
		o, err := sqlstore.Decoded(row, err)
		switch {
		case err != nil:
			p.Bad = append(p.Bad, err)
		case cl.Repeatable(o, now):
			p.List = append(p.List, o)
			n++
		}
		return n < ask.Limit
	})
	slices.SortStableFunc(p.List, func(a, b store.Operation) int { return a.DueAt.Compare(b.DueAt) })
	p.List = p.List[:min(len(p.List), int(ask.Limit))]
	return p, err
}

// Advance moves an operation as the trigger says.
func (s *Store) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	type result struct {
		op      store.Operation
		due     bool
		corrupt error
	}
	res := new(result)
	err := s.writer.do(ctx, false, func(c *conn) (err error) {
		res.op, res.due, res.corrupt = store.Operation{}, false, nil
		now := s.now()
		res.op, res.due, err = advance(c, r, now)
		if bad := (*store.CorruptError)(nil); errors.As(err, &bad) {
			res.corrupt = err
			return keepEvidence(c, r, now, bad)
		}
		return err
	})
	if err == nil {
		err = res.corrupt
	}
	if err != nil {
		return store.Operation{}, fmt.Errorf("sqlite: advance: %w", err)
	}
	if res.due {
		s.hints.Tell(store.Hint{})
	}
	return res.op, nil
}

func advance(c *conn, r store.Report, now time.Time) (store.Operation, bool, error) {
	row, o, err := load(c, r.ID)
	if err != nil {
		return store.Operation{}, false, err
	}
	around := sqlstore.Around{IsCreate: row.IsCreate(), CreateDone: true}
	if o.DependsOn != "" && r.On != store.Confirmed {
		waits, err := blocked(c, o.DependsOn)
		if err != nil {
			return store.Operation{}, false, err
		}
		around.CreateDone = !waits
	}
	if sqlstore.PersonalRepeat(r) {
		var id int64
		around.Repeated, err = c.get(&id, `
			select id from leadonce_trail
			where operation_id = :operation_id and cause = :cause and person = :person and seen = :seen and crm_id = :crm_id
			limit 1`,
			args{"operation_id": r.ID, "cause": string(r.On), "person": r.By, "seen": r.Version, "crm_id": r.CRMID})
		if err != nil {
			return store.Operation{}, false, err
		}
	}
	m, err := sqlstore.Advance(o, r, around, now)
	if err != nil {
		return store.Operation{}, false, err
	}
	due := m.Unblock || (m.Changed && (m.Op.State == store.Pending || m.Op.State == store.Uncertain))
	return m.Op, due, apply(c, o, row.IsCreate(), m, now)
}

// keepEvidence sets an operation aside that can't be read. A success that was reported about it stays in the trail.
func keepEvidence(c *conn, r store.Report, now time.Time, bad *store.CorruptError) error {
	if r.On == store.Confirmed {
		if err := trail(c, store.TrailEntry{
			At: now, OperationID: r.ID, On: r.On, StartedAt: r.StartedAt, Took: r.Took, Status: r.Status,
			RequestID: r.RequestID, Reason: "the operation's row can't be read", CRMID: r.CRMID, By: r.By, Why: r.Why,
		}); err != nil {
			return err
		}
	}
	return setAside(c, []error{bad}, now)
}
