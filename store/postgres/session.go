package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// session.go: statements and transactions, and when one is tried again.

type args = sqlstore.Args

// statements are all literals that were run, with the schema put in. That replacement, once for each, is the only change
// that is ever made to a literal.
type statements struct {
	db      *sql.DB
	schema  string // quoted
	prepare bool
	mapper  *reflectx.Mapper

	mu  sync.RWMutex
	all map[string]*statement
}

type statement struct {
	*sqlstore.Statement
	prepared *sql.Stmt // nil: not yet
}

func newStatements(db *sql.DB, schema string, prepare bool) *statements {
	return &statements{
		db: db, schema: `"` + schema + `"`, prepare: prepare, mapper: reflectx.NewMapper("db"), all: map[string]*statement{},
	}
}

func (st *statements) text(query string) string {
	return strings.ReplaceAll(query, "{schema}", st.schema)
}

// find returns a statement and, if there is one yet, its prepared form.
func (st *statements) find(query string, arg any) (*statement, *sql.Stmt, error) {
	st.mu.RLock()
	s, ok := st.all[query]
	if ok {
		defer st.mu.RUnlock()
		return s, s.prepared, nil
	}
	st.mu.RUnlock()
	placed, err := sqlstore.NewStatement(st.text(query), sqlx.DOLLAR, arg)
	if err != nil {
		return nil, nil, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if s, ok = st.all[query]; !ok {
		s = &statement{Statement: placed}
		st.all[query] = s
	}
	return s, s.prepared, nil
}

// ready prepares statements for the next time. It is called while no transaction is open: it may need a connection.
func (st *statements) ready(ctx context.Context, list []*statement) {
	for _, s := range list {
		p, err := st.db.PrepareContext(ctx, s.Text)
		if err != nil {
			return
		}
		st.mu.Lock()
		if s.prepared == nil {
			s.prepared, p = p, nil
		}
		st.mu.Unlock()
		if p != nil {
			p.Close()
		}
	}
}

func (st *statements) close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	var err error
	for _, s := range st.all {
		if s.prepared != nil {
			err = errors.Join(err, s.prepared.Close())
		}
	}
	clear(st.all)
	return err
}

// session runs statements: in a transaction, or each by itself. One goroutine uses it.
type session struct {
	ctx   context.Context
	st    *statements
	tx    *sql.Tx // nil: each by itself
	bare  bool    // tx is the host's, maybe of another pool: nothing is prepared
	fresh []*statement
}

func (c *session) query(query string, arg any) (*sqlx.Rows, error) {
	s, prepared, err := c.st.find(query, arg)
	if err != nil {
		return nil, err
	}
	list, err := s.Bind(c.st.mapper, arg)
	if err != nil {
		return nil, err
	}
	var rows *sql.Rows
	switch usable := prepared != nil && !c.bare; {
	case usable && c.tx != nil:
		rows, err = c.tx.StmtContext(c.ctx, prepared).QueryContext(c.ctx, list...)
	case usable:
		rows, err = prepared.QueryContext(c.ctx, list...)
	case c.tx != nil:
		rows, err = c.tx.QueryContext(c.ctx, s.Text, list...)
	default:
		rows, err = c.st.db.QueryContext(c.ctx, s.Text, list...)
	}
	if err != nil {
		return nil, err
	}
	if prepared == nil && c.st.prepare && !c.bare {
		c.fresh = append(c.fresh, s)
	}
	return &sqlx.Rows{Rows: rows, Mapper: c.st.mapper}, nil
}

// exec runs a statement whose rows are of no interest, and returns how many it has.
func (c *session) exec(query string, arg any) (n int64, err error) {
	rows, err := c.query(query, arg)
	if err != nil {
		return 0, err
	}
	for rows.Next() {
		n++
	}
	return n, errors.Join(rows.Err(), rows.Close())
}

// get reads the first row into dest, a pointer to one value. It reports whether there was one.
func (c *session) get(dest any, query string, arg any) (found bool, err error) {
	rows, err := c.query(query, arg)
	if err != nil {
		return false, err
	}
	if rows.Next() {
		found, err = true, rows.Scan(dest)
	}
	return found && err == nil, errors.Join(err, rows.Err(), rows.Close())
}

