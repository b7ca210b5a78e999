package dedup_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// scenario_world_test.go: what a scenario plays in: a store, a CRM, one process after another, and a clock that is moved on to
// whatever is due next.

// engine is a store as scenarios need it.
type engine interface {
	store.Store
	store.Reader
}

// clock is what the store and the CRM go by: the machine's, moved on by hand.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

type world struct {
	t       *testing.T
	sc      *scenario
	st      engine
	clock   *clock
	virtual bool // the machine's own time is virtual too
	sim     *crmtest.Simulator
	files   filed
	made    *updates

	shadow bool

	mu    sync.Mutex
	live  *process
	lives int
	over  bool
}

// process is one process.
type process struct {
	owner       string
	gate        *gate
	proc        *dedup.Processor
	desk        *dedup.Desk
	door, hooks http.Handler
	cancel      context.CancelFunc
	done        chan error
}

func newWorld(t *testing.T, sc *scenario, st engine, c *clock, virtual bool) *world {
	return &world{t: t, sc: sc, st: st, clock: c, virtual: virtual, made: newUpdates(), shadow: sc.settings["shadow"] != "",
		sim: crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID, Window: 7 * 24 * time.Hour}, Now: c.now, Seed: 1})}
}

// begin starts a process, which is followed by another one as soon as it is dead.
func (w *world) begin(dieAt int, after bool) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil
	}
	w.lives++
	g := &gate{dieAt: dieAt, after: after, dead: make(chan struct{})}
	l := &process{owner: fmt.Sprintf("life%d", w.lives), gate: g, desk: dedup.NewDesk(w.st), done: make(chan error, 1)}
	p, st := w.processor(l)
	l.proc = p
	src, err := telegram.NewSource(scenarioBot, doorSecret, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	mo := &dedup.MiddlewareOptions{Logger: slog.New(slog.DiscardHandler)}
	l.door, l.hooks = dedup.Middleware(st, src, mo)(nil), dedup.Middleware(st, stageHooks(w.t), mo)(nil)
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go func() { l.done <- p.Run(ctx) }()
	go func() {
		select {
		case <-ctx.Done():
		case <-g.dead:
			cancel()
			w.begin(0, false)
		}
	}()
	w.live = l
	return l
}

func (w *world) processor(l *process) (*dedup.Processor, store.Store) {
	adapter, err := crmUpTo(w.sc.settings["crm"], crmCreates{w.sim.Local(), l.gate})
	if err != nil {
		w.t.Fatal(err)
	}
	rule, err := ruleOf(w.sc.settings["rule"])
	if err != nil {
		w.t.Fatal(err)
	}
	o := scenarioOptions(w.virtual)
	o.Logger, o.Owner = slog.New(slog.DiscardHandler), l.owner
	o.Contacts, o.Shadow = w.sc.settings["crm"] == "contacts", w.shadow
	if w.sc.settings["files"] != "" {
		o.AddFile = w.files.hook(l.gate)
	}
	if err := w.setOption(&o); err != nil {
		w.t.Fatal(err)
	}
	st := &gatedStore{w.st, l.gate}
	p, err := dedup.NewProcessor(st, adapter, rule, &o)
	if err != nil {
		w.t.Fatal(err)
	}
	return p, st
}

func (w *world) setOption(o *dedup.Options) error {
	switch s := w.sc.settings["option"]; {
	case s == "":
	case strings.HasPrefix(s, "transitions "):
		o.Transitions = map[string][]string{}
		for _, pair := range strings.Split(strings.TrimPrefix(s, "transitions "), ", ") {
			from, to, _ := strings.Cut(pair, " to ")
			o.Transitions[from] = append(o.Transitions[from], to)
		}
	default:
		return fmt.Errorf("option: %q is not known", s)
	}
	return nil
}

func (w *world) now() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live
}

// end stops the last process in good order; the dead ones are left to themselves.
func (w *world) end() {
	w.mu.Lock()
	w.over = true
	l := w.live
	w.mu.Unlock()
	l.cancel()
	if err := <-l.done; err != nil {
		w.t.Errorf("drain: %v", err)
	}
	if w.virtual {
		time.Sleep(15 * time.Minute) // what the dead still try in vain
	}
}

