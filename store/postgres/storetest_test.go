package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/store/storetest"
)

// storetest_test.go: the conformance suite, each check in a schema of its own.

func TestMain(m *testing.M) { pgtest.Main(m) }

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
	dsn, n := pgtest.DSN(t), 0
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		n++
		return subject(t, dsn, fmt.Sprint("check_", n))
	})
}

// subject returns a store in a schema of its own, and the hands that the suite has in it.
func subject(t *testing.T, dsn, schema string) storetest.Subject {
	c := &clock{now: time.Date(2026, 2, 3, 4, 5, 6, 789, time.UTC)}
	open := func() *postgres.Store {
		s, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: schema, Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	first := open()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	change := func(query string, arg string) error {
		res, err := db.ExecContext(context.Background(), query, arg)
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
				storetest.TableEvents:     `update ` + schema + `.leadonce_events set enquiry = '\x7b' where id = $1`,
				storetest.TableOperations: `update ` + schema + `.leadonce_operations set fields = '\x7b' where id = $1`,
				storetest.TableDeals:      `update ` + schema + `.leadonce_deals set generation = 0 where id = $1`,
			}[table], id)
		},
		Erase: func(id string) error {
			return change(`update `+schema+`.leadonce_operations set fields = null where id = $1`, id)
		},
	}
}
