package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
)

// process_test.go: several processes on one file, and a process that is killed. The test binary runs itself again with
// LEADONCE_CHILD naming what the child does; the child's words on standard output are one a line.

func TestMain(m *testing.M) {
	role := os.Getenv("LEADONCE_CHILD")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := child(role, os.Getenv("LEADONCE_FILE"), os.Getenv("LEADONCE_OWNER")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(role, path, owner string) error {
	s, err := Open(background, path, nil)
	if err != nil {
		return err
	}
	switch role {
	case "accept and wait": // to be killed
		for n := range 20 {
			r, err := s.Accept(background, event(fmt.Sprint(n), "k"))
			if err != nil {
				return err
			}
			fmt.Println("acknowledged", r.EventID)
		}
		v, err := s.ReadKey(background, "k")
		if err != nil {
			return err
		}
		c := claimOf(owner, 1)
		begun, err := s.CommitPlan(background, planFor(v, &c))
		if err != nil {
			return err
		}
		fmt.Println("begun", begun[0].ID)
		_, err = io.Copy(io.Discard, os.Stdin) // until the parent kills us
		return err
	case "work":
		fmt.Println("ready")
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // the parent is ready too
			return err
		}
		return errors.Join(work(s, owner, func(format string, a ...any) { fmt.Printf(format+"\n", a...) }), s.Close())
	}
	return fmt.Errorf("no role %q", role)
}

const (
	workKeys   = 40
	workEvents = 4 // of a key; every process delivers each of them
)

// work accepts every event, as the other processes do, plans what is due, and claims and confirms what it gets, until
// everything is done.
func work(s *Store, owner string, say func(string, ...any)) error {
	for n := range workKeys * workEvents {
		e := event(fmt.Sprint(n), fmt.Sprintf("k%d", n%workKeys))
		if r, err := s.Accept(background, e); err != nil {
			return err
		} else if !r.Duplicate {
			say("stored %d", n)
		}
		if n%7 == 0 {
			if err := plan(s, say); err != nil {
				return err
			}
		}
	}
	var held []store.Operation // claimed one round before it is confirmed: nobody else may get it meanwhile
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err := plan(s, say); err != nil {
			return err
		}
		ops, err := s.Claim(background, claimOf(owner, 3))
		if err != nil {
			return err
		}
		for _, o := range ops {
			say("claimed %s", o.ID)
		}
		for _, o := range held {
			if _, err := s.Advance(background, store.Report{ID: o.ID, On: store.Confirmed, CRMID: "crm-" + o.ID}); err != nil {
				return err
			}
		}
		held = ops
		st, err := s.Stats(background)
		if err != nil {
			return err
		}
		if len(ops) == 0 && len(st.Events) == 0 && len(st.Operations) == 0 {
			return nil
		}
	}
	return errors.New("not done within a minute")
}

func plan(s *Store, say func(string, ...any)) error {
	keys, err := s.DueKeys(background, 5)
	if err != nil {
		return err
	}
	for _, due := range keys {
		key := due.Key
		v, err := s.ReadKey(background, key)
		if err != nil {
			return err
		}
		if len(v.Events) == 0 {
			continue
		}
		p := store.Plan{Key: key, Version: v.Version}
		for _, e := range v.Events { // one lead an event
			one := planFor(store.KeyView{Key: key, Events: []store.EventRow{e}}, nil)
			p.Events, p.Deals = append(p.Events, one.Events...), append(p.Deals, one.Deals...)
			p.Operations, p.Links = append(p.Operations, one.Operations...), append(p.Links, one.Links...)
		}
		_, err = s.CommitPlan(background, p)
		switch {
		case errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return err
		}
		for _, o := range p.Operations {
			say("planned %s", o.ID)
		}
	}
	return nil
}

func spawn(t *testing.T, role, path, owner string) (*exec.Cmd, *bufio.Scanner, io.WriteCloser) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "LEADONCE_CHILD="+role, "LEADONCE_FILE="+path, "LEADONCE_OWNER="+owner)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd, bufio.NewScanner(out), in
}

func TestTwoProcessesOnOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	s := reopen(t, path, nil)
	cmd, lines, in := spawn(t, "work", path, "child")
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	if _, err := io.WriteString(in, "!"); err != nil {
		t.Fatal(err)
	}
	var mine []string
	mineErr := make(chan error, 1)
	go func() {
		mineErr <- work(s, "parent", func(format string, a ...any) { mine = append(mine, fmt.Sprintf(format, a...)) })
	}()
	count := map[string]int{}
	theirs := 0
	for lines.Scan() {
		count[lines.Text()]++
		theirs++
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the other process: %v", err)
	}
	if err := <-mineErr; err != nil {
		t.Fatal(err)
	}
	for _, line := range mine {
		count[line]++
	}
	t.Logf("%d lines from the other process, %d from this one", theirs, len(mine))
	if theirs == 0 || len(mine) == 0 {
		t.Fatal("only one of the two did anything")
	}
	for n := range workKeys * workEvents {
		for _, line := range []string{fmt.Sprintf("stored %d", n), fmt.Sprintf("planned o%d", n), fmt.Sprintf("claimed o%d", n)} {
			if count[line] != 1 {
				t.Errorf("%q happened %d times", line, count[line])
			}
		}
	}
	if st := must(s.Stats(background))(t); len(st.RecentOperations) != 1 || st.RecentOperations[0].N != workKeys*workEvents {
		t.Errorf("at the end: %+v", st)
	}
}

func TestKilledAfterTheAcknowledgement(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leads.db")
	cmd, lines, _ := spawn(t, "accept and wait", path, "child")
	acknowledged, begun := 0, false
	for !begun && lines.Scan() {
		if strings.HasPrefix(lines.Text(), "acknowledged") {
			acknowledged++
		}
		begun = strings.HasPrefix(lines.Text(), "begun")
	}
	if err := cmd.Process.Kill(); err != nil { // SIGKILL
		t.Fatal(err)
	}
	cmd.Wait()
	if acknowledged != 20 || !begun {
		t.Fatalf("%d acknowledged, begun %v", acknowledged, begun)
	}
	s := reopen(t, path, nil)
	if list := must(s.Events(background, store.EventFilter{}))(t); len(list) != 20 {
		t.Fatalf("%d events are there", len(list))
	}
	o := must(s.Operation(background, "o0"))(t)
	if o.State != store.Sending || o.Owner != "child" || o.LeaseUntil.IsZero() {
		t.Fatalf("the intent is not there: %+v", o)
	}
	if r := must(s.Accept(background, event("3", "k")))(t); !r.Duplicate {
		t.Fatal("what was acknowledged is stored again")
	}
}
