//go:build unix

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// signal_unix_test.go: what needs signals, or a file that can be taken away from under a process.

func TestSIGTERM(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String()+" in the middle of a slow call: the call ends, the lead is recorded, exit 0", func(t *testing.T) {
			crm := newCRM(t)
			crm.hold = make(chan struct{})
			s := start(t, crm.hook())
			s.accept(update(1, 42, "hello"))
			within(t, "the call has arrived", crm.came)
			s.cmd.Process.Signal(sig)
			eventually(t, "it takes no more connections", func() bool {
				_, err := http.Get(s.url + "/healthz")
				return err != nil
			})
			select {
			case <-s.exited:
				t.Fatal("it did not wait for the call")
			default:
			}
			close(crm.hold)
			within(t, "it has ended", s.exited)
			if code := s.cmd.ProcessState.ExitCode(); code != exitOK {
				t.Fatalf("exit %d", code)
			}
			done := s.in("done")
			if len(done) != 1 || done[0].CRMID != "crm-"+done[0].ID || crm.seen(done[0].ID) != 1 {
				t.Fatalf("done: %+v", done)
			}
		})
	}
	t.Run("an idle server exits 0", func(t *testing.T) {
		s := start(t, "sim")
		s.cmd.Process.Signal(syscall.SIGTERM)
		within(t, "it has ended", s.exited)
		if code := s.cmd.ProcessState.ExitCode(); code != exitOK {
			t.Fatalf("exit %d", code)
		}
	})
}

func TestReadiness(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, path string)
	}{
		{"gone", func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}},
		{"replaced by another file", func(t *testing.T, path string) {
			other := filepath.Join(filepath.Dir(path), "other")
			if err := os.WriteFile(other, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(other, path); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run("readyz is 503 and healthz 200 when the database is "+c.name, func(t *testing.T) {
			s := start(t, "sim")
			if status, _ := s.get("/readyz"); status != http.StatusOK {
				t.Fatalf("before: %d", status)
			}
			c.spoil(t, filepath.Join(s.dir, "leads.db"))
			if status, body := s.get("/readyz"); status != http.StatusServiceUnavailable || strings.Contains(body, "leads.db") {
				t.Errorf("readyz: %d %s", status, body)
			}
			if status, _ := s.get("/healthz"); status != http.StatusOK {
				t.Errorf("healthz: %d", status)
			}
		})
	}
}
