package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// readkey.go: which ordering keys are due, and what decisions about some of them may look at.

// DueKeys returns up to limit ordering keys whose oldest unplanned event is due, most overdue first.
func (s *Store) DueKeys(ctx context.Context, limit int) ([]string, error) {
	if limit < 1 {
		return nil, fmt.Errorf("postgres: due keys: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var keys []string
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		keys = nil
		return s.single(ctx, func(c *session) error {
			return each(c, `
				select e.ordering_key
				from {schema}.leadonce_events e
				where e.ended_at = 0 and e.due_at <= (select {schema}.leadonce_clock(:fixed)) and not exists (
					select 1
					from {schema}.leadonce_events o
					where o.ordering_key = e.ordering_key and o.ended_at = 0 and o.id < e.id)
				order by e.due_at, e.id
				limit :limit`, args{"fixed": s.fixed(), "limit": limit}, func(row *sqlstore.Event, err error) bool {
				if err == nil {
					keys = append(keys, row.OrderingKey)
				}
				return true
			})
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: due keys: %w", err)
	}
	return keys, nil
}

// keyRead is the answer to one call.
type keyRead struct {
	view    store.KeyView
	corrupt []error
}

// keyAsk is one call.
type keyAsk struct {
	key   string
	deals []string // further deal keys
}

type keyCall = call[keyAsk, keyRead]

// ReadKey returns what a decision about an ordering key may look at.
func (s *Store) ReadKey(ctx context.Context, key string, dealKeys ...string) (store.KeyView, error) {
	got, err := s.reads.do(ctx, keyAsk{key, dealKeys})
	if err != nil {
		return store.KeyView{}, fmt.Errorf("postgres: read key %s: %w", key, err)
	}
	s.setAside(ctx, got.corrupt...)
	return got.view, errors.Join(got.corrupt...)
}

// readAll answers calls from one snapshot.
func (s *Store) readAll(batch []*keyCall) {
	err := s.view(context.Background(), func(c *session) error {
		now, err := s.begin(c, "")
		if err != nil {
			return err
		}
		r := keyReader{c: c, views: map[string]*keyRead{}, further: map[string][]string{}}
		for _, m := range batch {
			key := sqlstore.Clean(m.in.key)
			r.views[key] = &keyRead{view: store.KeyView{Key: m.in.key, Now: now}}
			r.further[key] = append(r.further[key], m.in.deals...)
		}
		for _, step := range []func() error{r.versions, r.events, r.deals, r.operations} {
			if err := step(); err != nil {
				return err
			}
		}
		for _, m := range batch {
			m.out = r.views[sqlstore.Clean(m.in.key)].copy()
		}
		return nil
	})
	for _, m := range batch {
		m.err = err
	}
}

// copy lets two callers that asked for one key each keep theirs.
func (r *keyRead) copy() keyRead {
	v := *r
	v.view.Events, v.view.Deals = slices.Clone(r.view.Events), slices.Clone(r.view.Deals)
	v.view.Operations = slices.Clone(r.view.Operations)
	return v
}

type keyReader struct {
	c       *session
	views   map[string]*keyRead
	further map[string][]string // deal keys that were asked for
	some    bool                // some key has events
}

func (r *keyReader) versions() error {
	keys := make([]string, 0, len(r.views))
	for key := range r.views {
		keys = append(keys, key)
	}
	type versionRow struct {
		Key     string `db:"ordering_key"`
		Version int64  `db:"version"`
	}
	rows, err := all[versionRow](r.c, `
		select ordering_key, version
		from {schema}.leadonce_keys
		where ordering_key = any(array(select json_array_elements_text(cast(:keys as json))))`, args{"keys": jsonTexts(keys)})
	for _, row := range rows {
		r.views[row.Key].view.Version = row.Version
	}
	return err
}

func (r *keyReader) events() error {
	keys := make([]string, 0, len(r.views))
	for key := range r.views {
		keys = append(keys, key)
	}
	return each(r.c, `
		select e.*
		from json_array_elements_text(cast(:keys as json)) as a(ordering_key) cross join lateral (
			select *
			from {schema}.leadonce_events
			where ordering_key = a.ordering_key and ended_at = 0
			order by id
			limit :limit) e
		order by e.id`, args{"keys": jsonTexts(keys), "limit": store.ViewEvents}, func(row *sqlstore.Event, err error) bool {
		r.some = true
		v := r.views[row.OrderingKey]
		e, err := decodeEvent(row, err)
		if err != nil {
			v.corrupt = append(v.corrupt, err)
		} else {
			v.view.Events = append(v.view.Events, e)
		}
		return true
	})
}

func decodeEvent(row *sqlstore.Event, err error) (store.EventRow, error) {
	if err != nil {
		return store.EventRow{ID: row.ID}, row.Corrupt(err)
	}
	return row.Decode()
}

// deals reads those of the events' deal keys, and the latest of their contacts.
func (r *keyReader) deals() error {
	if !r.some {
		return nil
	}
	type ask struct {
		Key     string `db:"ordering_key"`
		Deal    string `db:"deal_key"`
		Contact string `db:"contact_key"`
	}
	asked, seen := []*ask(nil), map[ask]bool{}
	for key, v := range r.views {
		for _, deal := range r.further[key] {
			if a := (ask{key, sqlstore.Clean(deal), ""}); deal != "" && !seen[a] {
				seen[a] = true
				asked = append(asked, &a)
			}
		}
		for _, e := range v.view.Events {
			for _, a := range []ask{{key, e.DealKey, ""}, {key, "", e.ContactKey}} {
				if (a.Deal != "" || a.Contact != "") && !seen[a] {
					seen[a] = true
					asked = append(asked, &a)
				}
			}
		}
	}
	found := map[string]bool{}
	err := each(r.c, `
		select d.id, d.tenant, d.ordering_key, d.contact_key, d.deal_key, d.host_key, d.generation, d.state, d.version,
			d.create_op, d.crm_id, d.opened_at, d.last_activity, d.broken
		from json_to_recordset(cast(:asked as json)) as a(ordering_key text, deal_key text, contact_key text)
			cross join lateral (
				(select *
				from {schema}.leadonce_deals
				where ordering_key = a.ordering_key and deal_key = a.deal_key and a.deal_key <> ''
				order by generation desc
				limit :limit)
				union all
				(select *
				from {schema}.leadonce_deals
				where ordering_key = a.ordering_key and contact_key = a.contact_key and contact_key <> ''
				order by opened_at desc, seq desc
				limit :limit)) d`,
		args{"asked": jsonRows(r.c.st.mapper, asked), "limit": store.ViewDeals}, func(row *sqlstore.Deal, err error) bool {
			if found[row.ID] {
				return true
			}
			found[row.ID] = true
			v := r.views[row.OrderingKey]
			var d store.Deal
			if err != nil {
				err = row.Corrupt(err)
			} else {
				d, err = row.Decode()
			}
			if err != nil {
				v.corrupt = append(v.corrupt, err)
			} else {
				v.view.Deals = append(v.view.Deals, d)
			}
			return true
		})
	for _, v := range r.views {
		slices.SortFunc(v.view.Deals, func(a, b store.Deal) int {
			return cmp.Or(a.OpenedAt.Compare(b.OpenedAt), cmp.Compare(a.ID, b.ID))
		})
	}
	return err
}

// operations reads the creates of the deals and what waits for them, create by create.
func (r *keyReader) operations() error {
	var creates []string
	for _, v := range r.views {
		for _, d := range v.view.Deals {
			creates = append(creates, d.CreateOp)
		}
	}
	if len(creates) == 0 {
		return nil
	}
	type read struct {
		ops     []store.Operation
		corrupt []error
	}
	byCreate := map[string]*read{}
	err := each(r.c, `
		select *
		from {schema}.leadonce_operation_rows
		where id = any(array(select json_array_elements_text(cast(:ids as json))))
		union all
		(select *
		from {schema}.leadonce_operation_rows
		where depends_on = any(array(select json_array_elements_text(cast(:ids as json)))) and state = 'pending'
			and blocked = 1 and broken = 0
		order by seq)`, args{"ids": jsonTexts(creates)}, func(row *sqlstore.Operation, err error) bool {
		create := cmp.Or(row.DependsOn, row.ID)
		b := byCreate[create]
		if b == nil {
			b = &read{}
			byCreate[create] = b
		}
		var o store.Operation
		if err != nil {
			err = row.Corrupt(err)
		} else {
			o, err = row.Decode()
		}
		if err != nil {
			b.corrupt = append(b.corrupt, err)
		} else {
			b.ops = append(b.ops, o)
		}
		return true
	})
	for _, v := range r.views {
		for _, d := range v.view.Deals {
			if b := byCreate[d.CreateOp]; b != nil {
				v.view.Operations, v.corrupt = append(v.view.Operations, b.ops...), append(v.corrupt, b.corrupt...)
			}
		}
	}
	return err
}

// Attention returns operations that need a verdict, up to limit of each kind.
func (s *Store) Attention(ctx context.Context, limit int, lookups bool) ([]store.Operation, error) {
	if limit < 1 {
		return nil, fmt.Errorf("postgres: attention: %w: limit is %d, must be at least 1", store.ErrInvalid, limit)
	}
	var list []store.Operation
	var corrupt []error
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.single(ctx, func(c *session) (err error) {
			list, corrupt, err = readOperations(c, `
				(select * from {schema}.leadonce_operation_rows
				where state = 'sending' and broken = 0 and lease_until <= (select {schema}.leadonce_clock(:fixed))
				order by lease_until, seq
				limit :limit)
				union all
				(select * from {schema}.leadonce_operation_rows
				where state = 'uncertain' and broken = 0 and due_at <= (select {schema}.leadonce_clock(:fixed))
				order by due_at, seq
				limit :limit)
				union all
				(select * from {schema}.leadonce_operation_rows
				where state = 'needs_reconciliation' and broken = 0 and due_at <= (select {schema}.leadonce_clock(:fixed))
					and :lookups
				order by due_at, seq
				limit :limit)`, args{"fixed": s.fixed(), "limit": limit, "lookups": lookups})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: attention: %w", err)
	}
	s.setAside(ctx, corrupt...)
	return list, errors.Join(corrupt...)
}
