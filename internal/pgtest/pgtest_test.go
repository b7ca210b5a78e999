package pgtest_test

// pgtest_test.go: every test has a database of its own, and nothing outlives the test process.

import (
	"bufio"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/leadonce/leadonce/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestDatabases(t *testing.T) {
	began := time.Now()
	dsn := pgtest.DSN(t)
	t.Logf("the first database came after %v", time.Since(began))

	t.Run("each is empty and new", func(t *testing.T) {
		for _, db := range []*sql.DB{open(t, dsn), open(t, pgtest.DSN(t)), open(t, pgtest.DSN(t))} {
			do(t, db, `create table x (n int)`)
		}
	})
	t.Run("a database goes with its test, open sessions or not", func(t *testing.T) {
		var dropped string
		t.Run("its test", func(t *testing.T) {
			dropped = pgtest.DSN(t)
			db, err := sql.Open("postgres", dropped)
			if err != nil {
				t.Fatal(err)
			}
			defer t.Cleanup(func() { db.Close() })
			do(t, db, `create table x (n int)`)
		})
		name := strings.TrimPrefix(parse(t, dropped).Path, "/")
		if one[bool](t, open(t, dsn), `select exists (select from pg_database where datname = $1)`, name) {
			t.Errorf("database %s is still there", name)
		}
	})
	t.Run("durability is PostgreSQL's default", func(t *testing.T) {
		db := open(t, dsn)
		for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
			if got := one[string](t, db, `select current_setting($1)`, name); got != "on" {
				t.Errorf("%s = %s", name, got)
			}
		}
	})
	t.Run("sessions of one database can be ended without harm to another", func(t *testing.T) {
		a, b := open(t, pgtest.DSN(t)), open(t, dsn)
		a.SetMaxOpenConns(1)
		pidA, pidB := pid(t, a), pid(t, b)
		n, err := pgtest.Disconnect(dsn)
		if n != 1 || err != nil {
			t.Errorf("Disconnect = %d, %v, want the one session of that database", n, err)
		}
		if pid(t, a) != pidA {
			t.Error("the session of another database was ended")
		}
		if pid(t, b) == pidB {
			t.Error("the session lives on")
		}
	})
}

// TestNothingOutlivesTheProcess runs itself as a child, which only a SIGKILL ends.
func TestNothingOutlivesTheProcess(t *testing.T) {
	if os.Getenv("PGTEST_CHILD") != "" {
		dsn := pgtest.DSN(t)
		fmt.Println("CHILD", parse(t, dsn).Host, one[string](t, open(t, dsn), `select current_setting('data_directory')`))
		select {}
	}
	pgtest.DSN(t) // skipped where the child would be
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "PGTEST_CHILD=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var host, dir, said string
	for in := bufio.NewScanner(out); host == "" && in.Scan(); said += in.Text() + "\n" {
		if f := strings.Fields(in.Text()); len(f) == 3 && f[0] == "CHILD" {
			host, dir = f[1], filepath.Dir(f[2])
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait() // killed
	if host == "" {
		t.Fatalf("the child got no cluster:\n%s", said)
	}
	eventually(t, "the server at "+host+" is gone", func() bool {
		c, err := net.Dial("tcp", host)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	eventually(t, dir+" is gone", func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	})
	eventually(t, "no process works in "+dir, func() bool {
		links, _ := filepath.Glob("/proc/[0-9]*/cwd") // none where there is no /proc
		for _, link := range links {
			if in, err := os.Readlink(link); err == nil && strings.HasPrefix(in, dir) {
				return false
			}
		}
		return true
	})
}

// eventually polls for less than the time after which a server notices by itself that its directory is gone.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not after 20 s: %s", what)
		}
	}
}

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func do(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func one[T any](t testing.TB, db *sql.DB, query string, args ...any) (v T) {
	t.Helper()
	if err := db.QueryRow(query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// pid returns the pid of the session that db has now: the first query on one that was ended fails.
func pid(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	err := db.QueryRow(`select pg_backend_pid()`).Scan(&n)
	if err != nil {
		n = one[int](t, db, `select pg_backend_pid()`)
	}
	return n
}

func parse(t testing.TB, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
