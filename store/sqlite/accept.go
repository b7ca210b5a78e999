package sqlite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// accept.go: the door. A new event is one statement; only a key that is there already is looked at.

// Accept stores an event, once.
func (s *Store) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	now, headStart := s.now(), time.Duration(0)
	if s.hints.Any() {
		headStart = e.HeadStart
	}
	row, err := sqlstore.NewEvent(e, headStart, now)
	if err != nil {
		return store.Receipt{}, fmt.Errorf("sqlite: accept: %w", err)
	}
	e.Fingerprints = slices.Clone(e.Fingerprints) // read later, as row is
	receipt := new(store.Receipt)
	err = s.writer.do(ctx, true, func(c *conn) error {
		got, err := accept(c, row, e)
		*receipt = got
		return err
	})
	if err != nil {
		return store.Receipt{}, fmt.Errorf("sqlite: accept: %w", err)
	}
	if !receipt.Duplicate && e.Quarantine == "" {
		s.hints.Tell(store.Hint{OrderingKey: sqlstore.Clean(e.OrderingKey), Tenant: sqlstore.Clean(e.Tenant)})
	}
	return *receipt, nil
}

func accept(c *conn, row *sqlstore.Event, e store.Event) (store.Receipt, error) {
	row.Epoch = 0
	id, n, err := c.insert(insertEvent, row)
	if err != nil {
		return store.Receipt{}, err
	}
	if n == 1 {
		return store.Receipt{EventID: id}, nil
	}
	var same *sqlstore.Event
	err = each(c, `
		select id, epoch, hash, fp_version, fp_sum
		from leadonce_events
		where update_id = :update_id and bot = :bot and tenant = :tenant and source = :source
		order by epoch`, row, func(stored *sqlstore.Event, err error) bool {
		row.Epoch = max(row.Epoch, stored.Epoch) + 1
		if err != nil { // it may be this very event; stored twice it still opens one deal, refused it would be lost
			return true
		}
		if stored.Same(e) {
			same = stored
		}
		return same == nil
	})
	switch {
	case err != nil:
		return store.Receipt{}, err
	case same != nil:
		return store.Receipt{EventID: same.ID, Epoch: int(same.Epoch), Duplicate: true}, nil
	}
	id, n, err = c.insert(insertEvent, row)
	if err == nil && n != 1 {
		err = fmt.Errorf("epoch %d of the event's key is taken", row.Epoch)
	}
	return store.Receipt{EventID: id, Epoch: int(row.Epoch), Reused: true}, err
}

const insertEvent = `
	insert into leadonce_events (source, tenant, bot, update_id, epoch, hash, fp_version, fp_sum, kind, ordering_key,
		contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason, attempts, accepted_at,
		due_at, ended_at, head_start_ns, payload, enquiry)
	values (:source, :tenant, :bot, :update_id, :epoch, :hash, :fp_version, :fp_sum, :kind, :ordering_key,
		:contact_key, :content_id, :content_rev, :deal_key, :repeat_key, :lead_ref, :quarantine, :state, :reason, 0, :accepted_at,
		:due_at, :ended_at, :head_start_ns, :payload, :enquiry)
	on conflict (update_id, bot, tenant, source, epoch) do nothing`

// RetryEvent makes a parked event pending again.
func (s *Store) RetryEvent(ctx context.Context, id int64, by, why string) error {
	if by == "" {
		return fmt.Errorf("sqlite: retry event %d: %w: by is empty", id, store.ErrInvalid)
	}
	now, told := s.now(), new(sqlstore.Event)
	err := s.writer.do(ctx, true, func(c *conn) error {
		*told = sqlstore.Event{}
		n, err := c.exec(`
			update leadonce_events
			set state = 'pending', reason = :reason, attempts = 0, due_at = :now, ended_at = 0, broken = 0
			where state = 'parked' and (id = :id or content_rev = '' and (ordering_key, contact_key, deal_key) in (
				select ordering_key, contact_key, deal_key
				from leadonce_events
				where id = :id and state = 'parked' and content_rev = '' and deal_key not in ('', content_id)))`,
			args{"id": id, "now": sqlstore.Micros(now), "reason": "retry by " + by + ": " + why})
		if err != nil {
			return err
		}
		found, err := c.get(told, `
			select ordering_key, tenant from leadonce_events where id = :id`, args{"id": id})
		if err == nil && !found {
			err = store.ErrNotFound
		}
		if n == 0 {
			*told = sqlstore.Event{}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sqlite: retry event %d: %w", id, err)
	}
	if told.OrderingKey != "" {
		s.hints.Tell(store.Hint{OrderingKey: told.OrderingKey, Tenant: told.Tenant})
	}
	return nil
}
