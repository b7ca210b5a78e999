package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// claim.go: taking operations to send. They are two statements: one that locks what nobody else is at, one that writes. (As
// one statement, concurrent claims deadlock: SKIP LOCKED keeps the lock of a row that fails its recheck.)

// Claim begins or repeats up to cl.Limit operations whose time has come.
func (s *Store) Claim(ctx context.Context, cl store.Claim) ([]store.Operation, error) {
	if err := sqlstore.ValidClaim(cl); err != nil {
		return nil, fmt.Errorf("postgres: claim: %w", err)
	}
	if cl.Limit == 0 {
		return nil, nil
	}
	t := claimTx{s: s, cl: cl, token: newToken()}
	err := s.try(ctx, func(ctx context.Context, again bool) error {
		return s.transaction(ctx, writing, func(c *session) error { return t.run(c, again) })
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: claim: %w", err)
	}
	s.claimed.moveTo(cl.Tenant, t.reached, len(t.begun) == cl.Limit)
	return t.begun, errors.Join(t.corrupt...)
}

type claimTx struct {
	s     *Store
	cl    store.Claim
	token int64

	c       *session
	now     time.Time
	reached map[string]int64 // when the last of each tenant's became due
	begun   []store.Operation
	corrupt []error
}

func (t *claimTx) run(c *session, again bool) (err error) {
	t.c, t.begun, t.corrupt, t.reached = c, nil, nil, map[string]int64{}
	if _, err := t.s.begin(c, t.s.patience); err != nil {
		return err
	}
	tenants, sweep := t.s.claimed.start(t.cl.Tenant)
	found, err := t.open(sweep)
	if err != nil {
		return err
	}
	if again {
		if t.begun, err = begunBy(c, t.cl, t.token); err != nil || len(t.begun) > 0 {
			return err
		}
	}
	if sweep {
		tenants = found
	}
	list, err := t.due(tenants, sweep)
	if err == nil && !sweep && len(list) < t.cl.Limit { // what came in meanwhile, or became due before the mark
		if tenants, err = t.open(true); err == nil {
			list, err = t.due(tenants, true)
		}
	}
	if err != nil {
		return err
	}
	return t.begin(list)
}

func (t *claimTx) begin(list []store.Operation) error {
	var w moves
	for _, o := range list {
		taken, err := sqlstore.Begin(o, t.cl, t.now)
		if err != nil {
			return err
		}
		row := sqlstore.EncodeOperation(taken, o.Version)
		row.Token = t.token
		w.ops = append(w.ops, row)
		t.begun = append(t.begun, taken)
		if o.State == store.Pending {
			t.reached[o.Tenant] = sqlstore.Micros(o.DueAt)
		}
	}
	if _, err := w.write(t.c, t.now); err != nil {
		return err
	}
	return setAside(t.c, t.corrupt, t.now)
}

// open sets the clock, and returns the tenants that something may be claimed for: with a sweep, those that have such. A
// later try of the same call, under the same token, waits here for this one: its connection may be lost while the server
// still works on it.
func (t *claimTx) open(sweep bool) (tenants []string, err error) {
	type row struct {
		Now     int64  `db:"now"`
		Tenants string `db:"tenants"`
	}
	rows, err := all[row](t.c, `
		select {schema}.leadonce_clock(:fixed) as now, case when :sweep then (
			with recursive
				pending(tenant) as (
					select (select tenant from {schema}.leadonce_operations where state = 'pending' and blocked = 0 and broken = 0
						order by tenant limit 1)
					union all
					select (select o.tenant from {schema}.leadonce_operations o
						where o.state = 'pending' and o.blocked = 0 and o.broken = 0 and o.tenant > t.tenant
						order by o.tenant limit 1)
					from pending t where t.tenant is not null),
				uncertain(tenant) as (
					select (select tenant from {schema}.leadonce_operations where state = 'uncertain' and broken = 0
						order by tenant limit 1)
					union all
					select (select o.tenant from {schema}.leadonce_operations o
						where o.state = 'uncertain' and o.broken = 0 and o.tenant > t.tenant order by o.tenant limit 1)
					from uncertain t where t.tenant is not null)
			select coalesce(cast(json_agg(w.tenant) as text), '[]')
			from (
				select t.tenant from pending t
				where (
					select o.due_at from {schema}.leadonce_operations o
					where o.tenant = t.tenant and o.state = 'pending' and o.blocked = 0 and o.broken = 0
					order by o.due_at limit 1) <= (select {schema}.leadonce_clock(:fixed))
				union all
				select t.tenant from uncertain t
				where (
					select o.due_at from {schema}.leadonce_operations o
					where o.tenant = t.tenant and o.state = 'uncertain' and o.broken = 0
					order by o.due_at limit 1) <= (select {schema}.leadonce_clock(:fixed))) as w) else '[]' end as tenants
		from (select cast(pg_advisory_xact_lock(:token) as text) as had) as alone
		where had is not null`, args{"fixed": t.s.fixed(), "token": t.token, "sweep": sweep && t.cl.Tenant == nil})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, errors.New("the server tells no time")
	}
	t.now = sqlstore.Time(rows[0].Now)
	if t.cl.Tenant != nil {
		return []string{*t.cl.Tenant}, nil
	}
	if !sweep {
		return nil, nil
	}
	err = json.Unmarshal([]byte(rows[0].Tenants), &tenants)
	t.s.claimed.found(tenants)
	return tenants, err
}

