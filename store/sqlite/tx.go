package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// tx.go: inserts inside a transaction of the host's own, atomic with the host's rows.

// AcceptTx is Accept inside tx, a transaction of a database on the same file. It is not hinted, since it becomes visible
// with the host's commit: a Processor finds it by its next poll (a second by default).
func (s *Store) AcceptTx(ctx context.Context, tx *sql.Tx, e store.Event) (store.Receipt, error) {
	row, err := sqlstore.NewEvent(e, 0, s.now())
	if err != nil {
		return store.Receipt{}, fmt.Errorf("sqlite: accept: %w", err)
	}
	var r store.Receipt
	err = s.inHost(ctx, tx, func(c *conn) (err error) {
		r, err = accept(c, row, e)
		return err
	})
	if err != nil {
		return store.Receipt{}, fmt.Errorf("sqlite: accept: %w", err)
	}
	return r, nil
}

// SubmitTx is Submit inside tx, a transaction of a database on the same file. Like AcceptTx it is not hinted.
func (s *Store) SubmitTx(ctx context.Context, tx *sql.Tx, sub store.Submission) (store.Operation, error) {
	var op store.Operation
	var isNew bool
	err := s.inHost(ctx, tx, func(c *conn) (err error) {
		op, isNew, err = submit(c, sub, s.now())
		return err
	})
	if err != nil {
		return store.Operation{}, fmt.Errorf("sqlite: submit: %w", err)
	}
	return op, submitted(op, isNew, sub)
}

// inHost runs f in the host's transaction. A file that is another one than this Store's would take the rows where no
// Processor looks for them.
func (s *Store) inHost(ctx context.Context, tx *sql.Tx, f func(*conn) error) (err error) {
	if tx == nil {
		return fmt.Errorf("%w: tx is nil", store.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	c := hostConn(tx)
	defer func() { err = errors.Join(unavailable(err), c.closeStatements()) }()
	at, err := placeOf(c)
	if err != nil {
		return err
	}
	if !s.writer.place.same(at) {
		return fmt.Errorf("%w: tx belongs to another file than the store", store.ErrInvalid)
	}
	return f(c)
}
