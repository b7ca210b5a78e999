package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// bed_test.go: leadbot as a process, a CRM that loses answers, and what Telegram sends.

// binary is leadbot, built once by TestMain.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "leadbot")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "leadbot")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	code := 1
	if out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}

const (
	secret   = "a-secret-of-the-test"
	deadline = 30 * time.Second // for what takes well under a second on an idle machine
)

// command is leadbot with the secret, and the CRM's, in its environment.
func command(ctx context.Context, dir string, env []string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, binary, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "TELEGRAM_SECRET="+secret, "B24_WEBHOOK=", "HOOK_SECRET=", "CRM_HOOK_TOKEN=", "BOT_TOKEN=")
	c.Env = append(c.Env, env...)
	return c
}

// invoke runs leadbot to its end.
func invoke(t *testing.T, dir string, args ...string) (code int, out, errOut string) {
	t.Helper()
	return invokeEnv(t, dir, nil, args...)
}

func invokeEnv(t *testing.T, dir string, env []string, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	c := command(ctx, dir, env, args...)
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("leadbot %s: %v\n%s", args, err, e.String())
	}
	return c.ProcessState.ExitCode(), o.String(), e.String()
}

// server is a running leadbot.
type server struct {
	t      *testing.T
	dir    string
	url    string
	db     []string // flags: nil means leads.db
	cmd    *exec.Cmd
	exited chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
}

// Write collects what the process logs.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *server) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

var listening = regexp.MustCompile(`msg=listening url=(http://\S+)`)

// start runs leadbot on leads.db or what the flags say, and waits until it listens.
func start(t *testing.T, crm string, db ...string) *server {
	t.Helper()
	return launch(t, t.TempDir(), crm, nil, nil, db)
}

// launch starts it with more in its environment, and more flags than those that name the database.
func launch(t *testing.T, dir, crm string, env, flags, db []string) *server {
	t.Helper()
	s := &server{t: t, dir: dir, db: db, exited: make(chan struct{})}
	s.cmd = command(context.Background(), s.dir, env, slices.Concat([]string{"-listen", "127.0.0.1:0", "-crm", crm,
		"-bot-id", "123456", "-tenant", "acme"}, flags, db)...)
	s.cmd.Stderr = s
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(s.exited); s.cmd.Wait() }()
	t.Cleanup(func() {
		s.cmd.Process.Kill() // an error means that it is gone already
		<-s.exited
		if t.Failed() {
			t.Logf("leadbot's log:\n%s", s.logged())
		}
	})
	eventually(t, "leadbot listens", func() bool {
		select {
		case <-s.exited:
			t.Fatalf("leadbot ended: %s", s.logged())
		default:
		}
		m := listening.FindStringSubmatch(s.logged())
		if m != nil {
			s.url = m[1]
		}
		return m != nil
	})
	return s
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", deadline, what)
		}
	}
}

// within waits for a channel.
func within[T any](t *testing.T, what string, c <-chan T) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(deadline):
		t.Fatalf("not within %v: %s", deadline, what)
	}
}

// update is a message of user in their private chat.
func update(id, user int, text string) string {
	return fmt.Sprintf(`{"update_id":%d,"message":{"message_id":%d,"date":1767225600,"text":%q,`+
		`"chat":{"id":%d,"type":"private"},"from":{"id":%d,"is_bot":false,"first_name":"Anna"}}}`, id, id, text, user, user)
}

func (s *server) deliver(body, secret string) int {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodPost, s.url+"/telegram", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// accept delivers what has to be taken.
func (s *server) accept(body string) {
	s.t.Helper()
	if got := s.deliver(body, secret); got != http.StatusOK {
		s.t.Fatalf("POST /telegram answered %d, want 200", got)
	}
}

func (s *server) get(path string) (status int, body string) {
	s.t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// read decodes a JSON page.
func read[T any](t *testing.T, body string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return v
}

// ops runs an ops command that has to succeed.
func (s *server) ops(args ...string) string {
	s.t.Helper()
	code, out, errOut := invoke(s.t, s.dir, slices.Concat([]string{"ops", args[0]}, s.db, args[1:])...)
	if code != exitOK {
		s.t.Fatalf("leadbot ops %s: exit %d\n%s%s", args, code, out, errOut)
	}
	return out
}

// in lists the operations that stand in these states.
func (s *server) in(states string) []opView {
	s.t.Helper()
	return read[[]opView](s.t, s.ops("list", "-state", states, "-json"))
}

func (s *server) state(id string) string {
	s.t.Helper()
	return string(read[opPage](s.t, s.ops("show", id, "-json")).State)
}

// crmServer is a receiver of -crm jsonhook: that acts, or closes the connection without an answer.
type crmServer struct {
	*httptest.Server
	mu     sync.Mutex
	losing bool
	hold   chan struct{} // nil, or answers wait until it is closed
	calls  map[string]int
	came   chan struct{} // a call has arrived
}

func newCRM(t *testing.T) *crmServer {
	c := &crmServer{calls: map[string]int{}, came: make(chan struct{}, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *crmServer) serve(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ID string `json:"operation_id"`
	}
	json.NewDecoder(r.Body).Decode(&in)
	c.mu.Lock()
	c.calls[in.ID]++
	losing, hold := c.losing, c.hold
	c.mu.Unlock()
	c.came <- struct{}{}
	if losing {
		panic(http.ErrAbortHandler)
	}
	if hold != nil {
		<-hold
	}
	fmt.Fprintf(w, `{"id":"crm-%s"}`, in.ID)
}

func (c *crmServer) lose(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.losing = on
}

func (c *crmServer) seen(id string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[id]
}

// hook is the -crm flag; the path stands for one that is secret.
func (c *crmServer) hook() string { return "jsonhook:" + c.URL + "/hook-path-secret" }