// each calls f for every row, until it returns false. f gets the error of reading the row, with what could be read of it.
// No other statement may be run from f.
func each[T any](c *session, query string, arg any, f func(row *T, err error) bool) error {
	rows, err := c.query(query, arg)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row := new(T)
		if !f(row, rows.StructScan(row)) {
			return rows.Close()
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// all returns every row.
func all[T any](c *session, query string, arg any) (list []*T, err error) {
	var bad error
	err = each(c, query, arg, func(row *T, err error) bool {
		list, bad = append(list, row), err
		return bad == nil
	})
	return list, errors.Join(err, bad)
}

// transaction runs f in one transaction. f may be called again by try: it sets its results anew.
func (s *Store) transaction(ctx context.Context, o *sql.TxOptions, f func(*session) error) (err error) {
	tx, err := s.db.BeginTx(ctx, o)
	if err != nil {
		return err
	}
	c := &session{ctx: ctx, st: s.st, tx: tx}
	done := false
	defer func() {
		if !done { // f failed or panicked
			tx.Rollback()
		}
	}()
	if err := f(c); err != nil {
		return err
	}
	done = true
	if err = tx.Commit(); err == nil && len(c.fresh) > 0 {
		s.st.ready(ctx, c.fresh)
	}
	return err
}

// begin starts the work of a transaction: it returns the clock, and sets how long locks are waited for ("" leaves that as it
// is). Every statement of ours finds its rows by an index; a server that plans one while the tables are nearly empty would
// think otherwise, and keep to it while they grow.
func (s *Store) begin(c *session, patience string) (time.Time, error) {
	return s.clock(c, `
		select {schema}.leadonce_clock(:fixed)
		from (
			select set_config('enable_seqscan', 'off', true)
				|| case when :patience <> '' then set_config('lock_timeout', :patience, true) else '' end as settings) as s
		where settings <> ''`, args{"fixed": s.fixed(), "patience": patience})
}

func (s *Store) clock(c *session, query string, a args) (time.Time, error) {
	var now int64
	found, err := c.get(&now, query, a)
	if err == nil && !found {
		err = errors.New("the server tells no time")
	}
	return sqlstore.Time(now), err
}

var (
	writing = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	// reading is one snapshot for several statements.
	reading = &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
)

func (s *Store) write(ctx context.Context, f func(*session) error) error {
	return s.try(ctx, func(ctx context.Context, _ bool) error { return s.transaction(ctx, writing, f) })
}

func (s *Store) view(ctx context.Context, f func(*session) error) error {
	return s.try(ctx, func(ctx context.Context, _ bool) error { return s.transaction(ctx, reading, f) })
}

const (
	attempts    = 10
	firstPause  = 10 * time.Millisecond
	longestWait = time.Second
	// runTimeout ends a transaction whose server neither answers nor closes the connection.
	runTimeout = 30 * time.Second
)

// try runs f until it does not collide and has a connection, a bounded number of times: for about four seconds, in which a
// server restarts. again says that an earlier try may have been committed, though its answer was lost: f finds out.
func (s *Store) try(ctx context.Context, f func(ctx context.Context, again bool) error) error {
	pause, again := firstPause, false
	for n := 1; ; n++ {
		if s.closed.Load() {
			return errClosed
		}
		run, cancel := context.WithTimeout(ctx, runTimeout)
		err := f(run, again)
		cancel()
		lost := disconnected(err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the outcome is not known: %w: %w", ctx.Err(), err)
		case n == attempts || !(lost || collided(err)):
			return unavailable(err)
		}
		again = again || lost
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return fmt.Errorf("the outcome is not known: %w: %w", ctx.Err(), err)
		}
		pause = min(2*pause, longestWait)
	}
}

// single is a session in which each statement commits by itself.
func (s *Store) single(ctx context.Context, f func(*session) error) error {
	c := &session{ctx: ctx, st: s.st}
	err := f(c)
	if err == nil && len(c.fresh) > 0 {
		s.st.ready(ctx, c.fresh)
	}
	return err
}

// newToken names a call: it is stored with what the call stores, so that a lost answer can be told from another's row.
func newToken() int64 { return rand.Int64() | 1 }
