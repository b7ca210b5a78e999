package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/leadonce/leadonce/store"
)

// settings.go: the name of the schema, and what must hold on the server.

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// checkSchema lets nothing through that could mean more than a name.
func checkSchema(name string) error {
	if !schemaName.MatchString(name) || strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("postgres: Options.Schema is %q, must be lower-case letters, digits and underscores, at most 48, and "+
			"not begin with a digit or pg_", name)
	}
	return nil
}

// setting is one of the server's that breaks a promise when it has the value bad, or another one than good.
type setting struct {
	name, good, bad, why string
}

var unsafe = []setting{
	{"fsync", "on", "", "a crash of the server's machine loses what was acknowledged, or the whole database"},
	{"full_page_writes", "on", "", "a crash of the server's machine damages the tables"},
	{"synchronous_commit", "", "off", "a crash of the server loses what was acknowledged"},
	{"default_transaction_isolation", "read committed", "",
		"statements that commit by themselves fail whenever they meet another one"},
}

// checkSettings returns an error unless a commit is durable.
func (s *Store) checkSettings(ctx context.Context) error {
	var wrong []error
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		wrong = nil
		return s.single(ctx, func(c *session) error {
			for _, u := range unsafe {
				var value string
				if _, err := c.get(&value, `select current_setting(:name)`, args{"name": u.name}); err != nil {
					return err
				}
				if (value == u.good || (u.good == "" && value != u.bad)) || slices.Contains(s.opt.AllowUnsafe, u.name) {
					continue
				}
				wrong = append(wrong, fmt.Errorf("the server's %s is %s: %s; change it, or name it in Options.AllowUnsafe",
					u.name, value, u.why))
			}
			var encoding string
			if _, err := c.get(&encoding, `select current_setting('server_encoding')`, nil); err != nil {
				return err
			}
			if encoding != "UTF8" {
				wrong = append(wrong, fmt.Errorf("the database's encoding is %s, must be UTF8: make another database", encoding))
			}
			return nil
		})
	})
	return errors.Join(err, errors.Join(wrong...))
}

// checkPooler refuses a pooler in transaction mode that Options does not tell of: statements that one client has prepared
// would meet those of another, and with as many parameters the wrong one would run without an error. It is seen by a
// connection that changes the server process behind it while another one is inside a transaction.
func checkPooler(ctx context.Context, db *sql.DB) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var before, after int
	if err := c.QueryRowContext(ctx, `select pg_backend_pid()`).Scan(&before); err != nil {
		return err
	}
	for range 2 { // each gets what c has just given back, if c gives anything back; the server may have others to give
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, `select 1`); err != nil {
			return err
		}
		if err := c.QueryRowContext(ctx, `select pg_backend_pid()`).Scan(&after); err != nil {
			return err
		}
		if before != after {
			break
		}
	}
	if before != after {
		return fmt.Errorf("%w: a pooler in transaction mode stands between us and the server: set Options.Pooler (and for a pgx "+
			"database that is handed in, default_query_exec_mode=exec)", store.ErrUnavailable)
	}
	return nil
}
