package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// readkey.go: what a decision about an ordering key may look at. What its events may repeat or change is in handled.go.

// ReadKey returns what a decision about an ordering key may look at.
func (s *Store) ReadKey(ctx context.Context, key string, dealKeys ...string) (store.KeyView, error) {
	v := store.KeyView{Key: key, Now: s.now()}
	var r keyReader
	err := s.read.view(ctx, func(c *conn) error {
		r = keyReader{c: c, v: &v, further: dealKeys, seen: map[string]bool{}}
		for _, step := range []func() error{r.key, r.events, r.contacts, r.handled, r.deals, r.operations} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return store.KeyView{}, fmt.Errorf("sqlite: read key %s: %w", key, err)
	}
	s.setAside(ctx, r.corrupt)
	return v, errors.Join(append(r.corrupt, r.unread...)...)
}

type keyReader struct {
	c       *conn
	v       *store.KeyView
	further []string        // deal keys that were asked for
	seen    map[string]bool // tables and ids of the rows that were met: each is returned, or named as corrupt, once
	leads   []string        // ids of the deals that a LeadRef means
	corrupt []error         // to be set aside
	unread  []error         // only to be named: what they caused has been decided
}

// first reports whether a row is met for the first time.
func (r *keyReader) first(table, id string) bool {
	met := r.seen[table+id]
	r.seen[table+id] = true
	return !met
}

func (r *keyReader) key() error {
	var row struct {
		Version int64  `db:"version"`
		MovedTo string `db:"moved_to"`
	}
	_, err := r.c.get(&row, `
		select version, moved_to from leadonce_keys where ordering_key = :key`, args{"key": r.v.Key})
	r.v.Version, r.v.MovedTo = row.Version, row.MovedTo
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

// of returns what the events have of something, each value once, without the empty text.
func (r *keyReader) of(field func(store.EventRow) string, more ...string) []string {
	list := slices.Clone(more)
	for _, e := range r.v.Events {
		list = append(list, field(e))
	}
	slices.Sort(list)
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}

func contactKey(e store.EventRow) string { return e.ContactKey }

func (r *keyReader) contacts() error {
	for _, k := range r.of(contactKey) {
		var row sqlstore.Contact
		found, err := r.c.get(&row, `
			select * from leadonce_contacts where contact_key = :contact_key`, args{"contact_key": k})
		if err != nil {
			return err
		}
		if found {
			r.v.Contacts = append(r.v.Contacts, row.Decode())
		}
	}
	return nil
}

func (r *keyReader) deals() error {
	for _, k := range r.of(func(e store.EventRow) string { return e.DealKey }, r.further...) {
		if err := each(r.c, `
			select * from leadonce_deals
			where ordering_key = :key and deal_key = :deal_key
			order by generation desc
			limit :limit`, args{"key": r.v.Key, "deal_key": k, "limit": store.ViewDeals}, r.deal); err != nil {
			return err
		}
	}
	for _, k := range r.of(contactKey) {
		if err := each(r.c, `
			select * from leadonce_deals
			where ordering_key = :key and contact_key = :contact_key and contact_key <> ''
			order by opened_at desc, rowid desc
			limit :limit`, args{"key": r.v.Key, "contact_key": k, "limit": store.ViewDeals}, r.deal); err != nil {
			return err
		}
	}
	for _, o := range r.v.Operations { // so far those of what was handled
		if o.DealID == "" || r.seen[sqlstore.DealsTable+o.DealID] {
			continue
		}
		if err := each(r.c, `
			select * from leadonce_deals where id = :id and ordering_key = :key`,
			args{"id": o.DealID, "key": r.v.Key}, r.deal); err != nil {
			return err
		}
	}
	for _, e := range r.v.Events {
		if e.LeadRef != "" {
			if err := r.lead(e.Tenant, e.LeadRef); err != nil {
				return err
			}
		}
	}
	slices.SortFunc(r.v.Deals, func(a, b store.Deal) int {
		return cmp.Or(a.OpenedAt.Compare(b.OpenedAt), cmp.Compare(a.ID, b.ID))
	})
	return nil
}

func (r *keyReader) deal(row *sqlstore.Deal, err error) bool {
	if !r.first(sqlstore.DealsTable, row.ID) {
		return true
	}
	d, err := sqlstore.Decoded(row, err)
	if err != nil {
		r.corrupt = append(r.corrupt, err)
		return true
	}
	r.v.Deals = append(r.v.Deals, d)
	return true
}

func (r *keyReader) operations() error {
	for _, d := range r.v.Deals {
		for _, query := range []string{`
			select * from leadonce_operation_rows where id = :id`, `
			select * from leadonce_operation_rows
			where depends_on = :id and state = 'pending' and blocked = 1 and broken = 0
			order by seq`,
		} {
			if err := r.read(query, args{"id": d.CreateOp}); err != nil {
				return err
			}
		}
	}
	for _, id := range r.leads {
		if err := r.read(`
			select * from leadonce_operation_rows
			where deal_id = :deal_id and deal_id <> '' and state = 'pending' and broken = 0
			order by seq`, args{"deal_id": id}); err != nil {
			return err
		}
	}
	return nil
}

// read keeps the operations that a query yields and that were not met before.
func (r *keyReader) read(query string, a args) error {
	return each(r.c, query, a, func(row *sqlstore.Operation, err error) bool {
		if !r.first(sqlstore.OperationsTable, row.ID) {
			return true
		}
		o, err := sqlstore.Decoded(row, err)
		if err != nil {
			r.corrupt = append(r.corrupt, err)
		} else {
			r.v.Operations = append(r.v.Operations, o)
		}
		return true
	})
}
