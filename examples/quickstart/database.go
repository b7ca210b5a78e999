package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/store/storetest"
)

// database.go: where the scenarios keep what they store.

// handle is an open database.
type handle interface {
	storetest.Backend
	Close() error
}

// openStore opens the database of one scenario: so far the path of an SQLite file, which is made if there is none.
func openStore(ctx context.Context, dsn string) (handle, error) {
	if err := notYet(dsn); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, dsn, &sqlite.Options{BusyTimeout: diskPatience})
}

func notYet(dsn string) error {
	if scheme, _, ok := strings.Cut(dsn, "://"); ok {
		return fmt.Errorf("-db %s://…: not yet: so far it names a directory for SQLite files, and may be left out", scheme)
	}
	return nil
}

// databases is a directory with a file for each scenario.
type databases struct {
	dir  string
	keep bool
}

// newDatabases makes a new directory within dir, or within the system's for temporary files.
func newDatabases(dir string, keep bool) (*databases, error) {
	if err := notYet(dir); err != nil {
		return nil, err
	}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return nil, err
		}
	}
	made, err := os.MkdirTemp(dir, "leadonce-quickstart-")
	if err != nil {
		return nil, err
	}
	return &databases{dir: made, keep: keep}, nil
}

func (d *databases) dsn(sc scenario) string { return filepath.Join(d.dir, sc.file()+".db") }

// close removes the files, or says how to look into them.
func (d *databases) close(out io.Writer, all []scenario) error {
	if !d.keep {
		return os.RemoveAll(d.dir)
	}
	example := d.dsn(all[slices.IndexFunc(all, func(sc scenario) bool { return sc.want.settled() })])
	fmt.Fprintf(out, `kept: %[1]s
look into one, for example:
  go run ./examples/leadbot ops list -db %[2]s
  sqlite3 %[2]s \
    'select kind, state, attempts, crm_id, reason from leadonce_operations'

`, d.dir, example)
	return nil
}
