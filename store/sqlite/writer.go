package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/leadonce/leadonce/store"
)

// writer.go: shared commits. One goroutine owns the connection that writes. What waits while a commit is on its way to the
// disk goes into the next transaction, each member inside a savepoint of its own.

// maxBatch is how many requests share a commit at most.
const maxBatch = 256

// request is one caller's part of a transaction.
type request struct {
	ctx context.Context
	// run may be called again after its first try was rolled back: it sets its results anew.
	run func(*conn) error
	// single: run makes at most one statement that writes, so that a failure leaves nothing behind and needs no savepoint.
	single bool
	err    error
	done   chan struct{}
}

type writer struct {
	in      chan *request
	closing chan struct{}
	ended   chan struct{}
	once    sync.Once
	connect func(context.Context) (*conn, error)
	place   place

	// The goroutine's own.
	c     *conn // nil: to be connected
	batch []*request
	err   error // of closing the connection
}

func startWriter(c *conn, at place, connect func(context.Context) (*conn, error)) *writer {
	w := &writer{
		in: make(chan *request), closing: make(chan struct{}), ended: make(chan struct{}), c: c, connect: connect, place: at,
		batch: make([]*request, 0, maxBatch),
	}
	go w.loop()
	return w
}

// do runs f in a transaction and returns once that is on disk. If ctx ends before, whether f happened is not known.
func (w *writer) do(ctx context.Context, single bool, f func(*conn) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r := &request{ctx: ctx, run: f, single: single, done: make(chan struct{})}
	select {
	case w.in <- r:
	case <-w.closing:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("the outcome of this write is not known: %w", ctx.Err())
	}
}

// close answers what was not taken with an error and waits for the rest.
func (w *writer) close() error {
	w.once.Do(func() { close(w.closing) })
	<-w.ended
	return w.err
}

func (w *writer) loop() {
	defer close(w.ended)
	for {
		select {
		case <-w.closing:
			if w.c != nil {
				w.err = w.c.close()
			}
			return
		case r := <-w.in:
			w.gather(r)
			w.commit(w.batch)
			for _, r := range w.batch {
				close(r.done)
			}
			clear(w.batch)
		}
	}
}

// gather takes what waits behind the first request. The callers of the commit before were answered a moment ago; letting
// them run once fills the batch.
func (w *writer) gather(first *request) {
	w.batch = append(w.batch[:0], first)
	yielded := false
	for len(w.batch) < maxBatch {
		select {
		case r := <-w.in:
			w.batch = append(w.batch, r)
			yielded = false
			continue
		default:
		}
		if yielded {
			return
		}
		runtime.Gosched()
		yielded = true
	}
}

// commit runs a batch and sets every member's err. If a member breaks the whole transaction (a full disk, a panic), each
// member is tried once more on its own: what still fits is kept.
func (w *writer) commit(batch []*request) {
	err := w.transaction(batch)
	if errors.Is(err, errAborted) && len(batch) > 1 {
		for i := range batch {
			w.settle(batch[i:i+1], w.transaction(batch[i:i+1]))
		}
		return
	}
	w.settle(batch, err)
}

// settle gives every member the error of the whole transaction, if there is one.
func (w *writer) settle(batch []*request, err error) {
	for _, r := range batch {
		if err != nil && r.err == nil {
			r.err = err
		}
		r.err = unavailable(r.err)
	}
}

// errAborted: a member left the transaction in a state in which nothing of it can be kept. The member's error stands with
// the member.
var errAborted = errors.New("the transaction was rolled back")

// transaction runs the members and commits once. The error is that of the whole.
func (w *writer) transaction(batch []*request) error {
	for _, r := range batch {
		r.err = nil
	}
	if err := w.begin(); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	alone := len(batch) == 1
	for _, r := range batch {
		if r.err = r.ctx.Err(); r.err != nil {
			continue
		}
		if err := w.member(r, alone); err != nil {
			w.rollback()
			return err
		}
		if alone && r.err != nil {
			w.rollback()
			return nil
		}
	}
	if _, err := w.c.exec("commit", nil); err != nil {
		w.rollback()
		return fmt.Errorf("commit: %w", err)
	}
	return w.place.check() // asked last: what was committed into a file that is gone is not acknowledged
}

// member runs one request. An error means that the transaction can't go on; r.err is the request's own.
func (w *writer) member(r *request, alone bool) error {
	savepoint := !alone && !r.single
	if savepoint {
		if _, err := w.c.exec("savepoint member", nil); err != nil {
			return err
		}
	}
	panicked := false
	func() {
		defer func() {
			if p := recover(); p != nil {
				r.err, panicked = fmt.Errorf("a write panicked: %v", p), true
			}
		}()
		r.err = r.run(w.c)
	}()
	switch {
	case panicked, breaks(r.err):
		return errAborted
	case !savepoint:
		return nil
	}
	if r.err != nil {
		if _, err := w.c.exec("rollback to member", nil); err != nil {
			return errAborted
		}
	}
	if _, err := w.c.exec("release member", nil); err != nil {
		return errAborted
	}
	return nil
}

// breaks reports whether SQLite may have rolled the whole transaction back with the statement that failed.
func breaks(err error) bool {
	switch code(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_INTERRUPT,
		sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_ABORT:
		return true
	}
	return dead(err)
}

// dead reports whether database/sql has given the connection up.
func dead(err error) bool {
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone)
}

// begin opens the transaction, on a new connection if the one at hand is unusable.
func (w *writer) begin() error {
	if w.c != nil {
		err := w.c.begin()
		switch {
		case err == nil:
			return nil
		case code(err) != sqlite3.SQLITE_ERROR && !dead(err):
			return err
		}
		w.drop() // still inside a transaction, or dead
	}
	c, err := w.connect(context.Background())
	if err != nil {
		if !errors.Is(unavailable(err), store.ErrUnavailable) {
			err = fmt.Errorf("%w: connect again: %w", store.ErrUnavailable, err)
		}
		return err
	}
	w.c, w.place.wal = c, nil // the last connection of all takes its log with it
	return w.c.begin()
}

// begin waits for somebody else's transaction as long as c.busy.
func (c *conn) begin() error {
	const first, most = 100 * time.Microsecond, 2 * time.Millisecond
	pause := time.Duration(first)
	for waited := time.Duration(0); ; waited += pause {
		_, err := c.exec("begin immediate", nil)
		if err == nil || !isBusy(err) || waited >= c.busy {
			return err
		}
		pause = min(2*pause, most)
		time.Sleep(pause)
	}
}

// rollback ends the transaction. If SQLite has ended it already that is an error of no interest; if it can't be ended, the
// next begin finds out.
func (w *writer) rollback() { w.c.exec("rollback", nil) }

// drop throws the connection away: back in the pool it would come with its transaction.
func (w *writer) drop() {
	w.c.discard()
	w.c = nil
}
