package postgres

import (
	"fmt"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// planmerge.go: one ordering key that goes on under another.

// receivers are the ordering keys that a plan gives undecided events to.
func receivers(p store.Plan) (keys []string) {
	for _, e := range p.Events {
		if e.MoveTo != "" {
			keys = append(keys, sqlstore.Clean(e.MoveTo))
		}
	}
	if p.Merge != nil {
		keys = append(keys, sqlstore.Clean(p.Merge.To))
	}
	return keys
}

// told notes for each plan where its events were moved to, and returns all of that.
func (t *planTx) told() (list []store.Hint, err error) {
	var keys []string
	for _, m := range t.left {
		keys = append(keys, receivers(m.in.Plan)...)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	rows, err := all[sqlstore.Event](t.c, `
		select k.ordering_key, coalesce((
			select e.tenant from {schema}.leadonce_events e where e.ordering_key = k.ordering_key and e.ended_at = 0
			order by e.id limit 1), '') as tenant
		from json_array_elements_text(cast(:keys as json)) as k(ordering_key)`, args{"keys": sqlstore.JSONTexts(keys)})
	tenants := map[string]string{}
	for _, r := range rows {
		tenants[r.OrderingKey] = r.Tenant
	}
	for _, m := range t.left {
		m.out.told = nil // a try before may have been taken back
		for _, key := range receivers(m.in.Plan) {
			m.out.told = append(m.out.told, store.Hint{OrderingKey: key, Tenant: tenants[key]})
		}
		list = append(list, m.out.told...)
	}
	return list, err
}

// lockBoth locks both keys of a merge in the order of keys, also one that has no row yet: so two merges wait for each other,
// whichever way they go.
func (t *planTx) lockBoth(p *proposal) error {
	_, err := t.c.exec(`
		insert into {schema}.leadonce_keys as k (ordering_key, version, token)
		select ordering_key, 0, 0
		from json_array_elements_text(cast(:keys as json)) as r(ordering_key)
		order by ordering_key collate "C"
		on conflict (ordering_key) do update set version = k.version
		returning 1`, args{"keys": sqlstore.JSONTexts([]string{p.Key, p.other})})
	return err
}

// merge gives the deals and the unplanned events of one key to the other. A transaction of the host's may hold a new deal
// that is in the way of one: then the decision is made again.
func (t *planTx) merge(p *proposal) error {
	_, err := t.c.exec(`
		with moved_keys as (
			update {schema}.leadonce_keys
			set version = version + case ordering_key when :other then 1 else 0 end, token = :token,
				moved_to = case ordering_key when :from then :to else '' end
			where ordering_key in (:from, :to)
		), moved_deals as (
			update {schema}.leadonce_deals d
			set ordering_key = :to, version = version + 1
			where d.ordering_key = :from and not exists (
				select 1
				from {schema}.leadonce_deals t
				where t.ordering_key = :to and t.deal_key = d.deal_key
					and (t.generation = d.generation or t.state = 'open'))
		)
		update {schema}.leadonce_events
		set ordering_key = :to
		where ordering_key = :from and ended_at = 0`,
		args{"from": p.Merge.From, "to": p.Merge.To, "other": p.other, "token": p.token})
	if state(err) == uniqueViolation {
		return fmt.Errorf("a deal of ordering key %s: %w: %w", p.Merge.From, store.ErrConflict, err)
	}
	return err
}
