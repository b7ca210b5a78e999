package archtest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// api_test.go: the public API as it was reviewed. Whoever changes a word of it sees the change in the listing, and so does
// whoever reads the commit. Other programs depend on these names and promises: a change is an addition, or a major version.

var update = flag.Bool("update", false, "write the listings of the public API anew")

func TestThePublicAPIIsTheReviewedOne(t *testing.T) {
	dir := filepath.Join("testdata", "api")
	listed := map[string]bool{}
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if strings.Contains("/"+name+"/", "/internal/") || strings.HasPrefix(name, "examples/") {
			continue
		}
		file := strings.ReplaceAll(name, "/", "_") + ".txt"
		if name == "" {
			file = "leadonce.txt"
		}
		listed[file] = true
		t.Run(p.ImportPath, func(t *testing.T) {
			cmd := exec.Command("go", "doc", "-all", p.ImportPath)
			cmd.Dir = filepath.Join("..", "..")
			cmd.Stderr = os.Stderr
			got, err := cmd.Output()
			if err != nil {
				t.Fatalf("go doc -all %s: %v", p.ImportPath, err)
			}
			path := filepath.Join(dir, file)
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
				t.Errorf("the public API is not the reviewed one (-reviewed +now). If that is meant, and nobody who uses it has to "+
					"change: go test ./internal/archtest -update\n%s", diff)
			}
		})
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !listed[f.Name()] {
			t.Errorf("%s is the listing of no package: remove it", f.Name())
		}
	}
}
