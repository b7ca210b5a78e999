package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// accept.go: the door. New events are one statement, which commits by itself; only a key that is there already is looked at.
// No row is touched that another key shares.

// arrival is an event on its way in.
type arrival struct {
	event store.Event // read again when its key is there already
	row   *sqlstore.Event
	tell  bool // other processes may plan it now
}

func (s *Store) arrive(e store.Event, headStart time.Duration) (*arrival, error) {
	// Times are counted from the server's clock, which the statement adds.
	row, err := sqlstore.NewEvent(e, headStart, time.UnixMicro(0))
	if err != nil {
		return nil, err
	}
	row.Token = newToken()
	e.Fingerprints = slices.Clone(e.Fingerprints) // read later, as row is
	return &arrival{event: e, row: row, tell: s.telling && headStart == 0 && e.Quarantine == ""}, nil
}

// Accept stores an event, once.
func (s *Store) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	headStart := time.Duration(0)
	if s.hints.Any() {
		headStart = e.HeadStart
	}
	a, err := s.arrive(e, headStart)
	if err != nil {
		return store.Receipt{}, fmt.Errorf("postgres: accept: %w", err)
	}
	receipt, err := s.accepts.do(ctx, a)
	if err != nil {
		return store.Receipt{}, fmt.Errorf("postgres: accept: %w", err)
	}
	if !receipt.Duplicate && e.Quarantine == "" {
		s.hints.Tell(a.hint())
	}
	return receipt, nil
}

// AcceptTx is Accept inside a transaction of the host, which may be one of any driver and pool on the same database. While
// it stays open, another delivery of the same event waits for it, up to Options.LockTimeout; nothing else does. Other
// processes are told when it commits.
func (s *Store) AcceptTx(ctx context.Context, tx *sql.Tx, e store.Event) (store.Receipt, error) {
	if tx == nil {
		return store.Receipt{}, fmt.Errorf("postgres: accept: %w: tx is nil", store.ErrInvalid)
	}
	a, err := s.arrive(e, 0)
	if err != nil {
		return store.Receipt{}, fmt.Errorf("postgres: accept: %w", err)
	}
	receipt, err := s.acceptOne(&session{ctx: ctx, st: s.st, tx: tx, bare: true}, a, "")
	if err != nil {
		return store.Receipt{}, fmt.Errorf("postgres: accept: %w", unavailable(err))
	}
	return receipt, nil
}

// hint says where the event may be planned.
func (a *arrival) hint() store.Hint {
	return store.Hint{OrderingKey: sqlstore.Clean(a.row.OrderingKey), Tenant: sqlstore.Clean(a.row.Tenant)}
}

type acceptCall = call[*arrival, store.Receipt]

func (s *Store) acceptAll(batch []*acceptCall) { shared(s, batch, s.acceptBatch) }

func (s *Store) acceptBatch(batch []*acceptCall, patience string) error {
	return s.try(context.Background(), func(ctx context.Context, _ bool) error {
		return s.single(ctx, func(c *session) error {
			if len(batch) == 1 {
				got, err := s.acceptOne(c, batch[0].in, patience)
				batch[0].out = got
				return err
			}
			return s.acceptMany(c, batch, patience)
		})
	})
}

// acceptOne stores one event.
func (s *Store) acceptOne(c *session, a *arrival, patience string) (store.Receipt, error) {
	a.row.Epoch = 0
	for range attempts {
		id, isNew, err := s.insertEvent(c, a, patience)
		if err != nil {
			return store.Receipt{}, err
		}
		if isNew {
			return store.Receipt{EventID: id, Epoch: int(a.row.Epoch), Reused: a.row.Epoch > 0}, nil
		}
		if got, found, err := resolve(c, a); err != nil || found {
			return got, err
		}
	}
	return store.Receipt{}, fmt.Errorf("%w: epochs of the event's key are taken as fast as they are found free", store.ErrUnavailable)
}

// resolve looks at the rows that have the event's key: one may be this very event, or this very call's. Else it leaves the
// next free epoch in a.row.
func resolve(c *session, a *arrival) (got store.Receipt, found bool, err error) {
	a.row.Epoch = 0
	err = each(c, `
		select id, epoch, hash, fp_version, fp_sum, token
		from {schema}.leadonce_events
		where update_id = :update_id and bot = :bot and tenant = :tenant and source = :source
		order by epoch`, a.row, func(stored *sqlstore.Event, bad error) bool {
		if bad != nil {
			err = errors.Join(err, bad)
			return false
		}
		got, found = a.met(stored)
		return !found
	})
	return got, found, err
}

// met compares the event with a stored row of its key.
func (a *arrival) met(stored *sqlstore.Event) (store.Receipt, bool) {
	switch {
	case stored.Token == a.row.Token: // an earlier try, whose answer was lost
		return store.Receipt{EventID: stored.ID, Epoch: int(stored.Epoch), Reused: stored.Epoch > 0}, true
	case stored.Same(a.event):
		return store.Receipt{EventID: stored.ID, Epoch: int(stored.Epoch), Duplicate: true}, true
	}
	a.row.Epoch = stored.Epoch + 1
	return store.Receipt{}, false
}

