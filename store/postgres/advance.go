package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// advance.go: reporting what became of operations. The rows of a batch are read and locked by one statement, decided about,
// and written by a few.

// report is one on its way in.
type report struct {
	store.Report
	tried   *store.Operation // what the last try would have made of the operation
	unknown bool             // some try's answer was lost
}

// advanced is its answer.
type advanced struct {
	op  store.Operation
	due bool
}

type advanceCall = call[*report, advanced]

// Advance moves an operation as the trigger says.
func (s *Store) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	got, err := s.advances.do(ctx, &report{Report: r})
	if err != nil {
		return store.Operation{}, fmt.Errorf("postgres: advance: %w", err)
	}
	if got.due {
		s.hints.Tell(store.Hint{})
	}
	return got.op, nil
}

func (s *Store) advanceAll(batch []*advanceCall) {
	for _, wave := range waves(batch, func(r *report) string { return sqlstore.Clean(r.ID) }) {
		var later []*advanceCall
		shared(s, wave, func(batch []*advanceCall, patience string) error {
			more, err := s.advanceBatch(batch, patience)
			if err == nil && len(more) > 0 { // never for one that waits apart: it is alone, and later is not its own
				later = append(later, more...)
			}
			return err
		})
		if len(later) > 0 { // what depends on a create of the same wave
			s.advanceAll(later)
		}
	}
}

// advanceBatch answers the reports, or returns why none of them was taken. later are those that have to wait for others of
// the batch.
func (s *Store) advanceBatch(batch []*advanceCall, patience string) (later []*advanceCall, err error) {
	err = s.try(context.Background(), func(ctx context.Context, again bool) error {
		for _, m := range batch {
			m.in.unknown = m.in.unknown || again
		}
		return s.transaction(ctx, writing, func(c *session) (err error) {
			t := advanceTx{s: s, c: c}
			err = t.run(batch, patience)
			later = t.later
			return err
		})
	})
	return later, err
}

type advanceTx struct {
	s     *Store
	c     *session
	now   time.Time
	rows  map[string]*locked
	moves moves
	due   bool
	later []*advanceCall
}

func (t *advanceTx) run(batch []*advanceCall, patience string) error {
	var err error
	if t.now, err = t.s.begin(t.c, patience); err != nil {
		return err
	}
	var ids, dependents []string
	in := map[string]bool{}
	for _, m := range batch {
		id := sqlstore.Clean(m.in.ID)
		ids, in[id] = append(ids, id), true
		switch m.in.On {
		case store.NotApplied, store.Absent, store.Reopen: // may become pending: is its create done?
			dependents = append(dependents, id)
		}
	}
	if t.rows, err = lock(t.c, ids, dependents); err != nil {
		return err
	}
	for _, m := range batch {
		m.out, m.err = advanced{}, nil
		row := t.rows[sqlstore.Clean(m.in.ID)]
		switch {
		case row == nil:
			m.err = fmt.Errorf("operation %s: %w", m.in.ID, store.ErrNotFound)
		case row.err != nil:
			m.err = row.err
			err = t.keepEvidence(m.in.Report, row.err)
		case row.op.DependsOn != "" && in[row.op.DependsOn]:
			t.later = append(t.later, m)
		default:
			err = t.decide(m, row)
		}
		if err != nil {
			return err
		}
	}
	unblocked, err := t.moves.write(t.c, t.now)
	if err != nil {
		return err
	}
	for _, m := range batch { // which of them it was does not matter to a hint
		m.out.due = m.out.due || unblocked
		t.due = t.due || m.out.due
	}
	return t.s.tell(t.c, t.s.dueNotice(t.due))
}

// decide answers one report and notes what is to be written. The error is the database's.
func (t *advanceTx) decide(m *advanceCall, row *locked) error {
	r := m.in
	if r.unknown && r.tried != nil && same(row.op, *r.tried) { // the try before was committed
		m.out = advanced{op: row.op, due: true}
		return nil
	}
	around := sqlstore.Around{IsCreate: row.create, CreateDone: true}
	if row.op.DependsOn != "" && r.On != store.Confirmed {
		create := t.rows[row.op.DependsOn]
		around.CreateDone = create != nil && create.err == nil && create.op.State == store.Done
	}
	if sqlstore.PersonalRepeat(r.Report) {
		var err error
		around.Repeated, err = t.c.get(new(int64), `
			select id from {schema}.leadonce_trail
			where operation_id = :operation_id and cause = :cause and person = :person and seen = :seen and crm_id = :crm_id
			limit 1`,
			args{"operation_id": r.ID, "cause": string(r.On), "person": r.By, "seen": r.Version, "crm_id": r.CRMID})
		if err != nil {
			return err
		}
	}
	move, err := sqlstore.Advance(row.op, r.Report, around, t.now)
	if err != nil {
		m.err = err
		return nil
	}
	t.moves.add(row, move)
	due := move.Changed && (move.Op.State == store.Pending || move.Op.State == store.Uncertain)
	m.out, r.tried = advanced{op: move.Op, due: due}, nil
	if move.Changed {
		r.tried = &move.Op
	}
	return nil
}

// same reports whether two readings of an operation are of the same change: the clock tells those apart that two reports
// made of one version.
func same(a, b store.Operation) bool {
	return a.ID == b.ID && a.Version == b.Version && a.State == b.State && a.Fence == b.Fence &&
		a.UpdatedAt.Equal(b.UpdatedAt) && a.DueAt.Equal(b.DueAt) && a.Reason == b.Reason && a.CRMID == b.CRMID
}

// keepEvidence sets an operation aside that can't be read. A success that was reported about it stays in the trail.
func (t *advanceTx) keepEvidence(r store.Report, bad error) error {
	if r.On == store.Confirmed {
		t.moves.trail = append(t.moves.trail, sqlstore.EncodeTrail(store.TrailEntry{
			At: t.now, OperationID: r.ID, On: r.On, StartedAt: r.StartedAt, Took: r.Took, Status: r.Status,
			RequestID: r.RequestID, Reason: "the operation's row can't be read", CRMID: r.CRMID, By: r.By, Why: r.Why,
		}))
	}
	return setAside(t.c, []error{bad}, t.now)
}
