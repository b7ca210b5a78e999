package main

import (
	"context"
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/internal/pgtest"
)

// postgres_test.go: the same scenarios on PostgreSQL, and what is said about where they were.

const password = "hunter2"

// withPassword is a DSN that the server, which asks for none, takes as well.
func withPassword(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

// schemasOf lists the quickstart's schemas in a database. Any goroutine of the test may call it.
func schemasOf(t *testing.T, dsn string) (list []string) {
	t.Helper()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer db.Close()
	var all string
	if err := db.QueryRowContext(t.Context(), `
		select coalesce(string_agg(nspname, ' ' order by nspname), '')
		from pg_catalog.pg_namespace where nspname like 'quickstart%'`).Scan(&all); err != nil {
		t.Error(err)
	}
	return strings.Fields(all)
}

func TestQuickstartOnPostgres(t *testing.T) {
	t.Run("the same scenarios end well, and leave nothing behind", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		code, out, errs := start(t.Context(), "-db", withPassword(t, dsn))
		if code != 0 || lastLine(out) != "ok: 17 scenarios, 0 lost, 0 duplicated" || errs != "" {
			t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
		}
		narrow(t, out)
		if left := schemasOf(t, dsn); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("an adapter that sends again by itself fails there too; -keep says how to look, without the password", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		code, out, errs := start(t.Context(), "-break", "-keep", "-db", withPassword(t, dsn))
		if code != 1 || lastLine(out) != "FAILED: 2 of 17 scenarios, 0 lost, 2 duplicated" || errs != "" {
			t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
		}
		kept := schemasOf(t, dsn)
		i := slices.IndexFunc(kept, func(name string) bool { return strings.HasSuffix(name, "_killed_with_nothing") })
		if len(kept) != 17 || i < 0 {
			t.Fatalf("kept: %v", kept)
		}
		for _, want := range []string{"ops list -state all -db '" + dsn + "' \\\n    -schema " + kept[i],
			"psql '" + dsn + "' \\\n    -c 'select", " from " + kept[i] + ".leadonce_operations'"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is missing:\n%s", want, out)
			}
		}
		if strings.Contains(out, password) {
			t.Errorf("it shows the password:\n%s", out)
		}
	})
	t.Run("an interrupt leaves nothing behind", func(t *testing.T) {
		dsn := pgtest.DSN(t)
		ctx, cancel := context.WithCancel(t.Context())
		seen := make(chan struct{})
		go func() {
			defer close(seen)
			defer cancel()
			for !t.Failed() && len(schemasOf(t, dsn)) == 0 {
			}
		}()
		code, out, errs := start(ctx, "-db", dsn)
		<-seen
		if code != 1 || !strings.Contains(errs, "interrupted") || strings.Contains(out, " lost, ") {
			t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
		}
		if left := schemasOf(t, dsn); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	for _, c := range []struct{ name, dsn, says string }{
		{"nobody listens", "postgres://bot:" + password + "@127.0.0.1:1/leads?sslmode=disable", "can't be used"},
		{"the URL can't be read", "postgres://bot:" + password + "%@h/leads", "PGPASSWORD"},
		{"a parameter can't be read", "postgres://bot:" + password + "@h/leads?connect_timeout=soon", "connect_timeout"},
	} {
		t.Run("where "+c.name+" it says so once, without the password", func(t *testing.T) {
			code, out, errs := start(t.Context(), "-db", c.dsn)
			if code != 1 || !strings.Contains(errs, c.says) || strings.Contains(errs+out, password) || strings.Contains(out, "FAILED") {
				t.Fatalf("exit code %d: %s%s", code, out, errs)
			}
		})
	}
	t.Run("the name of every scenario's schema is one that the store takes, and no two are the same", func(t *testing.T) {
		s := &schemas{prefix: "quickstart_abcdefgh_"}
		seen := map[string]bool{}
		for _, sc := range scenarios() {
			name := s.of(sc).Schema
			if len(name) > 48 || seen[name] || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
				t.Errorf("%q", name)
			}
			seen[name] = true
		}
	})
	t.Run("what is shown of a DSN holds no password, wherever it stood", func(t *testing.T) {
		for dsn, want := range map[string]string{
			"postgres://bot:hunter2@h/leads?sslmode=disable":                 "postgres://bot@h/leads?sslmode=disable",
			"postgres://h/leads?password=hunter2&sslpassword=hunter2&user=b": "postgres://h/leads?user=b",
			"postgres://bot:hunter2%@h/leads":                                "postgres://...",
		} {
			if got := withoutPassword(dsn); got != want {
				t.Errorf("%s, not %s", got, want)
			}
		}
	})
}
