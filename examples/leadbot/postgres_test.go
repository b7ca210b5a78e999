package main

import (
	"database/sql"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/internal/pgtest"
)

// postgres_test.go: the same leadbot on PostgreSQL.

const dbPassword = "db-pass-secret"

// withPassword is a DSN that the server, which asks for none, takes as well.
func withPassword(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), dbPassword)
	return u.String()
}

func TestPostgres(t *testing.T) {
	dsn := pgtest.DSN(t)
	flags := []string{"-db", withPassword(t, dsn), "-schema", "garage"}
	crm := newCRM(t)
	one, two := start(t, crm.hook(), flags...), start(t, crm.hook(), flags...)

	t.Run("an update delivered to two leadbots becomes one lead", func(t *testing.T) {
		for _, s := range []*server{one, two, one, two} {
			s.accept(update(1, 42, "How much is an oil change?"))
		}
		eventually(t, "its operation is done", func() bool { return len(one.in("done")) == 1 })
		id := one.in("done")[0].ID
		if got := two.in("all"); len(got) != 1 || got[0].ID != id || crm.seen(id) != 1 {
			t.Errorf("%+v, %d calls", got, crm.seen(id))
		}
	})
	t.Run("a person settles what could not be known, and what is shown names the place without its password", func(t *testing.T) {
		crm.lose(true)
		one.accept(update(2, 43, "And tyres?"))
		eventually(t, "the answer is lost", func() bool { return len(one.in("needs_reconciliation")) == 1 })
		op := one.in("needs_reconciliation")[0].ID
		out := one.ops("show", op)
		if !strings.Contains(out, "leadbot ops found -db '"+dsn+"' -schema garage "+op+"@") || strings.Contains(out, dbPassword) {
			t.Errorf("show: %s", out)
		}
		one.ops("found", op+"=77", "-by", "boris", "-why", "looked into the CRM")
		if got := two.state(op); got != "done" {
			t.Error(got)
		}
	})
	t.Run("readyz is answered 200", func(t *testing.T) {
		if status, body := one.get("/readyz"); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("the log names the database without its password", func(t *testing.T) {
		if log := one.logged(); !strings.Contains(log, dsn) || strings.Contains(log, dbPassword) {
			t.Error(log)
		}
	})
	t.Run("ops on a schema that is not there exits 1, says what is missing, and makes nothing", func(t *testing.T) {
		code, out, errOut := invoke(t, one.dir, "ops", "list", "-db", withPassword(t, dsn), "-schema", "grage")
		if code != exitFailed || !strings.Contains(errOut, "grage") || strings.Contains(out+errOut, dbPassword) {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
		db, err := sql.Open("postgres", dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var made bool
		err = db.QueryRowContext(t.Context(), `
			select exists (select 1 from pg_catalog.pg_namespace where nspname = 'grage')`).Scan(&made)
		if err != nil || made {
			t.Errorf("made %v, %v", made, err)
		}
	})
	t.Run("a server that is not there is said to be that, without the password", func(t *testing.T) {
		bad := "postgres://bot:" + dbPassword + "@127.0.0.1:1/leads?sslmode=disable"
		code, out, errOut := invoke(t, one.dir, "ops", "list", "-db", bad)
		if code != exitFailed || !strings.Contains(errOut, "can't be reached") || strings.Contains(out+errOut, dbPassword) {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
	})
	t.Run("ops through a pooler in transaction mode see the same", func(t *testing.T) {
		pooled := pgtest.Pgbouncer(t, dsn, "transaction")
		out := one.ops("list", "-state", "all", "-json", "-pooler", "-db", pooled)
		if got := read[[]opView](t, out); len(got) != 2 {
			t.Errorf("%s", out)
		}
	})
}

func TestPostgresRestarts(t *testing.T) {
	cluster := pgtest.Start(t, nil)
	s := start(t, "sim", "-db", cluster.DSN(t))
	t.Run("while the server is away readyz and the webhook are 503, and healthz is 200", func(t *testing.T) {
		if err := cluster.Stop(pgtest.Immediate); err != nil {
			t.Fatal(err)
		}
		if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || strings.Contains(body, "127.0.0.1") {
			t.Errorf("readyz: %d %s", status, body)
		}
		if status := s.deliver(update(1, 42, "hello"), secret); status != http.StatusServiceUnavailable {
			t.Errorf("telegram: %d", status)
		}
		if status, _ := s.get("/healthz"); status != http.StatusOK {
			t.Errorf("healthz: %d", status)
		}
	})
	t.Run("when it is back everything goes on by itself", func(t *testing.T) {
		if err := cluster.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is ready", func() bool {
			status, _ := s.get("/readyz")
			return status == http.StatusOK
		})
		eventually(t, "the update is taken", func() bool {
			return s.deliver(update(1, 42, "hello"), secret) == http.StatusOK
		})
		eventually(t, "the lead is made", func() bool { return len(s.in("done")) == 1 })
	})
}

func TestPlace(t *testing.T) {
	t.Run("what is shown of a URL holds no password, wherever it stood", func(t *testing.T) {
		for name, want := range map[string]string{
			"leads.db": "leads.db",
			"postgres://bot:hunter2@h/leads?sslmode=disable":                 "postgres://bot@h/leads?sslmode=disable",
			"postgres://h/leads?password=hunter2&sslpassword=hunter2&user=b": "postgres://h/leads?user=b",
			"postgres://bot:hunter2%@h/leads":                                "postgres://...",
		} {
			if got := (place{name: name}).String(); got != want {
				t.Errorf("%s, not %s", got, want)
			}
		}
	})
}
