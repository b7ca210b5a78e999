package sqlite

import (
	"errors"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// plandeals.go: what a decision does to deals, and two ordering keys that become one.

// changes goes before deals: a deal that is closed makes room for the next one with its key.
func (t *planTx) changes() error {
	list, err := sqlstore.ChangeDeals(t.p, t.now)
	if err != nil {
		return err
	}
	for _, row := range list {
		n, err := t.c.exec(`
			update leadonce_deals
			set last_activity = case :touched when 1 then :now else last_activity end,
				stage = case :staged when 1 then :stage else stage end,
				stage_version = case :staged when 1 then :stage_version else stage_version end,
				stage_at = case :staged when 1 then :stage_at else stage_at end,
				state = case :state when '' then state else :state end,
				version = version + 1
			where id = :id and version = :version`, row)
		if isConstraint(err) { // it is opened again, and another one with its key is open
			err = errors.Join(err, conflict("deal", row.ID))
		}
		if err != nil {
			return err
		}
		if n != 1 {
			return conflict("deal", row.ID)
		}
	}
	return nil
}

func (t *planTx) deals() error {
	for _, d := range t.p.Deals {
		row, err := sqlstore.NewDeal(d, t.now)
		if err == nil {
			err = insertDeal(t.c, row)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insertDeal opens a deal. One that is in the way is a lost compare-and-set, unless it is a row that can't be read: then
// reading again would not help.
func insertDeal(c *conn, row *sqlstore.Deal) error {
	_, err := c.exec(`
		insert into leadonce_deals (id, tenant, ordering_key, contact_key, deal_key, host_key, generation, state, version,
			create_op, crm_id, opened_at, last_activity, stage, stage_version, stage_at)
		values (:id, :tenant, :ordering_key, :contact_key, :deal_key, :host_key, :generation, :state, :version,
			:create_op, :crm_id, :opened_at, :last_activity, :stage, :stage_version, :stage_at)`, row)
	if !isConstraint(err) {
		return err
	}
	var broken string
	found, err := c.get(&broken, `
		select id from leadonce_deals
		where ordering_key = :ordering_key and deal_key = :deal_key and broken = 1
		limit 1`, row)
	if err == nil && found {
		return &store.CorruptError{Table: sqlstore.DealsTable, ID: broken, Err: sqlstore.ErrBroken}
	}
	return errors.Join(err, conflict("deal", row.ID))
}

// merge makes Merge.From go on under Merge.To. Operations keep the ordering key that they were decided under: a worker may
// hold one of them.
func (t *planTx) merge() error {
	if t.p.Merge == nil {
		return nil
	}
	if err := moveOn(t.c, t.other); err != nil {
		return err
	}
	a := args{"from": t.p.Merge.From, "to": t.p.Merge.To}
	for _, query := range []string{`
		update leadonce_keys set moved_to = :to where ordering_key = :from`, `
		update leadonce_keys set moved_to = '' where ordering_key = :to`, `
		update leadonce_events set ordering_key = :to where ordering_key = :from and ended_at = 0`, `
		update leadonce_deals set ordering_key = :to, version = version + 1
		where ordering_key = :from and not exists (
			select 1 from leadonce_deals t
			where t.ordering_key = :to and t.deal_key = leadonce_deals.deal_key
				and (t.generation = leadonce_deals.generation or t.state = 'open'))`,
	} {
		if _, err := t.c.exec(query, a); err != nil {
			return err
		}
	}
	return t.tell(t.p.Merge.To)
}

// tell notes that events were moved to an ordering key.
func (t *planTx) tell(key string) error {
	h := store.Hint{OrderingKey: sqlstore.Clean(key)}
	_, err := t.c.get(&h.Tenant, `
		select tenant from leadonce_events where ordering_key = :key and ended_at = 0 order by id limit 1`, args{"key": key})
	t.told = append(t.told, h)
	return err
}

// moveOn moves the version of an ordering key: a decision about it that is under way has not seen what is stored now.
func moveOn(c *conn, key string) error {
	_, err := c.exec(`
		insert into leadonce_keys (ordering_key, version) values (:key, 1)
		on conflict (ordering_key) do update set version = version + 1`, args{"key": key})
	return err
}
