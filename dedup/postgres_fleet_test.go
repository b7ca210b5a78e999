package dedup_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
)

// postgres_fleet_test.go: four processes with eight workers each on one PostgreSQL. Updates are delivered through all
// their doors at the same time; the processes are killed (SIGKILL) and started again all the while.

const fleetEnv = "LEADONCE_TEST_FLEET"

// fleetPlan is what a process of the fleet is told.
type fleetPlan struct {
	DSN, CRM    string
	Description crm.Description
}

// note is a line that a process prints: what its Observer saw, and when its adapter was called and came back.
type note struct {
	What  string // "ready", "began", "moved", "call", "back"
	URL   string `json:",omitempty"`
	Op    string `json:",omitempty"`
	Owner string `json:",omitempty"`
	Fence int64  `json:",omitempty"`
	State store.State
	At    int64 // nanoseconds since 1970

	life int // which process, counted by the parent
}

var printing sync.Mutex

func (n note) print() {
	printing.Lock()
	defer printing.Unlock()
	n.At = time.Now().UnixNano()
	b, err := json.Marshal(n)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(b, '\n'))
}

// fleetChild is the whole of leadonce, in a process.
func fleetChild(s string) {
	go func() { // nothing outlives the test
		io.Copy(io.Discard, os.Stdin)
		os.Exit(4)
	}()
	var p fleetPlan
	if err := json.Unmarshal([]byte(s), &p); err != nil {
		panic(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	st, err := postgres.Open(context.Background(), p.DSN, &postgres.Options{MaxConns: 8, Logger: quiet})
	if err != nil {
		panic(err)
	}
	o := pgOptions()
	a := &watchedAdapter{Client: crmtest.NewClient(p.CRM, p.Description)}
	step := func(what string, s dedup.Step) {
		note{What: what, Op: s.OperationID, Owner: s.Owner, Fence: s.Fence, State: s.State}.print()
	}
	o.Observer.Began = func(s dedup.Step) {
		a.fences.Store(s.OperationID, s.Fence)
		step("began", s)
	}
	o.Observer.Moved = func(s dedup.Step) { step("moved", s) }
	proc, err := dedup.NewProcessor(st, a, dedup.OnePerMessage(lead), &o)
	if err != nil {
		panic(err)
	}
	go proc.Run(context.Background())
	h, err := doorHandler(st, new(atomic.Int64))
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	note{What: "ready", URL: "http://" + l.Addr().String()}.print()
	panic(http.Serve(l, h))
}

// watchedAdapter tells when it is called under which lease, and when the call is over.
type watchedAdapter struct {
	*crmtest.Client
	fences sync.Map
}

func (a *watchedAdapter) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	fence, _ := a.fences.Load(op.ID)
	note{What: "call", Op: op.ID, Fence: fence.(int64)}.print()
	defer func() { note{What: "back", Op: op.ID, Fence: fence.(int64)}.print() }()
	return a.Client.CreateLead(ctx, op, l)
}

// fleet is the processes, as their parent sees them.
type fleet struct {
	t    *testing.T
	plan string
	rng  *rand.Rand // the killer's

	mu      sync.Mutex
	lives   []*life // all there ever were
	seats   []*life // who lives now
	journal []note
	errors  lockedBuffer
}

type life struct {
	n        int
	cmd      *exec.Cmd
	url      string
	ready    chan struct{} // it serves, or it is dead
	dead     chan struct{}
	killedAt int64 // 0: never
}

func startFleet(t *testing.T, p fleetPlan, seed uint64) *fleet {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{t: t, plan: string(b), rng: rand.New(rand.NewPCG(seed, 1)), seats: make([]*life, 4)}
	t.Cleanup(func() {
		for i := range f.seats {
			f.kill(i)
		}
		if t.Failed() {
			t.Logf("what the processes complained about:\n%.4000s", f.errors.String())
		}
	})
	for i := range f.seats {
		f.start(i)
	}
	for _, l := range f.seats {
		<-l.ready
	}
	return f
}

func (f *fleet) start(seat int) {
	l := &life{cmd: exec.Command(os.Args[0]), ready: make(chan struct{}), dead: make(chan struct{})}
	l.cmd.Env = append(os.Environ(), fleetEnv+"="+f.plan)
	l.cmd.Stderr = &f.errors
	out, err := l.cmd.StdoutPipe()
	if err == nil {
		_, err = l.cmd.StdinPipe()
	}
	if err == nil {
		err = l.cmd.Start()
	}
	if err != nil {
		f.t.Errorf("start a process: %v", err)
		return
	}
	f.mu.Lock()
	l.n = len(f.lives)
	f.lives, f.seats[seat] = append(f.lives, l), l
	f.mu.Unlock()
	go func() {
		once := sync.OnceFunc(func() { close(l.ready) })
		for s := bufio.NewScanner(out); s.Scan(); {
			n := note{life: l.n}
			if json.Unmarshal(s.Bytes(), &n) != nil {
				continue // cut by the kill
			}
			f.mu.Lock()
			if n.What == "ready" {
				l.url = n.URL
				once()
			}
			f.journal = append(f.journal, n)
			f.mu.Unlock()
		}
		l.cmd.Wait()
		once()
		close(l.dead)
	}()
}

func (f *fleet) kill(seat int) {
	f.mu.Lock()
	l := f.seats[seat]
	f.mu.Unlock()
	if l == nil {
		return
	}
	at := time.Now().UnixNano()
	l.cmd.Process.Kill()
	<-l.dead
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.killedAt == 0 {
		l.killedAt = at
	}
}

// door is one of those that are open now, by chance.
func (f *fleet) door() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.seats[rand.IntN(len(f.seats))]; l.url != "" {
		return l.url
	}
	return "http://127.0.0.1:1" // not ready yet: refused
}

