// Quickstart runs the whole job in front of you: a bot's webhook, a database, a CRM that misbehaves, processes that are
// killed. Everything is real but Telegram and the CRM, which are played here over HTTP on loopback.
//
//	go run ./examples/quickstart
//
// It prints one line for each scenario, and ends with
//
//	ok: 17 scenarios, 0 lost, 0 duplicated
//
// and exit code 0; if anything came out otherwise, with what was expected instead and exit code 1. See it fail with
// -break, which plugs in an adapter that does what most do: send again when no answer came. With -db postgres://... the same
// happens on PostgreSQL.
//
// Where to read: bot.go is the wiring, the same that a bot of your own needs; scenario.go is what happens to it; world.go
// is what surrounds it (Telegram, the CRM, the database); child.go is how a process is started and killed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"
)

// main.go: the flags, the run, and how it ends.

// patience is how long one scenario may take. The longest wait for a dead process's lease to end, about 13 s.
const patience = 50 * time.Second

func main() {
	if config, ok := os.LookupEnv(childEnv); ok {
		os.Exit(childMain(config, os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// settings are what the command line asked for.
type settings struct {
	db      string
	keep    bool
	retries bool
	verbose bool
}

// run is main without the process around it. It returns the exit code.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	var s settings
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.StringVar(&s.db, "db", "", "`place` of the databases: a directory for SQLite files (default: the system's for\n"+
		"temporary files), or postgres://USER@HOST/DATABASE: a schema for each scenario there,\ndropped at the end; "+
		"give a password in PGPASSWORD, and ?sslmode=disable if the server has no TLS")
	flags.BoolVar(&s.keep, "keep", false, "leave the databases, and say how to look into them")
	flags.BoolVar(&s.retries, "break", false, "see it fail: use an adapter that sends again by itself when no answer came")
	flags.BoolVar(&s.verbose, "v", false, "show the library's log")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() > 0:
		fmt.Fprintf(errs, "quickstart: unexpected argument %q\n", flags.Arg(0))
		return 2
	}
	if err := play(ctx, s, out, errs); err != nil {
		if !errors.Is(err, errVerdict) {
			fmt.Fprintln(errs, "quickstart:", err)
		}
		return 1
	}
	return 0
}

// errVerdict: some scenario came out otherwise than expected; the table says which.
var errVerdict = errors.New("a scenario failed")

// play runs the scenarios with a crash all at once, since they mostly wait, and the others one by one beside them; it prints
// each as soon as those above it are there.
func play(ctx context.Context, s settings, out, errs io.Writer) error {
	dbs, err := newDatabases(ctx, s.db)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if s.verbose {
		log = slog.New(slog.NewTextHandler(errs, nil))
	}
	all := scenarios()
	fmt.Fprintf(out, intro, len(all), lease)

	results := make([]result, len(all))
	ready := make([]chan struct{}, len(all))
	for i := range all {
		ready[i] = make(chan struct{})
	}
	one := func(i int) {
		defer close(ready[i])
		results[i] = playOne(ctx, all[i], dbs, s, log)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i, sc := range all {
			if !sc.crash {
				one(i)
			}
		}
	})
	for i, sc := range all {
		if sc.crash {
			wg.Go(func() { one(i) })
		}
	}
	t := &table{out: out}
	for i, sc := range all {
		if <-ready[i]; ctx.Err() == nil {
			t.add(sc, results[i])
		}
	}
	wg.Wait()

	fmt.Fprintln(out)
	if err := end(dbs, s.keep, out, all); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	fmt.Fprintln(out, t.lastLine())
	if t.failed > 0 {
		return errVerdict
	}
	return nil
}

// result is what came of a scenario.
type result struct {
	row
	err error
}

func playOne(ctx context.Context, sc scenario, dbs databases, s settings, log *slog.Logger) (res result) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := newWorld(ctx, sc, dbs, s, log)
	if err != nil {
		return result{err: err}
	}
	res.err = sc.play(ctx, w)
	row, err := w.read(context.WithoutCancel(ctx)) // whatever happened, show how things stand
	res.row = row
	res.err = errors.Join(res.err, err, w.close())
	return res
}
