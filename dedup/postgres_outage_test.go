package dedup_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store/postgres"
)

// postgres_outage_test.go: our own database fails under a running processor and its door. The CRM promises nothing, so every
// second request would be a second lead: what was acknowledged is one lead in the end, sent once, and the processor that ran
// before the failure works after it, without a person.

// outage is a door and a processor on one database, under load.
type outage struct {
	t     *testing.T
	st    *postgres.Store
	sim   *crmtest.Simulator
	url   string
	calls *atomic.Int64 // of the bot behind the door
	acked atomic.Int64

	persons, each int
	delivered     chan struct{}
}

// startOutage begins to deliver. pause is the mean of what is left between a person's messages.
func startOutage(t *testing.T, dsn string, persons, each int, pause time.Duration) *outage {
	t.Helper()
	o := &outage{t: t, st: openPostgres(t, dsn), sim: crmtest.NewSimulator(none),
		persons: persons, each: each, delivered: make(chan struct{})}
	runPostgres(t, o.st, o.sim.Local(), dedup.OnePerMessage(lead))
	o.url, o.calls = serveDoor(t, o.st)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	go func() {
		defer close(o.delivered)
		var all sync.WaitGroup
		for person := range persons {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(person)))
				for n := range each {
					time.Sleep(time.Duration(rng.Int64N(int64(2*pause) + 1)))
					if deliver(ctx, func() string { return o.url }, enquiry{person + 1, n + 1}.body()) {
						o.acked.Add(1)
					}
				}
			})
		}
		all.Wait()
	}()
	return o
}

// under waits until so much of the load was acknowledged, in percent.
func (o *outage) under(percent int) {
	o.t.Helper()
	want := int64(o.persons * o.each * percent / 100)
	for deadline := time.Now().Add(time.Minute); o.acked.Load() < want; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatalf("%d updates were acknowledged, waited for %d", o.acked.Load(), want)
		}
	}
}

// check waits for the end and looks at everything; dsn is where the database is by then.
func (o *outage) check(dsn string) []made {
	o.t.Helper()
	<-o.delivered
	settled(o.t, o.st, time.Minute, nil)
	list := found(o.t, dsn)
	oneLeadEach(o.t, list, o.sim, o.persons*o.each)
	oneRequestEach(o.t, list, o.sim)
	if n := o.acked.Load(); int(n) != o.persons*o.each {
		o.t.Errorf("%d updates were acknowledged, want %d", n, o.persons*o.each)
	}
	return list
}

// load is how much is delivered in one of these tests.
func load() (persons, each int) {
	if fullScale {
		return 40, 50
	}
	return 20, 10
}

func TestTheDatabaseCrashesUnderAProcessor(t *testing.T) {
	t.Parallel()
	c := pgtest.Start(t, nil)
	persons, each := load()
	for _, x := range []struct {
		name string
		fail func() error
	}{
		{"restart, as in a crash", func() error { return c.Restart(pgtest.Immediate) }},
		{"backends killed", func() error {
			n, err := c.KillBackends()
			if err == nil && n == 0 {
				err = errors.New("no backend was there to be killed")
			}
			return errors.Join(err, c.Wait())
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			dsn := c.DSN(t)
			o := startOutage(t, dsn, persons, each, 20*time.Millisecond)
			for _, percent := range []int{20, 60} { // of the deliveries are acknowledged
				o.under(percent)
				if err := x.fail(); err != nil {
					t.Fatal(err)
				}
			}
			o.check(dsn)
		})
	}
}

func TestASynchronousStandbyTakesOverUnderAProcessor(t *testing.T) {
	t.Parallel()
	primary := pgtest.Start(t, nil)
	standby := primary.Standby(t)
	dsn := primary.DSN(t)
	persons, each := load()
	o := startOutage(t, pgtest.At(dsn, primary, standby), persons, each, 20*time.Millisecond)
	o.under(40)
	if err := primary.Stop(pgtest.Immediate); err != nil {
		t.Fatal(err)
	}
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	o.check(pgtest.At(dsn, standby))
}

// Every fourth commit loses its connection: before the server hears of it, when it is done and nobody knows, or afterwards.
func TestTheConnectionIsLostAroundTheCommit(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	w, through := startWire(t, dsn)
	persons, each := load()
	o := startOutage(t, through, persons, each, 10*time.Millisecond)
	w.cut(4)
	<-o.delivered
	o.check(dsn)
	w.cut(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, what := range []string{theCommit, theAccept} {
		for m, n := range w.cuts[what] {
			if t.Logf("%s: cut %d times %v", what, n, moment(m)); n == 0 {
				t.Errorf("no %s was cut %v", what, moment(m))
			}
		}
	}
	// Whose answer was lost is told from a repeated delivery: the bot hears of every message once.
	if n := o.calls.Load(); n != int64(persons*each) {
		t.Errorf("the bot was called %d times for %d messages", n, persons*each)
	}
}
