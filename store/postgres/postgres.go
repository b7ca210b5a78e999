package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lib/pq"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// postgres.go: opening and closing a Store.

// DefaultSchema is the schema of the tables unless Options.Schema names another one.
const DefaultSchema = "leadonce"

// Options tune a Store. The zero value and nil are the defaults.
type Options struct {
	// Schema is where the tables are. Lower-case letters, digits and underscores, at most 48. Default DefaultSchema.
	Schema string
	// Migrate lets New make the tables. Open makes them anyway. Without it New returns an error that says what is missing.
	Migrate bool
	// AllowUnsafe names settings of the server that may be as they are, though what was acknowledged can then be lost or
	// transactions fail for no reason: "fsync", "full_page_writes", "synchronous_commit", "default_transaction_isolation".
	AllowUnsafe []string
	// NoHints switches LISTEN and NOTIFY off: other processes find work when they look for it, and no connection is used to
	// listen.
	NoHints bool
	// Pooler says that a pooler in transaction mode stands between us and the server (pgbouncer). Nothing is prepared or
	// listened for then, and Open adds binary_parameters=yes to the DSN. A driver that is handed to New has to be told
	// itself (lib/pq: binary_parameters=yes; pgx: default_query_exec_mode=exec).
	Pooler bool
	// MaxConns bounds the connections of Open, at least 6. Default 12. One more listens. A handed-in database keeps its own
	// bound.
	MaxConns int
	// LockTimeout is how long a call waits for a key that a transaction of the host holds (AcceptTx, SubmitTx). Then it fails
	// with store.ErrUnavailable. Default 5 s, at most 1 min. Calls about other keys do not wait.
	LockTimeout time.Duration
	// Logger is told when the listening connection is lost. Default slog.Default().
	Logger *slog.Logger
	// Now replaces the server's clock. It is for tests: processes that share a database have to share its clock. Default
	// none.
	Now func() time.Time
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Schema == "" {
		v.Schema = DefaultSchema
	}
	if v.MaxConns == 0 {
		v.MaxConns = 12
	}
	if v.LockTimeout == 0 {
		v.LockTimeout = 5 * time.Second
	}
	if v.Logger == nil {
		v.Logger = slog.Default()
	}
	if err := checkSchema(v.Schema); err != nil {
		return v, err
	}
	for _, name := range v.AllowUnsafe {
		if !slices.ContainsFunc(unsafe, func(s setting) bool { return s.name == name }) {
			return v, fmt.Errorf("postgres: Options.AllowUnsafe names %q, which is not a setting that is checked", name)
		}
	}
	switch {
	case v.MaxConns < minConns:
		return v, fmt.Errorf("postgres: Options.MaxConns is %d, must be at least %d", v.MaxConns, minConns)
	case v.LockTimeout < 10*time.Millisecond || v.LockTimeout > time.Minute:
		return v, fmt.Errorf("postgres: Options.LockTimeout is %v, must be within 10ms and 1m", v.LockTimeout)
	}
	return v, nil
}

const (
	minConns = 6
	// maxApart is how many calls wait beside the batches for a lock of the host's.
	maxApart = 3
)

// Store is a store.Store on PostgreSQL, and a store.Reader, store.Operator, store.Accounts and store.Transactional. Its methods
// may be called by any number of goroutines.
type Store struct {
	opt      Options
	db       *sql.DB
	own      bool // db is closed with the Store
	st       *statements
	patience string
	channel  string
	handle   string
	telling  bool
	log      *slog.Logger
	hints    sqlstore.Hints
	listener listener

	accepts  *group[*arrival, store.Receipt]
	reads    *group[keyAsk, keyRead]
	plans    *group[*proposal, committed]
	advances *group[*report, advanced]
	claimed  watermark
	turns    turns
	apart    chan struct{}
	waiting  sync.WaitGroup
	closed   atomic.Bool
	once     sync.Once
	err      error
}

