package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// backlog_test.go: 50,000 events and as many operations wait for one tenant, and then one of each for another. That the
// other one's are found at once is told by the rows that are read for it, not by a clock.

// backlog fills a store.
func backlog(t *testing.T, s *Store, dsn string, n int) {
	t.Helper()
	for _, tenant := range []string{"north", "south"} {
		e := event("1", "k:"+tenant)
		e.Tenant, e.UpdateID = tenant, tenant
		if _, err := s.Accept(background, e); err != nil {
			t.Fatal(err)
		}
		sub := submission(tenant, "k:"+tenant)
		sub.Operation.Tenant = tenant
		if _, err := s.Submit(background, sub); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, pool(t, dsn), fmt.Sprintf(`
		insert into leadonce.leadonce_events (source, tenant, bot, update_id, epoch, hash, fp_version, fp_sum, kind,
			ordering_key, contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason,
			attempts, accepted_at, due_at, ended_at, head_start_ns, token, enquiry)
		select source, tenant, bot, update_id || i, epoch, hash, fp_version, fp_sum, kind,
			ordering_key || i, contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason,
			attempts, accepted_at, due_at - 1000000, ended_at, head_start_ns, token, enquiry
		from leadonce.leadonce_events cross join generate_series(1, %d) as i
		where tenant = 'north'`, n), fmt.Sprintf(`
		insert into leadonce.leadonce_operations (id, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked,
			state, doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at, last_sent_at,
			unreturned, due_at, owner, fence, lease_until, crm_id, conflict_id, reason, created_at, updated_at, ended_at, fields)
		select id || i, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked,
			state, doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at, last_sent_at,
			unreturned, due_at - 1000000, owner, fence, lease_until, crm_id, conflict_id, reason, created_at, updated_at,
			ended_at, fields
		from leadonce.leadonce_operations cross join generate_series(1, %d) as i
		where tenant = 'north'`, n), `vacuum analyze leadonce.leadonce_events`, `vacuum analyze leadonce.leadonce_operations`)
}

func TestBacklog(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5_000
	}
	dsn := pgtest.DSN(t)
	s := reopen(t, dsn, nil)
	backlog(t, s, dsn, n)
	t.Run("the other tenant's key is among the first", func(t *testing.T) {
		for _, tenants := range [][]string{nil, {"north", "south"}, {"south"}} {
			keys, err := s.DueKeys(background, 2, tenants...)
			found := false
			for _, k := range keys {
				found = found || k == store.DueKey{Key: "k:south", Tenant: "south"}
			}
			if err != nil || !found {
				t.Fatalf("asked for %q: %v, %v", tenants, keys, err)
			}
		}
	})
	t.Run("the other tenant's operation is among the first", func(t *testing.T) {
		ops, err := s.Claim(background, claimOf("w", 2))
		if err != nil || len(ops) != 2 || (ops[0].Tenant != "south" && ops[1].Tenant != "south") {
			t.Fatalf("claimed %+v, %v", ops, err)
		}
	})
	t.Run("what comes in amid a backlog is claimed before that is done", func(t *testing.T) {
		sub := submission("west", "k:west")
		sub.Operation.Tenant = "west"
		if _, err := s.Submit(background, sub); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the operation of a tenant that had none", func() bool {
			ops, err := s.Claim(background, claimOf("w", 1))
			return err == nil && len(ops) == 1 && ops[0].Tenant == "west"
		})
	})
	t.Run("no statement reads what waits for somebody else", func(t *testing.T) {
		if _, err := s.Attention(background, 5, true); err != nil {
			t.Fatal(err)
		}
		a := s.asks([]sqlstore.Ask{{Tenant: "north", Limit: 1}, {Tenant: "south", Limit: 9}})
		for name, v := range map[string]any{"now": int64(1 << 60), "adapter": "a", "terms": "[]", "open_until": int64(0),
			"named": 0, "tenants": "[]", "lookups": true, "sweep": true, "token": int64(1)} {
			a[name] = v
		}
		for _, part := range []string{"select k.ordering_key, k.tenant", "with recursive tenants", "case when :sweep",
			"q.due_at >= a.since", "q.adapter = ", "from reconcile t where"} {
			if rows := most(t, s, part, a); rows > 100 {
				t.Errorf("%d rows for the statement with %q", rows, part)
			}
		}
	})
}

// most has the server run the statement that has part in it, and returns the most rows that any step of its plan has met.
func most(t *testing.T, s *Store, part string, a args) (most int) {
	t.Helper()
	var found *statement
	s.st.mu.RLock()
	for text, st := range s.st.all {
		if strings.Contains(text, part) {
			if found != nil {
				t.Errorf("two statements have %q", part)
			}
			found = st
		}
	}
	s.st.mu.RUnlock()
	if found == nil {
		t.Fatalf("no statement with %q was run", part)
	}
	list, err := found.Bind(s.st.mapper, a)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := s.db.Query("explain (analyze, timing off, costs off) "+found.Text, list...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan []string
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, line)
		for _, m := range met.FindAllStringSubmatch(line, -1) {
			n, _ := strconv.ParseFloat(m[1], 64)
			most = max(most, int(n))
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if most > 100 || most == 0 {
		t.Logf("%s\n%s", found.Text, strings.Join(plan, "\n"))
	}
	return most
}

var met = regexp.MustCompile(`(?:actual rows=|Rows Removed by [A-Za-z ]*: )([0-9.]+)`)
