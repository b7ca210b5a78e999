package dedup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// lane_test.go: several tenants in one process. Tenant a has the bed's CRM, the others bring their own.

// eventOf is event of a tenant.
func eventOf(tenant string, person, id int, text string) store.Event {
	e := event(person, id, text)
	var enq dedup.Enquiry
	if err := json.Unmarshal(e.Enquiry, &enq); err != nil {
		panic(err)
	}
	enq.Tenant = tenant
	body, _ := json.Marshal(enq)
	e.Tenant, e.Payload, e.Enquiry = tenant, body, body
	e.OrderingKey = dedup.OrderingKey(tenant, "telegram", "1", "user", enq.Person.ID)
	e.ContactKey = dedup.ContactKey(tenant, "telegram", enq.Person.ID)
	return e
}

func (b *bed) tenantsOn(st store.Store, tenants map[string]dedup.Tenant, change ...func(*dedup.Options)) *dedup.Processor {
	b.t.Helper()
	o := b.options(change...)
	p, err := dedup.NewTenants(st, tenants, &o)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (b *bed) submit(p *dedup.Processor, tenant, key string) store.Operation {
	b.t.Helper()
	op, err := p.Submit(b.ctx, key, dedup.Person{ID: key, Tenant: tenant}, crm.Lead{Title: key})
	if err != nil {
		b.t.Fatal(err)
	}
	return op
}

func workers(n int) func(*dedup.Options) { return func(o *dedup.Options) { o.Workers = n } }

var perMessage = dedup.OnePerMessage(lead)

// book is a CRM that takes its time and remembers who came when.
type book struct {
	takes time.Duration
	mu    sync.Mutex
	who   []string // tenants, in the order of the calls
	at    []time.Time
}

func (c *book) CreateLead(ctx context.Context, op crm.Op, _ crm.Lead) (string, error) {
	time.Sleep(c.takes)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.who, c.at = append(c.who, op.Tenant), append(c.at, time.Now())
	return "L" + op.ID, nil
}

func (c *book) calls() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.who...)
}

func TestTenants(t *testing.T) {
	t.Run("each tenant's enquiries go to its own CRM by its own rule", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			other := crmtest.NewSimulator(crmtest.Config{Identity: "other"})
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{
				"a": {b.sim.Local(), dedup.ContinueWithin(24*time.Hour, lead)}, "b": {other.Local(), perMessage}})
			stop := b.run(p)
			for i := range 3 {
				b.accept(eventOf("a", 7, i+1, "please call me"))
				time.Sleep(time.Second)
				b.accept(eventOf("b", 7, i+1, "please call me"))
			}
			time.Sleep(time.Minute)
			stop()
			b.leads(1)
			if n := len(other.Leads()); n != 3 {
				t.Errorf("%d leads at b, want 3", n)
			}
			for _, op := range b.ops(store.Done) {
				if want := map[string]string{"a": "simulator", "b": "other"}[op.Tenant]; op.Adapter != want {
					t.Errorf("operation of %s began under %q, want %q", op.Tenant, op.Adapter, want)
				}
			}
		})
	})
	t.Run("what is submitted and handed out by the claim goes to the tenant's CRM", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			ca, cb := &book{}, &book{}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {ca, nil}, "b": {cb, nil}})
			for i := range 5 {
				b.submit(p, "a", fmt.Sprint("x", i))
				b.submit(p, "b", fmt.Sprint("x", i))
			}
			b.runFor(p, time.Minute)
			if got := fmt.Sprint(ca.calls(), cb.calls()); got != "[a a a a a] [b b b b b]" {
				t.Error(got)
			}
		})
	})
	t.Run("a source that puts two tenants under one key has each decided by its own rule", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			ca, cb := &book{}, &book{}
			ignores := dedup.OnePerMessage(func(dedup.Enquiry) (crm.Lead, error) { return crm.Lead{}, dedup.Ignore("not here") })
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {ca, ignores}, "b": {cb, perMessage}})
			for i, tenant := range []string{"a", "b", "stranger", "b"} {
				e := eventOf(tenant, 7, i+1, "please call me")
				e.OrderingKey = "k"
				b.accept(e)
			}
			b.runFor(p, time.Minute)
			if got := fmt.Sprint(ca.calls(), cb.calls()); got != "[] [b]" { // the second of b stands behind the stranger's
				t.Error(got)
			}
		})
	})
	t.Run("a paused lane does not stop the others, and says whose it is", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.TokenRefused})
			other := crmtest.NewSimulator(crmtest.Config{})
			var mu sync.Mutex
			told := map[string]bool{}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {b.sim.Local(), perMessage}, "b": {other.Local(), perMessage}},
				func(o *dedup.Options) {
					o.Observer.Paused = func(tenant, _ string, _ time.Duration) { mu.Lock(); told["paused "+tenant] = true; mu.Unlock() }
					o.Observer.Resumed = func(tenant string) { mu.Lock(); told["resumed "+tenant] = true; mu.Unlock() }
				})
			stop := b.run(p)
			for i := range 20 {
				b.accept(eventOf("a", i+1, i+1, "please call me"))
				b.accept(eventOf("b", i+1, i+1, "please call me"))
			}
			time.Sleep(time.Minute)
			if !p.Paused("a") || p.Paused("b") || p.Paused("nobody") || len(other.Leads()) != 20 {
				t.Errorf("paused: a %v, b %v; %d leads at b, want 20", p.Paused("a"), p.Paused("b"), len(other.Leads()))
			}
			b.sim.Heal()
			time.Sleep(15 * time.Minute)
			stop()
			b.leads(20)
			if fmt.Sprint(told) != "map[paused a:true resumed a:true]" {
				t.Errorf("told %v", told)
			}
		})
	})
}