// insertEvent stores the event under its epoch, unless that is taken.
func (s *Store) insertEvent(c *session, a *arrival, patience string) (id int64, isNew bool, err error) {
	type parameters struct {
		*sqlstore.Event
		opening
	}
	var notices []string
	if a.tell {
		notices = s.notices(a.hint())
	}
	isNew, err = c.get(&id, `
		with opening as materialized (
			select {schema}.leadonce_clock(:fixed) as now,
				case when :patience <> '' then set_config('lock_timeout', :patience, true) end as patience,
				(select count(pg_notify(:channel, n)) from json_array_elements_text(cast(:notices as json)) n) as told)
		insert into {schema}.leadonce_events (source, tenant, bot, update_id, epoch, hash, fp_version, fp_sum, kind,
			ordering_key, contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason,
			attempts, accepted_at, due_at, ended_at, head_start_ns, token, payload, enquiry)
		select :source, :tenant, :bot, :update_id, :epoch, :hash, :fp_version, :fp_sum, :kind,
			:ordering_key, :contact_key, :content_id, :content_rev, :deal_key, :repeat_key, :lead_ref, :quarantine, :state, :reason,
			0, now, now + :due_at, case when :quarantine <> '' then now else 0 end, :head_start_ns, :token, :payload, :enquiry
		from opening
		on conflict (update_id, bot, tenant, source, epoch) do nothing
		returning id`, parameters{a.row, s.opening(patience, notices)})
	return id, isNew, err
}

// acceptMany stores the events of a batch by one statement. Those whose keys are there already, also by the batch itself,
// are looked at afterwards.
func (s *Store) acceptMany(c *session, batch []*acceptCall, patience string) error {
	var rows []*sqlstore.Event
	var hints []store.Hint
	first := map[[4]string]bool{}
	for _, m := range batch {
		r := m.in.row
		r.Epoch = 0
		key := [4]string{sqlstore.Clean(r.UpdateID), sqlstore.Clean(r.Bot), sqlstore.Clean(r.Tenant), sqlstore.Clean(r.Source)}
		if first[key] {
			continue
		}
		first[key] = true
		rows = append(rows, r)
		if m.in.tell {
			hints = append(hints, m.in.hint())
		}
	}
	o := s.opening(patience, s.notices(hints...))
	stored, err := all[sqlstore.Event](c, `
		with opening as materialized (
			select {schema}.leadonce_clock(:fixed) as now,
				case when :patience <> '' then set_config('lock_timeout', :patience, true) end as patience,
				(select count(pg_notify(:channel, n)) from json_array_elements_text(cast(:notices as json)) n) as told)
		insert into {schema}.leadonce_events (source, tenant, bot, update_id, epoch, hash, fp_version, fp_sum, kind,
			ordering_key, contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason,
			attempts, accepted_at, due_at, ended_at, head_start_ns, token, payload, enquiry)
		select source, tenant, bot, update_id, epoch, hash, fp_version, fp_sum, kind,
			ordering_key, contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason,
			0, now, now + due_at, case when quarantine <> '' then now else 0 end, head_start_ns, token, payload, enquiry
		from opening cross join json_populate_recordset(cast(null as {schema}.leadonce_events), cast(:rows as json))
		order by update_id, bot, tenant, source
		on conflict (update_id, bot, tenant, source, epoch) do nothing
		returning id, token`,
		args{"fixed": o.Fixed, "patience": o.Patience, "channel": o.Channel, "notices": o.Notices,
			"rows": jsonRows(c.st.mapper, rows)})
	if err != nil {
		return err
	}
	ids := map[int64]int64{}
	for _, r := range stored {
		ids[r.Token] = r.ID
	}
	for _, m := range batch {
		if id, ok := ids[m.in.row.Token]; ok {
			m.out = store.Receipt{EventID: id}
			continue
		}
		got, found, err := resolve(c, m.in)
		if err == nil && !found {
			got, err = s.acceptNext(c, m.in, patience)
		}
		if err != nil {
			return err
		}
		m.out = got
	}
	return nil
}

// acceptNext stores an event under the epoch that resolve has left in its row, or whatever it finds there.
func (s *Store) acceptNext(c *session, a *arrival, patience string) (store.Receipt, error) {
	id, isNew, err := s.insertEvent(c, a, patience)
	if err == nil && !isNew {
		return s.acceptOne(c, a, patience)
	}
	return store.Receipt{EventID: id, Epoch: int(a.row.Epoch), Reused: a.row.Epoch > 0}, err
}

// RetryEvent makes a parked event pending again.
func (s *Store) RetryEvent(ctx context.Context, id int64, by, why string) error {
	if by == "" {
		return fmt.Errorf("postgres: retry event %d: %w: by is empty", id, store.ErrInvalid)
	}
	var told store.Hint
	err := s.write(ctx, func(c *session) error {
		told = store.Hint{}
		a := args{"id": id, "fixed": s.fixed(), "reason": "retry by " + by + ": " + why}
		rows, err := all[sqlstore.Event](c, `
			with retried as (
				update {schema}.leadonce_events
				set state = 'pending', reason = :reason, attempts = 0, due_at = {schema}.leadonce_clock(:fixed), ended_at = 0,
					broken = 0
				where state = 'parked' and (id = :id or content_rev = '' and (ordering_key, contact_key, deal_key) in (
					select ordering_key, contact_key, deal_key
					from {schema}.leadonce_events
					where id = :id and state = 'parked' and content_rev = '' and deal_key not in ('', content_id)))
				returning ordering_key, tenant)
			select ordering_key, tenant from retried limit 1`, a)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			told = store.Hint{OrderingKey: rows[0].OrderingKey, Tenant: rows[0].Tenant}
			return s.tell(c, s.notices(told))
		}
		found, err := c.get(new(int64), `
			select id from {schema}.leadonce_events where id = :id`, a)
		if err == nil && !found {
			err = store.ErrNotFound
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("postgres: retry event %d: %w", id, err)
	}
	if told != (store.Hint{}) {
		s.hints.Tell(told)
	}
	return nil
}
