package sqlite

import (
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/store"
)

// open_test.go: paths, settings, and the schema.

func TestOpenTakesAnyPath(t *testing.T) {
	names := []string{"leads.db", "with space.db", "заявки.db", "a%41b.db", "c#d.db", "e&f=g.db", "h;i'j.db", "$x@y.db"}
	if runtime.GOOS != "windows" {
		names = append(names, "a:b.db", "what?.db", `back\slash.db`, "q?mode=ro.db", `"quoted".db`)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "каталог #1", name)
			if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			s := reopen(t, path, nil)
			must(s.Accept(background, event("1", "k")))(t)
			if st, err := os.Stat(path); err != nil || st.Size() == 0 {
				t.Fatalf("the file is not where it was asked for: %v", err)
			}
			keys := must(s.DueKeys(background, 1))(t)
			if len(keys) != 1 {
				t.Fatal("readers look at another file")
			}
		})
	}
	t.Run("a relative path", func(t *testing.T) {
		t.Chdir(t.TempDir())
		reopen(t, "leads.db", nil)
		if _, err := os.Stat("leads.db"); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWindowsPathsBecomeURIs(t *testing.T) {
	for in, want := range map[string]string{
		"C:/Users/Иван/leads.db":  "file:///C:/Users/%D0%98%D0%B2%D0%B0%D0%BD/leads.db?",
		"//server/share/a b#1.db": "file:////server/share/a%20b%231.db?",
		"/var/lib/bot/le?ads%.db": "file:///var/lib/bot/le%3Fads%25.db?",
	} {
		if got := dsn(in, url.Values{"a": {"b"}}); got != want+"a=b" {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "text.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("not a database\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path, want string
		o                *Options
	}{
		{"an empty path", "", "empty", nil},
		{"memory", ":memory:", "outlive", nil},
		{"a URI", "file:leads.db?mode=memory", "outlive", nil},
		{"a NUL", "a\x00b", "NUL", nil},
		{"a directory", dir, "is a directory", nil},
		{"a missing directory", filepath.Join(dir, "none", "leads.db"), "make it first", nil},
		{"a directory that is a file", filepath.Join(file, "leads.db"), "text.txt", nil},
		{"another file", file, "not an SQLite file", nil},
		{"too many readers", filepath.Join(dir, "a.db"), "Readers is 65", &Options{Readers: 65}},
		{"a long busy timeout", filepath.Join(dir, "a.db"), "BusyTimeout is 2m0s", &Options{BusyTimeout: 2 * time.Minute}},
		{"negative pages", filepath.Join(dir, "a.db"), "MaxPages is -1", &Options{MaxPages: -1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Open(background, c.path, c.o)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want something about %q", err, c.want)
			}
		})
	}
}

func TestSettingsOfTheConnectionThatCommits(t *testing.T) {
	s := open(t, &Options{BusyTimeout: 1234 * time.Millisecond})
	want := map[string]string{"journal_mode": "wal", "synchronous": "2", "query_only": "0"}
	read := func(c *conn) map[string]string {
		got := map[string]string{}
		for name := range want {
			var v string
			if _, err := c.get(&v, "pragma "+name, nil); err != nil {
				t.Error(err)
			}
			got[name] = v
		}
		return got
	}
	var w, r map[string]string
	s.writer.do(background, false, func(c *conn) error { w = read(c); return nil })
	s.read.view(background, func(c *conn) error {
		r = read(c)
		if _, err := c.exec("delete from leadonce_events", nil); err == nil {
			t.Error("a reader wrote")
		}
		return nil
	})
	if s.writer.c.busy != 1234*time.Millisecond {
		t.Errorf("the writer waits %v", s.writer.c.busy)
	}
	for name, v := range want {
		if w[name] != v {
			t.Errorf("%s is %s, want %s", name, w[name], v)
		}
	}
	if r["query_only"] != "1" {
		t.Error("readers can write")
	}
}

// handIn opens a database as a host would.
func handIn(t *testing.T, path, query string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?"+query)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestNewChecksWhatIsHandedIn(t *testing.T) {
	const good = "_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(5000)"
	for _, c := range []struct {
		name, query string
		schema      bool
		want        string // "": it is taken
	}{
		{"everything as it should be", good, true, ""},
		{"synchronous=EXTRA", strings.Replace(good, "FULL", "EXTRA", 1), true, ""},
		{"synchronous=NORMAL", strings.Replace(good, "FULL", "NORMAL", 1), true, "synchronous(FULL)"},
		{"a rollback journal", strings.Replace(good, "WAL", "DELETE", 1), true, "journal_mode(WAL)"},
		{"no busy timeout", strings.Replace(good, "5000", "0", 1), true, "busy_timeout(5000)"},
		{"uncommitted reads", good + "&_pragma=read_uncommitted(1)", true, "read_uncommitted"},
		{"no tables", good, false, "sqlite.Schema()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "host.db")
			if c.schema {
				db := handIn(t, path, good)
				if _, err := db.Exec(Schema()); err != nil {
					t.Fatal(err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
			db := handIn(t, path, c.query)
			s, err := New(background, db, nil)
			if c.want != "" {
				if err == nil {
					s.Close()
					t.Fatal("taken")
				}
				if !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v, want something about %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			must(s.Accept(background, event("1", "k")))(t)
			if len(must(s.DueKeys(background, 1))(t)) != 1 {
				t.Fatal("not found")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := db.Ping(); err != nil {
				t.Fatalf("Close closed the host's database: %v", err)
			}
		})
	}
	t.Run("too few connections", func(t *testing.T) {
		db := handIn(t, filepath.Join(t.TempDir(), "host.db"), good)
		db.SetMaxOpenConns(1)
		if _, err := New(background, db, nil); err == nil || !strings.Contains(err.Error(), "SetMaxOpenConns") {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("memory", func(t *testing.T) {
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := New(background, db, nil); err == nil {
			t.Fatal("taken")
		}
	})
	t.Run("nil", func(t *testing.T) {
		if _, err := New(background, nil, nil); err == nil {
			t.Fatal("taken")
		}
	})
}

func TestTablesOfAnotherVersionAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	s := reopen(t, path, nil)
	if err := s.writer.do(background, false, func(c *conn) error {
		_, err := c.exec("update leadonce_meta set value = '2/abc' where name = 'schema'", nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(background, path, nil); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Fatalf("got %v", err)
	}
}

func TestOpeningTwiceAtOnceMakesOneSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			s, err := Open(background, path, nil)
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The store runs inside a bubble of virtual time, and leaves no goroutine behind in it.
func TestVirtualTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(background, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan store.Hint, 1)
		s.Subscribe(func(h store.Hint) { heard <- h })
		e := event("1", "k")
		e.HeadStart = time.Hour
		must(s.Accept(background, e))(t)
		<-heard
		synctest.Wait()
		if keys := must(s.DueKeys(background, 1))(t); len(keys) != 0 {
			t.Fatal("due before the head start is over")
		}
		time.Sleep(2 * time.Hour)
		if keys := must(s.DueKeys(background, 1))(t); len(keys) != 1 {
			t.Fatal("not due")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// The file is locked by somebody else: callers wait for the busy timeout and are told; afterwards work goes on.
func TestLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	s := reopen(t, path, &Options{BusyTimeout: 20 * time.Millisecond})
	host, err := handIn(t, path, "_txlock=immediate").Begin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Accept(background, event("1", "k"))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "locked") {
		t.Fatalf("got %v", err)
	}
	if _, err := s.DueKeys(background, 1); err != nil {
		t.Fatalf("reading is not locked: %v", err)
	}
	if err := host.Rollback(); err != nil {
		t.Fatal(err)
	}
	must(s.Accept(background, event("1", "k")))(t)
}
