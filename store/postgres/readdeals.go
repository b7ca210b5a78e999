package postgres

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// readdeals.go: what stands beside the unplanned events of a key: what was handled before, the deals, their operations.

// handledAsk asks for the ended events of a key with a content or an act; the other one is empty.
type handledAsk struct {
	Key     string `db:"ordering_key"`
	Content string `db:"content_id"`
	Repeat  string `db:"repeat_key"`
}

// handled reads the ended events that the unplanned ones may repeat or change, and the others of their operations.
func (r *keyReader) handled() error {
	var asked []*handledAsk
	for _, a := range r.again {
		if (a.Content != "" || a.Repeat != "") && r.first(a.Key, "handled by", sqlstore.JSONTexts([]string{a.Content, a.Repeat})) {
			asked = append(asked, a)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	type handledRow struct {
		sqlstore.Event
		Operations string `db:"operations"`
	}
	return each(r.c, `
		with asked as materialized (
			select * from json_to_recordset(cast(:asked as json)) as a(ordering_key text, content_id text, repeat_key text)
		), met as materialized (
			select a.ordering_key, e.id
			from asked a cross join lateral (
				(select id
				from {schema}.leadonce_events
				where content_id = a.content_id and content_id <> '' and state = 'planned'
					and ordering_key = a.ordering_key and broken = 0
				order by id desc
				limit :limit)
				union all
				(select id
				from {schema}.leadonce_events
				where repeat_key = a.repeat_key and repeat_key <> '' and state = 'planned'
					and ordering_key = a.ordering_key and broken = 0
				order by id desc
				limit :limit)) e
		), caused as materialized (
			select distinct m.ordering_key, l.operation_id
			from met m cross join lateral (
				select operation_id from {schema}.leadonce_links where event_id = m.id offset 0) l
		), beside as (
			select e.id
			from caused c cross join lateral (
				select e.id
				from {schema}.leadonce_links l cross join lateral (
					select id
					from {schema}.leadonce_events
					where id = l.event_id and state = 'planned' and ordering_key = c.ordering_key and broken = 0
					limit 1) e
				where l.operation_id = c.operation_id and l.event_id not in (select id from met)
				order by l.event_id desc
				limit :limit) e
		)
		select e.*, coalesce((
			select cast(json_agg(l.operation_id order by l.operation_id) as text)
			from {schema}.leadonce_links l
			where l.event_id = e.id), '[]') as operations
		from (select id from met union select id from beside) as w cross join lateral (
			select * from {schema}.leadonce_events where id = w.id limit 1) e
		order by e.id`,
		args{"asked": jsonRows(r.c.st.mapper, asked), "limit": store.ViewHandled}, func(row *handledRow, err error) bool {
			v := r.views[row.OrderingKey]
			e, err := decodeEvent(&row.Event, err)
			h := store.Handled{EventRow: e}
			if err == nil {
				if e := json.Unmarshal([]byte(row.Operations), &h.Operations); e != nil {
					err = row.Corrupt(e)
				}
			}
			if err != nil {
				v.unread = append(v.unread, err)
				return true
			}
			v.view.Handled = append(v.view.Handled, h)
			for _, id := range h.Operations {
				r.handles = append(r.handles, &dealAsk{Key: row.OrderingKey, Operation: id})
			}
			return true
		})
}

// dealAsk asks for the deals of a key by one thing; the others are empty.
type dealAsk struct {
	Key       string `db:"ordering_key"`
	Deal      string `db:"deal_key"`
	Contact   string `db:"contact_key"`
	Operation string `db:"operation_id"` // that belongs to the deal
	Ref       string `db:"lead_ref"`     // its id in the CRM
	Tenant    string `db:"tenant"`       // beside Ref
}

func (r *keyReader) dealAsks() (list []*dealAsk) {
	seen := map[dealAsk]bool{}
	add := func(something string, a dealAsk) {
		if something != "" && !seen[a] {
			seen[a] = true
			list = append(list, &a)
		}
	}
	for key, v := range r.views {
		for _, deal := range r.further[key] {
			deal = sqlstore.Clean(deal)
			add(deal, dealAsk{Key: key, Deal: deal})
		}
		for _, e := range v.view.Events {
			add(e.DealKey, dealAsk{Key: key, Deal: e.DealKey})
			add(e.ContactKey, dealAsk{Key: key, Contact: e.ContactKey})
			add(e.LeadRef, dealAsk{Key: key, Ref: e.LeadRef, Tenant: e.Tenant})
		}
	}
	for _, a := range r.handles {
		add(a.Operation, *a)
	}
	return list
}

// deals reads those of the key that its events point to, and where else the leads live that they name.
func (r *keyReader) deals() error {
	asked := r.dealAsks()
	if len(asked) == 0 {
		return nil
	}
	type dealRow struct {
		sqlstore.Deal
		Asked string `db:"asked_key"`
		Ref   string `db:"lead_ref"`
	}
	homes, here := []*dealRow(nil), map[[2]string]bool{}
	err := each(r.c, `
		select d.id, d.tenant, d.ordering_key, d.contact_key, d.deal_key, d.host_key, d.generation, d.state, d.version,
			d.create_op, d.crm_id, d.opened_at, d.last_activity, d.stage, d.stage_version, d.stage_at, d.broken,
			a.ordering_key as asked_key, a.lead_ref
		from json_to_recordset(cast(:asked as json)) as a(ordering_key text, deal_key text, contact_key text,
				operation_id text, lead_ref text, tenant text)
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
				limit :limit)
				union all
				(select *
				from {schema}.leadonce_deals
				where ordering_key = a.ordering_key and a.operation_id <> ''
					and id = (select deal_id from {schema}.leadonce_operations where id = a.operation_id)
				limit 1)
				union all
				(select *
				from {schema}.leadonce_deals
				where crm_id = a.lead_ref and crm_id <> '' and tenant = a.tenant and ordering_key = a.ordering_key
				order by opened_at desc, seq desc
				limit :limit)
				union all
				(select *
				from {schema}.leadonce_deals
				where crm_id = a.lead_ref and crm_id <> '' and tenant = a.tenant and ordering_key <> a.ordering_key
				order by opened_at desc, seq desc
				limit 1)) d`,
		args{"asked": jsonRows(r.c.st.mapper, asked), "limit": store.ViewDeals}, func(row *dealRow, err error) bool {
			if row.OrderingKey != row.Asked {
				homes = append(homes, row)
				return true
			}
			if row.Ref != "" {
				here[[2]string{row.Asked, row.Ref}] = true
				r.refs = append(r.refs, row.ID)
			}
			r.deal(&row.Deal, err)
			return true
		})
	for _, row := range homes {
		if v := &r.views[row.Asked].view; !here[[2]string{row.Asked, row.Ref}] {
			if v.Homes == nil {
				v.Homes = map[string]string{}
			}
			v.Homes[row.Ref] = row.OrderingKey
		}
	}
	for _, v := range r.views {
		slices.SortFunc(v.view.Deals, func(a, b store.Deal) int {
			return cmp.Or(a.OpenedAt.Compare(b.OpenedAt), cmp.Compare(a.ID, b.ID))
		})
	}
	return err
}

// deal adds one to its key's view.
func (r *keyReader) deal(row *sqlstore.Deal, err error) {
	if !r.first(row.OrderingKey, "deal", row.ID) {
		return
	}
	v := r.views[row.OrderingKey]
	d, err := sqlstore.Decoded(row, err)
	if err != nil {
		v.corrupt = append(v.corrupt, err)
	} else {
		v.view.Deals = append(v.view.Deals, d)
	}
}

// opRead is an operation as it was read.
type opRead struct {
	row *sqlstore.Operation
	op  store.Operation
	err error
}

// operations reads the creates of the deals and what waits for them, create by create; then those of handled events, and
// what is pending of the deals that an event names.
func (r *keyReader) operations() error {
	var ids, creates []string
	for _, v := range r.views {
		for _, d := range v.view.Deals {
			creates = append(creates, d.CreateOp)
		}
	}
	for _, a := range r.handles {
		ids = append(ids, a.Operation)
	}
	if len(creates)+len(ids) == 0 {
		return nil
	}
	byID, byCreate, byDeal := map[string]*opRead{}, map[string][]*opRead{}, map[string][]*opRead{}
	err := each(r.c, `
		select *
		from {schema}.leadonce_operation_rows
		where id = any(array(
			select json_array_elements_text(cast(:creates as json))
			union
			select json_array_elements_text(cast(:ids as json))))
		union all
		(select *
		from {schema}.leadonce_operation_rows
		where depends_on = any(array(select json_array_elements_text(cast(:creates as json)))) and state = 'pending'
			and blocked = 1 and broken = 0
		order by seq)
		union all
		(select *
		from {schema}.leadonce_operation_rows
		where deal_id = any(array(select json_array_elements_text(cast(:refs as json)))) and deal_id <> ''
			and state = 'pending' and broken = 0
		order by seq)`, args{"creates": sqlstore.JSONTexts(creates), "ids": sqlstore.JSONTexts(ids), "refs": sqlstore.JSONTexts(r.refs)},
		func(row *sqlstore.Operation, err error) bool {
			if byID[row.ID] != nil {
				return true
			}
			o := &opRead{row: row, err: err}
			o.op, o.err = sqlstore.Decoded(row, err)
			byID[row.ID] = o
			if row.DependsOn != "" && row.State == string(store.Pending) && row.Blocked == 1 {
				byCreate[row.DependsOn] = append(byCreate[row.DependsOn], o)
			}
			if row.State == string(store.Pending) {
				byDeal[row.DealID] = append(byDeal[row.DealID], o)
			}
			return true
		})
	named := map[string]bool{}
	for _, id := range r.refs {
		named[id] = true
	}
	for key, v := range r.views {
		for _, d := range v.view.Deals {
			r.add(key, byID[d.CreateOp])
			r.add(key, byCreate[d.CreateOp]...)
		}
		for _, h := range v.view.Handled {
			for _, id := range h.Operations {
				r.add(key, byID[id])
			}
		}
		for _, d := range v.view.Deals {
			if named[d.ID] {
				r.add(key, byDeal[d.ID]...)
			}
		}
	}
	return err
}

// add adds operations to a key's view.
func (r *keyReader) add(key string, list ...*opRead) {
	v := r.views[key]
	for _, o := range list {
		switch {
		case o == nil || !r.first(key, "operation", o.row.ID):
		case o.err != nil:
			v.corrupt = append(v.corrupt, o.err)
		default:
			v.view.Operations = append(v.view.Operations, o.op)
		}
	}
}
