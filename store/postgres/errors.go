package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"

	"github.com/leadonce/leadonce/store"
)

// errors.go: what the codes of SQLSTATE mean for a caller. They are read through an interface that every driver's error has.

// errClosed answers what comes after Close.
var errClosed = fmt.Errorf("%w: the store was closed", store.ErrUnavailable)

// state returns the SQLSTATE of an error, "" if the server did not send one.
func state(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

const (
	uniqueViolation   = "23505"
	lockNotAvailable  = "55P03"
	undefinedTable    = "42P01"
	insufficient      = "42501"
	noPrepared        = "26000"
	duplicatePrepared = "42P05"
)

// collided reports whether the transaction lost against others: nothing of it was kept, and it may be run again.
func collided(err error) bool {
	s := state(err)
	return s == "40001" || s == "40P01"
}

// disconnected reports whether the connection is gone or the server is going: what a transaction did that was under way is
// not known.
func disconnected(err error) bool {
	switch s := state(err); {
	case s == "":
		var n net.Error
		return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) || errors.As(err, &n) ||
			errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNREFUSED) ||
			errors.Is(err, syscall.ENOENT) // the socket of a server that is down
	case s[:2] == "08":
		return true
	default:
		// admin and crash shutdown, cannot connect now; read-only: a standby that was promoted away from, or not yet
		return s == "57P01" || s == "57P02" || s == "57P03" || s == "25006"
	}
}

// unavailable marks an error that keeps the store from committing anything, and says what to do.
func unavailable(err error) error {
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	var todo string
	switch s := state(err); {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded) && s == "":
		return err
	case s == lockNotAvailable:
		todo = "a transaction of the host holds the same key and stays open: commit it sooner"
	case collided(err):
		todo = "transactions keep colliding: try again"
	case s == "25006":
		todo = "the server is read-only: add target_session_attrs=read-write and all hosts to the DSN"
	case disconnected(err):
		todo = "the server can't be reached, or is going down"
	case s == "53100":
		todo = "no space: free some on the server's disk"
	case s == "53200":
		todo = "the server has no memory"
	case s == "53300":
		todo = "too many connections: raise max_connections, or lower Options.MaxConns"
	case s == "57014":
		todo = "the server canceled the statement: look at statement_timeout"
	case s == "58030" || s == "XX001" || s == "XX002":
		todo = "the server's disk fails: look at its log"
	case s == noPrepared, s == duplicatePrepared:
		todo = "a pooler between us and the server mixes up prepared statements: set Options.Pooler, and for pgx default_query_exec_mode=exec"
	case s == undefinedTable || s == "3F000" || s == "42883" || s == "42703":
		todo = "the tables are not as they should be: Validate says what is missing"
	case s == insufficient:
		todo = "the role may not use the tables: grant it usage of the schema, and select, insert, update and delete"
	case len(s) == 5 && (s[:2] == "28" || s == "3D000"):
		todo = "the server refuses the login: look at the DSN"
	default:
		return err
	}
	return fmt.Errorf("%w: %s: %w", store.ErrUnavailable, todo, err)
}
