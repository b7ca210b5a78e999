package postgres

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// corrupt.go: rows that can't be read.

// fresh are the rows among the errors that were not set aside before.
func fresh(errs []error) (list []*store.CorruptError) {
	for _, err := range errs {
		var bad *store.CorruptError
		if errors.As(err, &bad) && !errors.Is(bad.Err, sqlstore.ErrBroken) {
			list = append(list, bad)
		}
	}
	return list
}

// setAside marks them in a transaction of its own. Where that fails they are met again.
func (s *Store) setAside(ctx context.Context, errs ...error) {
	if len(fresh(errs)) > 0 {
		_ = s.write(ctx, func(c *session) error {
			now, err := s.begin(c, "")
			if err != nil {
				return err
			}
			return setAside(c, errs, now)
		})
	}
}

// setAside marks rows that can't be read, so that no sweep meets them again: an event is parked, the others are broken.
func setAside(c *session, errs []error, now time.Time) error {
	list := fresh(errs)
	slices.SortFunc(list, func(a, b *store.CorruptError) int { // in the order of locks
		return cmp.Or(-cmp.Compare(a.Table, b.Table), cmp.Compare(a.ID, b.ID))
	})
	for _, bad := range list {
		var err error
		switch bad.Table {
		case sqlstore.OperationsTable:
			_, err = c.exec(`
				update {schema}.leadonce_operations set broken = 1 where id = :id`, args{"id": bad.ID})
		case sqlstore.DealsTable:
			_, err = c.exec(`
				update {schema}.leadonce_deals set broken = 1 where id = :id`, args{"id": bad.ID})
		case sqlstore.EventsTable:
			id, e := strconv.ParseInt(bad.ID, 10, 64)
			if e != nil {
				continue
			}
			_, err = c.exec(`
				update {schema}.leadonce_events
				set state = 'parked', reason = :reason, ended_at = :now, broken = 1
				where id = :id`,
				args{"id": id, "now": sqlstore.Micros(now), "reason": sqlstore.CorruptReason})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
