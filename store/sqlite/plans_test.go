package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
)

// plans_test.go: cost does not grow with what is finished. SQLite itself is asked how it would run every statement that the
// methods of the Processor and the operator's page have run.

// explain returns the query plan of each statement that was run through s so far.
func explain(t *testing.T, s *Store) map[string][]string {
	t.Helper()
	plans := map[string][]string{}
	of := func(c *conn) error {
		texts := map[string]int{}
		for _, st := range c.stmts {
			texts[st.s.Text] = len(st.s.Names())
		}
		for text, n := range texts {
			if head := strings.Fields(text)[0]; head != "select" && head != "with" && head != "insert" && head != "update" {
				continue
			}
			rows, err := c.c.QueryContext(background, "explain query plan "+text, make([]any, n)...)
			if err != nil {
				return fmt.Errorf("%s: %w", text, err)
			}
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					return err
				}
				plans[text] = append(plans[text], detail)
			}
			if err := rows.Close(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := s.writer.do(background, false, of); err != nil {
		t.Fatal(err)
	}
	if err := s.read.view(background, of); err != nil {
		t.Fatal(err)
	}
	return plans
}

// live brings a store through everything that happens often.
func live(t *testing.T, s *Store) {
	t.Helper()
	c := claimOf("w", 4)
	for n := range 3 {
		must(s.Accept(background, event(fmt.Sprint(n), "k")))(t)
		must(s.Accept(background, event(fmt.Sprint(n), "k")))(t)
		must(s.DueKeys(background, 5))(t)
		v := must(s.ReadKey(background, "k"))(t)
		p := planFor(v, &c)
		note := lead("n"+fmt.Sprint(n), p.Deals[0].ID, "k")
		note.DependsOn = p.Operations[0].ID
		p.Operations = append(p.Operations, note)
		for _, d := range v.Deals {
			p.Touches = append(p.Touches, store.Touch{DealID: d.ID, Version: d.Version})
			p.SeenDeals = append(p.SeenDeals, store.Seen{ID: d.ID, Version: d.Version})
		}
		begun := must(s.CommitPlan(background, p))(t)
		must(s.Advance(background, store.Report{ID: begun[0].ID, On: store.Confirmed, CRMID: "77"}))(t)
		for _, o := range must(s.Claim(background, c))(t) {
			r := store.Report{ID: o.ID, Version: o.Version, Fence: o.Fence, On: store.LostRepeatable}
			o = must(s.Advance(background, r))(t)
			must(s.Advance(background, store.Report{ID: o.ID, On: store.Cancel, Version: o.Version, By: "anna", Why: "test"}))(t)
		}
		must(s.Attention(background, 5, true))(t)
		must(s.Stats(background))(t)
	}
	liveKeys(t, s)
	liveDoubts(t, s)
	for _, f := range []store.OperationFilter{
		{EventID: 1}, {DealID: "d1"}, {CRMID: "77"}, {Conflict: true}, {Contact: "c"}, {Broken: true},
		{States: []store.State{store.Failed}}, {States: []store.State{store.Canceled}},
	} {
		must(s.Operations(background, f))(t)
	}
	for _, f := range []store.EventFilter{
		{ID: 1}, {OperationID: "o1"}, {UpdateID: "1"}, {States: []store.EventState{store.EventPending}},
		{States: []store.EventState{store.EventParked}},
	} {
		must(s.Events(background, f))(t)
	}
	must(s.Trail(background, "o1"))(t)
}

// liveKeys has an edit, a second press, a hook, a merge, an adoption and a claim for a tenant.
func liveKeys(t *testing.T, s *Store) {
	t.Helper()
	accept := func(update, key string, change func(*store.Event)) store.KeyView {
		e := event(update, key)
		change(&e)
		must(s.Accept(background, e))(t)
		return must(s.ReadKey(background, key))(t)
	}
	plan := func(p store.Plan) { must(s.CommitPlan(background, p))(t) }
	plan(planFor(accept("20", "k2", func(e *store.Event) { e.RepeatKey = "r" }), nil))
	v := accept("21", "k2", func(e *store.Event) { e.ContentID, e.RepeatKey, e.LeadRef = "m20", "r", "77" })
	plan(store.Plan{Key: "k2", Version: v.Version,
		Stages: []store.StageMove{{DealID: v.Deals[0].ID, Version: v.Deals[0].Version, Stage: "won"}},
		Events: []store.EventEnd{{ID: v.Events[0].ID, State: store.EventPending, MoveTo: "k"}},
		Merge:  &store.Merge{From: "k2", To: "k3"}})
	must(s.ReadKey(background, "k"))(t)
	o := lead("oa", "da", "ka")
	o.ContactKey = "c:ka"
	must(s.Submit(background, store.Submission{Operation: o, Adopt: &store.Adoption{CRMID: "99"},
		Contact: store.Contact{Key: "c:ka"}, Deal: store.Deal{ID: "da", OrderingKey: "ka", Key: "a", CreateOp: "oa"}}))(t)
	c := claimOf("w", 4)
	c.Tenant = new(string)
	must(s.Claim(background, c))(t)
	if err := s.AddAccount(background, store.Account{Source: "telegram", Bot: "7"}); err != nil {
		t.Fatal(err)
	}
	must(s.Accounts(background, "telegram"))(t)
}

// liveDoubts leaves one operation of each kind that needs a verdict.
func liveDoubts(t *testing.T, s *Store) {
	t.Helper()
	c := claimOf("w", 1)
	c.Lease = time.Nanosecond
	for n, on := range []store.Trigger{store.Lost, store.LostRepeatable, ""} {
		key := fmt.Sprint("doubt", n)
		must(s.Submit(background, store.Submission{Operation: lead("o"+key, "d"+key, key),
			Deal: store.Deal{ID: "d" + key, OrderingKey: key, Key: key, CreateOp: "o" + key}}))(t)
		o := must(s.Claim(background, c))(t)[0]
		if on != "" {
			must(s.Advance(background, store.Report{ID: o.ID, Version: o.Version, Fence: o.Fence, On: on}))(t)
		}
	}
	if n := len(must(s.Attention(background, 5, true))(t)); n != 3 {
		t.Fatalf("%d operations need a verdict", n)
	}
}

func TestNoStatementReadsWhatIsFinished(t *testing.T) {
	s := open(t, &Options{Readers: 1})
	live(t, s)
	plans := explain(t, s)
	if len(plans) < 30 {
		t.Fatalf("only %d statements were looked at", len(plans))
	}
	for text, plan := range plans {
		for _, line := range plan {
			// A scan is of a whole table or a whole index; so is a search for everything after a row. Of the indexes,
			// only the partial ones of what is active are small.
			wide := strings.HasPrefix(line, "SCAN ") && !passing(line)
			if (wide && !small(line)) || strings.Contains(line, "INTEGER PRIMARY KEY (rowid>?)") {
				t.Errorf("%s\n\t%s", line, text)
			}
		}
	}
}

// passing reports whether what is scanned is no table of ours, or what the statement itself has found: one row a tenant.
func passing(line string) bool {
	for _, name := range []string{
		"sqlite_master", "pragma_database_list", "json_each", "CONSTANT ROW", "tenants", "pending", "uncertain",
	} {
		if line == "SCAN "+name || strings.HasPrefix(line, "SCAN "+name+" VIRTUAL") {
			return true
		}
	}
	return false
}

// small reports whether a scanned index holds only what is active, broken, or in conflict.
func small(line string) bool {
	for _, name := range []string{
		"leadonce_events_open", "leadonce_events_due", "leadonce_events_held",
		"leadonce_operations_pending", "leadonce_operations_blocked", "leadonce_operations_sending",
		"leadonce_operations_uncertain", "leadonce_operations_reconcile", "leadonce_operations_unfinished",
		"leadonce_operations_conflict", "leadonce_operations_broken", "leadonce_operations_canceled", "leadonce_deals_broken",
	} {
		if strings.HasSuffix(line, "INDEX "+name) {
			return true
		}
	}
	return false
}

func TestHotStatementsUseTheirPartialIndex(t *testing.T) {
	s := open(t, &Options{Readers: 1})
	live(t, s)
	plans := explain(t, s)
	for _, want := range []struct{ part, index string }{
		{"where e.tenant = ? and e.ended_at = 0 and e.due_at <= ? and not exists", "leadonce_events_due (tenant=? AND due_at<?)"},
		{"o.ordering_key = e.ordering_key", "leadonce_events_open"},
		{"ordering_key = ? and ended_at = 0 order by id", "leadonce_events_open"},
		{"where tenant = ? and state = 'pending' and blocked = 0 and broken = 0 and due_at <= ?",
			"leadonce_operations_pending (tenant=? AND due_at<?)"},
		{"where tenant = ? and state = 'uncertain' and broken = 0 and due_at <= ? and adapter",
			"leadonce_operations_uncertain (tenant=? AND due_at<?)"},
		{"where tenant = ? and state = 'uncertain' and broken = 0 and due_at <= ?\n\t\t\torder",
			"leadonce_operations_uncertain (tenant=? AND due_at<?)"},
		{"where tenant = ? and state = 'sending' and broken = 0 and lease_until <= ?",
			"leadonce_operations_sending (tenant=? AND lease_until<?)"},
		{"where tenant = ? and state = 'needs_reconciliation' and broken = 0 and due_at <= ?",
			"leadonce_operations_reconcile (tenant=? AND due_at<?)"},
		{"e.ended_at = 0 and e.tenant > tenants.tenant", "leadonce_events_due (tenant>?)"},
		{"o.state = 'pending' and o.blocked = 0 and o.broken = 0 and o.tenant > pending.tenant",
			"leadonce_operations_pending (tenant>?)"},
		{"o.state = 'uncertain' and o.broken = 0 and o.tenant > uncertain.tenant", "leadonce_operations_uncertain (tenant>?)"},
		{"o.state = 'sending' and o.broken = 0 and o.tenant > tenants.tenant", "leadonce_operations_sending (tenant>?)"},
		{"o.state = 'uncertain' and o.broken = 0 and o.tenant > tenants.tenant", "leadonce_operations_uncertain (tenant>?)"},
		{"o.state = 'needs_reconciliation' and o.broken = 0 and o.tenant > tenants.tenant",
			"leadonce_operations_reconcile (tenant>?)"},
		{"depends_on = ? and state = 'pending'", "leadonce_operations_blocked"},
		{"content_id = ? and content_id <> ''", "leadonce_events_content"},
		{"repeat_key = ? and repeat_key <> ''", "leadonce_events_repeat"},
		{"where l.operation_id = ? and e.ordering_key = ?", "leadonce_links_operation"},
		{"crm_id = ? and crm_id <> '' and tenant = ? and +ordering_key", "leadonce_deals_crm"},
		{"deal_id = ? and deal_id <> '' and state = 'pending'", "leadonce_operations_deal"},
		{"set ordering_key = ? where ordering_key = ? and ended_at = 0", "leadonce_events_open"},
		{"ordering_key = ? and not exists", "leadonce_deals_"},
	} {
		found := false
		for text, plan := range plans {
			if !strings.Contains(text, want.part) {
				continue
			}
			found = true
			lines := strings.Join(plan, "\n")
			if !strings.Contains(lines, want.index) || strings.Contains(lines, "TEMP B-TREE") {
				t.Errorf("%s\n\tis run as\n%s", text, lines)
			}
		}
		if !found {
			t.Errorf("no statement with %q was run", want.part)
		}
	}
}
