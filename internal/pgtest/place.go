package pgtest

// place.go: a temporary directory and the server process in it, both gone when the test process is.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const patience = 60 * time.Second // for anything a server does; a busy machine is slow, a dead one is noticed at once

// guardScript outlives the test process by the moment that it takes to clean up. Its input is a pipe that only the test process
// holds the other end of: whatever ends that process, SIGKILL included, ends the input. Each line is the pid of the server that
// runs now, or empty while none does.
const guardScript = `
dir=$1 sig=$2 pid= n=0
while read -r line; do pid=$line; done
if [ -n "$pid" ] && kill -"$sig" "$pid"; then
	while kill -0 "$pid" && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
	kill -KILL "$pid"
fi
until rm -rf "$dir" || [ $n -ge 200 ]; do sleep 0.1; n=$((n + 1)); done
`

// place is a directory that belongs to the account its server runs under.
type place struct {
	dir   string
	as    account
	guard *exec.Cmd
	tell  io.WriteCloser
}

// account is whom servers run as. The zero value is the current user.
type account struct {
	name     string
	uid, gid uint32
	other    bool
}

func newPlace(sig string) (*place, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, err
	}
	base := os.TempDir()
	if as.other {
		base = "/tmp" // root's own TMPDIR may be closed to everybody else
	}
	dir, err := os.MkdirTemp(base, "pgtest-")
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	p := &place{dir: dir, as: as}
	if err := p.own(dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.guard = p.command("/bin/sh", "-c", guardScript, "pgtest-guard", dir, sig)
	p.guard.Dir = "/"
	if p.tell, err = p.guard.StdinPipe(); err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: start the guard as %s: %w", as.name, err), os.RemoveAll(dir))
	}
	return p, nil
}

// remove stops what runs in the place and deletes it.
func (p *place) remove() {
	p.tell.Close()
	p.guard.Wait() // its exit code says nothing: what it could not do is tried again here
	os.RemoveAll(p.dir)
}

func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

func (p *place) own(name string) error {
	if !p.as.other {
		return nil
	}
	return os.Chown(name, int(p.as.uid), int(p.as.gid))
}

// write appends to a file of the place.
func (p *place) write(name, text string) error {
	f, err := os.OpenFile(p.path(name), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close(), p.own(p.path(name)))
}

// command prepares a command that runs as the account, in the place, in a session of its own: a ^C at the terminal is for
// the test process alone.
func (p *place) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = p.dir
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "LC_") { // PGDATA, PGPORT and the like are for clients
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	p.as.apply(cmd)
	return cmd
}

// run runs a command to its end; its output is in the error. Like a server it does not outlive the test process.
func (p *place) run(name string, args ...string) error {
	var out bytes.Buffer
	cmd := p.command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Start()
	if err == nil {
		p.watch(cmd)
		err = cmd.Wait()
		p.watch(nil)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, out.String())
	}
	return nil
}

// watch tells the guard what runs in the place now. A guard that cannot be told is gone, and the place with it: what runs there
// notices.
func (p *place) watch(cmd *exec.Cmd) {
	if cmd == nil {
		io.WriteString(p.tell, "\n")
		return
	}
	io.WriteString(p.tell, strconv.Itoa(cmd.Process.Pid)+"\n")
}

// process is a running server.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// launch starts a server whose output goes to the place's log.
func (p *place) launch(name string, args ...string) (*process, error) {
	if err := p.write("log", ""); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(p.path("log"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := p.command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.watch(cmd)
	pr := &process{cmd, make(chan struct{})}
	go func() {
		cmd.Wait() // how it ended is in the log
		p.watch(nil)
		close(pr.exited)
	}()
	return pr, nil
}

// stop signals the process and waits for its end.
func (pr *process) stop(sig syscall.Signal) error {
	if err := pr.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-pr.exited:
		return nil
	case <-time.After(patience):
		pr.cmd.Process.Kill()
		<-pr.exited
		return fmt.Errorf("pid %d was still running %v after signal %v; killed", pr.cmd.Process.Pid, patience, sig)
	}
}

// ready calls try until it succeeds, the process is gone, or patience is at its end.
func (pr *process) ready(try func() error) error {
	for deadline := time.Now().Add(patience); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", patience, err)
		}
		select {
		case <-pr.exited:
			return fmt.Errorf("the server has ended: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// logTail returns the end of the place's log from offset on, or what of it is worth reading in a test's output.
func (p *place) logTail(offset int64) string {
	const most = 8 << 10
	b, err := os.ReadFile(p.path("log"))
	if err != nil {
		return err.Error()
	}
	b = b[min(offset, int64(len(b))):]
	return string(b[max(0, len(b)-most):])
}

func (p *place) logSize() int64 {
	fi, err := os.Stat(p.path("log"))
	if err != nil {
		return 0
	}
	return fi.Size()
}

// freePort returns a loopback port below the range from which systems take the ports of outgoing connections: nothing takes it
// by accident while a server that will have it again is down.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 15000 + rand.IntN(15000)
		if err = portFree(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("pgtest: no free port: %w", err)
}

func portFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}
