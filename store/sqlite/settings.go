package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// settings.go: the path, the settings of a connection, and what must hold on the one that commits.

const driverName = "sqlite"

// checkPath returns the absolute path.
func checkPath(path string) (string, error) {
	switch {
	case path == "":
		return "", errors.New("sqlite: the path is empty")
	case path == ":memory:" || strings.HasPrefix(path, "file:"):
		return "", fmt.Errorf("sqlite: %q is not the path of a file: what is acknowledged must outlive the process", path)
	case strings.ContainsRune(path, 0):
		return "", fmt.Errorf("sqlite: the path %q contains a NUL", path)
	}
	file, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite: path %q: %w", path, err)
	}
	if st, err := os.Stat(file); err == nil && st.IsDir() {
		return "", fmt.Errorf("sqlite: %s is a directory; name a file in it", path)
	}
	dir := filepath.Dir(file)
	switch st, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("sqlite: the directory %s does not exist; make it first", dir)
	case err != nil:
		return "", fmt.Errorf("sqlite: directory of %s: %w", path, err)
	case !st.IsDir():
		return "", fmt.Errorf("sqlite: %s is not a directory", dir)
	}
	return file, nil
}

// dsn returns file as a URI, in which no character of the path has a meaning of its own.
func dsn(file string, q url.Values) string {
	p := filepath.ToSlash(file)
	if !strings.HasPrefix(p, "/") { // C:/leads.db
		p = "/" + p
	}
	u := url.URL{Scheme: "file", Path: p, RawQuery: q.Encode()}
	if strings.HasPrefix(p, "//") { // //server/share/leads.db
		return "file://" + u.EscapedPath() + "?" + u.RawQuery
	}
	return u.String()
}

func writeDSN(file string, o Options) string {
	q := url.Values{
		"_busy_timeout": {strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10)},
		"_synchronous":  {"FULL"},
		"_dqs":          {"0"},
	}
	if o.MaxPages > 0 {
		q.Set("_pragma", fmt.Sprintf("max_page_count(%d)", o.MaxPages))
	}
	return dsn(file, q)
}

func readDSN(file string, o Options) string {
	return dsn(file, url.Values{
		"_busy_timeout": {strconv.FormatInt(o.BusyTimeout.Milliseconds(), 10)},
		"_query_only":   {"1"},
		"_dqs":          {"0"},
	})
}

// checkSettings returns an error unless a commit on c is durable. From then on it is begin that waits for a lock: SQLite
// itself would ask only every 100 ms, and starve beside a process that writes all the time.
func checkSettings(c *conn) error {
	var mode string
	var synchronous, busy, dirty int
	for _, p := range []struct {
		query string
		dest  any
	}{
		{"pragma journal_mode", &mode}, {"pragma synchronous", &synchronous},
		{"pragma busy_timeout", &busy}, {"pragma read_uncommitted", &dirty},
	} {
		if _, err := c.get(p.dest, p.query, nil); err != nil {
			return fmt.Errorf("%s: %w", p.query, err)
		}
	}
	switch {
	case !strings.EqualFold(mode, "wal"):
		return fmt.Errorf("journal_mode is %s, must be WAL: open it with _pragma=journal_mode(WAL)", mode)
	case synchronous < 2:
		return fmt.Errorf("synchronous is %d, must be FULL (2) or EXTRA (3), or a power cut loses what was acknowledged: "+
			"open it with _pragma=synchronous(FULL)", synchronous)
	case busy <= 0:
		return errors.New("busy_timeout is 0: open it with _pragma=busy_timeout(5000)")
	case dirty != 0:
		return errors.New("read_uncommitted is on: open it without cache=shared and read_uncommitted")
	}
	c.busy = time.Duration(busy) * time.Millisecond
	if _, err := c.exec("pragma busy_timeout = 0", nil); err != nil {
		return fmt.Errorf("pragma busy_timeout: %w", err)
	}
	return writable(c)
}

// writable finds out whether c can write. Somebody else's lock is no answer, and not for long.
func writable(c *conn) error {
	_, err := c.exec("begin immediate", nil)
	switch {
	case isBusy(err):
		return nil
	case err != nil:
		return err
	}
	// On a read-only database "begin immediate" begins a reading.
	_, err = c.exec(`
		delete from leadonce_meta where name = ''`, nil)
	_, end := c.exec("rollback", nil)
	return errors.Join(err, end)
}
