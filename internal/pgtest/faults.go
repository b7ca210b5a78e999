package pgtest

// faults.go: what happens to servers and their sessions: killed backends, ended sessions, a standby that takes over.

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/lib/pq"
)

// KillBackends sends SIGKILL to the processes of all sessions and returns how many those were. The server answers the first such
// death by ending every session, and recovers from its write-ahead log as after a crash. KillBackends returns when the
// server has noticed; Wait, when it has recovered.
func (c *Cluster) KillBackends() (killed int, err error) {
	err = c.admin(func(ctx context.Context, db *sql.DB) error {
		own, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer own.Close()
		var pids []int64
		err = own.QueryRowContext(ctx, `select coalesce(array_agg(pid), '{}') from pg_stat_activity
			where backend_type = 'client backend' and pid <> pg_backend_pid()`).Scan(pq.Array(&pids))
		if err != nil {
			return err
		}
		for _, pid := range pids {
			p, err := os.FindProcess(int(pid))
			if err == nil {
				err = p.Kill()
			}
			if err == nil {
				killed++
			} else if !errors.Is(err, os.ErrProcessDone) { // ended by the server meanwhile, or by itself
				return err
			}
		}
		if killed == 0 {
			return nil
		}
		return until(ctx, func() (ended bool, err error) {
			_, err = own.ExecContext(ctx, `select 1`)
			return err != nil, nil // spared above, this session is ended with the others
		})
	})
	if err != nil {
		return killed, fmt.Errorf("pgtest: kill backends: %w", err)
	}
	return killed, nil
}

// Disconnect ends all sessions of the DSN's database (pg_terminate_backend) and returns how many those were. It harms no
// other database: right for the shared cluster too.
func Disconnect(dsn string) (ended int, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return 0, fmt.Errorf("pgtest: disconnect: %w", err)
	}
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		return 0, fmt.Errorf("pgtest: disconnect: %w", err)
	}
	err = db.QueryRow(`select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
		where datname = $1 and backend_type = 'client backend' and pid <> pg_backend_pid()`,
		strings.TrimPrefix(u.Path, "/")).Scan(&ended)
	if err = errors.Join(err, db.Close()); err != nil {
		return ended, fmt.Errorf("pgtest: disconnect: %w", err)
	}
	return ended, nil
}

// At returns the DSN of the same database on other servers. Of several the driver takes the first that accepts writes
// (target_session_attrs=read-write): At(dsn, primary, standby) survives a failover.
func At(dsn string, servers ...*Cluster) string {
	u, err := url.Parse(dsn)
	if err != nil || len(servers) == 0 {
		panic(fmt.Sprintf("pgtest: At(%q) with %d servers: %v", dsn, len(servers), err))
	}
	if len(servers) == 1 {
		u.Host = "127.0.0.1:" + strconv.Itoa(servers[0].port)
		return u.String()
	}
	var hosts, ports []string
	for _, c := range servers {
		hosts, ports = append(hosts, "127.0.0.1"), append(ports, strconv.Itoa(c.port))
	}
	u.Host = "" // as parameters: net/url parses no list of ports, and lib/pq, pgx and libpq all read them there
	q := u.Query()
	q.Set("host", strings.Join(hosts, ","))
	q.Set("port", strings.Join(ports, ","))
	q.Set("target_session_attrs", "read-write")
	u.RawQuery = strings.ReplaceAll(q.Encode(), "%2C", ",")
	return u.String()
}

// Standby returns a synchronous streaming standby of c: from now on a commit on c is acknowledged when the standby has written
// it too, and waits for as long as the standby is away. It reads only, until it is promoted. Needs PostgreSQL 15 or newer.
func (c *Cluster) Standby(t testing.TB) *Cluster {
	t.Helper()
	if c.Version.Major < 15 {
		t.Fatalf("pgtest: a standby needs PostgreSQL 15 or newer, not %s", c.Version.Text)
	}
	s, err := newCluster(c.Version)
	if err != nil {
		t.Fatal(err)
	}
	s.closeAfter(t)
	name := "standby_" + strconv.FormatInt(c.dbs.Add(1), 10)
	if err := c.copyTo(s, name); err != nil {
		t.Fatalf("pgtest: standby: copy the data directory: %v", err)
	}
	if err := s.firstStart(); err != nil {
		t.Fatal(err)
	}
	if err := c.Set("synchronous_standby_names", "*"); err != nil {
		t.Fatal(err)
	}
	err = c.admin(func(ctx context.Context, db *sql.DB) error {
		return until(ctx, func() (ok bool, err error) {
			err = db.QueryRowContext(ctx, `select exists (select from pg_stat_replication
				where application_name = $1 and state = 'streaming' and sync_state in ('sync', 'potential'))`, name).Scan(&ok)
			return ok, err
		})
	})
	if err != nil {
		t.Fatalf("pgtest: standby: wait until it streams: %v; its log:\n%s", err, s.logTail(0))
	}
	return s
}

// copyTo makes a base backup of the running c in s, by the functions that pg_basebackup is made of: some packages of binaries
// come without pg_basebackup.
func (c *Cluster) copyTo(s *Cluster, name string) error {
	var label string
	err := c.admin(func(ctx context.Context, db *sql.DB) error { // one session: the backup ends with it
		if _, err := db.ExecContext(ctx, `select pg_backup_start('pgtest', fast => true)`); err != nil {
			return err
		}
		// Files come and go while they are copied. cp complains about one that went, and is right to go on: replay
		// makes the copy whole, and a copy that is not does not start.
		copied := s.run("cp", "-R", c.path("data"), s.path("data"))
		if err := db.QueryRowContext(ctx, `select labelfile from pg_backup_stop(false)`).Scan(&label); err != nil {
			return errors.Join(err, copied)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"postmaster.pid", "postmaster.opts"} {
		if err := os.Remove(s.path("data/" + name)); err != nil {
			return err
		}
	}
	if err := s.run("sh", "-c", `rm -rf data/pg_wal/[0-9A-F]* data/pg_replslot/*`); err != nil { // it streams its own
		return err
	}
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=postgres application_name=%s", c.port, name)
	return errors.Join(
		s.write("data/backup_label", label),
		s.write("data/standby.signal", ""),
		s.write("data/postgresql.auto.conf", "primary_conninfo = "+quote(conninfo)+"\nsynchronous_standby_names = ''\n"))
}

// Promote makes a standby a primary, and returns when it accepts writes. The old primary is not told: stop it first, as whatever
// watches over real servers does.
func (c *Cluster) Promote() error {
	err := c.admin(func(ctx context.Context, db *sql.DB) error {
		var ok bool
		if err := db.QueryRowContext(ctx, `select pg_promote(true, 60)`).Scan(&ok); err != nil {
			return err
		}
		if !ok {
			return errors.New("still a standby after 60 s")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("pgtest: promote: %w", err)
	}
	return nil
}