func TestTenantsShareTheWorkers(t *testing.T) {
	t.Run("a CRM that hangs leaves workers to the others", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			hangs := adapterFunc(func(ctx context.Context, _ crm.Op, _ crm.Lead) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
			other := &book{}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {hangs, perMessage}, "b": {other, perMessage}}, workers(4))
			stop := b.run(p)
			for i := range 50 {
				b.accept(eventOf("a", i+1, i+1, "please call me"))
			}
			time.Sleep(time.Second)
			b.accept(eventOf("b", 7, 7, "please call me"))
			time.Sleep(5 * time.Second)
			if n := len(other.calls()); n != 1 {
				t.Errorf("%d leads at b after five seconds, want 1", n)
			}
			stop()
		})
	})
	t.Run("tenants take turns, so that a backlog starves nobody", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			c := &book{takes: time.Second}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, nil}, "b": {c, nil}, "c": {c, nil}}, workers(1))
			for i := range 30 {
				b.submit(p, "a", fmt.Sprint("x", i))
			}
			time.Sleep(time.Second)
			for i := range 5 {
				b.submit(p, "b", fmt.Sprint("x", i))
				b.submit(p, "c", fmt.Sprint("x", i))
			}
			b.runFor(p, 15500*time.Millisecond)
			n := map[string]int{}
			for _, who := range c.calls()[:15] {
				n[who]++
			}
			if fmt.Sprint(n) != "map[a:5 b:5 c:5]" {
				t.Errorf("of the first 15 calls %v, want 5 of each", n)
			}
		})
	})
	t.Run("fresh enquiries of one tenant do not take the others' turns", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			c := &book{takes: time.Second}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, perMessage}, "b": {c, nil}}, workers(1))
			b.submit(p, "b", "x1")
			b.submit(p, "b", "x2")
			stop := b.run(p)
			for i := range 20 {
				b.accept(eventOf("a", i+1, i+1, "please call me"))
			}
			time.Sleep(10 * time.Second)
			stop()
			if n := strings.Count(fmt.Sprint(c.calls()), "b"); n != 2 {
				t.Errorf("%d calls of b in ten seconds, want 2: %v", n, c.calls())
			}
		})
	})
	t.Run("a tenant alone may use all workers but a quarter", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			c := &book{takes: time.Second}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, nil}, "b": {c, nil}}, workers(8))
			for i := range 12 {
				b.submit(p, "a", fmt.Sprint("x", i))
			}
			b.runFor(p, 2500*time.Millisecond)
			if n := len(c.calls()); n != 12 {
				t.Errorf("%d calls in two rounds, want 12", n)
			}
		})
	})
	t.Run("look-ups that hang hold up their own lane only", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			other := crmtest.NewSimulator(crmtest.Config{Identity: "other"})
			other.Always(loseCreate(crmtest.LoseReply))
			b.sim.Always(loseCreate(crmtest.LoseReply), crmtest.Fault{Kind: crmtest.Hang, On: crmtest.Find})
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {b.sim.Local(), nil}, "b": {other.Local(), nil}})
			for i := range 3 {
				b.submit(p, "a", fmt.Sprint("x", i))
				b.submit(p, "b", fmt.Sprint("x", i))
			}
			stop := b.run(p)
			time.Sleep(2*time.Minute + 40*time.Second) // the quiet period, and less than two look-ups that hang
			stop()
			asked := 0
			for _, op := range b.ops() {
				if done := op.State == store.Done; done != (op.Tenant == "b") {
					t.Errorf("operation of %s is %s (%s)", op.Tenant, op.State, op.Reason)
				}
				asked += b.sim.Requests(crmtest.Find, op.ID)
			}
			if asked > 2 {
				t.Errorf("%d look-ups at a in 40 s, each of which hangs: want one at a time", asked)
			}
		})
	})
}

