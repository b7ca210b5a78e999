package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/leadonce/leadonce/store"
)

// mutants_test.go: stores that break one promise each. The check that is about the promise has to fail on the mutant and
// pass on the real store: a suite that no store can fail proves nothing.

// mutant is a backend with some methods replaced.
type mutant struct {
	Backend
	accept    func(ctx context.Context, e store.Event) (store.Receipt, error)
	submit    func(ctx context.Context, s store.Submission) (store.Operation, error)
	commit    func(ctx context.Context, p store.Plan) ([]store.Operation, error)
	claim     func(ctx context.Context, c store.Claim) ([]store.Operation, error)
	advance   func(ctx context.Context, r store.Report) (store.Operation, error)
	attention func(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error)
	dueKeys   func(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error)
	readKey   func(ctx context.Context, key string) (store.KeyView, error)
	stats     func(ctx context.Context) (store.Stats, error)
	ops       func(ctx context.Context, f store.OperationFilter) ([]store.Operation, error)
	trail     func(ctx context.Context, id string) ([]store.TrailEntry, error)
	retry     func(ctx context.Context, id int64, by, why string) error
	subscribe func(f func(store.Hint)) func()
	account   func(a *store.Account) // changes what is remembered
}

func (m *mutant) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	if m.accept != nil {
		return m.accept(ctx, e)
	}
	return m.Backend.Accept(ctx, e)
}

func (m *mutant) Submit(ctx context.Context, s store.Submission) (store.Operation, error) {
	if m.submit != nil {
		return m.submit(ctx, s)
	}
	return m.Backend.Submit(ctx, s)
}

func (m *mutant) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	if m.commit != nil {
		return m.commit(ctx, p)
	}
	return m.Backend.CommitPlan(ctx, p)
}

func (m *mutant) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	if m.claim != nil {
		return m.claim(ctx, c)
	}
	return m.Backend.Claim(ctx, c)
}

func (m *mutant) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	if m.advance != nil {
		return m.advance(ctx, r)
	}
	return m.Backend.Advance(ctx, r)
}

func (m *mutant) Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
	if m.attention != nil {
		return m.attention(ctx, limit, lookups, tenants...)
	}
	return m.Backend.Attention(ctx, limit, lookups, tenants...)
}

func (m *mutant) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	if m.dueKeys != nil {
		return m.dueKeys(ctx, limit, tenants...)
	}
	return m.Backend.DueKeys(ctx, limit, tenants...)
}

func (m *mutant) ReadKey(ctx context.Context, key string, dealKeys ...string) (store.KeyView, error) {
	if m.readKey != nil {
		return m.readKey(ctx, key)
	}
	return m.Backend.ReadKey(ctx, key, dealKeys...)
}

func (m *mutant) Stats(ctx context.Context) (store.Stats, error) {
	if m.stats != nil {
		return m.stats(ctx)
	}
	return m.Backend.Stats(ctx)
}

func (m *mutant) Operations(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
	if m.ops != nil {
		return m.ops(ctx, f)
	}
	return m.Backend.Operations(ctx, f)
}

func (m *mutant) Trail(ctx context.Context, id string) ([]store.TrailEntry, error) {
	if m.trail != nil {
		return m.trail(ctx, id)
	}
	return m.Backend.Trail(ctx, id)
}

func (m *mutant) RetryEvent(ctx context.Context, id int64, by, why string) error {
	if m.retry != nil {
		return m.retry(ctx, id, by, why)
	}
	return m.Backend.RetryEvent(ctx, id, by, why)
}

func (m *mutant) Subscribe(f func(store.Hint)) func() {
	if m.subscribe != nil {
		return m.subscribe(f)
	}
	return m.Backend.Subscribe(f)
}

func (m *mutant) Accounts(ctx context.Context, source string) ([]store.Account, error) {
	return m.Backend.(store.Accounts).Accounts(ctx, source)
}

func (m *mutant) AddAccount(ctx context.Context, a store.Account) error {
	if m.account != nil {
		m.account(&a)
	}
	return m.Backend.(store.Accounts).AddAccount(ctx, a)
}

