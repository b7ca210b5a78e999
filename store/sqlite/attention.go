package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// attention.go: which ordering keys are due, and which operations need a verdict.

// DueKeys returns up to limit ordering keys whose oldest unplanned event is due, most overdue first.
func (s *Store) DueKeys(ctx context.Context, limit int) ([]string, error) {
	if limit < 1 {
		return nil, fmt.Errorf("sqlite: due keys: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var keys []string
	err := s.read.view(ctx, func(c *conn) error {
		return each(c, `
			select e.ordering_key
			from leadonce_events e
			where e.ended_at = 0 and e.due_at <= :now and not exists (
				select 1 from leadonce_events o where o.ordering_key = e.ordering_key and o.ended_at = 0 and o.id < e.id)
			order by e.due_at, e.id
			limit :limit`, args{"now": sqlstore.Micros(s.now()), "limit": limit},
			func(row *sqlstore.Event, err error) bool {
				if err == nil {
					keys = append(keys, row.OrderingKey)
				}
				return true
			})
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: due keys: %w", err)
	}
	return keys, nil
}

// Attention returns operations that need a verdict, up to limit of each kind.
func (s *Store) Attention(ctx context.Context, limit int, lookups bool) ([]store.Operation, error) {
	if limit < 1 {
		return nil, fmt.Errorf("sqlite: attention: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	queries := []string{`
		select * from leadonce_operation_rows
		where state = 'sending' and broken = 0 and lease_until <= :now
		order by lease_until, seq`, `
		select * from leadonce_operation_rows
		where state = 'uncertain' and broken = 0 and due_at <= :now
		order by due_at, seq`, `
		select * from leadonce_operation_rows
		where state = 'needs_reconciliation' and broken = 0 and due_at <= :now
		order by due_at, seq`,
	}
	if !lookups {
		queries = queries[:2]
	}
	var list []store.Operation
	var corrupt []error
	err := s.read.view(ctx, func(c *conn) error {
		for _, q := range queries {
			ops, bad, err := readOperations(c, limit, q, args{"now": sqlstore.Micros(s.now())})
			if err != nil {
				return err
			}
			list, corrupt = append(list, ops...), append(corrupt, bad...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sqlite: attention: %w", err)
	}
	s.setAside(ctx, corrupt)
	return list, errors.Join(corrupt...)
}
