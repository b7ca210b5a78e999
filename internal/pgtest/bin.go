package pgtest

// bin.go: which PostgreSQL servers are installed, and which of them is used.

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is an installed PostgreSQL server.
type Version struct {
	Major int    // 15
	Text  string // as the server says it: "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"
	Bin   string // the directory of initdb and postgres, for Options.Bin
}

// packaged is where Debian, the PostgreSQL project's RPMs, Alpine and Homebrew put them.
var packaged = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*", "/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin", "/usr/local/pgsql/bin",
}

// Versions returns the servers that were found and can be run: those of LEADONCE_PG_BIN (directories, separated as in PATH) in
// their order, then the others, newest first. The first is the one used by default. One server found twice is listed once.
func Versions() []Version {
	var found []Version
	seen := map[string]bool{}
	add := func(dirs ...string) (added []Version) {
		for _, dir := range dirs {
			real, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
			if err != nil || seen[real] {
				continue
			}
			seen[real] = true
			if v, err := version(filepath.Dir(real)); err == nil {
				added = append(added, v)
			}
		}
		return added
	}
	found = add(filepath.SplitList(os.Getenv("LEADONCE_PG_BIN"))...)
	var rest []string
	for _, pattern := range packaged {
		dirs, _ := filepath.Glob(pattern) // the only error is a bad pattern
		rest = append(rest, dirs...)
	}
	if p, err := exec.LookPath("pg_ctl"); err == nil {
		rest = append(rest, filepath.Dir(p))
	}
	others := add(rest...)
	slices.SortStableFunc(others, func(a, b Version) int { return b.Major - a.Major })
	return append(found, others...)
}

var major = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// version asks the server in bin; initdb has to be beside it.
func version(bin string) (Version, error) {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return Version{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").CombinedOutput()
	if err != nil {
		return Version{}, fmt.Errorf("%s: %w: %s", filepath.Join(bin, "postgres"), err, out)
	}
	m := major.FindSubmatch(out)
	if m == nil {
		return Version{}, fmt.Errorf("%s says %q", filepath.Join(bin, "postgres"), out)
	}
	n, err := strconv.Atoi(string(m[1]))
	return Version{Major: n, Text: strings.TrimSpace(string(out)), Bin: bin}, err
}

// choose returns the server to use: the one in bin, or the default where bin is empty. A directory that was named on purpose
// has to work; only what was never named can be missing.
func choose(bin string) (Version, error) {
	if bin == "" {
		if dirs := filepath.SplitList(os.Getenv("LEADONCE_PG_BIN")); len(dirs) > 0 {
			bin = dirs[0]
		}
	}
	if bin != "" {
		v, err := version(bin)
		if err != nil {
			return v, fmt.Errorf("pgtest: no usable PostgreSQL in %s (LEADONCE_PG_BIN or Options.Bin): %w", bin, err)
		}
		return v, nil
	}
	if vs := Versions(); len(vs) > 0 {
		return vs[0], nil
	}
	return Version{}, missing("no PostgreSQL server found: apt-get install postgresql, or name the directory of initdb and " +
		"postgres in LEADONCE_PG_BIN")
}
