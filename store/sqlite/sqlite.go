package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// sqlite.go: opening and closing a Store.

// Options tune a Store. The zero value and nil are the defaults.
type Options struct {
	// Readers is how many connections read at once, beside the one that writes. Default 4, at most 64.
	Readers int
	// BusyTimeout is how long a write waits for another process's write transaction. Default 5 s, at most 1 min. A
	// handed-in database keeps its own, which must not be 0.
	BusyTimeout time.Duration
	// MaxPages bounds the file: at that many pages of 4 KiB writes fail with store.ErrUnavailable, until something is
	// deleted or the bound is raised. Default 0: no bound. Not for a handed-in database.
	MaxPages int64
	// Now is the clock that leases, due times and ages are measured by. Default time.Now.
	Now func() time.Time
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Readers == 0 {
		v.Readers = 4
	}
	if v.BusyTimeout == 0 {
		v.BusyTimeout = 5 * time.Second
	}
	if v.Now == nil {
		v.Now = time.Now
	}
	switch {
	case v.Readers < 1 || v.Readers > 64:
		return v, fmt.Errorf("sqlite: Options.Readers is %d, must be within 1 and 64", v.Readers)
	case v.BusyTimeout < time.Millisecond || v.BusyTimeout > time.Minute:
		return v, fmt.Errorf("sqlite: Options.BusyTimeout is %v, must be within 1ms and 1m", v.BusyTimeout)
	case v.MaxPages < 0:
		return v, fmt.Errorf("sqlite: Options.MaxPages is %d, must not be negative", v.MaxPages)
	}
	return v, nil
}

// Store is a store.Store on an SQLite file, and a store.Reader and store.Operator. Its methods may be called by any number
// of goroutines.
type Store struct {
	opt    Options
	writer *writer
	read   *pool
	dbs    []*sql.DB // to be closed with the Store
	hints  sqlstore.Hints
	turns  turns
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Reader   = (*Store)(nil)
	_ store.Operator = (*Store)(nil)

	_ store.Transactional = (*Store)(nil)
	_ store.Accounts      = (*Store)(nil)
)

// Open opens the file at path, and makes it and its tables if there is none. Its directory must exist. The file is put into
// WAL mode, so two more files stand beside it while it is open: path-wal and path-shm. path is a file's path, not a URI;
// ":memory:" is refused, since nothing there outlives the process.
func Open(ctx context.Context, path string, o *Options) (*Store, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	file, err := checkPath(path)
	if err != nil {
		return nil, err
	}
	open := func(dsn string) (*sql.DB, error) {
		c, err := sqlite.NewConnector(dsn)
		if err != nil {
			return nil, fmt.Errorf("sqlite: open %s: %w", path, err)
		}
		return sql.OpenDB(c), nil
	}
	w, err := open(writeDSN(file, opt))
	if err != nil {
		return nil, err
	}
	r, err := open(readDSN(file, opt))
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	s, err := start(ctx, w, r, opt, func(c *conn) error { return prepareFile(c, opt) })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sqlite: open %s: %w", path, unavailable(err)), r.Close(), w.Close())
	}
	s.dbs = []*sql.DB{r, w}
	return s, nil
}

// New uses a database that the host opened. Nothing of it is changed: the settings of the connection that will commit (WAL,
// synchronous=FULL, a busy timeout) and the schema (Schema) are checked, and a weaker one is an error that says what to
// set. The Store keeps up to 1 + Readers connections of db for itself until Close, which leaves db open; while it holds the
// one that commits, it waits for locks itself, in the place of SQLite. The host's own open write transactions block the
// Store's.
func New(ctx context.Context, db *sql.DB, o *Options) (*Store, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errors.New("sqlite: db is nil")
	}
	if opt.MaxPages != 0 {
		return nil, errors.New("sqlite: Options.MaxPages is for files that Open opens; set pragma max_page_count yourself")
	}
	if n := db.Stats().MaxOpenConnections; n != 0 && n < opt.Readers+2 {
		return nil, fmt.Errorf("sqlite: db allows %d open connections, the store keeps 1 + %d readers for itself: "+
			"raise SetMaxOpenConns to at least %d, or lower Options.Readers", n, opt.Readers, opt.Readers+2)
	}
	s, err := start(ctx, db, db, opt, checkSchema)
	if err != nil {
		return nil, fmt.Errorf("sqlite: the database that was handed in: %w", unavailable(err))
	}
	return s, nil
}

// start connects the writer, runs ready on its connection, and starts its goroutine.
func start(ctx context.Context, w, r *sql.DB, opt Options, ready func(*conn) error) (*Store, error) {
	connect := func(ctx context.Context) (*conn, error) {
		c, err := newConn(ctx, sqlx.NewDb(w, driverName))
		if err != nil {
			return nil, err
		}
		if err := errors.Join(ready(c), ctx.Err()); err != nil {
			return nil, errors.Join(err, c.close())
		}
		if err := checkSettings(c); err != nil {
			return nil, errors.Join(err, c.close())
		}
		return c, nil
	}
	first, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	at, err := placeOf(first)
	if err != nil {
		return nil, errors.Join(err, first.close())
	}
	return &Store{
		opt:    opt,
		writer: startWriter(first, at, connect),
		read:   newPool(sqlx.NewDb(r, driverName), opt.Readers),
	}, nil
}

// Close waits for the writes that were taken, answers those that wait with an error, and releases the file. The Store can't
// be used afterwards. A second Close does nothing.
func (s *Store) Close() error {
	s.hints.Close()
	err := errors.Join(s.writer.close(), s.read.close())
	for _, db := range s.dbs {
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		return fmt.Errorf("sqlite: close: %w", err)
	}
	return nil
}

// Subscribe calls f, in one goroutine, after commits through this handle that may have made work due. What other processes
// on the file do is not hinted. cancel, or Close, ends it.
func (s *Store) Subscribe(f func(store.Hint)) (cancel func()) { return s.hints.Subscribe(f) }

// now is the clock's time, as it is stored.
func (s *Store) now() time.Time { return sqlstore.Trim(s.opt.Now()) }
