package postgres

import (
	"slices"

	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// plancompare.go: locking what decisions have read, and comparing it with what stands there now.

// keys locks the ordering keys that were planned before, and compares their versions.
func (t *planTx) keys() error {
	var known []string
	for _, m := range t.left {
		if m.in.other != "" {
			if err := t.lockBoth(m.in); err != nil {
				return err
			}
		}
		if m.in.other != "" || m.in.Version > 0 || m.in.unknown {
			known = append(known, m.in.Key)
		}
	}
	if len(known) == 0 {
		return nil
	}
	rows, err := all[keyWrite](t.c, `
		select ordering_key, version, token
		from {schema}.leadonce_keys
		where ordering_key = any(array(select json_array_elements_text(cast(:keys as json))))
		order by ordering_key
		for no key update`, args{"keys": sqlstore.JSONTexts(known)})
	if err != nil {
		return err
	}
	stored := map[string]*keyWrite{}
	for _, r := range rows {
		stored[r.Key] = r
	}
	var done []*planCall
	for _, m := range t.left {
		r := stored[sqlstore.Clean(m.in.Key)]
		switch {
		case r.is(m.in.Version):
			continue
		case m.in.unknown && r != nil:
			if mine, err := t.resolve(m, r.Token); err != nil {
				return err
			} else if mine {
				done = append(done, m)
			}
		}
	}
	t.left = slices.DeleteFunc(t.left, func(m *planCall) bool { return slices.Contains(done, m) })
	t.each(func(m *planCall) error {
		if r := stored[sqlstore.Clean(m.in.Key)]; (m.in.Version > 0 || m.in.unknown || m.in.other != "") && !r.is(m.in.Version) {
			return conflict("ordering key", m.in.Key)
		}
		return nil
	})
	return nil
}

// is reports whether a key has this version. Without a row it is 0.
func (r *keyWrite) is(version int64) bool {
	if r == nil {
		return version == 0
	}
	return r.Version == version
}

// resolve finds out whether a plan was stored by a try whose answer was lost. token is that of the key's latest plan.
func (t *planTx) resolve(m *planCall, token int64) (mine bool, err error) {
	m.out = committed{due: true}
	if m.in.begins {
		if m.out.begun, err = begunBy(t.c, *m.in.Claim, m.in.token); err != nil {
			return false, err
		}
	}
	return token == m.in.token || len(m.out.begun) > 0, nil
}

// lock reads and locks what the decisions have read.
func (t *planTx) lock() (err error) {
	var ops, deals []string
	for _, m := range t.left {
		for _, o := range m.in.SeenOps {
			ops = append(ops, o.ID)
		}
		for _, e := range m.in.Edits {
			ops = append(ops, e.OperationID)
		}
		for _, d := range m.in.Drops {
			ops = append(ops, d.OperationID)
		}
		for _, o := range m.in.Operations {
			if o.DependsOn != "" {
				ops = append(ops, o.DependsOn)
			}
		}
		for _, d := range m.in.SeenDeals {
			deals = append(deals, d.ID)
		}
		for _, d := range m.in.Touches {
			deals = append(deals, d.DealID)
		}
		for _, d := range m.in.Stages {
			deals = append(deals, d.DealID)
		}
	}
	if t.ops, err = lock(t.c, ops, nil); err != nil {
		return err
	}
	t.deals = map[string]int64{}
	if len(deals) == 0 {
		return nil
	}
	return each(t.c, `
		select id, version
		from {schema}.leadonce_deals
		where id = any(array(select json_array_elements_text(cast(:ids as json))))
		order by id
		for no key update`, args{"ids": sqlstore.JSONTexts(deals)}, func(row *sqlstore.Deal, _ error) bool {
		t.deals[row.ID] = row.Version
		return true
	})
}

// compare refuses a plan whose decision has read something else than what stands there now.
func (t *planTx) compare(m *planCall) error {
	for _, o := range m.in.SeenOps {
		if _, err := t.at(o.ID, o.Version, true); err != nil {
			return err
		}
	}
	for _, d := range m.in.SeenDeals {
		if t.deals[d.ID] != d.Version {
			return conflict("deal", d.ID)
		}
	}
	for _, d := range m.in.Touches {
		if t.deals[d.DealID] != d.Version {
			return conflict("deal", d.DealID)
		}
	}
	for _, d := range m.in.Stages {
		if t.deals[d.DealID] != d.Version {
			return conflict("deal", d.DealID)
		}
	}
	return nil
}

// at returns an operation that a plan has read at this version. unread: its content does not matter.
func (t *planTx) at(id string, version int64, unread bool) (*locked, error) {
	row := t.ops[id]
	switch {
	case row == nil:
		return nil, conflict("operation", id)
	case row.err != nil && !unread:
		return nil, row.err
	case row.err == nil && row.op.Version != version:
		return nil, conflict("operation", id)
	}
	return row, nil
}
