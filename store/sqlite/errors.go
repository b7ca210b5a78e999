package sqlite

import (
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/leadonce/leadonce/store"
)

// errors.go: what SQLite's result codes mean for a caller.

// errClosed answers what comes after Close.
var errClosed = fmt.Errorf("%w: the store was closed", store.ErrUnavailable)

// code returns the primary result code of an error of the driver, 0 if it is not one.
func code(err error) int {
	var e interface{ Code() int }
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

func isBusy(err error) bool {
	c := code(err)
	return c == sqlite3.SQLITE_BUSY || c == sqlite3.SQLITE_LOCKED
}

func isConstraint(err error) bool { return code(err) == sqlite3.SQLITE_CONSTRAINT }

// unavailable marks an error that keeps the store from committing anything, and says what to do.
func unavailable(err error) error {
	var todo string
	switch code(err) {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL:
		todo = "the file is locked: a transaction of another process or of the host stays open longer than the busy timeout"
	case sqlite3.SQLITE_FULL:
		todo = "no space: free some on the disk, or raise MaxPages"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		todo = "read-only: let this user write the file and its directory, and look at how the disk is mounted"
	case sqlite3.SQLITE_IOERR:
		todo = "the disk fails: look at the system's log"
	case sqlite3.SQLITE_CANTOPEN:
		todo = "the file can't be opened: look at the rights on it and on its directory"
	case sqlite3.SQLITE_NOMEM:
		todo = "no memory"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		todo = "not an SQLite file, or damaged: restore a backup"
	default:
		return err
	}
	if errors.Is(err, store.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %s: %w", store.ErrUnavailable, todo, err)
}
