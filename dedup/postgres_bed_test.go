package dedup_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/telegram"
)

// postgres_bed_test.go: what the tests on PostgreSQL stand on: a store, a door, a processor, and what is found in the tables
// and in the CRM when everything is over. Time is real here.

// fullScale makes the tests on PostgreSQL as large as they are meant to be; without it they are small enough for every day.
var fullScale = os.Getenv("LEADONCE_TEST_SCALE") == "full"

// pgOptions are short times, as far as the processor takes them: what a killed worker held is free again after the lease.
func pgOptions() dedup.Options {
	return dedup.Options{CallTimeout: 2 * time.Second, Lease: 7600 * time.Millisecond, QuietPeriod: time.Second,
		BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second, Poll: 500 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler)}
}

func openPostgres(t *testing.T, dsn string) *postgres.Store {
	t.Helper()
	st, err := postgres.Open(t.Context(), dsn, &postgres.Options{MaxConns: 8, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// runPostgres runs a processor over st until the test ends.
func runPostgres(t *testing.T, st store.Store, a crm.Adapter, rule dedup.Rule, change ...func(*dedup.Options)) {
	t.Helper()
	o := pgOptions()
	for _, f := range change {
		f(&o)
	}
	p, err := dedup.NewProcessor(st, a, rule, &o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("drain: %v", err)
		}
	})
}

// doorHandler is the middleware as a bot has it, with a bot behind it that counts its calls.
func doorHandler(st store.Store, calls *atomic.Int64) (http.Handler, error) {
	src, err := telegram.NewSource(6001, doorSecret, nil)
	if err != nil {
		return nil, err
	}
	o := &dedup.MiddlewareOptions{Logger: slog.New(slog.DiscardHandler)}
	return dedup.Middleware(st, src, o)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })), nil
}

// serveDoor serves the door of st.
func serveDoor(t *testing.T, st store.Store) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	h, err := doorHandler(st, calls)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL, calls
}

// enquiry is the n-th message of a person; its text is in no other.
type enquiry struct{ person, n int }

func (e enquiry) text() string { return fmt.Sprintf("person %d asks %d", e.person, e.n) }

func (e enquiry) body() string {
	return fmt.Sprintf(`{"update_id":%d,"message":{"message_id":%d,"date":1700000000,"text":%q,"from":{"id":%d,"is_bot":false,`+
		`"first_name":"Anna"},"chat":{"id":%d,"type":"private"}}}`, e.person*1000+e.n, e.n, e.text(), e.person, e.person)
}

