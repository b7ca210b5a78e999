package sqlite

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// corrupt.go: rows that can't be read.

// setAside marks them, if there are any among the errors, in a transaction of its own. Where that fails they are met again.
func (s *Store) setAside(ctx context.Context, errs []error) {
	fresh := false
	for _, err := range errs {
		var bad *store.CorruptError
		fresh = fresh || (errors.As(err, &bad) && !errors.Is(bad.Err, sqlstore.ErrBroken))
	}
	if fresh {
		_ = s.writer.do(ctx, false, func(c *conn) error { return setAside(c, errs, s.now()) })
	}
}

// setAside marks rows that can't be read, so that no sweep meets them again: an event is parked, the others are broken.
func setAside(c *conn, corrupt []error, now time.Time) error {
	for _, e := range corrupt {
		var bad *store.CorruptError
		if !errors.As(e, &bad) || errors.Is(bad.Err, sqlstore.ErrBroken) {
			continue
		}
		var err error
		switch bad.Table {
		case sqlstore.OperationsTable:
			_, err = c.exec(`
				update leadonce_operations set broken = 1 where id = :id`, args{"id": bad.ID})
		case sqlstore.DealsTable:
			_, err = c.exec(`
				update leadonce_deals set broken = 1 where id = :id`, args{"id": bad.ID})
		case sqlstore.EventsTable:
			id, e := strconv.ParseInt(bad.ID, 10, 64)
			if e != nil {
				continue
			}
			_, err = c.exec(`
				update leadonce_events set state = 'parked', reason = :reason, ended_at = :now, broken = 1 where id = :id`,
				args{"id": id, "now": sqlstore.Micros(now), "reason": sqlstore.CorruptReason})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
