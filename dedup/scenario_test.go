package dedup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store/postgres"
	"github.com/leadonce/leadonce/store/sqlite"
)

// scenario_test.go: testdata/scenarios is what the library promises, in words. Each scenario is played in order; with the
// deliveries of a burst in any order; with every delivery several times; and with a process that dies at every call.

// run is one way to play a scenario.
type run struct {
	variant string // "", "shuffled", "twice", "crashed"
	seed    uint64
	dieAt   int
	after   bool
}

func (r run) String() string {
	switch r.variant {
	case "":
		return "in order"
	case "shuffled":
		return fmt.Sprintf("shuffled with seed %d", r.seed)
	case "crashed":
		return fmt.Sprintf("crashed at call %d, after its effect: %v", r.dieAt, r.after)
	}
	return r.variant
}

func scenarios(t *testing.T) (list []*scenario) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "scenarios", "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%d scenarios: %v", len(names), err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sc, err := parseScenario(strings.TrimSuffix(filepath.Base(name), ".txt"), strings.ReplaceAll(string(text), "\r\n", "\n"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		list = append(list, sc)
	}
	return list
}

// played is what a run has come to.
type played struct {
	calls   int    // with an effect, of the first process
	diedAt  string // the name of the call
	failed  string // what is not as it should be
	missing string // a recorded update that is not here
}

// play plays a scenario in a world, as a run says.
func (w *world) play(r run) (p played) {
	w.begin(r.dieAt, r.after)
	first := w.now()
	defer func() {
		w.end()
		p.calls, p.diedAt = first.gate.calls(), first.gate.name
	}()
	steps, bodies := append([]step(nil), w.sc.steps...), map[int][]byte{}
	for _, st := range steps { // in the order of the file, so that names have their numbers
		if !st.delivery() || st.who == "hook" {
			continue
		}
		body, err := w.made.body(st)
		if errors.Is(err, fs.ErrNotExist) {
			return played{missing: err.Error()}
		} else if err != nil {
			w.t.Fatal(err)
		}
		bodies[st.line] = body
	}
	ends := map[int][2]int{}
	rnd := rand.New(rand.NewPCG(r.seed, 1))
	for _, b := range w.sc.bursts() {
		if ends[b[1]-1] = b; r.variant == "shuffled" {
			rnd.Shuffle(b[1]-b[0], func(i, j int) {
				x, y := &steps[b[0]+i], &steps[b[0]+j]
				*x, *y = *y, *x
				x.pause, y.pause = y.pause, x.pause // the gaps stay where they are
			})
		}
	}
	deliver := func(st step) {
		if st.who == "hook" && bodies[st.line] == nil {
			bodies[st.line] = w.hook(st)
		}
		w.post(st, bodies[st.line])
	}
	for i, st := range steps {
		switch {
		case st.wait > 0:
			w.pass(st.wait)
		case !st.delivery():
			w.act(st)
		default:
			w.pass(st.pause)
			deliver(st)
			if r.variant == "twice" {
				deliver(st)
				b, ok := ends[i]
				for j := b[0]; ok && j < b[1]; j++ {
					deliver(steps[j])
				}
			}
		}
	}
	w.finish()
	p.failed = w.failing(r.variant)
	return p
}

// scenarioSeeds are the orders that a burst is tried in.
func scenarioSeeds(n int) (runs []run) {
	for i := range n {
		runs = append(runs, run{variant: "shuffled", seed: uint64(i + 1)})
	}
	return runs
}

// playAll plays a scenario in every way; crash(n) chooses the calls to die at, of n.
func playAll(t *testing.T, sc *scenario, seeds int, crash func(n int) []run, play func(*testing.T, run) played) {
	t.Helper()
	do := func(r run) played {
		p := play(t, r)
		if p.missing != "" {
			t.Log("not played: " + p.missing) // no skip: telegram's own samples stand for the recordings
		}
		if p.failed != "" {
			t.Errorf("%s\n%s %s: %s", sc.sentence, r, p.diedAt, p.failed)
		}
		return p
	}
	p := do(run{})
	if t.Failed() || crash == nil || p.missing != "" {
		return
	}
	runs := append(scenarioSeeds(seeds), run{variant: "twice"})
	for _, r := range append(runs, crash(p.calls)...) {
		if do(r); t.Failed() {
			return
		}
	}
}

