package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// child.go: a bot in a process of its own, to be killed. It is this same binary, told by an environment variable to serve.

const childEnv = "LEADONCE_QUICKSTART_CHILD"

// childConfig is what the variable holds, as JSON.
type childConfig struct {
	Database place
	Bot      botConfig
	Verbose  bool
}

// childMain serves until it is killed, or until its standard input ends: so it does not outlive its parent.
func childMain(config string, in io.Reader, out, errs io.Writer) int {
	if err := serveChild(config, in, out, errs); err != nil {
		fmt.Fprintln(errs, "quickstart: child:", err)
		return 1
	}
	return 0
}

func serveChild(config string, in io.Reader, out, errs io.Writer) error {
	var c childConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return fmt.Errorf("%s: %w", childEnv, err)
	}
	st, err := c.Database.open(context.Background())
	if err != nil {
		return err
	}
	defer st.Close()
	log := slog.New(slog.DiscardHandler)
	if c.Verbose {
		log = slog.New(slog.NewTextHandler(errs, nil)).With("process", "child")
	}
	b, err := startBot(st, c.Bot, log)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, b.url)
	io.Copy(io.Discard, in)
	return b.stop()
}

// child is a bot in another process.
type child struct {
	url  string
	kill func() error // returns when the process is gone; again, it does nothing
}

// startChild returns when the child listens. It is killed when ctx ends.
func startChild(ctx context.Context, c childConfig) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childEnv+"="+string(config))
	var errs strings.Builder
	if cmd.Stderr = &errs; c.Verbose {
		cmd.Stderr = os.Stderr
	}
	in, err := cmd.StdinPipe() // held open, so that the child stays
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ch := &child{kill: sync.OnceValue(func() error {
		defer in.Close()
		err := cmd.Process.Kill() // SIGKILL: nothing in the child gets to run any more
		cmd.Wait()                // its error is that it was killed
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	})}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		ch.kill()
		return nil, fmt.Errorf("the child did not start: %w: %s", err, errs.String())
	}
	ch.url = strings.TrimSpace(line)
	return ch, nil
}