// begunBy returns what a call whose answer was lost has begun: it is still in the claimer's name.
func begunBy(c *session, cl store.Claim, token int64) ([]store.Operation, error) {
	list, _, err := readOperations(c, `
		select * from {schema}.leadonce_operation_rows
		where state = 'sending' and broken = 0 and token = :token and owner = :owner
		order by seq`, args{"token": token, "owner": cl.Owner})
	return list, err
}

// due returns the operations whose time has come, of each tenant oldest due first, locked. Only a sweep also finds those
// that became due before the mark.
func (t *claimTx) due(tenants []string, sweep bool) (list []store.Operation, err error) {
	list, t.corrupt, err = sqlstore.Share(t.cl.Limit, tenants, &t.s.turns.claims,
		func(asks []sqlstore.Ask) (map[string]*sqlstore.Part[store.Operation], error) {
			if !sweep {
				t.s.claimed.mark(asks)
			}
			return t.parts(asks)
		})
	return list, err
}

// parts returns what some tenants have. Rows that were returned before, and so are locked by this claim, come again.
func (t *claimTx) parts(asks []sqlstore.Ask) (map[string]*sqlstore.Part[store.Operation], error) {
	a := t.s.asks(asks)
	a["now"] = sqlstore.Micros(t.now)
	parts, err := operationsOf(t.c, `
		select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
			coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
		from json_to_recordset(cast(:asks as json)) as a(tenant text, ask bigint, since bigint)
			cross join lateral (
				select * from {schema}.leadonce_operations q
				where q.tenant = a.tenant and q.state = 'pending' and q.blocked = 0 and q.broken = 0 and q.due_at >= a.since
					and q.due_at <= :now and q.doubt = 0 and q.fields is not null
				order by q.due_at, q.seq
				limit a.ask
				for no key update skip locked) as o
			left join lateral (
				select d.crm_id, d.create_op from {schema}.leadonce_deals d where d.id = o.deal_id limit 1) as d on true
		order by o.due_at, o.seq`, a)
	if err != nil {
		return nil, err
	}
	a["adapter"], a["terms"] = t.cl.Adapter, t.terms()
	a["open_until"] = sqlstore.Micros(t.now.Add(t.cl.Lease + t.cl.Quiet))
	again, err := operationsOf(t.c, `
		select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
			coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
		from json_to_recordset(cast(:asks as json)) as a(tenant text, ask bigint)
			cross join lateral (
				select * from {schema}.leadonce_operations q
				where q.tenant = a.tenant and q.state = 'uncertain' and q.broken = 0 and q.due_at <= :now
					and q.adapter = :adapter and q.guarantee <> ''
					and q.first_sent_at + q.window_ns / 1000 >= :open_until and q.fields is not null
					and (q.kind, q.guarantee, q.window_ns) in (
						select kind, guarantee, window_ns
						from json_to_recordset(cast(:terms as json)) as t(kind text, guarantee text, window_ns bigint))
				order by q.due_at, q.seq
				limit a.ask
				for no key update skip locked) as o
			left join lateral (
				select d.crm_id, d.create_op from {schema}.leadonce_deals d where d.id = o.deal_id limit 1) as d on true
		order by o.due_at, o.seq`, a)
	for tenant, more := range again {
		p := part(parts, tenant)
		for _, o := range more.List {
			if t.cl.Repeatable(o, t.now) {
				p.List = append(p.List, o)
			}
		}
		p.Bad = append(p.Bad, more.Bad...)
		slices.SortStableFunc(p.List, func(a, b store.Operation) int { return a.DueAt.Compare(b.DueAt) })
	}
	for _, a := range asks {
		p := part(parts, a.Tenant)
		p.List = p.List[:min(len(p.List), int(a.Limit))]
	}
	return parts, err
}

// terms are the promises that a repeat may rely on.
func (t *claimTx) terms() string {
	type row struct {
		Kind      string `db:"kind"`
		Guarantee string `db:"guarantee"`
		WindowNS  int64  `db:"window_ns"`
	}
	var rows []*row
	for kind, terms := range t.cl.Terms {
		rows = append(rows, &row{kind, terms.Guarantee, int64(terms.Window)})
	}
	return jsonRows(t.c.st.mapper, rows)
}
