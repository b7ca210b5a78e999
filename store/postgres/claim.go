package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	s.claimed.moveTo(cl.Tenant, t.reached)
	return t.begun, errors.Join(t.corrupt...)
}

// watermark remembers how far claims have come, the claims of each tenant for themselves. While some transaction elsewhere
// keeps an old snapshot open, the index goes on naming every operation that was ever pending, and each claim would read past
// all of them: with 50,000 of them 48 ms instead of 0.5. So a backlog is claimed from the mark on; now and then, and whenever
// that yields too little, from the beginning.
type watermark struct {
	mu    sync.Mutex
	marks map[markOf]mark
}

// markOf is whose claims they are: those of any tenant are another thing than those of the tenant without a name.
type markOf struct {
	any    bool
	tenant string
}

type mark struct {
	due   int64 // of the latest operation that was claimed
	swept time.Time
}

const (
	// markSlack is how far before the mark operations may still become due without being passed over until the next sweep.
	markSlack  = 2 * time.Second
	sweepEvery = time.Second
)

func of(tenant *string) markOf {
	if tenant == nil {
		return markOf{any: true}
	}
	return markOf{tenant: *tenant}
}

// from is where the next claim begins, 0 for the beginning.
func (w *watermark) from(tenant *string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.marks[of(tenant)]
	if time.Since(m.swept) >= sweepEvery {
		if w.marks == nil {
			w.marks = map[markOf]mark{}
		}
		m.swept = time.Now()
		w.marks[of(tenant)] = m
		return 0
	}
	return max(m.due-markSlack.Microseconds(), 0)
}

// moveTo is called after from.
func (w *watermark) moveTo(tenant *string, due int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.marks[of(tenant)]
	m.due = due
	w.marks[of(tenant)] = m
}

type claimTx struct {
	s     *Store
	cl    store.Claim
	token int64

	c       *session
	now     time.Time
	reached int64 // when the last of them became due
	begun   []store.Operation
	corrupt []error
}

func (t *claimTx) run(c *session, again bool) (err error) {
	t.c, t.begun, t.corrupt, t.reached = c, nil, nil, 0
	if t.now, err = t.s.beginAlone(c, t.token); err != nil {
		return err
	}
	if again {
		if t.begun, err = begunBy(c, t.cl, t.token); err != nil || len(t.begun) > 0 {
			return err
		}
	}
	list, err := t.due()
	if err != nil {
		return err
	}
	var w moves
	for _, o := range list[:min(len(list), t.cl.Limit)] {
		taken, err := sqlstore.Begin(o, t.cl, t.now)
		if err != nil {
			return err
		}
		row := sqlstore.EncodeOperation(taken, o.Version)
		row.Token = t.token
		w.ops = append(w.ops, row)
		t.begun = append(t.begun, taken)
		if o.State == store.Pending {
			t.reached = sqlstore.Micros(o.DueAt)
		}
	}
	if _, err := w.write(c, t.now); err != nil {
		return err
	}
	return setAside(c, t.corrupt, t.now)
}

// begunBy returns what a call whose answer was lost has begun: it is still in the claimer's name.
func begunBy(c *session, cl store.Claim, token int64) ([]store.Operation, error) {
	list, _, err := readOperations(c, `
		select * from {schema}.leadonce_operation_rows
		where state = 'sending' and broken = 0 and token = :token and owner = :owner
		order by seq`, args{"token": token, "owner": cl.Owner})
	return list, err
}

// due returns the operations whose time has come, oldest due first, locked.
func (t *claimTx) due() (list []store.Operation, err error) {
	if list, err = t.pending(t.s.claimed.from(t.cl.Tenant)); err != nil {
		return nil, err
	}
	again, corrupt, err := readOperations(t.c, `
		select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
			coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
		from {schema}.leadonce_operations o left join {schema}.leadonce_deals d on d.id = o.deal_id
		where o.state = 'uncertain' and o.broken = 0 and o.due_at <= :now and o.adapter = :adapter and o.guarantee <> ''
			and o.first_sent_at + o.window_ns / 1000 >= :open_until and o.fields is not null
			and (o.kind, o.guarantee, o.window_ns) in (
				select kind, guarantee, window_ns
				from json_to_recordset(cast(:terms as json)) as t(kind text, guarantee text, window_ns bigint))
			and (:any or o.tenant = :tenant)
		order by o.due_at, o.seq
		limit :limit
		for no key update of o skip locked`,
		args{"now": sqlstore.Micros(t.now), "limit": t.cl.Limit, "adapter": t.cl.Adapter,
			"open_until": sqlstore.Micros(t.now.Add(t.cl.Lease + t.cl.Quiet)), "terms": t.terms(),
			"any": t.cl.Tenant == nil, "tenant": t.tenant()})
	if err != nil {
		return nil, err
	}
	t.corrupt = append(t.corrupt, corrupt...)
	for _, o := range again {
		if t.cl.Repeatable(o, t.now) {
			list = append(list, o)
		}
	}
	slices.SortStableFunc(list, func(a, b store.Operation) int { return a.DueAt.Compare(b.DueAt) })
	return list, nil
}

// pending returns those that were never sent, or certainly in vain, from the mark on; or from the beginning, if those are too
// few.
func (t *claimTx) pending(from int64) (list []store.Operation, err error) {
	for limit := t.cl.Limit; ; {
		list, t.corrupt, err = readOperations(t.c, t.pendingQuery(), args{"from": from, "now": sqlstore.Micros(t.now),
			"limit": limit, "tenant": t.tenant()})
		switch {
		case err != nil || len(list) >= t.cl.Limit:
			return list, err
		case len(list)+len(t.corrupt) == limit: // rows that can't be read were in the way; they are set aside with this commit
			limit += len(t.corrupt)
		case from > 0:
			from = 0
		default:
			return list, nil
		}
	}
}

// pendingQuery finds those of one tenant by an index of their own: what waits for the others is not read past.
func (t *claimTx) pendingQuery() string {
	if t.cl.Tenant == nil {
		return `
			select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
				coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
			from {schema}.leadonce_operations o left join {schema}.leadonce_deals d on d.id = o.deal_id
			where o.state = 'pending' and o.blocked = 0 and o.broken = 0 and o.due_at >= :from and o.due_at <= :now
				and o.doubt = 0 and o.fields is not null
			order by o.due_at, o.seq
			limit :limit
			for no key update of o skip locked`
	}
	return `
		select o.*, coalesce(d.crm_id, '') as lead_id, coalesce(d.create_op, '') as create_op,
			coalesce((select p.crm_id from {schema}.leadonce_contacts p where p.contact_key = o.contact_key), '') as contact_id
		from {schema}.leadonce_operations o left join {schema}.leadonce_deals d on d.id = o.deal_id
		where o.tenant = :tenant and o.state = 'pending' and o.blocked = 0 and o.broken = 0 and o.due_at >= :from
			and o.due_at <= :now and o.doubt = 0 and o.fields is not null
		order by o.due_at, o.seq
		limit :limit
		for no key update of o skip locked`
}

func (t *claimTx) tenant() string {
	if t.cl.Tenant == nil {
		return ""
	}
	return *t.cl.Tenant
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
