package dedup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// bed_test.go: a whole leadonce in virtual time: a SQLite file on disk, a simulated CRM behind pipes, one or more processors.

// bed is one database and one CRM.
type bed struct {
	t    *testing.T
	ctx  context.Context
	path string
	st   *sqlite.Store
	sim  *crmtest.Simulator
	log  lockedBuffer
	mu   sync.Mutex
	got  map[string][]dedup.Outcome // what the hooks were told
}

// The words that must never reach a log.
var secrets = []string{"+79990001122", "s3cr3t-token", "Anna Karenina", "please call me"}

// virtual runs f in a bubble of virtual time over a fresh bed.
func virtual(t *testing.T, c crmtest.Config, f func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		path := filepath.Join(t.TempDir(), "leads.db")
		st, err := sqlite.Open(ctx, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := &bed{t: t, ctx: ctx, path: path, st: st, sim: crmtest.NewSimulator(c), got: map[string][]dedup.Outcome{}}
		defer func() {
			cancel()
			time.Sleep(time.Minute) // every drain is over by then
			if err := st.Close(); err != nil {
				t.Error(err)
			}
			for _, s := range secrets {
				if strings.Contains(b.log.String(), s) {
					t.Errorf("%q reached a log: %s", s, b.log.String())
				}
			}
		}()
		f(b)
	})
}

// processor makes one over a (nil: the simulator's whole adapter), with a day's continuation.
func (b *bed) processor(a crm.Adapter, change ...func(*dedup.Options)) *dedup.Processor {
	b.t.Helper()
	return b.processorOn(b.st, a, dedup.ContinueWithin(24*time.Hour, lead), change...)
}

func (b *bed) processorOn(st store.Store, a crm.Adapter, rule dedup.Rule, change ...func(*dedup.Options)) *dedup.Processor {
	b.t.Helper()
	if a == nil {
		a = b.sim.Local()
	}
	o := b.options(change...)
	p, err := dedup.NewProcessor(st, a, rule, &o)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// options has the bed's log and hooks, and what change makes of them.
func (b *bed) options(change ...func(*dedup.Options)) dedup.Options {
	o := dedup.Options{Poll: 5 * time.Second, Logger: slog.New(slog.NewJSONHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	hook := func(name string) func(context.Context, dedup.Outcome) {
		return func(_ context.Context, out dedup.Outcome) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.got[name] = append(b.got[name], out)
		}
	}
	o.OnDone, o.NeedsPerson = hook("done"), hook("person")
	for _, f := range change {
		f(&o)
	}
	return o
}

func (b *bed) told(hook string) []dedup.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]dedup.Outcome(nil), b.got[hook]...)
}

// run runs p until the returned func is called, which waits for the drain.
func (b *bed) run(p *dedup.Processor) (stop func()) {
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("drain: %v", err)
		}
	})
}

// runFor runs p for d of virtual time and drains it.
func (b *bed) runFor(p *dedup.Processor, d time.Duration) {
	stop := b.run(p)
	time.Sleep(d)
	stop()
}

func lead(e dedup.Enquiry) (crm.Lead, error) {
	switch {
	case e.Text == "/start":
		return crm.Lead{}, dedup.Ignore("pressed start")
	case strings.HasPrefix(e.Text, "panic"):
		panic("s3cr3t-token")
	}
	return crm.Lead{Title: e.Text, Name: e.Person.Name, Phone: e.Phone, Text: e.Text}, nil
}

// event is update id of a person's private chat.
func event(person, id int, text string) store.Event {
	p, n := fmt.Sprint(person), fmt.Sprint(id)
	content := "m/" + p + "/" + n
	e := dedup.Enquiry{Source: "telegram", Bot: "1", Kind: "message", HasPerson: true, Asks: true, Private: true, Text: text,
		Person: dedup.Person{ID: p, Name: "Anna Karenina"}, Phone: "+79990001122", ContentID: content, DealKey: content}
	body, _ := json.Marshal(e)
	return store.Event{Source: "telegram", Bot: "1", UpdateID: n, Hash: "h" + n + text, Fingerprints: []store.Fingerprint{{Version: 1, Sum: "f" + n + text}},
		Kind: "message", OrderingKey: dedup.OrderingKey("", "telegram", "1", "user", p), ContactKey: dedup.ContactKey("", "telegram", p),
		ContentID: content, DealKey: content, Payload: body, Enquiry: body, HeadStart: 2 * time.Second}
}

func (b *bed) accept(e store.Event) store.Receipt {
	b.t.Helper()
	r, err := b.st.Accept(b.ctx, e)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// ops waits for what happens at this instant of virtual time, and reads.
func (b *bed) ops(states ...store.State) []store.Operation {
	b.t.Helper()
	synctest.Wait()
	ops, err := b.st.Operations(b.ctx, store.OperationFilter{States: states})
	if err != nil {
		b.t.Fatal(err)
	}
	return ops
}

// only returns the one operation that there is, and checks its state.
func (b *bed) only(want store.State) store.Operation {
	b.t.Helper()
	ops := b.ops()
	if len(ops) != 1 {
		b.t.Fatalf("%d operations, want one: %s", len(ops), show(ops))
	}
	if ops[0].State != want {
		b.t.Fatalf("operation is %s (%s), want %s", ops[0].State, ops[0].Reason, want)
	}
	return ops[0]
}

func (b *bed) leads(want int) {
	b.t.Helper()
	synctest.Wait()
	if got := len(b.sim.Leads()); got != want {
		b.t.Fatalf("%d leads in the CRM, want %d: %s", got, want, show(b.ops()))
	}
}

func (b *bed) creates(want int) {
	b.t.Helper()
	got := 0
	for _, o := range b.ops() {
		got += b.sim.Requests(crm.KindCreate, o.ID)
	}
	if got != want {
		b.t.Fatalf("%d create requests reached the CRM, want %d", got, want)
	}
}

func (b *bed) trail(id string) (on []store.Trigger) {
	b.t.Helper()
	tr, err := b.st.Trail(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range tr {
		on = append(on, e.On)
	}
	return on
}

func show(ops []store.Operation) string {
	var s []string
	for _, o := range ops {
		s = append(s, fmt.Sprintf("%s %s doubt=%v v%d attempts=%d %q", o.Kind, o.State, o.Doubt, o.Version, o.Attempts, o.Reason))
	}
	return strings.Join(s, "; ")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// adapterFunc is an adapter of one function.
type adapterFunc func(ctx context.Context, op crm.Op, l crm.Lead) (string, error)

func (f adapterFunc) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	return f(ctx, op, l)
}
