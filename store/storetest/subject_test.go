package storetest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store/sqlite"
)

// subject_test.go: a real store to try the suite on. The backend runs the suite itself; here it is only material.

// clock is a time that moves when it is told to.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// openSQLite returns a fresh store on a file.
func openSQLite(t testing.TB) Subject {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leads.db")
	c := &clock{now: time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)}
	open := func() *sqlite.Store {
		st, err := sqlite.Open(t.Context(), path, &sqlite.Options{Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	first := open()
	exec := func(query string, id string) error {
		db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_pragma=busy_timeout(5000)")
		if err != nil {
			return err
		}
		defer db.Close()
		r, err := db.Exec(query, id)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); n != 1 || err != nil {
			return fmt.Errorf("%d rows changed, %w", n, err)
		}
		return nil
	}
	return Subject{
		Backend: first,
		Advance: c.Advance,
		Second:  func() Backend { return open() },
		Reopen: func() Backend {
			first.Close()
			return open()
		},
		Corrupt: func(table, id string) error {
			return exec(map[string]string{
				TableEvents:     `update leadonce_events set enquiry = x'7b', attempts = -1 where id = ?`,
				TableOperations: `update leadonce_operations set fields = x'7b', version = -version where id = ?`,
				TableDeals:      `update leadonce_deals set generation = -generation where id = ?`,
			}[table], id)
		},
		Erase: func(id string) error {
			return exec(`update leadonce_operations set fields = null where id = ?`, id)
		},
	}
}
