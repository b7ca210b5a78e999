package sqlite

import (
	"strings"
	"testing"

	"github.com/leadonce/leadonce/store"
)

// backlog_test.go: 50,000 events and as many operations wait for one tenant, and then one of each for another. That the
// other one's are found at once is told by what is read for it, not by a clock.

// backlog fills a store.
func backlog(t *testing.T, s *Store, n int) {
	t.Helper()
	for _, tenant := range []string{"north", "south"} {
		e := event(tenant, "k:"+tenant)
		e.Tenant, e.Payload = tenant, nil
		must(s.Accept(background, e))(t)
		o := lead("o"+tenant, "d"+tenant, "k:"+tenant)
		o.Tenant = tenant
		must(s.Submit(background, store.Submission{Operation: o,
			Deal: store.Deal{ID: o.DealID, OrderingKey: o.OrderingKey, Key: o.ID, CreateOp: o.ID}}))(t)
	}
	a := args{"n": n}
	err := s.writer.do(background, false, func(c *conn) error {
		for _, query := range []string{`
			with recursive n(i) as (select 1 union all select i + 1 from n where i < :n)
			insert into leadonce_events (source, tenant, bot, update_id, epoch, hash, fp_version, fp_sum, kind, ordering_key,
				contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason, attempts,
				accepted_at, due_at, ended_at, head_start_ns, enquiry)
			select source, tenant, bot, update_id || i, epoch, hash, fp_version, fp_sum, kind, ordering_key || i,
				contact_key, content_id, content_rev, deal_key, repeat_key, lead_ref, quarantine, state, reason, attempts,
				accepted_at, due_at - 1000000, ended_at, head_start_ns, enquiry
			from leadonce_events cross join n
			where tenant = 'north'`, `
			with recursive n(i) as (select 1 union all select i + 1 from n where i < :n)
			insert into leadonce_operations (id, tenant, kind, ordering_key, contact_key, deal_id, depends_on, blocked, state,
				doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at, last_sent_at,
				unreturned, due_at, owner, fence, lease_until, crm_id, conflict_id, reason, created_at, updated_at, ended_at,
				fields)
			select id || i, tenant, kind, ordering_key, contact_key, deal_id || i, depends_on, blocked, state,
				doubt, version, revision, adapter, guarantee, window_ns, attempts, failures, first_sent_at, last_sent_at,
				unreturned, due_at - 1000000, owner, fence, lease_until, crm_id, conflict_id, reason, created_at, updated_at,
				ended_at, fields
			from leadonce_operations cross join n
			where tenant = 'north'`,
		} {
			if _, err := c.exec(query, a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestBacklog(t *testing.T) {
	n := 50_000
	if testing.Short() {
		n = 5_000
	}
	s := open(t, &Options{Readers: 1})
	backlog(t, s, n)
	t.Run("the other tenant's key is among the first", func(t *testing.T) {
		for _, tenants := range [][]string{nil, {"north", "south"}, {"south"}} {
			keys := must(s.DueKeys(background, 2, tenants...))(t)
			found := false
			for _, k := range keys {
				found = found || k == store.DueKey{Key: "k:south", Tenant: "south"}
			}
			if !found {
				t.Fatalf("asked for %q: %v", tenants, keys)
			}
		}
	})
	t.Run("the other tenant's operation is among the first", func(t *testing.T) {
		ops := must(s.Claim(background, claimOf("w", 2)))(t)
		if len(ops) != 2 || (ops[0].Tenant != "south" && ops[1].Tenant != "south") {
			t.Fatalf("claimed %+v", ops)
		}
		c := claimOf("w", 2)
		c.Tenant = &[]string{"south"}[0]
		must(s.Claim(background, c))(t)
	})
	t.Run("no statement reads what waits for somebody else", func(t *testing.T) {
		seen := 0
		for text, plan := range explain(t, s) {
			if !strings.Contains(text, "tenant") || !strings.Contains(text, "due_at <= ?") {
				continue
			}
			seen++
			for _, line := range plan {
				table := strings.HasPrefix(line, "SEARCH") || strings.HasPrefix(line, "SCAN")
				if table && !passing(line) && !strings.Contains(line, "(tenant=? AND due_at<?)") &&
					!strings.Contains(line, "(tenant>?)") && !single(line) {
					t.Errorf("%s\n\t%s", line, text)
				}
			}
		}
		if seen < 5 {
			t.Fatalf("%d statements", seen)
		}
	})
}

// single: a row, or what one ordering key has, is looked up for a row that was found.
func single(line string) bool {
	return strings.Contains(line, "(id=?)") || strings.Contains(line, "(contact_key=?)") ||
		strings.Contains(line, "(ordering_key=? AND id<?)")
}
