package pgtest_test

import (
	"database/sql"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"github.com/leadonce/leadonce/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t testing.TB, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestSharedCluster(t *testing.T) {
	began := time.Now()
	pgtest.DSN(t)
	t.Logf("the first database after %v", time.Since(began))
	t.Run("two databases are two", func(t *testing.T) {
		began := time.Now()
		a, b := open(t, pgtest.DSN(t)), open(t, pgtest.DSN(t))
		t.Logf("two databases: %v", time.Since(began))
		if _, err := a.Exec(`create table x (n int)`); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Exec(`create table x (n int)`); err != nil {
			t.Fatalf("the second database holds the first one's table: %v", err)
		}
	})
}
