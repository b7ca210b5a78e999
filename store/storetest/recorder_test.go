package storetest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder_test.go: a test that may fail without failing the one around it.

// recorder stands in for the test of a check. What it does not record goes to the test around it.
type recorder struct {
	testing.TB
	mu      sync.Mutex
	failed  bool
	skipped bool
	said    []string
}

func (r *recorder) note(failed, skipped bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed, r.skipped = r.failed || failed, r.skipped || skipped
	if text != "" {
		r.said = append(r.said, strings.TrimSpace(text))
	}
}

func (r *recorder) Helper()                   {}
func (r *recorder) Log(args ...any)           { r.note(false, false, "") }
func (r *recorder) Logf(string, ...any)       { r.note(false, false, "") }
func (r *recorder) Fail()                     { r.note(true, false, "") }
func (r *recorder) Error(args ...any)         { r.note(true, false, fmt.Sprintln(args...)) }
func (r *recorder) Errorf(f string, a ...any) { r.note(true, false, fmt.Sprintf(f, a...)) }
func (r *recorder) FailNow()                  { r.note(true, false, ""); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)         { r.note(true, false, fmt.Sprintln(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, a ...any) {
	r.note(true, false, fmt.Sprintf(f, a...))
	runtime.Goexit()
}
func (r *recorder) SkipNow()         { r.note(false, true, ""); runtime.Goexit() }
func (r *recorder) Skip(args ...any) { r.note(false, true, fmt.Sprintln(args...)); runtime.Goexit() }
func (r *recorder) Skipf(f string, a ...any) {
	r.note(false, true, fmt.Sprintf(f, a...))
	runtime.Goexit()
}
func (r *recorder) Failed() bool  { r.mu.Lock(); defer r.mu.Unlock(); return r.failed }
func (r *recorder) Skipped() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.skipped }

// try runs a check and returns what came of it.
func try(t testing.TB, k check, s Subject) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
		}()
		k.run(newBench(r, s))
	}()
	<-done
	return r
}

// find returns the check of a concern by its name.
func find(t testing.TB, concern, name string) check {
	t.Helper()
	for _, c := range concerns() {
		for _, k := range c.checks {
			if c.name == concern && k.name == name {
				return k
			}
		}
	}
	t.Fatalf("there is no check %q in %s", name, concern)
	return check{}
}