// deaf is a store that does not know of Claim.Tenant.
type deaf struct{ *sqlite.Store }

func (s deaf) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	c.Tenant = nil
	return s.Store.Claim(ctx, c)
}

func TestStrangers(t *testing.T) {
	t.Run("what belongs to a tenant that is not served is left for another process, and told once", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			c := &book{}
			here := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, perMessage}})
			there := b.tenantsOn(b.st, map[string]dedup.Tenant{"stranger": {c, perMessage}})
			b.submit(there, "stranger", "x")
			stop := b.run(here)
			for i := range 3 {
				b.accept(eventOf("stranger", i+1, i+1, "please call me"))
				b.accept(eventOf("a", i+1, i+1, "please call me"))
				time.Sleep(time.Minute)
			}
			stop()
			if got := fmt.Sprint(c.calls()); got != "[a a a]" {
				t.Errorf("calls %s, want those of a", got)
			}
			if n := strings.Count(b.log.String(), `"tenant":"stranger"`); n != 1 {
				t.Errorf("told %d times, want once: %s", n, b.log.String())
			}
			s, err := here.Stats(b.ctx)
			if err != nil || len(s.Events) != 1 || s.Events[0].N != 3 || s.Settling() != 1 {
				t.Errorf("stats: %+v, %v", s, err)
			}
			b.runFor(there, time.Minute)
			if got := fmt.Sprint(c.calls()); got != "[a a a stranger stranger stranger stranger]" {
				t.Errorf("calls %s", got)
			}
		})
	})
	t.Run("an operation that waits is told of at start, without any event", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			c := &book{}
			b.submit(b.tenantsOn(b.st, map[string]dedup.Tenant{"stranger": {c, nil}}), "stranger", "x")
			b.runFor(b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, nil}}), time.Second)
			if !strings.Contains(b.log.String(), `"tenant":"stranger"`) {
				t.Error("nothing was told")
			}
		})
	})
	t.Run("what they get later, elsewhere, is told of within a minute", func(t *testing.T) {
		for what, arrives := range map[string]func(b *bed, c *book){
			"an event": func(b *bed, _ *book) { b.accept(eventOf("stranger", 1, 1, "please call me")) },
			"a lease that ended": func(b *bed, c *book) {
				b.submit(b.tenantsOn(b.st, map[string]dedup.Tenant{"stranger": {c, nil}}), "stranger", "x")
				ops, err := b.st.Claim(b.ctx, store.Claim{Owner: "dead", Limit: 1, Lease: time.Second, Quiet: time.Second})
				if err != nil || len(ops) != 1 {
					t.Fatalf("%d claimed, %v", len(ops), err)
				}
			},
		} {
			virtual(t, none, func(b *bed) {
				c := &book{}
				stop := b.run(b.tenantsOn(&polls{Store: b.st}, map[string]dedup.Tenant{"a": {c, perMessage}}))
				time.Sleep(10 * time.Second)
				arrives(b, c)
				time.Sleep(time.Minute)
				stop()
				if n := strings.Count(b.log.String(), `"tenant":"stranger"`); n != 1 {
					t.Errorf("%s was told of %d times, want once", what, n)
				}
			})
		}
	})
	t.Run("their backlog of events does not stand before ours", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			for i := range 450 {
				b.accept(eventOf("stranger", i+1, i+1, "please call me"))
			}
			time.Sleep(time.Minute)
			b.accept(eventOf("a", 7, 7, "please call me"))
			c := &book{}
			b.runFor(b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, perMessage}}), time.Minute)
			if len(c.calls()) != 1 {
				t.Errorf("calls %v, want one", c.calls())
			}
		})
	})
	t.Run("their expired leases do not stand before ours", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			c := &book{}
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {c, nil}})
			there := b.tenantsOn(b.st, map[string]dedup.Tenant{"stranger": {c, nil}})
			for i := range 230 {
				b.submit(there, "stranger", fmt.Sprint("x", i))
			}
			die := func(n int) {
				time.Sleep(time.Minute)
				ops, err := b.st.Claim(b.ctx, store.Claim{Owner: "dead", Limit: n, Lease: time.Second, Quiet: time.Second, Adapter: "x"})
				if err != nil || len(ops) != n {
					t.Fatalf("%d claimed, %v", len(ops), err)
				}
			}
			die(230)
			ours := b.submit(p, "a", "x")
			die(1)
			time.Sleep(time.Minute)
			b.runFor(p, time.Minute)
			op, err := b.st.Operation(b.ctx, ours.ID)
			if err != nil || op.State != store.NeedsReconciliation {
				t.Errorf("ours is %s, %v", op.State, err)
			}
			if n := len(b.ops(store.Sending)); n != 100 { // a page
				t.Errorf("%d of theirs are untouched, want all", n)
			}
		})
	})
	t.Run("a lead for a tenant that is not served is refused before anything is stored", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.tenantsOn(b.st, map[string]dedup.Tenant{"a": {&book{}, nil}})
			who, l := dedup.Person{ID: "7"}, crm.Lead{Title: "x"}
			_, err := p.Submit(b.ctx, "k", who, l)
			who.Tenant = "b"
			_, err2 := p.Submit(b.ctx, "k", who, l)
			_, err3 := p.SubmitTx(b.ctx, nil, "k", who, l)
			for i, err := range []error{err, err2, err3} {
				if !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "NewTenants") {
					t.Errorf("call %d: %v", i, err)
				}
			}
			if len(b.ops()) != 0 {
				t.Error("something was stored")
			}
		})
	})
	t.Run("a store that does not heed the tenant sends nothing to a wrong CRM", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			ca, cb := &book{}, &book{}
			p := b.tenantsOn(deaf{b.st}, map[string]dedup.Tenant{"a": {ca, nil}, "b": {cb, nil}})
			for i := range 4 {
				b.submit(p, "a", fmt.Sprint("x", i))
				b.submit(p, "b", fmt.Sprint("x", i))
			}
			b.runFor(p, time.Minute)
			if strings.Contains(fmt.Sprint(ca.calls()), "b") || strings.Contains(fmt.Sprint(cb.calls()), "a") {
				t.Errorf("a's CRM was called for %v, b's for %v", ca.calls(), cb.calls())
			}
		})
	})
	t.Run("nor does it keep the store busy while one of the lanes is paused", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.TokenRefused})
			c := &book{}
			p := b.tenantsOn(deaf{b.st}, map[string]dedup.Tenant{"a": {c, nil}, "b": {b.sim.Local(), nil}})
			b.submit(p, "b", "x")
			b.runFor(p, 10*time.Minute)
			if op := b.only(store.Pending); len(c.calls()) != 0 || op.Version > 100 {
				t.Errorf("moved %d times in ten minutes, a's CRM was called for %v", op.Version, c.calls())
			}
		})
	})
}