// everyCall dies at each of n calls, after its effect, and before the first: what is durable before a call is what was durable
// after the one before. A full run tries both all the same, for what calls do side by side; a short run dies at some.
func everyCall(n int) (runs []run) {
	for k := 1; k <= n; k++ {
		for _, after := range []bool{false, true} {
			switch {
			case testing.Short() && (k%10 != 1 || after != (k%20 == 1)), !fullScale && !testing.Short() && !after && k > 1:
				continue
			}
			runs = append(runs, run{variant: "crashed", dieAt: k, after: after})
		}
	}
	return runs
}

// someCalls dies at one of n calls.
func someCalls(n int) (runs []run) {
	if fullScale {
		return everyCall(n)
	}
	return []run{{variant: "crashed", dieAt: max(n-2, 1), after: n%2 == 0}}
}

func TestScenariosOnSQLite(t *testing.T) {
	for i, sc := range scenarios(t) {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			seeds, crash := 6, everyCall
			if testing.Short() { // half of them in order only
				seeds = 1
				if i%2 == 1 {
					crash = nil
				}
			}
			playAll(t, sc, seeds, crash, func(t *testing.T, r run) played { return playVirtually(t, sc, r) })
		})
	}
}

// playVirtually plays a scenario in virtual time over a SQLite file.
func playVirtually(t *testing.T, sc *scenario, r run) (p played) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := new(clock)
		st, err := sqlite.Open(context.Background(), filepath.Join(fastDir(t), "leads.db"), &sqlite.Options{Now: c.now})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := st.Close(); err != nil {
				t.Error(err)
			}
		}()
		p = newWorld(t, sc, st, c, true).play(r)
	})
	return p
}

// A scenario that expects something else has to fail: otherwise none of the others says anything.
func TestAWrongExpectationIsSeen(t *testing.T) {
	const happens = "It works.\nrule: continue within 24h\nanna: message 1 \"a\"\nthen anna: message 2 \"b\"\nwait 1m\n"
	for expects, ok := range map[string]bool{
		"leads:\n  \"a\" of Anna\n    note \"b\"\nevents: 2 planned\n": true,
		"leads: 2\n": false, "leads: none\n": false, "events: 1 planned\n": false, "operations: 2 lead.create done\n": false,
		"leads:\n  \"a\" of Anna\n": false, "leads:\n  \"a\" of Bob\n    note \"b\"\n": false, "contacts: Anna\n": false,
		"deals:\n  \"a\" closed\n": false,
	} {
		sc, err := parseScenario("x", happens+expects)
		if err != nil {
			t.Fatal(err)
		}
		if p := playVirtually(t, sc, run{}); (p.failed == "") != ok {
			t.Errorf("%q: %q", expects, p.failed)
		}
	}
}

func TestScenariosOnPostgres(t *testing.T) {
	t.Parallel() // it waits for the server more than it computes
	list := scenarios(t)
	dsn := pgtest.DSN(t)
	var now atomic.Pointer[clock]
	now.Store(new(clock))
	st, err := postgres.Open(t.Context(), dsn, &postgres.Options{Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return now.Load().now() }})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	db, err := sql.Open("postgres", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for i, sc := range list {
		if testing.Short() && !fullScale && i%3 != 0 {
			continue // the others are played on SQLite, and here in a run that is not short
		}
		t.Run(sc.name, func(t *testing.T) {
			seeds, crash := 0, someCalls
			slow := strings.Contains(sc.settings["slow"], "postgres")
			if !fullScale && (slow || i%4 != 0) {
				crash = nil // each of them in order, some of them in every way
			}
			if fullScale {
				seeds = 6
			}
			playAll(t, sc, seeds, crash, func(t *testing.T, r run) played {
				emptyTables(t, db)
				c := new(clock)
				now.Store(c)
				return newWorld(t, sc, st, c, false).play(r)
			})
		})
	}
}

// fastDir is a directory in memory, where there is one: no disk has to keep what dies only in the test.
func fastDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "leadonce")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// emptyTables forgets what the scenario before has left.
func emptyTables(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.Exec(`
		do $$ declare tables text; begin
			select string_agg(format('leadonce.%I', tablename), ', ') into tables from pg_tables
			where schemaname = 'leadonce' and tablename not in ('leadonce_meta', 'leadonce_migrations');
			execute 'truncate ' || tables;
		end $$`); err != nil {
		t.Fatal(err)
	}
}
