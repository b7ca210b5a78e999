package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/store/storetest"
)

// storetest_test.go: the conformance suite, on files.

// clock moves when it is told to.
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

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		c := &clock{now: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)}
		path := filepath.Join(t.TempDir(), "leads.db")
		open := func() *sqlite.Store {
			s, err := sqlite.Open(t.Context(), path, &sqlite.Options{Now: c.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		}
		first := open()
		db, err := sql.Open("sqlite", path+"?_busy_timeout=5000")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		change := func(query string, arg string) error {
			res, err := db.ExecContext(t.Context(), query, arg)
			if err != nil {
				return err
			}
			if n, err := res.RowsAffected(); err != nil || n != 1 {
				return fmt.Errorf("%d rows, %v", n, err)
			}
			return nil
		}
		return storetest.Subject{
			Backend: first,
			Advance: c.Advance,
			Second:  func() storetest.Backend { return open() },
			Reopen: func() storetest.Backend {
				if err := first.Close(); err != nil {
					t.Fatal(err)
				}
				return open()
			},
			Corrupt: func(table, id string) error {
				return change(map[string]string{
					storetest.TableEvents:     `update leadonce_events set enquiry = x'7b' where id = ?`,
					storetest.TableOperations: `update leadonce_operations set fields = x'7b' where id = ?`,
					storetest.TableDeals:      `update leadonce_deals set generation = 0 where id = ?`,
				}[table], id)
			},
			Erase: func(id string) error {
				return change(`update leadonce_operations set fields = null where id = ?`, id)
			},
		}
	})
}
