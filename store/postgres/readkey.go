package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// readkey.go: what decisions about some ordering keys may look at.

// keyRead is the answer to one call.
type keyRead struct {
	view    store.KeyView
	corrupt []error // to be set aside
	unread  []error // only to be named: what they caused has been decided
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
	return got.view, errors.Join(slices.Concat(got.corrupt, got.unread)...)
}

// readAll answers calls from one snapshot.
func (s *Store) readAll(batch []*keyCall) {
	err := s.view(context.Background(), func(c *session) error {
		now, err := s.begin(c, "")
		if err != nil {
			return err
		}
		r := keyReader{c: c, views: map[string]*keyRead{}, further: map[string][]string{}, noted: map[noted]bool{}}
		for _, m := range batch {
			key := sqlstore.Clean(m.in.key)
			r.views[key] = &keyRead{view: store.KeyView{Key: m.in.key, Now: now}}
			r.further[key] = append(r.further[key], m.in.deals...)
		}
		for _, step := range []func() error{r.keys, r.events, r.handled, r.deals, r.operations} {
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
	v.view.Operations, v.view.Contacts = slices.Clone(r.view.Operations), slices.Clone(r.view.Contacts)
	v.view.Handled, v.view.Homes = slices.Clone(r.view.Handled), maps.Clone(r.view.Homes)
	return v
}

// keyReader reads some keys. The ordinary events, which nothing was handled for before, cost one statement for each of keys,
// events, deals and operations, however many keys there are.
type keyReader struct {
	c       *session
	views   map[string]*keyRead
	further map[string][]string // deal keys that were asked for
	noted   map[noted]bool

	again   []*handledAsk // what events were handled for before
	handles []*dealAsk    // operations of handled events
	refs    []string      // deals whose id in the CRM an event names
}

// noted are the rows that a view has already.
type noted struct{ key, kind, id string }

// first reports whether a view does not have the row yet, and notes it.
func (r *keyReader) first(key, kind, id string) bool {
	n := noted{key, kind, id}
	had := r.noted[n]
	r.noted[n] = true
	return !had
}

func (r *keyReader) names() string {
	keys := make([]string, 0, len(r.views))
	for key := range r.views {
		keys = append(keys, key)
	}
	return sqlstore.JSONTexts(keys)
}

func (r *keyReader) keys() error {
	type keyRow struct {
		Key     string `db:"ordering_key"`
		Version int64  `db:"version"`
		MovedTo string `db:"moved_to"`
	}
	rows, err := all[keyRow](r.c, `
		select ordering_key, version, moved_to
		from {schema}.leadonce_keys
		where ordering_key = any(array(select json_array_elements_text(cast(:keys as json))))`, args{"keys": r.names()})
	for _, row := range rows {
		v := &r.views[row.Key].view
		v.Version, v.MovedTo = row.Version, row.MovedTo
	}
	return err
}

// events reads the unplanned ones, their contacts, and whether something was handled for their content or act before. A
// limit keeps the server from reading the whole of a table beside them, whatever it thinks of its size.
func (r *keyReader) events() error {
	type eventRow struct {
		sqlstore.Event
		Tenant string `db:"person_tenant"`
		Source string `db:"person_source"`
		UserID string `db:"person_user_id"`
		CRMID  string `db:"person_crm_id"`
		Stored int64  `db:"person_stored"`
		Again  int64  `db:"again"`
	}
	return each(r.c, `
		select e.*, coalesce(p.tenant, '') as person_tenant, coalesce(p.source, '') as person_source,
			coalesce(p.user_id, '') as person_user_id, coalesce(p.crm_id, '') as person_crm_id,
			case when p.contact_key is null then 0 else 1 end as person_stored,
			coalesce((
				select 1
				from {schema}.leadonce_events h
				where h.content_id = e.content_id and h.content_id <> '' and h.state = 'planned'
					and h.ordering_key = e.ordering_key and h.broken = 0
				limit 1), (
				select 1
				from {schema}.leadonce_events h
				where h.repeat_key = e.repeat_key and h.repeat_key <> '' and h.state = 'planned'
					and h.ordering_key = e.ordering_key and h.broken = 0
				limit 1), 0) as again
		from json_array_elements_text(cast(:keys as json)) as a(ordering_key) cross join lateral (
			select *
			from {schema}.leadonce_events
			where ordering_key = a.ordering_key and ended_at = 0
			order by id
			limit :limit) e left join lateral (
			select *
			from {schema}.leadonce_contacts
			where contact_key = e.contact_key
			limit 1) p on true
		order by e.id`, args{"keys": r.names(), "limit": store.ViewEvents}, func(row *eventRow, err error) bool {
		v := r.views[row.OrderingKey]
		e, err := decodeEvent(&row.Event, err)
		if err != nil {
			v.corrupt = append(v.corrupt, err)
			return true
		}
		v.view.Events = append(v.view.Events, e)
		if row.Stored == 1 && r.first(row.OrderingKey, "contact", row.ContactKey) {
			v.view.Contacts = append(v.view.Contacts, store.Contact{
				Key: row.ContactKey, Tenant: row.Tenant, Source: row.Source, UserID: row.UserID, CRMID: row.CRMID,
			})
		}
		if row.Again == 1 {
			r.again = append(r.again, &handledAsk{row.OrderingKey, row.ContentID, ""},
				&handledAsk{row.OrderingKey, "", row.RepeatKey})
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
