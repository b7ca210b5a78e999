package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// plan.go: committing decisions, each whole or not at all. What a batch of them has read is locked and compared first; then
// one statement writes all of it. A member that has lost its comparison only by then takes the others back with it, and
// they are run again without it.

// proposal is a plan on its way in.
type proposal struct {
	store.Plan
	other   string // the ordering key that it merges its own with
	token   int64
	begins  bool // it asks for operations to be begun
	unknown bool // some try's answer was lost
}

// committed is its answer.
type committed struct {
	begun []store.Operation
	due   bool
	told  []store.Hint // where events were moved to
}

type planCall = call[*proposal, committed]

// CommitPlan stores a decision, and begins some of its operations if Plan.Claim says so.
func (s *Store) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	if p.Key == "" {
		return nil, fmt.Errorf("postgres: commit plan: %w: Plan.Key is empty", store.ErrInvalid)
	}
	other, err := sqlstore.OtherKey(p)
	if err != nil {
		return nil, fmt.Errorf("postgres: commit plan: %w", err)
	}
	if p.Claim != nil {
		if err := sqlstore.ValidClaim(*p.Claim); err != nil {
			return nil, fmt.Errorf("postgres: commit plan: %w", err)
		}
	}
	got, err := s.plans.do(ctx, &proposal{Plan: p, other: other, token: newToken(), begins: p.Claim != nil && p.Claim.Limit > 0})
	if err != nil {
		s.setAside(ctx, err)
		return nil, fmt.Errorf("postgres: commit plan of %s: %w", p.Key, err)
	}
	if got.due {
		s.hints.Tell(store.Hint{})
	}
	for _, h := range got.told {
		s.hints.Tell(h)
	}
	return got.begun, nil
}

func (s *Store) planAll(batch []*planCall) {
	for _, wave := range waves(batch, func(p *proposal) string { return sqlstore.Clean(p.Key) }) {
		// A merge locks two keys, both before anything else: it runs by itself.
		merging := func(m *planCall) bool { return m.in.other != "" }
		if rest := slices.DeleteFunc(slices.Clone(wave), merging); len(rest) > 0 {
			shared(s, rest, s.planBatch)
		}
		for _, m := range wave {
			if merging(m) {
				shared(s, []*planCall{m}, s.planBatch)
			}
		}
	}
}

// planBatch answers the plans, or returns why none of them was stored.
func (s *Store) planBatch(batch []*planCall, patience string) error {
	left := batch
	for len(left) > 0 {
		var lost []*planCall
		err := s.try(context.Background(), func(ctx context.Context, again bool) error {
			for _, m := range left {
				m.in.unknown = m.in.unknown || again
			}
			return s.transaction(ctx, writing, func(c *session) error {
				t := planTx{s: s, c: c, left: slices.Clone(left)}
				err := t.run(patience)
				lost = t.lost
				return err
			})
		})
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, errLosers):
			return err
		}
		left = slices.DeleteFunc(slices.Clone(left), func(m *planCall) bool { return slices.Contains(lost, m) })
	}
	return nil
}

// errLosers takes a transaction back: some of its members were refused after it had begun to write.
var errLosers = errors.New("members were refused")

type planTx struct {
	s    *Store
	c    *session
	now  time.Time
	left []*planCall // still to be stored
	lost []*planCall // refused; their err is set

	ops   map[string]*locked
	deals map[string]int64 // versions
	write planWrite
	drops moves
	due   bool
}

func conflict(what, id string) error { return fmt.Errorf("%s %s: %w", what, id, store.ErrConflict) }

// each calls f for every member that is left. What f returns refuses the member.
func (t *planTx) each(f func(m *planCall) error) {
	t.left = slices.DeleteFunc(t.left, func(m *planCall) bool {
		if m.err = f(m); m.err != nil {
			m.out = committed{}
			t.lost = append(t.lost, m)
		}
		return m.err != nil
	})
}

