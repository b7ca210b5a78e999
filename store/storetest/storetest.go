package storetest

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
)

// storetest.go: what a backend hands in, and how the checks are run.

// Backend is everything that a handle on a store offers.
type Backend interface {
	store.Store
	store.Reader
	store.Operator
}

// Tables that Subject.Corrupt is asked to break a row of.
const (
	TableEvents     = "events"     // id: the decimal EventRow.ID
	TableOperations = "operations" // id: Operation.ID
	TableDeals      = "deals"      // id: Deal.ID
)

// Subject is one fresh, empty store and the means to bring it into odd situations. Only Backend is required; checks that
// need a hook that is missing are skipped, and say so.
type Subject struct {
	Backend Backend

	// Advance moves the clock of every handle on this store forward. Without it nothing that waits can be tested.
	Advance func(d time.Duration)
	// Second opens another handle on the same database, as another process would.
	Second func() Backend
	// Reopen closes the first handle, opens the same database again and returns the new handle. It is called at most once.
	Reopen func() Backend
	// Corrupt damages a row so that it can't be read any more, as a bad disk sector or a hand in the database would. The
	// columns that the row is found by (its id and state, its ordering key) stay as they are.
	Corrupt func(table, id string) error
	// Erase removes the fields of an operation, as retention does.
	Erase func(operationID string) error
}

// Run runs the whole suite. open is called once for each check, and closes what it opened by t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	for _, c := range concerns() {
		t.Run(c.name, func(t *testing.T) {
			for _, k := range c.checks {
				t.Run(k.name, func(t *testing.T) { k.run(newBench(t, open(t))) })
			}
		})
	}
}

// check is one promise. It is a value and not a test function so that it can also be run against a store that breaks the
// promise, to see it fail.
type check struct {
	name string
	run  func(*bench)
}

type concern struct {
	name   string
	checks []check
}

// concerns lists the suite, one file or a few each.
func concerns() []concern {
	return []concern{
		{"accept", slices.Concat(acceptChecks(), identityChecks())},
		{"submit", submitChecks()},
		{"adopt", adoptChecks()},
		{"plan", slices.Concat(planChecks(), planChangeChecks(), planEventChecks())},
		{"handled", handledChecks()},
		{"stage", stageChecks()},
		{"merge", mergeChecks()},
		{"claim", claimChecks()},
		{"tenant", tenantChecks()},
		{"fair", fairChecks()},
		{"advance", slices.Concat(advanceChecks(), effectChecks())},
		{"evidence", evidenceChecks()},
		{"verdict", verdictChecks()},
		{"attention", attentionChecks()},
		{"stats", statsChecks()},
		{"reader", readerChecks()},
		{"accounts", accountChecks()},
		{"hints", hintChecks()},
		{"corrupt", corruptChecks()},
		{"durable", durableChecks()},
		{"concurrent", concurrentChecks()},
	}
}

// bench is what a check works at: a test, a store, and short ways to say things. Fatal and its kin may be called only by
// the goroutine of the check.
type bench struct {
	testing.TB
	Subject
	ctx context.Context
	st  Backend // the first handle
}

func newBench(t testing.TB, s Subject) *bench {
	if s.Backend == nil {
		t.Fatal("storetest: Subject.Backend is nil")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	return &bench{TB: t, Subject: s, ctx: ctx, st: s.Backend}
}

// wait moves the clock, or skips the check.
func (b *bench) wait(d time.Duration) {
	b.Helper()
	if b.Advance == nil {
		b.Skip("the subject has no Advance: its clock can't be moved")
	}
	b.Advance(d)
}

// second opens another handle, or skips the check.
func (b *bench) second() Backend {
	b.Helper()
	if b.Second == nil {
		b.Skip("the subject has no Second: no other process can be played")
	}
	return b.Second()
}

// reopen closes and opens the database, or skips the check.
func (b *bench) reopen() {
	b.Helper()
	if b.Reopen == nil {
		b.Skip("the subject has no Reopen: what is durable can't be seen")
	}
	b.st = b.Reopen()
}

// corrupt breaks a row, or skips the check.
func (b *bench) corrupt(table, id string) {
	b.Helper()
	if b.Corrupt == nil {
		b.Skip("the subject has no Corrupt: no row can be broken")
	}
	b.must(b.Corrupt(table, id))
}

// erase removes the fields of an operation, or skips the check.
func (b *bench) erase(id string) {
	b.Helper()
	if b.Erase == nil {
		b.Skip("the subject has no Erase: no payload can be removed")
	}
	b.must(b.Erase(id))
}

// seed returns the seed of a randomized check: STORETEST_SEED, or a new one. It is printed when the check fails.
func (b *bench) seed() uint64 {
	b.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := strings.TrimSpace(os.Getenv("STORETEST_SEED")); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			b.Fatalf("STORETEST_SEED: %v", err)
		}
		seed = n
	}
	b.Logf("STORETEST_SEED=%d", seed)
	return seed
}
