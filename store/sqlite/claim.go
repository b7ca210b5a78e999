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
		res.begun, res.corrupt, err = claim(c, cl, s.now())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: claim: %w", err)
	}
	return res.begun, errors.Join(res.corrupt...)
}

func claim(c *conn, cl store.Claim, now time.Time) (begun []store.Operation, corrupt []error, err error) {
	due := args{"now": sqlstore.Micros(now), "adapter": cl.Adapter, "open_until": sqlstore.Micros(now.Add(cl.Lease + cl.Quiet)),
		"any_tenant": 1, "tenant": ""}
	if cl.Tenant != nil {
		due["any_tenant"], due["tenant"] = 0, *cl.Tenant
	}
	list, corrupt, err := readOperations(c, cl.Limit, `
		select * from leadonce_operation_rows
		where state = 'pending' and blocked = 0 and broken = 0 and due_at <= :now and doubt = 0 and fields is not null
			and (:any_tenant = 1 or tenant = :tenant)
		order by due_at, seq`, due)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	err = each(c, `
		select * from leadonce_operation_rows
		where state = 'uncertain' and broken = 0 and due_at <= :now and adapter = :adapter and guarantee <> ''
			and first_sent_at + window_ns / 1000 >= :open_until and fields is not null
			and (:any_tenant = 1 or tenant = :tenant)
		order by due_at, seq`, due, func(row *sqlstore.Operation, err error) bool {
		var o store.Operation
		if err != nil {
			err = row.Corrupt(err)
		} else {
			o, err = row.Decode()
		}
		switch {
		case err != nil:
			corrupt = append(corrupt, err)
		case cl.Repeatable(o, now):
			list = append(list, o)
			n++
		}
		return n < cl.Limit
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(list, func(a, b store.Operation) int { return a.DueAt.Compare(b.DueAt) })
	for _, o := range list[:min(len(list), cl.Limit)] {
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
