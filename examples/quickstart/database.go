package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/store/storetest"
)

// database.go: where the scenarios keep what they store: a file for each, or a schema for each in a PostgreSQL database.

// handle is an open database.
type handle interface {
	storetest.Backend
	Close() error
}

// place is one scenario's database.
type place struct {
	DB     string // a path, or a URL with all that it takes to connect: never printed
	Schema string // on PostgreSQL
}

// open makes the place, if it is not there.
func (p place) open(ctx context.Context) (handle, error) {
	if p.Schema == "" {
		return sqlite.Open(ctx, p.DB, &sqlite.Options{BusyTimeout: diskPatience})
	}
	// Several scenarios run at once, with two processes each: together they stay below a server's usual 100 connections.
	return postgres.Open(ctx, p.DB, &postgres.Options{Schema: p.Schema, MaxConns: 6})
}

// databases are the places of one run.
type databases interface {
	of(scenario) place
	close() error         // removes them all
	look(scenario) string // says where they are, and how to look into this one
}

func newDatabases(ctx context.Context, db string) (databases, error) {
	switch scheme, _, isURL := strings.Cut(db, "://"); {
	case !isURL:
		return newFiles(db)
	case scheme == "postgres" || scheme == "postgresql":
		return newSchemas(ctx, db)
	default:
		return nil, errors.New("-db: give a directory, or postgres://USER@HOST/DATABASE")
	}
}

// end removes the databases, or says how to look into one in which a person has decided.
func end(dbs databases, keep bool, out io.Writer, all []scenario) error {
	if !keep {
		return dbs.close()
	}
	i := slices.IndexFunc(all, func(sc scenario) bool { return sc.want.settled() })
	_, err := fmt.Fprintln(out, dbs.look(all[i]))
	return err
}

const query = `select kind, state, attempts, crm_id, reason from `

// files is a directory.
type files string

// newFiles makes a new directory within dir, or within the system's for temporary files.
func newFiles(dir string) (files, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return "", err
		}
	}
	made, err := os.MkdirTemp(dir, "leadonce-quickstart-")
	return files(made), err
}

func (f files) of(sc scenario) place { return place{DB: filepath.Join(string(f), sc.file()+".db")} }

func (f files) close() error { return os.RemoveAll(string(f)) }

func (f files) look(sc scenario) string {
	return fmt.Sprintf(`kept: %[1]s
look into one, for example:
  go run ./examples/leadbot ops list -db %[2]s
  sqlite3 %[2]s \
    '%[3]sleadonce_operations'
`, string(f), f.of(sc).DB, query)
}

// schemas are in a database that is there already. Each begins with a prefix of this run's own.
type schemas struct {
	db     *sql.DB
	dsn    string
	prefix string
}

// serverPatience is how long the server may take for an answer.
const serverPatience = 20 * time.Second

// newSchemas connects, so that a wrong address is said once and not by every scenario.
func newSchemas(ctx context.Context, dsn string) (*schemas, error) {
	if _, err := url.Parse(dsn); err != nil { // whose words would quote a password
		return nil, errors.New("-db: not a URL: write postgres://USER@HOST/DATABASE, and give a password in PGPASSWORD or a " +
			"pgpass file")
	}
	db, err := sql.Open("postgres", dsn) // the driver that comes with store/postgres
	if err != nil {
		return nil, fmt.Errorf("-db: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("-db: the server can't be used: %w", err), db.Close())
	}
	return &schemas{db: db, dsn: dsn, prefix: "quickstart_" + strings.ToLower(rand.Text()[:8]) + "_"}, nil
}

func (s *schemas) of(sc scenario) place {
	name := s.prefix + strings.ReplaceAll(strings.ToLower(sc.file()), "-", "_")
	return place{DB: s.dsn, Schema: name[:min(len(name), 48)]}
}

// close also runs after an interrupt.
func (s *schemas) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), serverPatience)
	defer cancel()
	var errs []error
	for _, sc := range scenarios() {
		_, err := s.db.ExecContext(ctx, `drop schema if exists "`+s.of(sc).Schema+`" cascade`)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, s.db.Close())...)
}

func (s *schemas) look(sc scenario) string {
	shown, schema := withoutPassword(s.dsn), s.of(sc).Schema
	return fmt.Sprintf(`kept: the schemas %[1]s*
look into one, for example (a password goes into PGPASSWORD):
  go run ./examples/leadbot ops list -state all -db '%[2]s' \
    -schema %[3]s
  psql '%[2]s' \
    -c '%[4]s%[3]s.leadonce_operations'
remove one:
  psql '%[2]s' \
    -c 'drop schema %[3]s cascade'
`, s.prefix, shown, schema, query)
}

// withoutPassword is the DSN as it may be shown.
func withoutPassword(dsn string) string {
	u, err := url.Parse(dsn)
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
	return cmp.Or(strings.ReplaceAll(u.String(), "'", "%27"), "postgres://...")
}
