package bottest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// bed.go: one bot between its stand-ins, started again whenever its process dies.

const deadline = 60 * time.Second

type bed struct {
	t       *testing.T
	api     *API
	crm     *CRM
	orders  orders
	stopped chan struct{} // closed when the last process has ended

	mu       sync.Mutex
	child    *exec.Cmd
	stdin    io.Closer
	stopping bool
	deaths   int      // processes that ended by themselves
	exit     error    // of the last process
	killAt   string   // a step at a stand-in
	steps    []string // at the stand-ins, as they came
}

// newBed returns a bed whose bot is not started yet.
func newBed(t *testing.T, webhook bool) *bed {
	b := &bed{t: t, stopped: make(chan struct{})}
	b.api, b.crm = NewAPI(t.Context(), b.at), NewCRM(b.at)
	dir := t.TempDir()
	b.orders = orders{Dir: dir, Config: Config{Token: Token, Secret: Secret, API: b.api.URL, CRMURL: b.crm.URL + "/leads",
		Lean: true, DB: filepath.Join(dir, "leads.db")}}
	if webhook {
		b.orders.PublicURL = "to be chosen"
	}
	t.Cleanup(func() {
		b.end()
		b.api.CloseClientConnections()
		b.api.Close()
		b.crm.Close()
		b.checkLog()
	})
	return b
}

// start runs the bot until the test ends; a process that dies is followed by the next. killAt is the step at which the first
// one is killed, or empty.
func (b *bed) start(killAt string) {
	b.killAt, b.orders.KillAt = killAt, killAt
	if err := b.spawn(); err != nil {
		b.t.Fatal(err)
	}
	go b.supervise()
}

func (b *bed) spawn() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return errStopping
	}
	what, err := json.Marshal(b.orders)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(b.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ordersEnv+"="+string(what))
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.child, b.stdin = cmd, stdin
	return nil
}

var errStopping = errors.New("the test is over")

func (b *bed) supervise() {
	defer close(b.stopped)
	for {
		err := b.child.Wait()
		b.mu.Lock()
		b.exit = err
		if b.stopping {
			b.mu.Unlock()
			return
		}
		b.deaths++
		b.exit, b.killAt, b.orders.KillAt, b.orders.Again = nil, "", "", true
		b.mu.Unlock()
		time.Sleep(20 * time.Millisecond) // as whoever keeps a bot running
		switch err := b.spawn(); {
		case errors.Is(err, errStopping):
			return
		case err != nil:
			b.t.Error(err)
			return
		}
	}
}

// at is called by the stand-ins at each step.
func (b *bed) at(point string) {
	if strings.HasPrefix(point, idle) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = append(b.steps, point)
	if b.killAt == point && b.child != nil {
		b.killAt = ""
		if err := b.child.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			b.t.Error(err)
		}
	}
}

// end stops the bot, which has to end in time and without an error.
func (b *bed) end() {
	b.mu.Lock()
	if b.child == nil || b.stopping {
		b.mu.Unlock()
		return
	}
	b.stopping = true
	b.stdin.Close()
	b.mu.Unlock()
	select {
	case <-b.stopped:
	case <-time.After(deadline):
		_ = b.child.Process.Kill()
		<-b.stopped
	}
	if b.exit != nil {
		b.t.Errorf("the bot did not stop cleanly: %v", b.exit)
	}
}

func (b *bed) died() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deaths
}

func (b *bed) logFile() string { return filepath.Join(b.orders.Dir, "log") }

// checkLog looks for what must not be in a log, and shows it if the test has failed.
func (b *bed) checkLog() {
	log, err := os.ReadFile(b.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Error(err)
	}
	_, private, _ := strings.Cut(Token, ":")
	if bytes.Contains(log, []byte(private)) || bytes.Contains(log, []byte(Secret)) {
		b.t.Error("the log contains the token or the secret")
	}
	if b.t.Failed() {
		trail, _ := os.ReadFile(trailFile(b.orders.Dir))
		b.t.Logf("steps: %q\nstore: %q\nlog: %s", b.steps, strings.Split(string(trail), "\n"), excerpt(log))
	}
}

// excerpt is a log's end, or what it says of a data race.
func excerpt(log []byte) []byte {
	const enough = 4096
	if i := bytes.Index(log, []byte("WARNING: DATA RACE")); i >= 0 {
		return log[i:min(len(log), i+enough)]
	}
	return log[max(0, len(log)-enough):]
}

// wait polls until ok, and fails the test if that takes too long.
func (b *bed) wait(what string, ok func() bool) {
	b.t.Helper()
	for end := time.Now().Add(deadline); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}

// settled waits until so many events are stored and nothing is unfinished, neither in the queue of updates nor in the store,
// and then demands one lead of each text and no others.
func (b *bed) settled(events int, texts ...string) {
	b.t.Helper()
	b.wait("the queue is empty, and the leads are there", func() bool { // cheaper to ask than the store
		return b.api.Waiting() == 0 && b.crm.All() >= len(texts)
	})
	st, err := sqlite.Open(context.Background(), b.orders.DB, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer st.Close()
	var last string
	for end := time.Now().Add(deadline); ; time.Sleep(50 * time.Millisecond) {
		rows, err := st.Events(context.Background(), store.EventFilter{})
		if err != nil {
			b.t.Fatal(err)
		}
		stats, err := st.Stats(context.Background())
		if err != nil {
			b.t.Fatal(err)
		}
		if len(rows) >= events && len(stats.Events)+len(stats.Operations) == 0 && b.api.Waiting() == 0 {
			if len(rows) > events {
				b.t.Errorf("%d events are stored, want %d", len(rows), events)
			}
			break
		}
		last = fmt.Sprintf("%d events of %d, %d updates wait, %+v %+v",
			len(rows), events, b.api.Waiting(), stats.Events, stats.Operations)
		if time.Now().After(end) {
			b.t.Fatalf("not settled within %v: %s", deadline, last)
		}
	}
	for _, text := range texts {
		if n := b.crm.Leads(text); n != 1 {
			b.t.Errorf("%d leads of %q, want 1", n, text)
		}
	}
	if n := b.crm.All(); n != len(texts) {
		b.t.Errorf("%d leads, want %d", n, len(texts))
	}
}

// fault makes the bot's store fail until it is called again with false.
func (b *bed) fault(on bool) {
	b.t.Helper()
	var err error
	if on {
		err = os.WriteFile(faultFile(b.orders.Dir), nil, 0o600)
	} else {
		err = os.Remove(faultFile(b.orders.Dir))
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