// mutate puts the mutant around every handle.
func mutate(s Subject, breaks func(m *mutant)) Subject {
	wrap := func(st Backend) Backend {
		m := &mutant{Backend: st}
		breaks(m)
		return m
	}
	second, reopen := s.Second, s.Reopen
	s.Backend = wrap(s.Backend)
	s.Second = func() Backend { return wrap(second()) }
	s.Reopen = func() Backend { return wrap(reopen()) }
	return s
}

func TestMutants(t *testing.T) {
	sound := map[string]bool{} // the checks that were seen to pass
	for _, m := range slices.Concat(doorMutants(), planMutants(), claimMutants(), advanceMutants(), readMutants(),
		handledMutants(), stageMutants(), mergeMutants(), adoptMutants(), tenantMutants(), fairMutants()) {
		t.Run(m.name, func(t *testing.T) {
			for _, name := range m.fails {
				k := find(t, m.concern, name)
				if !sound[name] {
					if r := try(t, k, openSQLite(t)); r.Failed() || r.Skipped() {
						t.Fatalf("%s/%s does not pass on the real store: %q", m.concern, name, r.said)
					}
					sound[name] = true
				}
				r := try(t, k, mutate(openSQLite(t), m.breaks))
				for n := 1; n < 8 && !r.Failed() && m.concern == "concurrent"; n++ { // it needs a little luck
					r = try(t, k, mutate(openSQLite(t), m.breaks))
				}
				if !r.Failed() {
					t.Errorf("%s/%s does not see it (skipped %v)", m.concern, name, r.Skipped())
				}
				t.Logf("%s/%s: %.300q", m.concern, name, r.said)
			}
		})
	}
}

func TestForgetfulStore(t *testing.T) {
	for _, name := range []string{"everything acknowledged is found again", "a lease outlives its process, and ends"} {
		s := openSQLite(t)
		s.Reopen = func() Backend { return openSQLite(t).Backend }
		if r := try(t, find(t, "durable", name), s); !r.Failed() {
			t.Errorf("durable/%s does not see that everything is gone", name)
		}
	}
}

func TestMissingHooks(t *testing.T) {
	for concern, name := range map[string]string{
		"claim":   "an operation is not sent before it is due",
		"accept":  "a head start counts only while the accepting handle has a subscriber",
		"durable": "everything acknowledged is found again",
		"corrupt": "a broken operation is named when it is read",
		"advance": "an operation without fields takes only evidence and cancel",
	} {
		r := try(t, find(t, concern, name), Subject{Backend: openSQLite(t).Backend})
		if !r.Skipped() || r.Failed() || len(r.said) != 1 {
			t.Errorf("%s/%s without its hook: skipped %v, failed %v, said %q", concern, name, r.Skipped(), r.Failed(), r.said)
		}
	}
}

