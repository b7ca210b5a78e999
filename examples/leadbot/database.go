package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/store/sqlite"
)

// database.go: where leadbot keeps what it has to remember: an SQLite file, or a schema of a PostgreSQL database.

const defaultDB = "leads.db"

// database is all that leadbot asks of a store.
type database interface {
	store.Store
	store.Reader
	store.Operator
	io.Closer
}

// place is what the flags say about the database.
type place struct {
	name   string // a path or a URL, which may hold a password: never printed as it is
	schema string
	pooler bool
}

func (p *place) flags(f *flag.FlagSet) {
	f.StringVar(&p.name, "db", defaultDB, "")
	f.StringVar(&p.schema, "schema", "", "")
	f.BoolVar(&p.pooler, "pooler", false, "")
}

func (p place) postgres() bool {
	return strings.HasPrefix(p.name, "postgres://") || strings.HasPrefix(p.name, "postgresql://")
}

// check refuses what can't be meant. The parser's own words are left out, because they quote what they could not read.
func (p place) check() error {
	scheme, _, isURL := strings.Cut(p.name, "://")
	_, err := url.Parse(p.name)
	switch {
	case !isURL && (p.schema != "" || p.pooler):
		return usagef("-schema and -pooler are for -db postgres://..., not for a file")
	case isURL && !p.postgres():
		return usagef("-db: there is no database %q: give a path or postgres://USER@HOST/DATABASE", printable(scheme))
	case isURL && err != nil:
		return usagef("-db: not a URL: write postgres://USER@HOST/DATABASE, and give the password in PGPASSWORD or a pgpass file")
	}
	return nil
}

// String is the place without a password.
func (p place) String() string {
	if !p.postgres() {
		return p.name
	}
	u, err := url.Parse(p.name)
	if err != nil {
		return "postgres://..."
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	if q.Has("password") || q.Has("sslpassword") {
		q.Del("password")
		q.Del("sslpassword")
		u.RawQuery = q.Encode()
	}
	return u.String()
}

// args are the flags that name the same place, for a shell.
func (p place) args() string {
	s := "-db " + p.String()
	if p.postgres() {
		s = "-db '" + strings.ReplaceAll(p.String(), "'", "%27") + "'"
	}
	if p.schema != "" {
		s += " -schema " + p.schema
	}
	if p.pooler {
		s += " -pooler"
	}
	return s
}

func (p place) options() *postgres.Options {
	return &postgres.Options{Schema: p.schema, Pooler: p.pooler}
}

// open is for the server: it makes what is not there. This is the one place that knows which databases there are.
func (p place) open(ctx context.Context) (st database, err error) {
	if p.postgres() {
		st, err = postgres.Open(ctx, p.name, p.options())
	} else {
		st, err = sqlite.Open(ctx, p.name, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	return st, nil
}

// openExisting is for a person who looks: a mistyped name must not become an empty database.
func (p place) openExisting(ctx context.Context) (database, error) {
	if !p.postgres() {
		if _, err := os.Stat(p.name); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("-db: there is no file %s: name the one that leadbot runs on", p.name)
		}
		return p.open(ctx)
	}
	db, err := sql.Open("postgres", p.forDriver()) // the driver that comes with store/postgres
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	st, err := postgres.New(ctx, db, p.options())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("-db: %w", err), db.Close())
	}
	return visitor{st, db}, nil
}

// forDriver adds to the URL what postgres.Open would: nothing is prepared behind a pooler.
func (p place) forDriver() string {
	u, err := url.Parse(p.name)
	if err != nil || !p.pooler {
		return p.name
	}
	q := u.Query()
	q.Set("binary_parameters", "yes")
	u.RawQuery = q.Encode()
	return u.String()
}

// visitor is a store on a database that has to be closed too.
type visitor struct {
	*postgres.Store
	db *sql.DB
}

func (v visitor) Close() error { return errors.Join(v.Store.Close(), v.db.Close()) }

// readiness tells whether updates can be stored just now.
type readiness struct {
	st   database
	path string      // empty: a server
	file os.FileInfo // as it was opened
}

func newReadiness(st database, p place) (*readiness, error) {
	if p.postgres() {
		return &readiness{st: st}, nil
	}
	file, err := os.Stat(p.name)
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	return &readiness{st: st, path: p.name, file: file}, nil
}

// check also finds a file that was moved away or replaced under the running process: it can still be written to, and
// everything would be gone after a restart.
func (r *readiness) check(ctx context.Context) error {
	if r.path != "" {
		now, err := os.Stat(r.path)
		if err != nil {
			return err
		}
		if !os.SameFile(r.file, now) {
			return errors.New("another file has taken the database's place: restart leadbot on the right one")
		}
	}
	_, err := r.st.DueKeys(ctx, 1)
	return err
}
