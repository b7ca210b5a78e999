package store

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readme_test.go: the README shows the table as it is.

func TestReadmeDiagram(t *testing.T) {
	const path, begin, end = "../README.md", "<!-- machine:begin -->", "<!-- machine:end -->"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(raw), "\r\n", "\n")
	before, rest, ok := strings.Cut(text, begin)
	section, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no section between %s and %s: the diagram goes there", path, begin, end)
	}
	want := "\n```mermaid\n" + Diagram() + "```\n"
	if *update && section != want {
		if err := os.WriteFile(path, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		section = want
	}
	if d := cmp.Diff(want, section); d != "" {
		t.Fatalf("the diagram in %s is stale; go test ./store -update rewrites it (-table +README):\n%s", path, d)
	}
}

func TestDiagram(t *testing.T) {
	got := Diagram()
	for _, want := range []string{
		"pending --> sending: begin\n",
		"sending --> uncertain: not_applied with doubt, lost_repeatable\n",
		"failed --> pending: reopen without doubt\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the diagram lacks %q:\n%s", want, got)
		}
	}
	if got != Diagram() {
		t.Error("the diagram differs from one call to the next")
	}
	for _, s := range States() {
		if !strings.Contains(got, string(s)+" --> ") {
			t.Errorf("the diagram lacks %s", s)
		}
	}
}
