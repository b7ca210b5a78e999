package pgtest_test

// faults_test.go: what is done to a server is done, and what was committed outlives it, on every version found.

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/internal/pgtest"
)

func TestFaults(t *testing.T) {
	pgtest.DSN(t) // skipped where there is no server at all
	for _, v := range pgtest.Versions() {
		t.Run(fmt.Sprint(v.Major), func(t *testing.T) {
			t.Log(v.Text)
			testFaults(t, v)
		})
	}
}

func testFaults(t *testing.T, v pgtest.Version) {
	c := pgtest.Start(t, &pgtest.Options{Bin: v.Bin, Settings: map[string]string{"fsync": "off", "wal_buffers": "1MB"}})
	dsn := c.DSN(t)
	db := open(t, dsn)
	do(t, db, `create table x (n int)`)

	t.Run("it is the version and has the settings that were asked for", func(t *testing.T) {
		if got := one[int](t, db, `select current_setting('server_version_num')::int / 10000`); got != v.Major {
			t.Errorf("version %d, want %d", got, v.Major)
		}
		if got := one[string](t, db, `select current_setting('fsync') || current_setting('wal_buffers')`); got != "off1MB" {
			t.Errorf("fsync and wal_buffers are %s", got)
		}
		if err := c.Set("fsync", "on"); err != nil {
			t.Fatal(err)
		}
		if got := one[string](t, open(t, dsn), `select current_setting('fsync')`); got != "on" {
			t.Errorf("fsync is %s after it was set", got)
		}
	})
	outlives := func(t *testing.T, crash func() error) {
		do(t, db, `truncate x`)
		do(t, db, `insert into x values (1)`)
		tx, err := db.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec(`insert into x values (2)`); err != nil {
			t.Fatal(err)
		}
		if err := crash(); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(); err == nil {
			t.Error("a transaction outlived the server")
		}
		if got := one[int](t, open(t, dsn), `select sum(n) from x`); got != 1 {
			t.Errorf("the rows add up to %d", got)
		}
	}
	t.Run("only what was committed outlives an immediate restart", func(t *testing.T) {
		outlives(t, func() error { return c.Restart(pgtest.Immediate) })
		if !strings.Contains(c.Log(), "database system was not properly shut down") {
			t.Error("it was an orderly one")
		}
	})
	t.Run("only what was committed outlives a fast restart", func(t *testing.T) {
		outlives(t, func() error { return c.Restart(pgtest.Fast) })
	})
	t.Run("only what was committed outlives killed backends", func(t *testing.T) {
		outlives(t, func() error {
			if n, err := c.KillBackends(); n < 1 || err != nil {
				return fmt.Errorf("%d killed, %w", n, err)
			}
			return c.Wait()
		})
		if !strings.Contains(c.Log(), "was terminated by signal 9") {
			t.Error("none was killed")
		}
	})
	t.Run("a standby has every acknowledged row and takes over", func(t *testing.T) {
		s := c.Standby(t)
		db := open(t, pgtest.At(dsn, c, s))
		do(t, db, `truncate x`)
		for range 100 {
			do(t, db, `insert into x values (1)`)
		}
		if err := s.Stop(pgtest.Immediate); err != nil {
			t.Fatal(err)
		}
		waits := make(chan error, 1)
		go func() {
			_, err := db.Exec(`insert into x values (1)`)
			waits <- err
		}()
		eventually(t, "a commit waits for the standby", func() bool {
			return one[bool](t, db, `select exists (select from pg_stat_activity where wait_event = 'SyncRep')`)
		})
		if err := s.Start(); err != nil {
			t.Fatal(err)
		}
		if err := <-waits; err != nil {
			t.Errorf("the standby is back, and the commit says %v", err)
		}
		if err := c.Stop(pgtest.Immediate); err != nil {
			t.Fatal(err)
		}
		if err := open(t, pgtest.At(dsn, c, s)).Ping(); err == nil {
			t.Error("a standby was taken for a primary")
		}
		if err := s.Promote(); err != nil {
			t.Fatal(err)
		}
		do(t, db, `insert into x values (1)`)
		if got := one[int](t, open(t, pgtest.At(dsn, s)), `select count(*) from x`); got != 102 {
			t.Errorf("%d rows, want 102", got)
		}
	})
}

func TestPgbouncer(t *testing.T) {
	direct := pgtest.DSN(t)
	t.Run("in transaction mode a session is not kept", func(t *testing.T) {
		dsn := pgtest.Pgbouncer(t, direct, "transaction", "default_pool_size = 1", "query_wait_timeout = 10")
		a, b := open(t, dsn), open(t, dsn)
		inA := one[int](t, a, `select pg_backend_pid()`)
		if inB := one[int](t, b, `select pg_backend_pid()`); inA != inB {
			t.Errorf("two clients had backends %d and %d, want the only one of the pool", inA, inB)
		}
	})
	t.Run("it is gone with its test", func(t *testing.T) {
		var dsn string
		t.Run("its test", func(t *testing.T) { dsn = pgtest.Pgbouncer(t, direct, "session") })
		if err := open(t, dsn).Ping(); err == nil {
			t.Error("it still answers")
		}
	})
}
