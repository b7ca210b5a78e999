package sqlstore

import (
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
)

// change.go: what a plan does to deals that are stored already, and to another ordering key.

// ChangeDeal is what a plan does to one deal: it has the parameters of that update.
type ChangeDeal struct {
	ID           string `db:"id"`
	Version      int64  `db:"version"` // that the stored row must have
	Touched      int64  `db:"touched"` // 1: last_activity becomes Now
	Now          int64  `db:"now"`
	Staged       int64  `db:"staged"` // 1: the three of the stage are set
	Stage        string `db:"stage"`
	StageVersion int64  `db:"stage_version"`
	StageAt      int64  `db:"stage_at"`
	State        string `db:"state"` // empty leaves it as it is
}

// ChangeDeals returns one change for each deal that p touches or moves to another stage: a deal that both name is compared
// with the version that both read, and changes once. Of several moves of one deal the last one counts. The error wraps
// store.ErrInvalid, or store.ErrConflict where the two name different versions.
func ChangeDeals(p store.Plan, now time.Time) ([]*ChangeDeal, error) {
	var list []*ChangeDeal
	of := func(id string, version int64) (*ChangeDeal, error) {
		for _, c := range list {
			if c.ID == id && c.Version != version {
				return nil, fmt.Errorf("deal %s: %w", id, store.ErrConflict)
			}
			if c.ID == id {
				return c, nil
			}
		}
		c := &ChangeDeal{ID: id, Version: version, Now: Micros(now)}
		list = append(list, c)
		return c, nil
	}
	for _, t := range p.Touches {
		c, err := of(t.DealID, t.Version)
		if err != nil {
			return nil, err
		}
		c.Touched = 1
	}
	for _, m := range p.Stages {
		if m.State != "" && m.State != store.DealOpen && m.State != store.DealClosed {
			return nil, fmt.Errorf("%w: StageMove.State %q of deal %s is not a state", store.ErrInvalid, m.State, m.DealID)
		}
		c, err := of(m.DealID, m.Version)
		if err != nil {
			return nil, err
		}
		c.Staged, c.Stage, c.StageVersion, c.StageAt = 1, m.Stage, m.StageVersion, Micros(m.StageAt)
		if m.State != "" {
			c.State = string(m.State)
		}
	}
	return list, nil
}

// OtherKey returns the ordering key that p merges its own with, empty if it merges none. The error wraps store.ErrInvalid.
func OtherKey(p store.Plan) (string, error) {
	if p.Merge == nil {
		return "", nil
	}
	key, from, to := Clean(p.Key), Clean(p.Merge.From), Clean(p.Merge.To)
	switch {
	case from == "" || to == "" || from == to:
		return "", fmt.Errorf("%w: Plan.Merge needs two different ordering keys", store.ErrInvalid)
	case from == key:
		return to, nil
	case to == key:
		return from, nil
	}
	return "", fmt.Errorf("%w: neither Plan.Merge.From nor Plan.Merge.To is Plan.Key", store.ErrInvalid)
}
