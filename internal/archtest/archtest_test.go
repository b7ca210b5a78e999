// Package archtest keeps the shape of the house: which package may import which, and why. It holds only tests.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/leadonce/leadonce"

// rule lists all that a package (and, with a trailing /..., those below it) may import beside the standard library.
type rule struct {
	pkg   string
	may   []string
	why   string
	tests []string // what its tests may import besides
}

var rules = []rule{
	{"store", nil, "the vocabulary and the machine know no SQL, no CRM, no messenger", []string{"…/store/…"}},
	{"crm", nil, "an adapter's author imports nothing but the standard library with it", nil},
	{"crm/crmhttp", []string{"…/crm"}, "a client for adapters, not for the core", nil},
	{"crm/crmtest", []string{"…/crm", "…/crm/crmhttp"}, "any adapter can be tested without a store", nil},
	{"crm/jsonhook", []string{"…/crm", "…/crm/crmhttp"}, "an adapter knows no other adapter, and no store", []string{"…/crm/crmtest"}},
	{"crm/bitrix24", []string{"…/crm", "…/crm/crmhttp"}, "an adapter knows no other adapter, and no store", []string{"…/crm/crmtest"}},
	{"store/storetest", []string{"…/store", "github.com/google/go-cmp/cmp", "github.com/google/go-cmp/cmp/cmpopts"}, "any Store can be tested without ours", []string{"…/store/sqlite", "…/internal/…"}},
	{"store/internal/sqlstore", []string{"…/store", "github.com/jmoiron/sqlx", "github.com/jmoiron/sqlx/…"}, "what the engines share knows no engine", nil},
	{"store/sqlite", []string{"…/store", "…/store/internal/sqlstore", "github.com/jmoiron/sqlx", "github.com/jmoiron/sqlx/…", "modernc.org/sqlite", "modernc.org/sqlite/lib"},
		"an engine knows the contract and its driver", []string{"…/store/storetest", "…/internal/…"}},
	{"store/postgres", []string{"…/store", "…/store/internal/sqlstore", "github.com/jmoiron/sqlx", "github.com/jmoiron/sqlx/…", "github.com/lib/pq"},
		"an engine knows the contract and its driver", []string{"…/store/storetest", "…/internal/…"}},
	{"dedup", []string{"…/store", "…/crm", "…/internal/ids", "…/internal/backoff"},
		"the core meets stores and CRMs only through their contracts",
		[]string{"…/store/…", "…/crm/…", "…/telegram", "…/dedup/stagehook", "…/internal/…"}},
	{"dedup/stagehook", []string{"…/dedup", "…/store", "…/internal/ids"}, "a source knows the door it delivers to, and no CRM",
		[]string{"…/store/…", "…/crm/…"}},
	{"telegram", []string{"…/dedup", "…/store", "…/internal/ids", "…/internal/backoff"}, "a source knows the door it delivers to, not what becomes of an enquiry",
		[]string{"…/store/…", "…/crm/…"}},
	{"internal/ids", nil, "a leaf", nil},
	{"internal/backoff", nil, "a leaf", nil},
	{"internal/pgtest", []string{"github.com/lib/pq"}, "a leaf", nil},
	{"internal/archtest", nil, "a leaf", nil},
	{"examples/quickstart", []string{"…/…"}, "wiring", []string{"…/…"}},
	{"examples/leadbot", []string{"…/…"}, "wiring", []string{"…/…"}},
	{"", nil, "the root is documentation", nil},
}

// everywhere may be imported by any test.
var everywhere = []string{"github.com/google/go-cmp/…"}

type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func TestPackagesImportOnlyWhatStandsBelowThem(t *testing.T) {
	for _, p := range list(t) {
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		i := slices.IndexFunc(rules, func(r rule) bool { return r.pkg == name })
		if i < 0 {
			t.Errorf("package %q has no rule: say in internal/archtest what it may import, and why", name)
			continue
		}
		r := rules[i]
		for _, imp := range p.Imports {
			if !allowed(imp, r.may) {
				t.Errorf("%s imports %s: %s", p.ImportPath, imp, r.why)
			}
		}
		own := []string{"…/" + name}
		for _, imp := range append(p.TestImports, p.XTestImports...) {
			if !allowed(imp, slices.Concat(r.may, r.tests, everywhere, own)) {
				t.Errorf("the tests of %s import %s: %s", p.ImportPath, imp, r.why)
			}
		}
	}
}

// allowed reports whether imp is of the standard library or matches one of may; "…/" stands for this module at the start,
// and for anything at the end.
func allowed(imp string, may []string) bool {
	if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
		return true
	}
	for _, m := range may {
		m = strings.Replace(m, "…/", module+"/", 1)
		if prefix, ok := strings.CutSuffix(m, "…"); ok && strings.HasPrefix(imp, prefix) || imp == m {
			return true
		}
	}
	return false
}

func TestTheTopLevelIsWhatItShouldBe(t *testing.T) {
	want := []string{"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "README.ru.md", "SECURITY.md", "crm", "dedup", "doc.go",
		"examples", "go.mod", "go.sum", "internal", "store", "telegram"}
	entries, err := os.ReadDir(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(want, e.Name()) {
			t.Errorf("%s stands at the top level: it belongs into one of the packages", e.Name())
		}
	}
}

func TestTheRootModuleStaysLight(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	direct := []string{"github.com/jmoiron/sqlx", "modernc.org/sqlite", "github.com/lib/pq", "github.com/google/go-cmp"}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		f := strings.Fields(line)
		if len(f) >= 2 && strings.HasPrefix(f[1], "v") && !strings.Contains(line, "// indirect") &&
			!slices.Contains(direct, f[0]) && !strings.HasPrefix(f[0], "golang.org/x/") {
			t.Errorf("go.mod requires %s: what is heavier than the four packages lives in a nested module", f[0])
		}
		if len(f) > 0 && (f[0] == "toolchain" || f[0] == "replace") {
			t.Errorf("go.mod has a %s line", f[0])
		}
	}
	if !strings.Contains(string(b), "\ngo 1.26.0\n") {
		t.Error("the floor is not go 1.26.0")
	}
}

func list(t *testing.T) (pkgs []pkg) {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}
