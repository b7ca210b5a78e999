package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/lib/pq"
)

// lossy_test.go: a driver that loses connections where it is told to. It shows the Store what a network shows it: a statement or
// a COMMIT that was carried out, or was not, and whose answer never came.

// moment is when a connection is lost.
type moment int

const (
	never       moment = iota
	beforeQuery        // a statement outside of a transaction never reaches the server
	afterQuery         // it is carried out, and the answer is lost
	beforeCommit
	afterCommit
)

func (m moment) String() string {
	return [...]string{"never", "before a statement", "after a statement", "before a commit", "after a commit"}[m]
}

// lossy loses one connection at the moment that is set.
type lossy struct {
	driver.Connector
	next atomic.Int64
	lost atomic.Int64 // how many were
}

func (l *lossy) at(m moment) { l.next.Store(int64(m)) }

func (l *lossy) hit(m moment) bool {
	if l.next.CompareAndSwap(int64(m), int64(never)) {
		l.lost.Add(1)
		return true
	}
	return false
}

func (l *lossy) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: c, l: l}, nil
}

type lossyConn struct {
	driver.Conn
	l    *lossy
	inTx bool
	dead bool
}

var errLost = io.ErrUnexpectedEOF

func (c *lossyConn) die() error {
	c.dead = true
	c.Conn.Close()
	return errLost
}

func (c *lossyConn) IsValid() bool { return !c.dead }

func (c *lossyConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
	if err != nil {
		return nil, err
	}
	c.inTx = true
	return &lossyTx{tx, c, o.ReadOnly}, nil
}

type lossyTx struct {
	driver.Tx
	c        *lossyConn
	readOnly bool
}

func (tx *lossyTx) Commit() error {
	tx.c.inTx = false
	if !tx.readOnly && tx.c.l.hit(beforeCommit) {
		return tx.c.die()
	}
	err := tx.Tx.Commit()
	if err == nil && !tx.readOnly && tx.c.l.hit(afterCommit) {
		return tx.c.die()
	}
	return err
}

func (tx *lossyTx) Rollback() error {
	tx.c.inTx = false
	if tx.c.dead {
		return errLost
	}
	return tx.Tx.Rollback()
}

// PrepareContext is not passed on: every statement goes through QueryContext.
func (c *lossyConn) PrepareContext(context.Context, string) (driver.Stmt, error) {
	return nil, errors.New("nothing is prepared here")
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if !c.inTx && c.l.hit(beforeQuery) {
		return nil, c.die()
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err == nil && !c.inTx && c.l.hit(afterQuery) {
		dest := make([]driver.Value, len(rows.Columns()))
		for err = rows.Next(dest); err == nil; err = rows.Next(dest) {
		}
		return nil, c.die()
	}
	return rows, err
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

// lossyStore returns a store on a new database through such a driver.
func lossyStore(t testing.TB, dsn string, o *Options) (*Store, *lossy) {
	t.Helper()
	c, err := pq.NewConnector(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l := &lossy{Connector: c}
	db := sql.OpenDB(l)
	t.Cleanup(func() { db.Close() })
	if o == nil {
		o = &Options{}
	}
	o.Migrate, o.Pooler = true, true // Pooler: nothing is prepared
	s, err := New(t.Context(), db, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, l
}