func TestMissingInterfaces(t *testing.T) {
	plain := struct{ Backend }{openSQLite(t).Backend} // hides what is more than a Backend
	r := try(t, find(t, "accounts", "an account is remembered, once"), Subject{Backend: plain})
	if !r.Skipped() || r.Failed() || len(r.said) != 1 {
		t.Errorf("without store.Accounts: skipped %v, failed %v, said %q", r.Skipped(), r.Failed(), r.said)
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range concerns() {
		for _, k := range c.checks {
			if seen[c.name+k.name] || k.run == nil || k.name == "" {
				t.Errorf("check %q in %s is there twice, or empty", k.name, c.name)
			}
			seen[c.name+k.name] = true
		}
	}
}

// broken is a promise that a mutant breaks, and the checks of one concern that have to see it.
type broken struct {
	name    string
	concern string
	fails   []string
	breaks  func(m *mutant)
}

func doorMutants() []broken {
	accepts := func(f func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error)) func(m *mutant) {
		return func(m *mutant) {
			m.accept = func(ctx context.Context, e store.Event) (store.Receipt, error) { return f(ctx, m.Backend, e) }
		}
	}
	stored := func(ctx context.Context, st Backend, e store.Event) []store.EventRow {
		rows, _ := st.Events(ctx, store.EventFilter{Bot: e.Bot, UpdateID: e.UpdateID})
		return rows
	}
	return []broken{
		{"calls a duplicate new", "accept",
			[]string{"the same event twice adds nothing", "the same event in 64 concurrent calls is one row"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				r, err := st.Accept(ctx, e)
				r.Duplicate = false
				return r, err
			})},
		{"stores a duplicate", "accept",
			[]string{"the same event twice adds nothing", "a call that was given up is safe to repeat"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.Hash, e.Fingerprints = fmt.Sprint(e.Hash, len(stored(ctx, st, e))), nil
				return st.Accept(ctx, e)
			})},
		{"swallows a reused id", "accept",
			[]string{"a reused id is the next epoch, and nothing is swallowed"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				if rows := stored(ctx, st, e); len(rows) > 0 {
					return store.Receipt{EventID: rows[0].ID, Duplicate: true}, nil
				}
				return st.Accept(ctx, e)
			})},
		{"compares with the latest epoch alone", "accept", []string{"a repeat matches an older epoch"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				if rows := stored(ctx, st, e); len(rows) > 0 && rows[len(rows)-1].Hash != e.Hash {
					e.Hash, e.Fingerprints = fmt.Sprint(e.Hash, " epoch ", len(rows)), nil
				}
				return st.Accept(ctx, e)
			})},
		{"compares bytes alone", "accept", []string{"an equal fingerprint is the same event though the bytes differ"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.Fingerprints = nil
				return st.Accept(ctx, e)
			})},
		{"compares fingerprints alone", "accept",
			[]string{"equal bytes are the same event though the fingerprint differs"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				if len(e.Fingerprints) > 0 {
					e.Hash = e.Fingerprints[0].Sum
				}
				return st.Accept(ctx, e)
			})},
		{"compares the current fingerprint alone", "accept",
			[]string{"a row is compared in its own fingerprint version"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.Fingerprints = e.Fingerprints[:min(1, len(e.Fingerprints))]
				return st.Accept(ctx, e)
			})},
		{"forgets the fingerprint's version", "accept",
			[]string{"an equal sum in another fingerprint version is no match"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.Fingerprints = slices.Clone(e.Fingerprints)
				for i := range e.Fingerprints {
					e.Fingerprints[i].Version = 1
				}
				return st.Accept(ctx, e)
			})},
		{"mixes tenants", "accept", []string{"tenants, bots and sources don't mix"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.Tenant = ""
				return st.Accept(ctx, e)
			})},
		{"acknowledges before it stores", "accept", []string{"an event is stored as it came"},
			accepts(func(_ context.Context, _ Backend, e store.Event) (store.Receipt, error) {
				return store.Receipt{EventID: 1}, nil
			})},
		{"drops what it does not understand", "accept", []string{"a quarantined event is kept raw and not planned"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				if e.Quarantine != "" {
					e.Payload = nil
				}
				return st.Accept(ctx, e)
			})},
		{"plans what it does not understand", "accept", []string{"a quarantined event is kept raw and not planned"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.Quarantine = ""
				return st.Accept(ctx, e)
			})},
		{"cuts a payload at the first NUL", "accept", []string{"odd bytes come back as they went in"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				if i := slices.Index(e.Payload, 0); i >= 0 {
					e.Payload = e.Payload[:i]
				}
				return st.Accept(ctx, e)
			})},
		{"takes a head start from itself alone", "accept",
			[]string{"a head start counts only while the accepting handle has a subscriber"},
			accepts(func(ctx context.Context, st Backend, e store.Event) (store.Receipt, error) {
				e.HeadStart = 0
				return st.Accept(ctx, e)
			})},
		{"takes another lead for the same submission", "submit",
			[]string{"the id again with another lead is ErrKeyReused beside the first operation"},
			func(m *mutant) {
				m.submit = func(ctx context.Context, s store.Submission) (store.Operation, error) {
					o, err := m.Backend.Submit(ctx, s)
					if errors.Is(err, store.ErrKeyReused) {
						err = nil
					}
					return o, err
				}
			}},
		{"refuses a repeated submission", "submit", []string{"the same submission again is the operation as it stands"},
			func(m *mutant) {
				m.submit = func(ctx context.Context, s store.Submission) (store.Operation, error) {
					if o, err := m.Backend.Operation(ctx, s.Operation.ID); err == nil {
						return o, store.ErrKeyReused
					}
					return m.Backend.Submit(ctx, s)
				}
			}},
	}
}
