package bottest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// mortal.go: a store whose process dies at a call, and which fails while a file exists.

var errFault = errors.New("the disk is full, says the test")

type mortal struct {
	*sqlite.Store
	killAt string
	fault  string

	mu    sync.Mutex
	trail *os.File
	calls map[string]int
}

func newMortal(st store.Store, o orders) store.Store {
	f, err := os.OpenFile(trailFile(o.Dir), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return &mortal{Store: st.(*sqlite.Store), killAt: o.KillAt, fault: faultFile(o.Dir), trail: f, calls: map[string]int{}}
}

// enter counts a call, writes it down, dies before it if that was ordered, and returns its name.
func (m *mortal) enter(method string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[method]++
	name := fmt.Sprintf("store %s %d", method, m.calls[method])
	if _, err := fmt.Fprintln(m.trail, name); err != nil {
		panic(err)
	}
	if m.killAt == name+before {
		die()
	}
	if _, err := os.Stat(m.fault); err == nil {
		return name, fmt.Errorf("%s: %w: %w", method, errFault, store.ErrUnavailable)
	}
	return name, nil
}

const (
	before = " before"
	after  = " after"
)

func through[T any](m *mortal, method string, call func() (T, error)) (T, error) {
	name, err := m.enter(method)
	if err != nil {
		var none T
		return none, err
	}
	v, err := call()
	if m.killAt == name+after {
		die()
	}
	return v, err
}

func (m *mortal) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	return through(m, "Accept", func() (store.Receipt, error) { return m.Store.Accept(ctx, e) })
}

func (m *mortal) Submit(ctx context.Context, s store.Submission) (store.Operation, error) {
	return through(m, "Submit", func() (store.Operation, error) { return m.Store.Submit(ctx, s) })
}

func (m *mortal) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	return through(m, "DueKeys", func() ([]store.DueKey, error) { return m.Store.DueKeys(ctx, limit, tenants...) })
}

func (m *mortal) ReadKey(ctx context.Context, key string, dealKeys ...string) (store.KeyView, error) {
	return through(m, "ReadKey", func() (store.KeyView, error) { return m.Store.ReadKey(ctx, key, dealKeys...) })
}

func (m *mortal) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	return through(m, "CommitPlan", func() ([]store.Operation, error) { return m.Store.CommitPlan(ctx, p) })
}

func (m *mortal) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	return through(m, "Claim", func() ([]store.Operation, error) { return m.Store.Claim(ctx, c) })
}

func (m *mortal) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	return through(m, "Advance", func() (store.Operation, error) { return m.Store.Advance(ctx, r) })
}

func (m *mortal) Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
	return through(m, "Attention", func() ([]store.Operation, error) { return m.Store.Attention(ctx, limit, lookups, tenants...) })
}

func (m *mortal) Accounts(ctx context.Context, source string) ([]store.Account, error) {
	return through(m, "Accounts", func() ([]store.Account, error) { return m.Store.Accounts(ctx, source) })
}

func (m *mortal) AddAccount(ctx context.Context, a store.Account) error {
	_, err := through(m, "AddAccount", func() (struct{}, error) { return struct{}{}, m.Store.AddAccount(ctx, a) })
	return err
}
