package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// stats.go: counting what is unfinished, and what ended within a day. Nothing here reads what ended before.

const recent = 24 * time.Hour

// Stats counts what is unfinished, with the age of the oldest, and what finished in the last 24 hours.
func (s *Store) Stats(ctx context.Context) (store.Stats, error) {
	var st store.Stats
	err := s.read.view(ctx, func(c *conn) error {
		now := s.now()
		st = store.Stats{}
		q := counter{c: c, now: now, a: args{"since": sqlstore.Micros(now.Add(-recent))}}
		st.Events = append(q.counts(`
			select state, '' as reason, count(*) as n, sum(attempts > 0) as errors, min(accepted_at) as oldest
			from leadonce_events where ended_at = 0
			group by state`), q.counts(`
			select state, '' as reason, count(*) as n, sum(attempts > 0) as errors, min(accepted_at) as oldest
			from leadonce_events where state in ('parked', 'quarantined')
			group by state`)...)
		st.Operations = q.counts(`
			select state, '' as reason, count(*) as n, sum(state = 'failed' or failures > 0) as errors,
				min(created_at) as oldest
			from leadonce_operations
			where state in ('pending', 'sending', 'uncertain', 'needs_reconciliation', 'failed') and broken = 0
			group by state`)
		st.RecentOperations = q.counts(`
			select state, case state when 'canceled' then reason else '' end as reason, count(*) as n,
				sum(failures > 0) as errors, min(created_at) as oldest
			from leadonce_operations
			where ended_at > 0 and ended_at > :since and state in ('done', 'canceled') and broken = 0
			group by 1, 2`)
		st.RecentEvents = q.counts(`
			select state, case state when 'ignored' then reason else '' end as reason, count(*) as n,
				sum(attempts > 0) as errors, min(accepted_at) as oldest
			from leadonce_events
			where ended_at > 0 and ended_at > :since and state in ('planned', 'ignored', 'stale')
			group by 1, 2`)
		st.Blocked = q.one(`
			select '' as state, '' as reason, count(*) as n, coalesce(sum(o.failures > 0), 0) as errors,
				coalesce(min(o.created_at), 0) as oldest
			from leadonce_operations o join leadonce_operations c on c.id = o.depends_on
			where o.state = 'pending' and o.blocked = 1 and o.broken = 0
				and c.state in ('failed', 'uncertain', 'needs_reconciliation', 'canceled')`)
		st.Conflicts = q.one(`
			select '' as state, '' as reason, count(*) as n, coalesce(sum(failures > 0), 0) as errors,
				coalesce(min(created_at), 0) as oldest
			from leadonce_operations where conflict_id <> ''`)
		st.Broken = q.one(`
			select '' as state, '' as reason, count(*) as n, 0 as errors, 0 as oldest
			from leadonce_operations where broken = 1`).N + q.one(`
			select '' as state, '' as reason, count(*) as n, 0 as errors, 0 as oldest
			from leadonce_deals where broken = 1`).N
		st.Reused = q.one(`
			select '' as state, '' as reason, count(*) as n, 0 as errors, 0 as oldest
			from leadonce_events where epoch > 0 and accepted_at > :since`).N
		return q.err
	})
	if err != nil {
		return store.Stats{}, fmt.Errorf("sqlite: stats: %w", err)
	}
	return st, nil
}

type countRow struct {
	State  string `db:"state"`
	Reason string `db:"reason"`
	N      int64  `db:"n"`
	Errors int64  `db:"errors"`
	Oldest int64  `db:"oldest"`
}

// counter runs queries until one fails.
type counter struct {
	c   *conn
	now time.Time
	a   args
	err error
}

func (q *counter) counts(query string) (list []store.Count) {
	if q.err != nil {
		return nil
	}
	var bad error
	err := each(q.c, query, q.a, func(r *countRow, err error) bool {
		if err != nil {
			bad = err
			return false
		}
		n := store.Count{State: r.State, Reason: r.Reason, N: r.N, Errors: r.Errors}
		if r.Oldest > 0 {
			n.Oldest = max(q.now.Sub(sqlstore.Time(r.Oldest)), 0)
		}
		list = append(list, n)
		return true
	})
	q.err = errors.Join(err, bad)
	return list
}

func (q *counter) one(query string) store.Count {
	if list := q.counts(query); len(list) == 1 {
		return list[0]
	}
	return store.Count{}
}
