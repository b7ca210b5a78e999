package pgtest

// unavailable_test.go: what becomes of a test that can't have its server.

import (
	"errors"
	"fmt"
	"testing"
)

// spy notes how it was ended.
type spy struct {
	testing.TB
	ended string
}

func (s *spy) Helper()           {}
func (s *spy) Skip(args ...any)  { s.ended += "skipped: " + fmt.Sprint(args...); panic(s) }
func (s *spy) Fatal(args ...any) { s.ended += "failed: " + fmt.Sprint(args...); panic(s) }

func TestUnavailable(t *testing.T) {
	for _, c := range []struct {
		name, ci, want string
		err            error
	}{
		{"without a server the test is skipped", "", "skipped: pgtest: not installed: nothing here", missing("nothing %s", "here")},
		{"in CI it fails", "true", "failed: pgtest: not installed: nothing here", missing("nothing here")},
		{"a server that does not start is a failure", "", "failed: broken", errors.New("broken")},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CI", c.ci)
			s := &spy{TB: t}
			defer func() {
				if recover() != any(s) || s.ended != c.want {
					t.Errorf("%q, want %q", s.ended, c.want)
				}
			}()
			unavailable(s, c.err)
		})
	}
}

func TestABinWithoutServer(t *testing.T) {
	for _, how := range []string{"named in the options", "named in the environment"} {
		t.Run(how+" is an error, and not replaced by another", func(t *testing.T) {
			t.Setenv("LEADONCE_PG_BIN", t.TempDir())
			bin := ""
			if how == "named in the options" {
				bin = t.TempDir()
			}
			if v, err := choose(bin); err == nil || errors.Is(err, errMissing) {
				t.Errorf("choose = %v, %v", v, err)
			}
		})
	}
}