// post delivers until it is acknowledged.
func (w *world) post(st step, body []byte) {
	for range 100 {
		l := w.now()
		h := l.door
		if st.who == "hook" {
			h = l.hooks
		}
		rec := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Header.Set(telegram.SecretHeader, doorSecret)
		r.Header.Set(hookHeader, doorSecret)
		h.ServeHTTP(rec, r)
		switch {
		case rec.Code == http.StatusOK && !l.gate.isDead():
			return
		case rec.Code != http.StatusOK && rec.Code != http.StatusServiceUnavailable:
			w.t.Fatalf("line %d: the door answers %d", st.line, rec.Code)
		}
		time.Sleep(20 * time.Millisecond)
	}
	w.t.Fatalf("line %d: never acknowledged", st.line)
}

// pass lets time go by, with everything that becomes due in its order.
func (w *world) pass(d time.Duration) {
	until := w.clock.now().Add(d)
	for i := 1; ; i++ {
		now := w.clock.now()
		left := until.Sub(now)
		if left <= 0 {
			if !w.virtual {
				w.settle(0)
			}
			return
		}
		w.settle(left)
		now = w.clock.now()
		next := w.nextDue()
		if most := map[bool]int{true: 30, false: 6}[w.virtual]; i > most && next.Before(now.Add(left/10)) { // something is tried again and again
			next = now.Add(max(left/10, time.Second))
		}
		if next.IsZero() || next.After(until) {
			next = until
		}
		if next.After(now) {
			w.clock.ahead.Add(int64(next.Sub(now)))
		}
	}
}

// settle gives the process the time that it needs for what is due.
func (w *world) settle(most time.Duration) {
	if w.virtual {
		time.Sleep(min(most, time.Second))
		return
	}
	giveUp, last, same := time.Now().Add(2*time.Second), "", 0
	for same < 3 && time.Now().Before(giveUp) {
		time.Sleep(12 * time.Millisecond)
		is, busy := w.state()
		if same++; is != last || busy {
			last, same = is, 0
		}
	}
}

var unfinishedStates = []store.State{store.Pending, store.Sending, store.Uncertain, store.NeedsReconciliation}

func (w *world) unfinished() ([]store.EventRow, []store.Operation) {
	evs, err := w.st.Events(context.Background(), store.EventFilter{Limit: 1000,
		States: []store.EventState{store.EventPending, store.EventGathering, store.EventWaiting}})
	if err != nil {
		w.t.Fatal(err)
	}
	ops, err := w.st.Operations(context.Background(), store.OperationFilter{States: unfinishedStates, Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	return evs, slices.DeleteFunc(ops, func(o store.Operation) bool { return o.Blocked })
}

// state is what is unfinished; busy tells that the process is at it.
func (w *world) state() (is string, busy bool) {
	evs, ops := w.unfinished()
	now, owner := w.clock.now(), w.now().owner
	var b strings.Builder
	for _, op := range ops {
		fmt.Fprint(&b, op.ID, op.State, op.Version, ";")
		busy = busy || (op.State == store.Sending && strings.HasPrefix(op.Owner, owner+"/")) ||
			(op.State != store.Sending && op.State != store.NeedsReconciliation && !op.DueAt.After(now))
	}
	first := map[string]bool{}
	for _, ev := range evs {
		fmt.Fprint(&b, ev.ID, ev.State, ev.DueAt, ";")
		busy = busy || (!first[ev.OrderingKey] && !ev.DueAt.After(now))
		first[ev.OrderingKey] = true
	}
	return b.String(), busy
}

// nextDue is when the next thing has to be done; zero if there is nothing.
func (w *world) nextDue() (next time.Time) {
	evs, ops := w.unfinished()
	due := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	first := map[string]bool{}
	for _, ev := range evs {
		if !first[ev.OrderingKey] {
			due(ev.DueAt)
		}
		first[ev.OrderingKey] = true
	}
	for _, op := range ops {
		if op.State == store.Sending {
			due(op.LeaseUntil)
		} else {
			due(op.DueAt)
		}
	}
	return next
}

// finish lets everything come to its end that comes to one by itself within some hours.
func (w *world) finish() {
	until := w.clock.now().Add(6 * time.Hour)
	for range 400 {
		w.pass(time.Second)
		next := w.nextDue()
		if next.IsZero() || next.After(until) {
			return
		}
		if d := next.Sub(w.clock.now()); d > 0 {
			w.pass(d)
		}
	}
}