// telegramClient posts as Telegram does.
var telegramClient = &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// post delivers once, and reports whether that was acknowledged.
func post(ctx context.Context, url, body string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set(telegram.SecretHeader, doorSecret)
	resp, err := telegramClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// deliver repeats a delivery until it is acknowledged: once more as Telegram does, in less time.
func deliver(ctx context.Context, url func() string, body string) bool {
	for ctx.Err() == nil {
		if post(ctx, url(), body) {
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// made is an event and what became of it.
type made struct {
	event                             int64
	update, key, state, reason        string
	op, kind, deal, opState, opReason string // opReason: why
	seq                               int64
	crmID                             string
}

// found reads the chain event → operation in the order of the events. An event without an operation has one row too.
func found(t *testing.T, dsn string) (list []made) {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query(`
		select e.id, e.update_id, e.ordering_key, e.state, e.reason, coalesce(o.id, ''), coalesce(o.kind, ''),
			coalesce(o.deal_id, ''), coalesce(o.state, ''), coalesce(o.reason, ''), coalesce(o.seq, 0),
			coalesce(o.crm_id, '')
		from leadonce.leadonce_events e
			left join leadonce.leadonce_links l on l.event_id = e.id
			left join leadonce.leadonce_operations o on o.id = l.operation_id
		order by e.id, o.seq`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var m made
		if err := rows.Scan(&m.event, &m.update, &m.key, &m.state, &m.reason, &m.op, &m.kind, &m.deal, &m.opState, &m.opReason,
			&m.seq, &m.crmID); err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return list
}

// settled waits until nothing is unfinished but what ok allows, or until patience ends.
func settled(t *testing.T, st *postgres.Store, patience time.Duration, ok func(store.Operation) bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		left := ""
		stats, err := st.Stats(context.Background())
		if err != nil {
			left = err.Error()
		} else if len(stats.Events) > 0 {
			left = fmt.Sprintf("events %+v", stats.Events)
		} else {
			left = unfinished(st, ok)
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("unfinished after %v: %s", patience, left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func unfinished(st *postgres.Store, ok func(store.Operation) bool) string {
	f := store.OperationFilter{States: []store.State{store.Pending, store.Sending, store.Uncertain, store.NeedsReconciliation,
		store.Failed}, Limit: 1000}
	for {
		ops, err := st.Operations(context.Background(), f)
		if err != nil {
			return err.Error()
		}
		for _, op := range ops {
			if f.After = op.ID; ok == nil || !ok(op) {
				return show(ops[:min(len(ops), 5)])
			}
		}
		if len(ops) < f.Limit {
			return ""
		}
	}
}

// oneLeadEach checks that every one of so many enquiries is one deal's create and one lead, planned in the order in which
// they were delivered. Each of open may be without a lead yet: it waits for a person.
func oneLeadEach(t *testing.T, list []made, sim *crmtest.Simulator, want int) (open int) {
	t.Helper()
	texts := map[string]int{}
	for _, l := range sim.Leads() {
		texts[l.Lead.Title]++
	}
	seen, ops := map[string]bool{}, map[string]bool{}
	for _, m := range list {
		var e enquiry
		fmt.Sscan(m.update, &e.n)
		e.person, e.n = e.n/1000, e.n%1000
		n := sim.Created(m.op)
		switch {
		case seen[m.update]:
			t.Errorf("update %s has two rows or two operations", m.update)
		case m.state != "planned" || m.kind != string(crm.KindCreate):
			t.Errorf("update %s is %s (%s) with operation %q, want planned and a create", m.update, m.state, m.reason, m.kind)
		case ops[m.op]:
			t.Errorf("operation %s belongs to two updates", m.op)
		case n > 1 || texts[e.text()] != n:
			t.Errorf("update %s: %d leads by its operation, %d by its text", m.update, n, texts[e.text()])
		case m.opState == string(store.NeedsReconciliation) && n == 0:
			open++
		case m.opState != string(store.Done) || n != 1:
			t.Errorf("update %s: operation %s is %s (%s), %d leads", m.update, m.op, m.opState, m.opReason, n)
		}
		if l, ok := sim.Lead(m.crmID); m.opState == string(store.Done) && (!ok || l.OpID != m.op) {
			t.Errorf("update %s: operation %s points to lead %q of operation %q", m.update, m.op, m.crmID, l.OpID)
		}
		seen[m.update], ops[m.op] = true, true
	}
	inOrder(t, list, want)
	if got := len(sim.Leads()); got != want-open {
		t.Errorf("%d leads in the CRM, want %d", got, want-open)
	}
	return open
}

// inOrder checks that so many updates are stored and that those of one key, whose ids grow in the order in which each was
// delivered after the one before was acknowledged, were accepted and planned in that order.
func inOrder(t *testing.T, list []made, want int) {
	t.Helper()
	last, seen := map[string]made{}, map[string]bool{}
	for _, m := range list {
		seen[m.update] = true
		if before, ok := last[m.key]; ok && before.seq >= m.seq {
			t.Errorf("update %s was planned after %s, which was accepted after it", before.update, m.update)
		} else if ok && number(before.update) >= number(m.update) {
			t.Errorf("update %s was accepted after %s, which was delivered when it was acknowledged", before.update, m.update)
		}
		last[m.key] = m
	}
	if len(seen) != want {
		t.Errorf("%d updates are stored, %d were acknowledged", len(seen), want)
	}
}

func number(s string) (n int) {
	fmt.Sscan(s, &n)
	return n
}

// oneRequestEach checks that no create was sent twice.
func oneRequestEach(t *testing.T, list []made, sim *crmtest.Simulator) {
	t.Helper()
	for _, m := range list {
		if n := sim.Requests(crm.KindCreate, m.op); n > 1 {
			t.Errorf("update %s: %d create requests reached the CRM", m.update, n)
		}
	}
}

// simulator serves a CRM for other processes and real time.
func simulator(t *testing.T, c crmtest.Config) (*crmtest.Simulator, *crmtest.Server) {
	t.Helper()
	sim := crmtest.NewSimulator(c)
	srv, err := sim.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { srv.Close() })
	return sim, srv
}

func execSQL(t *testing.T, dsn, text string) {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Errorf("%s: %v", text, err)
	}
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%s did not come", what)
			return
		}
	}
}

// createOf waits for the operation that an event is planned into.
func createOf(t *testing.T, st *postgres.Store, event int64) (id string) {
	t.Helper()
	until(t, "the plan", func() bool {
		ops, err := st.Operations(context.Background(), store.OperationFilter{EventID: event})
		if err == nil && len(ops) == 1 {
			id = ops[0].ID
		}
		return id != ""
	})
	return id
}

// waitFor waits until an operation that was sent stands in a state.
func waitFor(t *testing.T, st *postgres.Store, id string, state store.State) (op store.Operation) {
	t.Helper()
	until(t, "state "+string(state), func() bool {
		var err error
		op, err = st.Operation(context.Background(), id)
		return err == nil && op.State == state && op.Attempts > 0
	})
	return op
}
