package pgtest

// pgtest.go: the cluster that all tests of a binary share, and what happens where no PostgreSQL is installed.

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
)

// shared belongs to the process, as the test binary's flags do: tests of one package have no other place in common.
var shared struct {
	once sync.Once
	c    *Cluster
	err  error
}

// DSN returns the URL of a new, empty database on the cluster that all tests of this binary share. The database is dropped
// when the test and its subtests are over, sessions included. The user is a superuser. Safe for parallel tests; what a test does
// to the server itself (settings, restarts, killed backends) is done to a cluster of its own: see [Start].
func DSN(t testing.TB) string {
	t.Helper()
	shared.once.Do(func() {
		if shared.c, shared.err = start(nil); shared.err == nil {
			shared.c.shared = true
		}
	})
	if shared.err != nil {
		unavailable(t, shared.err)
	}
	return shared.c.DSN(t)
}

// Main runs the tests and then stops the shared cluster; a TestMain that has nothing else to do calls only this. Without
// it the cluster is stopped too, a moment after the process has ended.
func Main(m *testing.M) {
	m.Run() // keeps the exit code for after TestMain
	if shared.c != nil {
		shared.c.close()
	}
}

// errMissing marks what is the machine's fault, not the test's.
var errMissing = errors.New("not installed")

// unavailable ends the test: as skipped where something is not installed, as failed for every other reason and in CI.
func unavailable(t testing.TB, err error) {
	t.Helper()
	if ci, _ := strconv.ParseBool(os.Getenv("CI")); errors.Is(err, errMissing) && !ci {
		t.Skip(err) // a machine with Go alone: it names what is missing
	}
	t.Fatal(err)
}

func missing(format string, args ...any) error {
	return fmt.Errorf("pgtest: %w: %s", errMissing, fmt.Sprintf(format, args...))
}
