package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/leadonce/leadonce/store"
)

// fail.go: a store whose n-th call fails.

// ErrInjected is in every error that [Fail] makes.
var ErrInjected = errors.New("injected failure")

// When says on which side of its effect a call fails.
type When int

// The two sides.
const (
	// Before: nothing was done. The error also is store.ErrUnavailable.
	Before When = iota
	// After: it was done, and the answer was lost. The results are zero, as a caller that lost the answer has none.
	After
)

// String returns "before" or "after".
func (w When) String() string {
	if w == After {
		return "after"
	}
	return "before"
}

// Failing passes calls to a store on and makes one of them fail. Its methods may be called by any number of goroutines.
type Failing struct {
	next    Backend
	n       int
	when    When
	methods []string

	mu       sync.Mutex
	calls    int
	byMethod map[string]int
	failed   string
}

var (
	_ Backend        = (*Failing)(nil)
	_ store.Accounts = (*Failing)(nil)
)

// Fail returns st with its n-th call (from 0) failing, once: counted among the calls of the named methods ("Accept",
// "CommitPlan", …), or among all if none is named. A negative n fails none and only counts. Subscribe has no error and is
// passed on uncounted.
func Fail(st Backend, n int, when When, methods ...string) *Failing {
	return &Failing{next: st, n: n, when: when, methods: methods, byMethod: map[string]int{}}
}

// Calls returns how many calls of the named methods were made so far, or of all if none is named.
func (f *Failing) Calls(methods ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for m, c := range f.byMethod {
		if len(methods) == 0 || slices.Contains(methods, m) {
			n += c
		}
	}
	return n
}

// Failed returns the method whose call failed, or "" if none did yet. A sweep over n ends with the first run where it is
// empty.
func (f *Failing) Failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// hit counts a call and returns the error that it has to end with, if any.
func (f *Failing) hit(method string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byMethod[method]++
	if len(f.methods) > 0 && !slices.Contains(f.methods, method) {
		return nil
	}
	n := f.calls
	f.calls++
	if n != f.n {
		return nil
	}
	f.failed = method
	if f.when == Before {
		return fmt.Errorf("storetest: call %d, %s, before its effect: %w: %w", n, method, ErrInjected, store.ErrUnavailable)
	}
	return fmt.Errorf("storetest: call %d, %s, after its effect: %w", n, method, ErrInjected)
}

// through makes a call with one result. An error of the store itself goes first.
func through[T any](f *Failing, method string, call func() (T, error)) (T, error) {
	var zero T
	injected := f.hit(method)
	if injected != nil && f.when == Before {
		return zero, injected
	}
	v, err := call()
	if err == nil && injected != nil {
		return zero, injected
	}
	return v, err
}

// Accept implements store.Store.
func (f *Failing) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	return through(f, "Accept", func() (store.Receipt, error) { return f.next.Accept(ctx, e) })
}

// Submit implements store.Store.
func (f *Failing) Submit(ctx context.Context, s store.Submission) (store.Operation, error) {
	return through(f, "Submit", func() (store.Operation, error) { return f.next.Submit(ctx, s) })
}

// DueKeys implements store.Store.
func (f *Failing) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	return through(f, "DueKeys", func() ([]store.DueKey, error) { return f.next.DueKeys(ctx, limit, tenants...) })
}

// ReadKey implements store.Store.
func (f *Failing) ReadKey(ctx context.Context, key string, dealKeys ...string) (store.KeyView, error) {
	return through(f, "ReadKey", func() (store.KeyView, error) { return f.next.ReadKey(ctx, key, dealKeys...) })
}

// CommitPlan implements store.Store.
func (f *Failing) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	return through(f, "CommitPlan", func() ([]store.Operation, error) { return f.next.CommitPlan(ctx, p) })
}

// Claim implements store.Store.
func (f *Failing) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	return through(f, "Claim", func() ([]store.Operation, error) { return f.next.Claim(ctx, c) })
}

// Advance implements store.Store.
func (f *Failing) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	return through(f, "Advance", func() (store.Operation, error) { return f.next.Advance(ctx, r) })
}

// Attention implements store.Store.
func (f *Failing) Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
	return through(f, "Attention", func() ([]store.Operation, error) {
		return f.next.Attention(ctx, limit, lookups, tenants...)
	})
}

// Stats implements store.Store.
func (f *Failing) Stats(ctx context.Context) (store.Stats, error) {
	return through(f, "Stats", func() (store.Stats, error) { return f.next.Stats(ctx) })
}

// Subscribe implements store.Store.
func (f *Failing) Subscribe(h func(store.Hint)) (cancel func()) { return f.next.Subscribe(h) }

// Operation implements store.Reader.
func (f *Failing) Operation(ctx context.Context, id string) (store.Operation, error) {
	return through(f, "Operation", func() (store.Operation, error) { return f.next.Operation(ctx, id) })
}

// Operations implements store.Reader.
func (f *Failing) Operations(ctx context.Context, q store.OperationFilter) ([]store.Operation, error) {
	return through(f, "Operations", func() ([]store.Operation, error) { return f.next.Operations(ctx, q) })
}

// Events implements store.Reader.
func (f *Failing) Events(ctx context.Context, q store.EventFilter) ([]store.EventRow, error) {
	return through(f, "Events", func() ([]store.EventRow, error) { return f.next.Events(ctx, q) })
}

// Trail implements store.Reader.
func (f *Failing) Trail(ctx context.Context, operationID string) ([]store.TrailEntry, error) {
	return through(f, "Trail", func() ([]store.TrailEntry, error) { return f.next.Trail(ctx, operationID) })
}

// RetryEvent implements store.Operator.
func (f *Failing) RetryEvent(ctx context.Context, id int64, by, why string) error {
	_, err := through(f, "RetryEvent", func() (struct{}, error) { return struct{}{}, f.next.RetryEvent(ctx, id, by, why) })
	return err
}

// Accounts implements store.Accounts, if the store under it does.
func (f *Failing) Accounts(ctx context.Context, source string) ([]store.Account, error) {
	return through(f, "Accounts", func() ([]store.Account, error) {
		a, ok := f.next.(store.Accounts)
		if !ok {
			return nil, errNoAccounts
		}
		return a.Accounts(ctx, source)
	})
}

// AddAccount implements store.Accounts, if the store under it does.
func (f *Failing) AddAccount(ctx context.Context, a store.Account) error {
	_, err := through(f, "AddAccount", func() (struct{}, error) {
		next, ok := f.next.(store.Accounts)
		if !ok {
			return struct{}{}, errNoAccounts
		}
		return struct{}{}, next.AddAccount(ctx, a)
	})
	return err
}

var errNoAccounts = fmt.Errorf("storetest: the store under Fail is no store.Accounts: %w", errors.ErrUnsupported)
