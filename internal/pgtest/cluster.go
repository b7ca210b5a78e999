package pgtest

// cluster.go: one PostgreSQL server: made, started, stopped, asked.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lib/pq"
)

// Mode is how a server is stopped.
type Mode int

const (
	Fast      Mode = iota // sessions are ended, everything is written: pg_ctl stop -m fast
	Immediate             // as in a crash; the next start recovers from the write-ahead log: pg_ctl stop -m immediate
)

// Options are those of [Start]; nil is all defaults.
type Options struct {
	Bin      string            // directory of initdb and postgres; default: the first of Versions
	Settings map[string]string // for postgresql.conf, as "fsync": "off"; default: PostgreSQL's own, but 200 connections
}

// Cluster is a server on a loopback port. Methods may be called from any goroutine; those that start, stop or change the server
// wait for each other.
type Cluster struct {
	Version Version

	*place
	port   int
	shared bool // by all tests of the binary
	dbs    atomic.Int64

	mu sync.Mutex
	pr *process // nil: stopped
}

// Start returns a running cluster of the test's own, which it may mistreat. It is removed when the test is over; if the test
// failed by then, the end of the server's log is shown.
func Start(t testing.TB, o *Options) *Cluster {
	t.Helper()
	c, err := start(o)
	if err != nil {
		unavailable(t, err)
	}
	c.closeAfter(t)
	return c
}

func (c *Cluster) closeAfter(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the server on port %d:\n%s", c.port, c.logTail(0))
		}
		c.close()
	})
}

func (c *Cluster) close() {
	c.Stop(Immediate) // nothing in it is needed again; if it does not stop, the guard kills it
	c.remove()
}

func start(o *Options) (*Cluster, error) {
	if o == nil {
		o = &Options{}
	}
	v, err := choose(o.Bin)
	if err != nil {
		return nil, err
	}
	c, err := newCluster(v)
	if err != nil {
		return nil, err
	}
	if err := c.initdb(o.Settings); err != nil {
		c.remove()
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	if err := c.firstStart(); err != nil {
		c.remove()
		return nil, err
	}
	return c, nil
}

func newCluster(v Version) (*Cluster, error) {
	p, err := newPlace("QUIT")
	if err != nil {
		return nil, err
	}
	return &Cluster{Version: v, place: p}, nil
}

func (c *Cluster) initdb(settings map[string]string) error {
	err := c.run(filepath.Join(c.Version.Bin, "initdb"), "-D", c.path("data"), "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	all := map[string]string{
		"max_connections": "200",
		"log_line_prefix": "%m [%p] %d ",
		"log_checkpoints": "off",
		"wal_keep_size":   "256MB", // a standby that is being copied finds what it needs
	}
	maps.Copy(all, settings)
	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&conf, "%s = %s\n", name, quote(all[name]))
	}
	return c.write("data/postgresql.conf", conf.String())
}

// firstStart starts the server on a port that it keeps. Somebody else may take the port in between: then another is tried.
func (c *Cluster) firstStart() error {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		c.port = port
		if err = c.Start(); err == nil || try == 5 || portFree(port) == nil {
			return err
		}
	}
}

// Start starts a stopped server, on the port that it had, and returns when it accepts connections.
func (c *Cluster) Start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start()
}

func (c *Cluster) start() error {
	if c.pr != nil {
		return fmt.Errorf("pgtest: start: the server on port %d is running", c.port)
	}
	from := c.logSize()
	pr, err := c.launch(filepath.Join(c.Version.Bin, "postgres"), "-D", c.path("data"), "-h", "127.0.0.1",
		"-p", strconv.Itoa(c.port), "-k", c.dir)
	if err != nil {
		return fmt.Errorf("pgtest: start postgres as %s: %w", c.as.name, err)
	}
	if err := pr.ready(c.ping); err != nil {
		err = errors.Join(err, pr.stop(syscall.SIGQUIT))
		return fmt.Errorf("pgtest: start: %w; its log:\n%s", err, c.logTail(from))
	}
	c.pr = pr
	return nil
}

// Stop stops the server and returns when it is gone. Stopping a stopped server does nothing.
func (c *Cluster) Stop(m Mode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop(m)
}

func (c *Cluster) stop(m Mode) error {
	if c.pr == nil {
		return nil
	}
	sig := syscall.SIGINT
	if m == Immediate {
		sig = syscall.SIGQUIT
	}
	err := c.pr.stop(sig)
	c.pr = nil
	if err != nil {
		return fmt.Errorf("pgtest: stop: %w", err)
	}
	return nil
}

// Restart is Stop and Start.
func (c *Cluster) Restart(m Mode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.stop(m), c.start())
}

// Wait returns when the server accepts connections: after KillBackends, for instance.
func (c *Cluster) Wait() error {
	c.mu.Lock()
	pr := c.pr
	c.mu.Unlock()
	if pr == nil {
		return errors.New("pgtest: wait: the server is stopped")
	}
	if err := pr.ready(c.ping); err != nil {
		return fmt.Errorf("pgtest: wait: %w", err)
	}
	return nil
}

// Set changes a setting of the running server (alter system), and returns when new sessions have it. A setting that
// needs a restart gets none.
func (c *Cluster) Set(name, value string) error {
	err := c.admin(func(ctx context.Context, db *sql.DB) error {
		var before time.Time
		if err := db.QueryRowContext(ctx, `select pg_conf_load_time()`).Scan(&before); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, `alter system set `+pq.QuoteIdentifier(name)+` = `+quote(value)); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, `select pg_reload_conf()`); err != nil {
			return err
		}
		return until(ctx, func() (done bool, err error) {
			err = c.admin(func(ctx context.Context, fresh *sql.DB) error {
				return fresh.QueryRowContext(ctx, `select pg_conf_load_time() > $1`, before).Scan(&done)
			})
			return done, err
		})
	})
	if err != nil {
		return fmt.Errorf("pgtest: set %s: %w", name, err)
	}
	return nil
}

// DSN returns the URL of a new, empty database of this cluster.
func (c *Cluster) DSN(t testing.TB) string {
	t.Helper()
	name := "test_" + strconv.FormatInt(c.dbs.Add(1), 10)
	from := c.logSize()
	if err := c.exec(`create database ` + name); err != nil {
		t.Fatalf("pgtest: create a database: %v; the server's log:\n%s", err, c.logTail(from))
	}
	if c.shared { // a private cluster shows its log itself, and goes as a whole
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the shared server's log since this test began:\n%s", c.logTail(from))
			}
			if err := c.exec(`drop database ` + name + ` with (force)`); err != nil {
				t.Errorf("pgtest: drop %s: %v", name, err)
			}
		})
	}
	return c.url(name)
}

// Log returns the end of the server's log.
func (c *Cluster) Log() string { return c.logTail(0) }

// Port is the loopback port of the server: the same over its whole life.
func (c *Cluster) Port() int { return c.port }

func (c *Cluster) url(db string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: "127.0.0.1:" + strconv.Itoa(c.port), Path: "/" + db,
		RawQuery: "sslmode=disable"}).String()
}

func (c *Cluster) ping() error { return c.exec(`select 1`) }

func (c *Cluster) exec(query string, args ...any) error {
	return c.admin(func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, query, args...)
		return err
	})
}

// admin runs f on one new session, in the database postgres.
func (c *Cluster) admin(f func(context.Context, *sql.DB) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	db, err := sql.Open("postgres", c.url("postgres"))
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	return errors.Join(f(ctx, db), db.Close())
}

// until polls.
func until(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
