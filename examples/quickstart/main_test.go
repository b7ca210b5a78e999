package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/leadonce/leadonce/internal/pgtest"
)

// main_test.go: the quickstart tells the truth, both when all is well and when it is not. The child processes are this test
// binary, as they are the quickstart's otherwise.

func TestMain(m *testing.M) {
	if config, ok := os.LookupEnv(childEnv); ok {
		os.Exit(childMain(config, os.Stdin, os.Stdout, os.Stderr))
	}
	pgtest.Main(m)
}

// start runs the quickstart in this process.
func start(ctx context.Context, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = run(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

func lastLine(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return lines[len(lines)-1]
}

func TestQuickstart(t *testing.T) {
	t.Run("it ends well, in 100 columns, and leaves nothing behind", func(t *testing.T) {
		dir := t.TempDir()
		code, out, errs := start(t.Context(), "-db", dir)
		if code != 0 || lastLine(out) != "ok: 17 scenarios, 0 lost, 0 duplicated" || errs != "" {
			t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
		}
		narrow(t, out)
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	t.Run("an adapter that sends again by itself makes two leads, which it says, and it exits 1", func(t *testing.T) {
		dir := t.TempDir()
		code, out, errs := start(t.Context(), "-break", "-keep", "-db", dir)
		if code != 1 || lastLine(out) != "FAILED: 2 of 17 scenarios, 0 lost, 2 duplicated" || errs != "" {
			t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
		}
		if !strings.Contains(out, "expected sent 1, not 2; leads 1, not 2") {
			t.Errorf("it does not say what was expected:\n%s", out)
		}
		kept, err := filepath.Glob(filepath.Join(dir, "*", "*.db"))
		if err != nil || len(kept) != 17 {
			t.Fatalf("-keep left %v, %v", kept, err)
		}
		const example = "killed-with-nothing.db"
		if _, err := os.Stat(filepath.Join(filepath.Dir(kept[0]), example)); err != nil {
			t.Error(err)
		}
		if !strings.Contains(out, "leadbot ops list -db "+filepath.Join(filepath.Dir(kept[0]), example)) {
			t.Errorf("it does not say how to look into a database:\n%s", out)
		}
	})
	t.Run("what is neither a directory nor PostgreSQL is refused", func(t *testing.T) {
		code, _, errs := start(t.Context(), "-db", "mysql://bot:hunter2@db.example/leads")
		if code != 1 || !strings.Contains(errs, "postgres://") || strings.Contains(errs, "hunter2") {
			t.Fatalf("exit code %d: %s", code, errs)
		}
	})
	t.Run("an interrupt ends it with exit code 1 and no verdict", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		code, out, errs := start(ctx, "-db", t.TempDir())
		if code != 1 || !strings.Contains(errs, "interrupted") || strings.Contains(out, " lost, ") {
			t.Fatalf("exit code %d\n%s\n%s", code, out, errs)
		}
	})
	t.Run("an unknown flag is exit code 2", func(t *testing.T) {
		if code, _, _ := start(t.Context(), "-nosuch"); code != 2 {
			t.Fatalf("exit code %d", code)
		}
	})
}

func narrow(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		if n := utf8.RuneCountInString(strings.TrimSpace(line)); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestChild(t *testing.T) {
	config := func(c childConfig) string {
		b, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	t.Run("a child whose parent is gone ends by itself", func(t *testing.T) {
		var out, errs bytes.Buffer
		c := childConfig{Database: place{DB: filepath.Join(t.TempDir(), "leads.db")}}
		c.Bot.CRM = "http://127.0.0.1:1" // nobody listens, and nothing is sent
		code := childMain(config(c), strings.NewReader(""), &out, &errs)
		if code != 0 || !strings.HasPrefix(out.String(), "http://127.0.0.1:") || errs.Len() > 0 {
			t.Fatalf("exit code %d: %s%s", code, &out, &errs)
		}
	})
	t.Run("a child that can't open its database says so", func(t *testing.T) {
		var out, errs bytes.Buffer
		c := childConfig{Database: place{DB: filepath.Join(t.TempDir(), "missing", "leads.db")}}
		code := childMain(config(c), strings.NewReader(""), &out, &errs)
		if code != 1 || !strings.Contains(errs.String(), "directory") {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
	})
}

func TestTable(t *testing.T) {
	sc := scenario{name: "one", want: row{deliveries: 1, answers: "200", events: 1, sent: 1, leads: 1, states: "done"}}
	judge := func(change func(*row)) (tb table, out string) {
		got := sc.want
		change(&got)
		var b strings.Builder
		tb.out = &b
		tb.add(sc, result{row: got})
		return tb, b.String()
	}
	for _, c := range []struct {
		name   string
		change func(*row)
		want   string
		says   string
	}{
		{"all as expected is ok", func(*row) {}, "ok: 1 scenarios, 0 lost, 0 duplicated", "ok"},
		{"a lead that is missing is lost", func(r *row) { r.leads = 0 },
			"FAILED: 1 of 1 scenarios, 1 lost, 0 duplicated", "expected leads 1, not 0"},
		{"a lead too many is duplicated", func(r *row) { r.leads = 3 },
			"FAILED: 1 of 1 scenarios, 0 lost, 2 duplicated", "expected leads 1, not 3"},
		{"a note too many is duplicated", func(r *row) { r.notes = 1 },
			"FAILED: 1 of 1 scenarios, 0 lost, 1 duplicated", "expected notes 0, not 1"},
		{"a create too many fails, even if the CRM bore it", func(r *row) { r.sent = 2 },
			"FAILED: 1 of 1 scenarios, 0 lost, 0 duplicated", "expected sent 1, not 2"},
		{"another answer fails", func(r *row) { r.answers = "503 200" },
			"FAILED: 1 of 1 scenarios, 0 lost, 0 duplicated", "expected answers 200, not 503 200"},
		{"another state fails", func(r *row) { r.states = "uncertain" },
			"FAILED: 1 of 1 scenarios, 0 lost, 0 duplicated", "expected states done, not uncertain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tb, out := judge(c.change)
			if tb.lastLine() != c.want || !strings.Contains(out, c.says) {
				t.Fatalf("%s\n%s", out, tb.lastLine())
			}
		})
	}
}
