package bottest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// child.go: the bot's side of the bench: what its process is told, and what is planted in it.

// Config is what a bot is started with.
type Config struct {
	Token, Secret string
	API           string // base URL of the Bot API, without a slash at the end
	Listen        string // where to listen
	PublicURL     string // what setWebhook is given; empty: long polling
	CRMURL        string // takes the protocol of crm/jsonhook
	DB            string // the SQLite file

	Options      dedup.Options `json:"-"` // short, so that a kill inside a call is over in seconds
	InnerTimeout time.Duration // of the middleware; 0: the default

	// Lean: this is one of many runs; a bot may leave out what only takes time.
	Lean bool

	// Wrap goes around the bot's store: it kills the process at a call, or lets calls fail.
	Wrap func(store.Store) store.Store `json:"-"`
	// Before is what the bot's own code calls with the text of each message before it handles it: it panics on "crash" and
	// never returns on "hang".
	Before func(text string) `json:"-"`
}

// orders are what the bench tells a process besides.
type orders struct {
	Config
	Dir    string // holds the trail of the store's calls, and the file while which the store fails
	KillAt string // "store Accept 1 before"
	Again  bool   // it is not the first process, and may be stopped before it is ready
}

const ordersEnv = "LEADONCE_BOTTEST"

// Main is a bot's TestMain. In the process of a bot it calls run, whose context ends when the test wants it to stop; else it
// runs the tests, more of them at a time than there are processors. It does not return.
func Main(m *testing.M, run func(ctx context.Context, c Config) error) {
	if s := os.Getenv(ordersEnv); s != "" {
		os.Exit(child(s, run))
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		beds := "12" // at a time: most wait most of the time, for a lease to end
		if testing.Short() {
			beds = "6"
		}
		if err := flag.Set("test.parallel", beds); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func child(s string, run func(ctx context.Context, c Config) error) int {
	var o orders
	if err := json.Unmarshal([]byte(s), &o); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		return 3
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() { // the other end is closed by the test that wants a stop, or by its death
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
		time.Sleep(deadline)
		fmt.Fprintln(os.Stderr, "it does not stop")
		os.Exit(4)
	}()
	if o.PublicURL != "" {
		at, err := freeAddress()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 3
		}
		o.Listen, o.PublicURL = at, "https://"+at+"/telegram"
	}
	o.Options = dedup.Options{CallTimeout: 500 * time.Millisecond, Lease: 5700 * time.Millisecond,
		QuietPeriod: 50 * time.Millisecond, BackoffMin: 10 * time.Millisecond, BackoffMax: 100 * time.Millisecond,
		Poll: 250 * time.Millisecond}
	o.Wrap = func(st store.Store) store.Store { return newMortal(st, o) }
	o.Before = func(text string) {
		switch text {
		case "crash":
			panic("a bug of the bot")
		case "hang":
			select {}
		}
	}
	err := run(ctx, o.Config)
	if err != nil && !(o.Again && errors.Is(err, context.Canceled)) {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 1
	}
	return 0
}

// freeAddress finds a port right before it is used.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// die kills this process so that nothing of it can tidy up.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

func trailFile(dir string) string { return filepath.Join(dir, "calls") }
func faultFile(dir string) string { return filepath.Join(dir, "fault") }