func TestNewTenantsRefuses(t *testing.T) {
	virtual(t, none, func(b *bed) {
		minimal := b.sim.Minimal()
		good := dedup.Tenant{Adapter: minimal, Rule: perMessage}
		for name, c := range map[string]struct {
			tenants map[string]dedup.Tenant
			o       dedup.Options
			want    []string
		}{
			"an empty map":             {nil, dedup.Options{}, []string{"at least one tenant"}},
			"a tenant without adapter": {map[string]dedup.Tenant{"good": good, "bad": {}}, dedup.Options{}, []string{`tenant "bad"`, "adapter"}},
			"a rule beyond its adapter": {map[string]dedup.Tenant{"good": good, "bad": {minimal, dedup.ContinueWithin(time.Hour, lead)}},
				dedup.Options{}, []string{`tenant "bad"`, "AddNote"}},
			"a window without room": {map[string]dedup.Tenant{"good": good, "bad": {declaring{minimal, crm.Description{Identity: "x",
				Create: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Minute}}}, nil}}, dedup.Options{}, []string{`tenant "bad"`, "Window"}},
			"a name that is no text": {map[string]dedup.Tenant{"a\x00": good}, dedup.Options{}, []string{`tenant "a\x00"`, "UTF-8"}},
			"options out of bounds":  {map[string]dedup.Tenant{"good": good}, dedup.Options{Workers: -1}, []string{"Workers"}},
			"trust in look-ups that nobody has": {map[string]dedup.Tenant{"good": {adapterFunc(nil), nil}}, dedup.Options{TrustEmptyLookup: true},
				[]string{"TrustEmptyLookup", "has no look-up"}},
		} {
			_, err := dedup.NewTenants(b.st, c.tenants, &c.o)
			for _, want := range c.want {
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(want)) {
					t.Errorf("%s: %v, want %q in it", name, err, want)
				}
			}
			if err != nil && strings.Contains(err.Error(), `"good"`) {
				t.Errorf("%s: %v blames the good one", name, err)
			}
		}
	})
}