// killUntil kills a process every now and then and starts it again.
func (f *fleet) killUntil(stop <-chan struct{}, every time.Duration) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(every/2 + time.Duration(f.rng.Int64N(int64(every)))):
			seat := f.rng.IntN(len(f.seats))
			f.kill(seat)
			f.start(seat)
		}
	}
}

// deliverAll delivers every enquiry of so many persons: a person's next one when the one before was acknowledged, each up to
// three times at once through different doors. It returns when all are acknowledged.
func deliverAll(ctx context.Context, door func() string, persons, each int, seed uint64) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 32 {
		all.Go(func() {
			for person := range next {
				rng := rand.New(rand.NewPCG(seed, uint64(person)))
				for n := range each {
					body := enquiry{person, n + 1}.body()
					acked := make(chan struct{}, 3)
					for range 1 + rng.IntN(3) {
						all.Go(func() {
							if deliver(ctx, door, body) {
								acked <- struct{}{}
							}
						})
					}
					select {
					case <-acked:
					case <-ctx.Done():
					}
				}
			}
		})
	}
	for person := range persons {
		next <- person + 1
	}
	close(next)
	all.Wait()
}

func TestFourKilledProcessesOnOnePostgres(t *testing.T) {
	for _, c := range []struct {
		name          string
		config        crmtest.Config
		persons, each int
	}{
		{"unique id", uniqueID, 100, 10},
		{"idempotency key", keyed, 30, 7},
		{"nothing promised, look-up", none, 30, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			persons, each := c.persons, c.each
			if fullScale {
				persons, each = 500, 20
			}
			fleetRun(t, c.config, persons, each)
		})
	}
}

func fleetRun(t *testing.T, c crmtest.Config, persons, each int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c.Seed = seed
	sim := crmtest.NewSimulator(c)
	slow := func(d time.Duration) crmtest.Fault {
		return crmtest.Fault{Kind: crmtest.Slow, On: crm.KindCreate, Delay: d}
	}
	sim.Sometimes(crmtest.Chance{Fault: slow(10 * time.Millisecond), P: 0.9},
		crmtest.Chance{Fault: slow(500 * time.Millisecond), P: 0.1})
	watch := &overlaps{Handler: sim, under: map[string]int{}}
	srv := httptest.NewServer(watch)
	t.Cleanup(srv.Close)
	dsn := pgtest.DSN(t)
	st := openPostgres(t, dsn) // makes the tables; afterwards it only looks
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	began := time.Now()
	f := startFleet(t, fleetPlan{DSN: dsn, CRM: srv.URL, Description: sim.Describe()}, seed)
	stop, killer := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killer)
		f.killUntil(stop, time.Second)
	}()
	deliverAll(ctx, f.door, persons, each, seed)
	delivered := time.Since(began)
	close(stop)
	<-killer
	f.kill(0) // with what is under way now, and nobody delivers again
	f.start(0)
	// Under None what a killed worker had under way is found, or a person has to look.
	settled(t, st, 2*time.Minute, func(op store.Operation) bool {
		return c.Guarantee.Kind == crm.None && op.State == store.NeedsReconciliation && sim.Created(op.ID) == 0
	})
	list := found(t, dsn)
	open := oneLeadEach(t, list, sim, persons*each)
	if c.Guarantee.Kind == crm.None {
		oneRequestEach(t, list, sim)
	} else if open > 0 {
		t.Errorf("%d enquiries wait for a person, and a repeat is harmless", open)
	}
	f.oneOwnerEach()
	if len(watch.met) > 0 {
		t.Errorf("requests of one operation met in the CRM: %v", watch.met)
	}
	t.Logf("%d updates delivered in %v, all settled in %v; %d wait for a person", persons*each,
		delivered.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), open)
}