func (t *planTx) run(patience string) (err error) {
	if t.now, err = t.s.begin(t.c, patience); err != nil {
		return err
	}
	merging := len(t.left) == 1 && t.left[0].in.other != ""
	for _, step := range []func() error{t.keys, t.lock} {
		if err := step(); err != nil {
			return err
		}
	}
	t.each(t.compare)
	t.each(t.prepare)
	switch {
	case merging && len(t.lost) > 0:
		return errLosers // takes back the rows of keys that were made to be locked
	case len(t.left) == 0:
		return nil
	}
	if err := t.store(); err != nil {
		return err
	}
	if merging {
		if err := t.merge(t.left[0].in); err != nil {
			return err
		}
	}
	if _, err := t.drops.write(t.c, t.now); err != nil {
		return err
	}
	told, err := t.told()
	if err != nil {
		return err
	}
	return t.s.tell(t.c, append(t.s.dueNotice(t.due), t.s.notices(told...)...))
}

// store writes, and refuses who has lost a race for a new key or deal, or for an event.
func (t *planTx) store() error {
	got, people, err := t.write.run(t.c)
	if state(err) == uniqueViolation { // a deal is to open again beside an open one of its key
		err = fmt.Errorf("%w: %w", store.ErrConflict, err)
	}
	if err != nil {
		return err
	}
	before := len(t.lost)
	deals := false
	t.each(func(m *planCall) error {
		if !got["key"][sqlstore.Clean(m.in.Key)] {
			return conflict("ordering key", m.in.Key)
		}
		for _, e := range m.in.Events {
			if id := strconv.FormatInt(e.ID, 10); !got["event"][id] {
				return conflict("event", id)
			}
		}
		for _, d := range m.in.Touches {
			if !got["changed"][sqlstore.Clean(d.DealID)] {
				return conflict("deal", d.DealID)
			}
		}
		for _, d := range m.in.Stages {
			if !got["changed"][sqlstore.Clean(d.DealID)] {
				return conflict("deal", d.DealID)
			}
		}
		for _, d := range m.in.Deals {
			if !got["deal"][sqlstore.Clean(d.ID)] {
				deals = true
				return conflict("deal", d.ID)
			}
		}
		// What was there already stays as it is, and is not ours.
		isNew := func(id string) bool { return got["operation"][sqlstore.Clean(id)] }
		m.out.begun = slices.DeleteFunc(m.out.begun, func(o store.Operation) bool { return !isNew(o.ID) })
		for i := range m.out.begun {
			m.out.begun[i].ContactID = people[sqlstore.Clean(m.out.begun[i].ContactKey)]
		}
		for _, o := range m.in.Operations {
			begun := slices.ContainsFunc(m.out.begun, func(b store.Operation) bool { return b.ID == o.ID })
			waits := o.DependsOn != "" && (t.ops[o.DependsOn] == nil || t.ops[o.DependsOn].op.State != store.Done)
			m.out.due = m.out.due || (isNew(o.ID) && !begun && !waits)
		}
		t.due = t.due || m.out.due
		return nil
	})
	if deals {
		err = t.brokenDeals(t.lost[before:])
	}
	if err == nil && len(t.lost) > before {
		err = errLosers
	}
	return err
}

// brokenDeals tells those who were refused a deal whether a row is in the way that can't be read: then reading again would
// not help them.
func (t *planTx) brokenDeals(lost []*planCall) error {
	for _, m := range lost {
		for _, d := range m.in.Deals {
			bad, err := brokenDeal(t.c, d)
			if err != nil {
				return err
			}
			if bad != nil {
				m.err = bad
			}
		}
	}
	return nil
}

// brokenDeal returns the *store.CorruptError of a row that is in the way of a new deal, nil if there is none.
func brokenDeal(c *session, d store.Deal) (bad, err error) {
	var id string
	found, err := c.get(&id, `
		select id from {schema}.leadonce_deals
		where ordering_key = :ordering_key and deal_key = :deal_key and broken = 1
		limit 1`, args{"ordering_key": d.OrderingKey, "deal_key": d.Key})
	if found {
		bad = &store.CorruptError{Table: sqlstore.DealsTable, ID: id, Err: sqlstore.ErrBroken}
	}
	return bad, err
}
