package sqlite

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// handled.go: what the unplanned events of an ordering key may repeat or change, and the deals that a CRM's hook means. An
// ordinary event, whose content is new, costs one look into an index.

// handled reads the events that were handled before, what they caused, and what else caused that.
func (r *keyReader) handled() error {
	for _, id := range r.of(func(e store.EventRow) string { return e.ContentID }) {
		if err := each(r.c, `
			select * from leadonce_events
			where content_id = :content_id and content_id <> '' and ordering_key = :key and state = 'planned' and broken = 0
			order by id desc`, args{"content_id": id, "key": r.v.Key}, r.upTo(store.ViewHandled)); err != nil {
			return err
		}
	}
	for _, k := range r.of(func(e store.EventRow) string { return e.RepeatKey }) {
		if err := each(r.c, `
			select * from leadonce_events
			where repeat_key = :repeat_key and repeat_key <> '' and ordering_key = :key and state = 'planned' and broken = 0
			order by id desc`, args{"repeat_key": k, "key": r.v.Key}, r.upTo(store.ViewHandled)); err != nil {
			return err
		}
	}
	if len(r.v.Handled) == 0 {
		return nil
	}
	direct := map[int64]bool{}
	var caused []string
	for i := range r.v.Handled {
		if err := r.links(&r.v.Handled[i]); err != nil {
			return err
		}
		direct[r.v.Handled[i].ID] = true
		caused = append(caused, r.v.Handled[i].Operations...)
	}
	slices.Sort(caused)
	for _, id := range slices.Compact(caused) {
		if err := r.siblings(id, direct); err != nil {
			return err
		}
	}
	slices.SortFunc(r.v.Handled, func(a, b store.Handled) int { return cmp.Compare(a.ID, b.ID) })
	return r.caused()
}

// upTo keeps so many of the rows that it is called with, and those once.
func (r *keyReader) upTo(n int) func(row *sqlstore.Event, err error) bool {
	return func(row *sqlstore.Event, err error) bool {
		e, err := decodeEvent(row, err)
		isFirst := r.first(sqlstore.EventsTable, strconv.FormatInt(row.ID, 10))
		switch {
		case err == nil && isFirst:
			r.v.Handled = append(r.v.Handled, store.Handled{EventRow: e})
		case isFirst:
			r.unread = append(r.unread, err)
		}
		if err == nil {
			n--
		}
		return n > 0
	}
}

// siblings reads the other events of an operation, after the links of those that were found directly.
func (r *keyReader) siblings(operation string, direct map[int64]bool) error {
	from := len(r.v.Handled)
	keep := r.upTo(store.ViewHandled)
	err := each(r.c, `
		select e.*
		from leadonce_links l join leadonce_events e on e.id = l.event_id
		where l.operation_id = :operation_id and e.ordering_key = :key and e.state = 'planned' and e.broken = 0
		order by l.event_id desc`, args{"operation_id": operation, "key": r.v.Key},
		func(row *sqlstore.Event, err error) bool { return direct[row.ID] || keep(row, err) })
	for i := from; err == nil && i < len(r.v.Handled); i++ {
		err = r.links(&r.v.Handled[i])
	}
	return err
}

// links reads the ids of what an event caused or changed.
func (r *keyReader) links(h *store.Handled) error {
	type link struct {
		OperationID string `db:"operation_id"`
	}
	var bad error
	err := each(r.c, `
		select operation_id from leadonce_links where event_id = :event_id order by operation_id`, args{"event_id": h.ID},
		func(row *link, err error) bool {
			h.Operations, bad = append(h.Operations, row.OperationID), err
			return err == nil
		})
	return errors.Join(err, bad)
}

// caused reads the operations of what was handled.
func (r *keyReader) caused() error {
	var list []string
	for _, h := range r.v.Handled {
		list = append(list, h.Operations...)
	}
	slices.Sort(list)
	for _, id := range slices.Compact(list) {
		if err := r.read(`
			select * from leadonce_operation_rows where id = :id`, args{"id": id}); err != nil {
			return err
		}
	}
	return nil
}

// lead reads the deals of this key that have an id in the CRM; if there are none, which other key has one. Few deals have
// one id, and an ordering key may have many deals: the + keeps its index out.
func (r *keyReader) lead(tenant, ref string) error {
	a := args{"crm_id": ref, "tenant": tenant, "key": r.v.Key}
	here := false
	err := each(r.c, `
		select * from leadonce_deals
		where crm_id = :crm_id and crm_id <> '' and tenant = :tenant and +ordering_key = :key`, a,
		func(row *sqlstore.Deal, err error) bool {
			here = true
			if !slices.Contains(r.leads, row.ID) {
				r.leads = append(r.leads, row.ID)
			}
			return r.deal(row, err)
		})
	if err != nil || here {
		return err
	}
	var home string
	found, err := r.c.get(&home, `
		select ordering_key from leadonce_deals
		where crm_id = :crm_id and crm_id <> '' and tenant = :tenant
		order by opened_at desc, rowid desc
		limit 1`, a)
	if err == nil && found {
		if r.v.Homes == nil {
			r.v.Homes = map[string]string{}
		}
		r.v.Homes[ref] = home
	}
	return err
}
