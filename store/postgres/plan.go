package postgres

import (
	"bytes"
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
	token   int64
	begins  bool // it asks for operations to be begun
	unknown bool // some try's answer was lost
}

// committed is its answer.
type committed struct {
	begun []store.Operation
	due   bool
}

type planCall = call[*proposal, committed]

// CommitPlan stores a decision, and begins some of its operations if Plan.Claim says so.
func (s *Store) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	if p.Key == "" {
		return nil, fmt.Errorf("postgres: commit plan: %w: Plan.Key is empty", store.ErrInvalid)
	}
	if p.Claim != nil {
		if err := sqlstore.ValidClaim(*p.Claim); err != nil {
			return nil, fmt.Errorf("postgres: commit plan: %w", err)
		}
	}
	got, err := s.plans.do(ctx, &proposal{Plan: p, token: newToken(), begins: p.Claim != nil && p.Claim.Limit > 0})
	if err != nil {
		s.setAside(ctx, err)
		return nil, fmt.Errorf("postgres: commit plan of %s: %w", p.Key, err)
	}
	if got.due {
		s.hints.Tell(store.Hint{})
	}
	return got.begun, nil
}

func (s *Store) planAll(batch []*planCall) {
	for _, wave := range waves(batch, func(p *proposal) string { return sqlstore.Clean(p.Key) }) {
		shared(s, wave, s.planBatch)
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
	for _, step := range []func() error{t.keys, t.lock} {
		if err := step(); err != nil {
			return err
		}
	}
	t.each(t.compare)
	t.each(t.prepare)
	if len(t.left) == 0 {
		return nil
	}
	if err := t.store(); err != nil {
		return err
	}
	if _, err := t.drops.write(t.c, t.now); err != nil {
		return err
	}
	return t.s.tell(t.c, t.s.dueNotice(t.due))
}

// keys locks the ordering keys that were planned before, and compares their versions.
func (t *planTx) keys() error {
	var known []string
	for _, m := range t.left {
		if m.in.Version > 0 || m.in.unknown {
			known = append(known, m.in.Key)
		}
	}
	if len(known) == 0 {
		return nil
	}
	type keyRow struct {
		Key     string `db:"ordering_key"`
		Version int64  `db:"version"`
		Token   int64  `db:"token"`
	}
	rows, err := all[keyRow](t.c, `
		select ordering_key, version, token
		from {schema}.leadonce_keys
		where ordering_key = any(array(select json_array_elements_text(cast(:keys as json))))
		order by ordering_key
		for no key update`, args{"keys": jsonTexts(known)})
	if err != nil {
		return err
	}
	stored := map[string]*keyRow{}
	for _, r := range rows {
		stored[r.Key] = r
	}
	var done []*planCall
	for _, m := range t.left {
		r := stored[sqlstore.Clean(m.in.Key)]
		switch {
		case r == nil && m.in.Version == 0, r != nil && r.Version == m.in.Version:
			continue
		case m.in.unknown && r != nil:
			if mine, err := t.resolve(m, r.Token); err != nil {
				return err
			} else if mine {
				done = append(done, m)
			}
		}
	}
	t.left = slices.DeleteFunc(t.left, func(m *planCall) bool { return slices.Contains(done, m) })
	t.each(func(m *planCall) error {
		if r := stored[sqlstore.Clean(m.in.Key)]; (r == nil) != (m.in.Version == 0) || (r != nil && r.Version != m.in.Version) {
			if m.in.Version > 0 || m.in.unknown {
				return conflict("ordering key", m.in.Key)
			}
		}
		return nil
	})
	return nil
}

// resolve finds out whether a plan was stored by a try whose answer was lost. token is that of the key's latest plan.
func (t *planTx) resolve(m *planCall, token int64) (mine bool, err error) {
	m.out = committed{due: true}
	if m.in.begins {
		if m.out.begun, err = begunBy(t.c, *m.in.Claim, m.in.token); err != nil {
			return false, err
		}
	}
	return token == m.in.token || len(m.out.begun) > 0, nil
}

// lock reads and locks what the decisions have read.
func (t *planTx) lock() (err error) {
	var ops, deals []string
	for _, m := range t.left {
		for _, o := range m.in.SeenOps {
			ops = append(ops, o.ID)
		}
		for _, e := range m.in.Edits {
			ops = append(ops, e.OperationID)
		}
		for _, d := range m.in.Drops {
			ops = append(ops, d.OperationID)
		}
		for _, o := range m.in.Operations {
			if o.DependsOn != "" {
				ops = append(ops, o.DependsOn)
			}
		}
		for _, d := range m.in.SeenDeals {
			deals = append(deals, d.ID)
		}
		for _, d := range m.in.Touches {
			deals = append(deals, d.DealID)
		}
	}
	if t.ops, err = lock(t.c, ops, nil); err != nil {
		return err
	}
	t.deals = map[string]int64{}
	if len(deals) == 0 {
		return nil
	}
	return each(t.c, `
		select id, version
		from {schema}.leadonce_deals
		where id = any(array(select json_array_elements_text(cast(:ids as json))))
		order by id
		for no key update`, args{"ids": jsonTexts(deals)}, func(row *sqlstore.Deal, _ error) bool {
		t.deals[row.ID] = row.Version
		return true
	})
}

// compare refuses a plan whose decision has read something else than what stands there now.
func (t *planTx) compare(m *planCall) error {
	for _, o := range m.in.SeenOps {
		if _, err := t.at(o.ID, o.Version, true); err != nil {
			return err
		}
	}
	for _, d := range m.in.SeenDeals {
		if t.deals[d.ID] != d.Version {
			return conflict("deal", d.ID)
		}
	}
	for _, d := range m.in.Touches {
		if t.deals[d.DealID] != d.Version {
			return conflict("deal", d.DealID)
		}
	}
	return nil
}

// at returns an operation that a plan has read at this version. unread: its content does not matter.
func (t *planTx) at(id string, version int64, unread bool) (*locked, error) {
	row := t.ops[id]
	switch {
	case row == nil:
		return nil, conflict("operation", id)
	case row.err != nil && !unread:
		return nil, row.err
	case row.err == nil && row.op.Version != version:
		return nil, conflict("operation", id)
	}
	return row, nil
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
	for _, d := range p.Touches {
		w.touches = append(w.touches, d.DealID)
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

// store writes, and refuses who has lost a race for a new key or deal, or for an event.
func (t *planTx) store() error {
	got, err := t.write.run(t.c, t.s.fixed())
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
		for _, d := range m.in.Deals {
			if !got["deal"][sqlstore.Clean(d.ID)] {
				deals = true
				return conflict("deal", d.ID)
			}
		}
		// What was there already stays as it is, and is not ours.
		isNew := func(id string) bool { return got["operation"][sqlstore.Clean(id)] }
		m.out.begun = slices.DeleteFunc(m.out.begun, func(o store.Operation) bool { return !isNew(o.ID) })
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
