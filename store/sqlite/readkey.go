package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// readkey.go: which ordering keys are due, and what a decision about one may look at.

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

// ReadKey returns what a decision about an ordering key may look at.
func (s *Store) ReadKey(ctx context.Context, key string, dealKeys ...string) (store.KeyView, error) {
	v := store.KeyView{Key: key, Now: s.now()}
	var corrupt []error
	err := s.read.view(ctx, func(c *conn) error {
		r := keyReader{c: c, v: &v, further: dealKeys}
		for _, step := range []func() error{r.version, r.events, r.deals, r.operations} {
			if err := step(); err != nil {
				return err
			}
		}
		corrupt = r.corrupt
		return nil
	})
	if err != nil {
		return store.KeyView{}, fmt.Errorf("sqlite: read key %s: %w", key, err)
	}
	s.setAside(ctx, corrupt)
	return v, errors.Join(corrupt...)
}

type keyReader struct {
	c       *conn
	v       *store.KeyView
	further []string // deal keys that were asked for
	corrupt []error
}

func (r *keyReader) version() error {
	_, err := r.c.get(&r.v.Version, `
		select version from leadonce_keys where ordering_key = :key`, args{"key": r.v.Key})
	return err
}

func (r *keyReader) events() error {
	return each(r.c, `
		select * from leadonce_events where ordering_key = :key and ended_at = 0 order by id`,
		args{"key": r.v.Key}, func(row *sqlstore.Event, err error) bool {
			e, err := decodeEvent(row, err)
			if err != nil {
				r.corrupt = append(r.corrupt, err)
				return true
			}
			r.v.Events = append(r.v.Events, e)
			return len(r.v.Events) < store.ViewEvents
		})
}

func decodeEvent(row *sqlstore.Event, err error) (store.EventRow, error) {
	if err != nil {
		return store.EventRow{ID: row.ID}, row.Corrupt(err)
	}
	return row.Decode()
}

func (r *keyReader) deals() error {
	seen := map[string]bool{}
	keep := func(row *sqlstore.Deal, err error) bool {
		if seen[row.ID] {
			return true
		}
		seen[row.ID] = true
		var d store.Deal
		if err != nil {
			err = row.Corrupt(err)
		} else {
			d, err = row.Decode()
		}
		if err != nil {
			r.corrupt = append(r.corrupt, err)
			return true
		}
		r.v.Deals = append(r.v.Deals, d)
		return true
	}
	keys, contacts := slices.Clone(r.further), []string(nil)
	for _, e := range r.v.Events {
		keys, contacts = append(keys, e.DealKey), append(contacts, e.ContactKey)
	}
	for _, k := range unique(keys) {
		if err := each(r.c, `
			select * from leadonce_deals
			where ordering_key = :key and deal_key = :deal_key
			order by generation desc
			limit :limit`, args{"key": r.v.Key, "deal_key": k, "limit": store.ViewDeals}, keep); err != nil {
			return err
		}
	}
	for _, k := range unique(contacts) {
		if err := each(r.c, `
			select * from leadonce_deals
			where ordering_key = :key and contact_key = :contact_key and contact_key <> ''
			order by opened_at desc, rowid desc
			limit :limit`, args{"key": r.v.Key, "contact_key": k, "limit": store.ViewDeals}, keep); err != nil {
			return err
		}
	}
	slices.SortFunc(r.v.Deals, func(a, b store.Deal) int {
		if n := a.OpenedAt.Compare(b.OpenedAt); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return nil
}

// unique returns what is in a list, once, without the empty text.
func unique(list []string) []string {
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}

func (r *keyReader) operations() error {
	for _, d := range r.v.Deals {
		list, corrupt, err := readOperations(r.c, 0, `
			select * from leadonce_operation_rows where id = :id`, args{"id": d.CreateOp})
		if err != nil {
			return err
		}
		waiting, more, err := readOperations(r.c, 0, `
			select * from leadonce_operation_rows
			where depends_on = :id and state = 'pending' and blocked = 1 and broken = 0
			order by seq`, args{"id": d.CreateOp})
		if err != nil {
			return err
		}
		r.v.Operations = append(append(r.v.Operations, list...), waiting...)
		r.corrupt = append(append(r.corrupt, corrupt...), more...)
	}
	return nil
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
