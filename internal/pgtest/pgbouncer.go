package pgtest

// pgbouncer.go: a connection pool between a test and its server.

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Pgbouncer starts a pgbouncer of the test's own before the DSN's server and returns the DSN through it. The pool mode is
// session, transaction or statement. More settings are lines of pgbouncer.ini ("max_client_conn = 500"); a later one wins. The
// DSN's user is the only one that it lets in. Otherwise it is what a Debian user has, with the one line that lib/pq asks
// for: ignore_startup_parameters = extra_float_digits.
func Pgbouncer(t testing.TB, dsn, poolMode string, settings ...string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatalf("pgtest: pgbouncer: %v", err)
	}
	bin, err := findPgbouncer()
	if err != nil {
		unavailable(t, err)
	}
	p, err := newPlace("TERM")
	if err != nil {
		unavailable(t, err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of pgbouncer:\n%s", p.logTail(0))
		}
		p.remove()
	})
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	server := *u
	u.Host = "127.0.0.1:" + strconv.Itoa(port)
	ini := fmt.Sprintf(`[databases]
* = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = %s
ignore_startup_parameters = extra_float_digits
%s
`, server.Hostname(), server.Port(), port, p.path("users"), poolMode, strings.Join(settings, "\n"))
	err = errors.Join(p.write("pgbouncer.ini", ini), p.write("users", fmt.Sprintf("%q \"\"\n", u.User.Username())))
	if err != nil {
		t.Fatalf("pgtest: pgbouncer: %v", err)
	}
	pr, err := p.launch(bin, p.path("pgbouncer.ini"))
	if err != nil {
		t.Fatalf("pgtest: start pgbouncer: %v", err)
	}
	if err := pr.ready(func() error { return ping(u.String()) }); err != nil {
		t.Fatalf("pgtest: start pgbouncer: %v", errors.Join(err, pr.stop(syscall.SIGTERM)))
	}
	return u.String()
}

func ping(dsn string) error {
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return err
	}
	return errors.Join(db.Ping(), db.Close())
}

func findPgbouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} { // sbin is not on everybody's PATH
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", missing("no pgbouncer found: apt-get install pgbouncer")
}