var (
	_ store.Store         = (*Store)(nil)
	_ store.Reader        = (*Store)(nil)
	_ store.Operator      = (*Store)(nil)
	_ store.Transactional = (*Store)(nil)
	_ store.Accounts      = (*Store)(nil)
)

// Open connects to a server and makes the tables, if they are not there. dsn is a URL or a list of key=value as libpq has
// them; several hosts with target_session_attrs=read-write follow a failover.
func Open(ctx context.Context, dsn string, o *Options) (*Store, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg, err := pq.NewConfig(dsn)
	if err != nil {
		return nil, errors.New("postgres: the DSN can't be read; write postgres://user@host/database, and put a password " +
			"into PGPASSWORD or a pgpass file if it has odd characters")
	}
	if opt.Pooler {
		cfg.BinaryParameters = true
	}
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres: open: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(opt.MaxConns)
	db.SetMaxIdleConns(opt.MaxConns)
	opt.Migrate = true
	s, err := start(ctx, db, opt)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgres: open: %w", err), db.Close())
	}
	s.own = true
	if s.telling && !opt.Pooler {
		s.listener.dsn = dsn
	}
	return s, nil
}

// New uses a database that the host opened, with any driver of database/sql. The settings of the server and the tables are
// checked (with Options.Migrate, made); Schema returns their SQL. Close leaves db open. There is no listening on such a
// database: what other processes make due is found by looking for it.
func New(ctx context.Context, db *sql.DB, o *Options) (*Store, error) {
	opt, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if db == nil {
		return nil, errors.New("postgres: db is nil")
	}
	if n := db.Stats().MaxOpenConnections; n != 0 && n < minConns {
		return nil, fmt.Errorf("postgres: db allows %d open connections, the store uses up to %d at once: raise "+
			"SetMaxOpenConns", n, minConns)
	}
	s, err := start(ctx, db, opt)
	if err != nil {
		return nil, fmt.Errorf("postgres: the database that was handed in: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, db *sql.DB, opt Options) (*Store, error) {
	s := &Store{
		opt: opt, db: db, st: newStatements(db, opt.Schema, !opt.Pooler), log: opt.Logger,
		patience: strconv.FormatInt(opt.LockTimeout.Milliseconds(), 10) + "ms", channel: "leadonce_" + opt.Schema,
		handle: newHandle(), telling: !opt.NoHints, apart: make(chan struct{}, maxApart),
		listener: listener{stop: make(chan struct{})},
	}
	if !opt.Pooler {
		if err := s.try(ctx, func(ctx context.Context, _ bool) error { return checkPooler(ctx, db) }); err != nil {
			return nil, err
		}
	}
	if err := s.checkSettings(ctx); err != nil {
		return nil, err
	}
	if opt.Migrate {
		if err := s.migrate(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.Validate(ctx); err != nil {
		return nil, err
	}
	s.accepts, s.reads = startGroup(1, s.acceptAll), startGroup(1, s.readAll)
	s.plans, s.advances = startGroup(1, s.planAll), startGroup(1, s.advanceAll)
	return s, nil
}

// Close waits for what is under way, refuses what has not begun, and closes the connections that Open made. The Store can't
// be used afterwards. A second Close does nothing.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.hints.Close()
		s.listener.close()
		s.accepts.close()
		s.reads.close()
		s.plans.close()
		s.advances.close()
		s.waiting.Wait()
		s.closed.Store(true)
		s.err = s.st.close()
		if s.own {
			s.err = errors.Join(s.err, s.db.Close())
		}
		if disconnected(s.err) { // the server has closed them
			s.err = nil
		}
	})
	if s.err != nil {
		return fmt.Errorf("postgres: close: %w", s.err)
	}
	return nil
}

// fixed is the time by Options.Now, 0 if the server's clock holds.
func (s *Store) fixed() int64 {
	if s.opt.Now == nil {
		return 0
	}
	return sqlstore.Micros(s.opt.Now())
}
