package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/jmoiron/sqlx/reflectx"

	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// conn.go: one connection with its prepared statements, and the pool of those that read.

type args = sqlstore.Args

// conn is a connection. Only one goroutine uses it at a time. Its statements run to their end whatever becomes of a
// caller's context: each is short, and an interrupted connection would have to be thrown away.
type conn struct {
	c     *sqlx.Conn // nil in a transaction of the host's
	q     preparer
	stmts map[string]*stmt
	busy  time.Duration // of the writer: how long begin waits for somebody else's transaction
}

type stmt struct {
	*sqlx.Stmt
	s *sqlstore.Statement
}

// preparer is a connection, or a transaction of the host's.
type preparer interface {
	PreparexContext(ctx context.Context, query string) (*sqlx.Stmt, error)
}

// hostConn runs statements in the host's transaction.
func hostConn(tx *sql.Tx) *conn {
	t := &sqlx.Tx{Tx: tx, Mapper: reflectx.NewMapperFunc("db", sqlx.NameMapper)}
	return &conn{q: t, stmts: map[string]*stmt{}}
}

func newConn(ctx context.Context, db *sqlx.DB) (*conn, error) {
	c, err := db.Connx(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{c: c, q: c, stmts: map[string]*stmt{}}, nil
}

func (c *conn) close() error {
	err := c.closeStatements()
	if c.busy > 0 { // a host's connection goes back as it came
		_ = c.script(fmt.Sprintf("pragma busy_timeout = %d", c.busy.Milliseconds()))
	}
	if e := c.c.Close(); !errors.Is(e, sql.ErrConnDone) {
		err = errors.Join(err, e)
	}
	return err
}

// discard ends the connection for good, and what is open on it.
func (c *conn) discard() {
	_ = c.closeStatements()
	_ = c.c.Raw(func(any) error { return driver.ErrBadConn })
}

// closeStatements: database/sql does not, for those of a single connection, and SQLite keeps a connection alive for them.
// Those of a connection that database/sql has given up can't be closed any more.
func (c *conn) closeStatements() error {
	if c.c != nil && c.c.Raw(func(any) error { return nil }) != nil {
		return nil
	}
	var err error
	for _, s := range c.stmts {
		err = errors.Join(err, s.Close())
	}
	return err
}

// prepare returns the statement of a query, prepared once. arg has its parameters.
func (c *conn) prepare(query string, arg any) (*stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	named, err := sqlstore.NewStatement(query, sqlx.QUESTION, arg)
	if err != nil {
		return nil, err
	}
	s := &stmt{s: named}
	if s.Stmt, err = c.q.PreparexContext(context.Background(), named.Text); err != nil {
		return nil, err
	}
	c.stmts[query] = s
	return s, nil
}

// bind returns the parameters in order.
func (s *stmt) bind(arg any) ([]any, error) { return s.s.Bind(s.Mapper, arg) }

// exec runs a statement and returns how many rows it changed.
func (c *conn) exec(query string, arg any) (int64, error) {
	s, err := c.prepare(query, arg)
	if err != nil {
		return 0, err
	}
	list, err := s.bind(arg)
	if err != nil {
		return 0, err
	}
	res, err := s.Exec(list...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert is exec that also returns the id of the new row.
func (c *conn) insert(query string, arg any) (id, n int64, err error) {
	s, err := c.prepare(query, arg)
	if err != nil {
		return 0, 0, err
	}
	list, err := s.bind(arg)
	if err != nil {
		return 0, 0, err
	}
	res, err := s.Exec(list...)
	if err != nil {
		return 0, 0, err
	}
	id, err = res.LastInsertId()
	if err != nil {
		return 0, 0, err
	}
	n, err = res.RowsAffected()
	return id, n, err
}

// get reads the first row into dest, a struct or a single value. It reports whether there was one.
func (c *conn) get(dest any, query string, arg any) (bool, error) {
	s, err := c.prepare(query, arg)
	if err != nil {
		return false, err
	}
	list, err := s.bind(arg)
	if err != nil {
		return false, err
	}
	err = s.Get(dest, list...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// each calls f for every row, until it returns false. f gets the error of reading the row, with what could be read of it.
// No other statement may be run from f.
func each[T any](c *conn, query string, arg any, f func(row *T, err error) bool) error {
	s, err := c.prepare(query, arg)
	if err != nil {
		return err
	}
	list, err := s.bind(arg)
	if err != nil {
		return err
	}
	rows, err := s.Queryx(list...)
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

// script runs several statements.
func (c *conn) script(sql string) error {
	_, err := c.c.ExecContext(context.Background(), sql)
	return err
}

// pool lends connections that read.
type pool struct {
	db     *sqlx.DB
	free   chan *conn // nil: to be connected
	closed chan struct{}
	once   sync.Once
	size   int
}

func newPool(db *sqlx.DB, size int) *pool {
	p := &pool{db: db, free: make(chan *conn, size), closed: make(chan struct{}), size: size}
	for range size {
		p.free <- nil
	}
	return p
}

// view runs f in one consistent reading.
func (p *pool) view(ctx context.Context, f func(*conn) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	var c *conn
	select {
	case <-p.closed:
		return errClosed
	default:
	}
	select {
	case c = <-p.free:
	case <-p.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	good := false
	defer func() {
		if !good && c != nil {
			c.discard()
			c = nil
		}
		p.free <- c
	}()
	if c == nil {
		if c, err = newConn(ctx, p.db); err != nil {
			return unavailable(err)
		}
	}
	if _, err := c.exec("begin deferred", nil); err != nil {
		return unavailable(err)
	}
	err = f(c)
	_, end := c.exec("rollback", nil)
	good = end == nil
	return unavailable(err)
}

// close waits for the readings under way.
func (p *pool) close() error {
	var err error
	p.once.Do(func() {
		close(p.closed)
		for range p.size {
			if c := <-p.free; c != nil {
				err = errors.Join(err, c.close())
			}
		}
	})
	return err
}
