package main

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/dedup"
)

// account_test.go: a mistyped -bot-id or -tenant is seen at start.

func TestAccountAtStart(t *testing.T) {
	dir := t.TempDir()
	// try starts leadbot's check alone, as serve does.
	try := func(t *testing.T, args ...string) error {
		t.Helper()
		c, err := parseConfig(append([]string{"-crm", "sim", "-db", filepath.Join(dir, "leads.db")}, args...), func(name string) string {
			if name == "TELEGRAM_SECRET" {
				return secret
			}
			return ""
		})
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.db.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		return checkAccount(t.Context(), st, c)
	}
	if err := try(t, "-bot-id", "1", "-tenant", "acme"); err != nil {
		t.Fatal(err)
	}
	t.Run("leadbot does not start with another bot or tenant, and says how it would", func(t *testing.T) {
		for _, wrong := range [][]string{{"-bot-id", "2", "-tenant", "acme"}, {"-bot-id", "1", "-tenant", "acne"}} {
			err := try(t, wrong...)
			if !errors.Is(err, dedup.ErrAccountChanged) || !strings.Contains(err.Error(), "-add-account") {
				t.Errorf("%v: %v", wrong, err)
			}
			code, _, errOut := invoke(t, dir, append([]string{"-crm", "sim", "-listen", "127.0.0.1:0"}, wrong...)...)
			if code != exitFailed || !strings.Contains(errOut, "-add-account") {
				t.Errorf("%v: exit code %d: %s", wrong, code, errOut)
			}
		}
	})
	t.Run("with -add-account it does, once and then without", func(t *testing.T) {
		for _, right := range [][]string{{"-bot-id", "2", "-tenant", "acme", "-add-account"}, {"-bot-id", "2", "-tenant", "acme"},
			{"-bot-id", "1", "-tenant", "acme"}} {
			if err := try(t, right...); err != nil {
				t.Errorf("%v: %v", right, err)
			}
		}
	})
}
