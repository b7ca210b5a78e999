package dedup_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

var (
	none     = crmtest.Config{}
	keyed    = crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: 30 * time.Minute}}
	upsert   = crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.Upsert}}
	uniqueID = crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID}}
)

func loseCreate(applied crmtest.FaultKind) crmtest.Fault {
	return crmtest.Fault{Kind: applied, On: crm.KindCreate}
}

func TestProcessor(t *testing.T) {
	t.Run("an enquiry becomes one lead, and further messages its notes", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			stop := b.run(b.processor(nil))
			for i := range 3 {
				b.accept(event(7, i+1, fmt.Sprint("please call me ", i)))
				b.accept(event(7, i+1, fmt.Sprint("please call me ", i)))
				time.Sleep(time.Minute)
			}
			stop()
			b.leads(1)
			b.creates(1)
			if n := b.sim.Leads()[0].Notes; len(n) != 2 {
				t.Fatalf("%d notes, want 2", len(n))
			}
			if done := b.told("done"); len(done) != 3 || done[0].CRMID == "" || done[0].Lead.Phone == "" {
				t.Fatalf("OnDone heard %+v", done)
			}
		})
	})
	t.Run("what was accepted while nobody worked is done by the next run", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "please call me"))
			b.leads(0)
			b.runFor(b.processor(nil), time.Minute)
			b.leads(1)
		})
	})
	t.Run("what was planned before a stop is sent after the restart", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.Refuse})
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(nil), time.Minute)
			b.only(store.Pending)
			b.sim.Heal()
			b.runFor(b.processor(nil), 10*time.Minute)
			b.only(store.Done)
			b.leads(1)
		})
	})
	t.Run("a submission needs no event, and its key names one lead for ever", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processorOn(b.st, nil, nil)
			stop := b.run(p)
			who := dedup.Person{ID: "7"}
			first, err := p.Submit(b.ctx, "form/7/1", who, crm.Lead{Title: "x"})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour)
			again, err := p.Submit(b.ctx, "form/7/1", who, crm.Lead{Title: "x"})
			if err != nil || again.ID != first.ID || again.State != store.Done {
				t.Fatalf("%v %+v", err, again)
			}
			other, err := p.Submit(b.ctx, "form/7/1", who, crm.Lead{Title: "y"})
			if !errors.Is(err, dedup.ErrKeyReused) || other.ID != first.ID {
				t.Fatalf("another lead under the key: %v", err)
			}
			if _, err := p.Submit(b.ctx, " ", who, crm.Lead{}); !errors.Is(err, store.ErrInvalid) {
				t.Fatalf("an empty key: %v", err)
			}
			stop()
			b.leads(1)
		})
	})
	t.Run("a submission inside the host's transaction is there if that commits", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processorOn(b.st, nil, nil)
			host, err := sql.Open("sqlite", b.path)
			if err != nil {
				t.Fatal(err)
			}
			defer host.Close()
			for _, end := range []func(*sql.Tx) error{(*sql.Tx).Rollback, (*sql.Tx).Commit} {
				tx, err := host.Begin()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := p.SubmitTx(b.ctx, tx, "form/7/1", dedup.Person{ID: "7"}, crm.Lead{Title: "x"}); err != nil {
					t.Fatal(err)
				}
				b.runFor(p, time.Minute)
				b.leads(0)
				if err := end(tx); err != nil {
					t.Fatal(err)
				}
			}
			b.runFor(p, time.Minute)
			b.leads(1)
		})
	})
	t.Run("without a rule an event ends ignored, with the reason", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "x"))
			b.runFor(b.processorOn(b.st, nil, nil), time.Minute)
			evs, err := b.st.Events(b.ctx, store.EventFilter{})
			if err != nil || len(evs) != 1 || evs[0].State != store.EventIgnored || evs[0].Reason != "no rule" {
				t.Fatalf("%v %+v", err, evs)
			}
		})
	})
	t.Run("a kind that the adapter lacks ends canceled(unsupported), not failed", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			rule := notesRule{}
			b.accept(event(7, 1, "x"))
			b.accept(event(7, 2, "y"))
			b.runFor(b.processorOn(b.st, b.sim.Minimal(), rule), 3*time.Minute)
			b.leads(1)
			ops := b.ops(store.Canceled)
			if len(ops) != 1 || ops[0].Reason != "unsupported" {
				t.Fatal(show(b.ops()))
			}
		})
	})
	t.Run("a running Processor can't be run twice", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processor(nil)
			stop := b.run(p)
			synctest.Wait()
			if err := p.Run(b.ctx); err == nil {
				t.Fatal("it ran")
			}
			stop()
		})
	})
}

// notesRule hides from NewProcessor that it makes notes.
type notesRule struct{}

func (notesRule) Kinds() []crm.Kind { return nil }
func (notesRule) Decide(e dedup.Enquiry, h dedup.History) (dedup.Decision, error) {
	if len(h.Deals) > 0 {
		return dedup.Decision{Effects: []dedup.Effect{dedup.Update{DealID: h.Deals[0].ID, Lead: crm.Lead{Phone: "1"}}}}, nil
	}
	return dedup.Decision{Effects: []dedup.Effect{dedup.Open{Lead: crm.Lead{Title: e.Text}}}}, nil
}

// I7: after an unknown outcome no create leaves but where a repeat is harmless, absence is proven, or a person said so.
func TestLostReply(t *testing.T) {
	for _, fault := range []crmtest.FaultKind{crmtest.LoseReply, crmtest.Drop, crmtest.ResetMidBody, crmtest.Garbage, crmtest.ErrorBody, crmtest.BareStatus} {
		t.Run("without a guarantee it waits for a person: "+string(fault), func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				b.sim.Next(1, loseCreate(fault))
				b.accept(event(7, 1, "please call me"))
				// An adapter without a look-up: nothing but a person can know.
				b.runFor(b.processorOn(b.st, b.sim.Minimal(), dedup.OnePerMessage(lead)), 3*time.Hour)
				b.creates(1)
				op := b.only(store.NeedsReconciliation)
				if !op.Doubt || len(b.told("person")) != 1 {
					t.Fatalf("doubt %v, told %+v", op.Doubt, b.told("person"))
				}
			})
		})
	}
	t.Run("a look-up finds what was created, without a second create", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.LoseReply))
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(nil), time.Hour)
			b.only(store.Done)
			b.creates(1)
			b.leads(1)
		})
	})
	for name, c := range map[string]crmtest.Config{"idempotency key": keyed, "upsert": upsert, "unique id": uniqueID} {
		t.Run("a repeat is harmless and settles it: "+name, func(t *testing.T) {
			virtual(t, c, func(b *bed) {
				b.sim.Next(3, loseCreate(crmtest.LoseReply))
				b.accept(event(7, 1, "please call me"))
				b.runFor(b.processor(nil), time.Hour)
				b.only(store.Done)
				b.leads(1)
			})
		})
	}
	t.Run("an empty look-up is not trusted by default", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.Drop))
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(nil), 3*time.Hour)
			b.only(store.NeedsReconciliation)
			b.creates(1)
			if told := b.told("person"); len(told) != 1 {
				t.Fatalf("a person was told %d times: %+v", len(told), told)
			}
		})
	})
	trust := func(o *dedup.Options) { o.TrustEmptyLookup = true }
	t.Run("an empty look-up is trusted where the host and the adapter vouch for it, after the quiet period", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.Drop))
			b.accept(event(7, 1, "please call me"))
			stop := b.run(b.processor(nil, trust))
			time.Sleep(time.Minute)
			b.creates(1)
			time.Sleep(time.Hour)
			stop()
			b.only(store.Done)
			b.leads(1)
		})
	})
	t.Run("a record that lands late, within the quiet period, is found and not made again", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, crmtest.Fault{Kind: crmtest.Late, On: crm.KindCreate, Delay: 110 * time.Second})
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(nil, trust), time.Hour)
			b.only(store.Done)
			b.leads(1)
		})
	})
	t.Run("a look-up that lags can't be trusted at all: the constructor refuses", func(t *testing.T) {
		virtual(t, crmtest.Config{LookupLag: time.Hour}, func(b *bed) {
			_, err := dedup.NewProcessor(b.st, b.sim.Local(), nil, &dedup.Options{TrustEmptyLookup: true})
			if err == nil || !strings.Contains(err.Error(), "TrustEmptyLookup") || !strings.Contains(err.Error(), "reads its own writes") {
				t.Fatal(err)
			}
		})
	})
	t.Run("an abandoned call never becomes absent by itself", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			block := make(chan struct{})
			a := deafAdapter{b.sim.Local(), block}
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(a, trust), 3*time.Hour)
			if op := b.only(store.NeedsReconciliation); op.Attempts != 1 {
				t.Fatalf("%d attempts", op.Attempts)
			}
			close(block)
			synctest.Wait()
		})
	})
	t.Run("what an abandoned call returns later is evidence", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			block := make(chan struct{})
			a := deafAdapter{b.sim.Local(), block}
			b.accept(event(7, 1, "please call me"))
			stop := b.run(b.processor(a))
			time.Sleep(time.Minute)
			b.only(store.NeedsReconciliation)
			close(block)
			time.Sleep(time.Minute)
			stop()
			b.only(store.Done)
			b.leads(1)
		})
	})
	t.Run("an adapter that returns no id is unknown", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "x"))
			b.runFor(b.processorOn(b.st, adapterFunc(func(context.Context, crm.Op, crm.Lead) (string, error) { return "", nil }), dedup.OnePerMessage(lead)), time.Hour)
			b.only(store.NeedsReconciliation)
		})
	})
}

// deafAdapter creates, and then does not return before block is closed, whatever its context says.
type deafAdapter struct {
	*crmtest.Client
	block chan struct{}
}

func (a deafAdapter) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	<-a.block
	return a.Client.CreateLead(context.WithoutCancel(ctx), op, l)
}

// The traces that a search over the naive table found to lead to a second lead.
func TestTracesToASecondLead(t *testing.T) {
	t.Run("'not applied' of attempt 2 says nothing about attempt 1", func(t *testing.T) {
		virtual(t, keyed, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.LoseReply))
			b.sim.Next(100, crmtest.Fault{Kind: crmtest.Throttle, On: crm.KindCreate})
			b.accept(event(7, 1, "please call me"))
			stop := b.run(b.processorOn(b.st, withoutLookup(b.sim), dedup.OnePerMessage(lead)))
			time.Sleep(5 * time.Minute)
			if op := b.only(store.Uncertain); !op.Doubt {
				t.Fatal("the doubt about attempt 1 is gone")
			}
			// And the idempotency window closes during the back-off: from then on nothing is sent.
			time.Sleep(28 * time.Minute)
			op := b.only(store.NeedsReconciliation)
			sent := b.sim.Requests(crm.KindCreate, op.ID)
			b.sim.Heal()
			time.Sleep(3 * time.Hour)
			stop()
			b.only(store.NeedsReconciliation)
			b.creates(sent)
			b.leads(1)
		})
	})
	t.Run("a refusal of attempt 2 says nothing about attempt 1", func(t *testing.T) {
		virtual(t, keyed, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.Drop)) // as far as we can know, it may have been applied
			b.sim.Next(1, loseCreate(crmtest.Reject))
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processorOn(b.st, withoutLookup(b.sim), dedup.OnePerMessage(lead)), time.Hour)
			b.only(store.NeedsReconciliation)
		})
	})
	t.Run("a window that closes while nobody works is closed for the next run", func(t *testing.T) {
		virtual(t, keyed, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.LoseReply))
			b.accept(event(7, 1, "please call me"))
			p := b.processorOn(b.st, withoutLookup(b.sim), dedup.OnePerMessage(lead))
			stop := b.run(p)
			time.Sleep(500 * time.Millisecond)
			stop()
			b.only(store.Uncertain)
			time.Sleep(28 * time.Minute)
			b.runFor(p, time.Hour)
			b.only(store.NeedsReconciliation)
			b.creates(1)
		})
	})
	t.Run("an operator's page that has moved on decides nothing", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.LoseReply))
			b.accept(event(7, 1, "please call me"))
			p := b.processor(nil)
			stop := b.run(p)
			time.Sleep(time.Minute)
			seen := b.only(store.NeedsReconciliation)
			time.Sleep(time.Hour) // the look-up settles it
			b.only(store.Done)
			_, err := p.Absent(b.ctx, dedup.Verdict{OperationID: seen.ID, Seen: seen.Version, By: "olga"})
			if !errors.Is(err, store.ErrMoved) {
				t.Fatalf("absent on an old page: %v", err)
			}
			stop()
			b.creates(1)
		})
	})
	t.Run("late evidence is taken from a worker that lost its lease", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processorOn(b.st, adapterFunc(func(context.Context, crm.Op, crm.Lead) (string, error) { return "", errors.New("lost") }), dedup.OnePerMessage(lead)), time.Minute)
			op := b.only(store.NeedsReconciliation)
			if _, err := b.st.Advance(b.ctx, store.Report{ID: op.ID, On: store.Confirmed, CRMID: "late"}); err != nil {
				t.Fatal(err)
			}
			if op := b.only(store.Done); op.CRMID != "late" {
				t.Fatal(op.CRMID)
			}
		})
	})
	t.Run("absence on a person's word starts a new window", func(t *testing.T) {
		virtual(t, keyed, func(b *bed) {
			b.sim.Always(loseCreate(crmtest.Drop))
			b.accept(event(7, 1, "please call me"))
			p := b.processorOn(b.st, withoutLookup(b.sim), dedup.OnePerMessage(lead))
			stop := b.run(p)
			time.Sleep(2 * time.Hour)
			op := b.only(store.NeedsReconciliation)
			b.sim.Heal()
			if _, err := p.Absent(b.ctx, dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga", Why: "not in the list"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
			stop()
			b.only(store.Done)
			b.leads(1)
		})
	})
}

// withoutLookup is the simulator's adapter with CreateLead and what it declares, nothing else.
func withoutLookup(s *crmtest.Simulator) crm.Adapter { return declaring{s.Minimal(), s.Describe()} }

type declaring struct {
	crm.Adapter
	d crm.Description
}

func (a declaring) Describe() crm.Description { return a.d }

func TestCRMHangs(t *testing.T) {
	virtual(t, none, func(b *bed) {
		var probes atomic.Int64
		p := b.processorOn(b.st, b.sim.Minimal(), dedup.OnePerMessage(lead), func(o *dedup.Options) {
			o.Observer.Paused = func(string, string, time.Duration) { probes.Add(1) }
		})
		b.sim.Always(loseCreate(crmtest.Hang))
		stop := b.run(p)
		for i := range 200 {
			b.accept(event(i+1, i+1, "please call me"))
		}
		time.Sleep(10 * time.Minute)
		doubts := len(b.ops(store.NeedsReconciliation, store.Uncertain, store.Sending))
		if most := 8 + 2 + int(probes.Load()); doubts > most {
			t.Fatalf("%d in doubt after ten minutes, want at most workers + 2 + one per probe = %d", doubts, most)
		}
		t.Logf("%d of 200 in doubt, %d pauses", doubts, probes.Load())
		b.sim.Heal()
		time.Sleep(20 * time.Minute)
		stop()
		if p.Paused("") || len(b.ops(store.Pending)) != 0 {
			t.Fatalf("it did not recover: paused %v, %d pending", p.Paused(""), len(b.ops(store.Pending)))
		}
	})
}

func TestAdapterPause(t *testing.T) {
	t.Run("a refused token pauses, and nothing is failed or in doubt", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.TokenRefused})
			p := b.processor(nil)
			stop := b.run(p)
			for i := range 20 {
				b.accept(event(i+1, i+1, "please call me"))
			}
			time.Sleep(time.Minute)
			if !p.Paused("") || len(b.ops(store.Pending)) != 20 {
				t.Fatalf("paused %v: %s", p.Paused(""), show(b.ops()))
			}
			b.sim.Heal()
			time.Sleep(15 * time.Minute)
			stop()
			b.leads(20)
		})
	})
	t.Run("an adapter that can be checked is probed with its check, not with an enquiry", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.Hang})
			stop := b.run(b.processor(nil))
			for i := range 50 {
				b.accept(event(i+1, i+1, "please call me"))
			}
			time.Sleep(30 * time.Minute)
			if n := len(b.ops(store.NeedsReconciliation)); n > 10 {
				t.Fatalf("%d in doubt", n)
			}
			stop()
		})
	})
}

func TestPoison(t *testing.T) {
	for _, kind := range []string{"panic", "hang"} {
		t.Run("a rule that does not answer ("+kind+") parks its event and stops nobody else", func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				end := make(chan struct{})
				defer close(end)
				rule := dedup.ContinueWithin(24*time.Hour, func(e dedup.Enquiry) (crm.Lead, error) {
					if e.Text == "hang" {
						<-end
					}
					return lead(e)
				})
				stop := b.run(b.processorOn(b.st, nil, rule, func(o *dedup.Options) { o.RuleTimeout = time.Second }))
				b.accept(event(7, 1, kind))
				b.accept(event(7, 2, "please call me"))
				b.accept(event(8, 3, "please call me"))
				time.Sleep(3 * time.Second)
				b.leads(1) // person 8
				time.Sleep(10 * time.Minute)
				b.leads(2)
				evs, err := b.st.Events(b.ctx, store.EventFilter{States: []store.EventState{store.EventParked}})
				if err != nil || len(evs) != 1 || evs[0].UpdateID != "1" {
					t.Fatalf("%v %+v", err, evs)
				}
				if told := b.told("person"); len(told) != 1 || told[0].EventID != evs[0].ID {
					t.Fatalf("%+v", told)
				}
				stop()
			})
		})
	}
	t.Run("a parked event is planned once its rule is mended and a person retries it", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			broken := true
			rule := dedup.OnePerMessage(func(e dedup.Enquiry) (crm.Lead, error) {
				if broken {
					return crm.Lead{}, errors.New("boom")
				}
				return lead(e)
			})
			p := b.processorOn(b.st, nil, rule)
			r := b.accept(event(7, 1, "please call me"))
			b.runFor(p, time.Hour)
			broken = false
			if err := p.Retry(b.ctx, r.EventID, "olga", "mended"); err != nil {
				t.Fatal(err)
			}
			b.runFor(p, time.Minute)
			b.leads(1)
		})
	})
	t.Run("an adapter that panics is unknown for that operation and stops nobody else", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			sim := b.sim.Minimal()
			a := adapterFunc(func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
				if l.Title == "boom" {
					panic("s3cr3t-token")
				}
				return sim.CreateLead(ctx, op, l)
			})
			b.accept(event(7, 1, "boom"))
			b.accept(event(8, 2, "please call me"))
			b.runFor(b.processorOn(b.st, a, dedup.OnePerMessage(lead)), time.Minute)
			b.leads(1)
			if ops := b.ops(store.NeedsReconciliation); len(ops) != 1 || strings.Contains(ops[0].Reason, "s3cr3t") {
				t.Fatal(show(b.ops()))
			}
		})
	})
	t.Run("hooks that panic or hang stop nothing", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			var lost atomic.Int64
			end := make(chan struct{})
			p := b.processor(nil, func(o *dedup.Options) {
				o.OnDone = func(_ context.Context, out dedup.Outcome) {
					if out.Lead.Title == "please call me 0" {
						panic("s3cr3t-token")
					}
					<-end
				}
				o.Observer.HookLost = func(string) { lost.Add(1) }
				o.Observer.Moved = func(dedup.Step) { panic("s3cr3t-token") }
			})
			stop := b.run(p)
			for i := range 100 {
				b.accept(event(i+1, i+1, fmt.Sprint("please call me ", i)))
			}
			time.Sleep(time.Minute)
			stop()
			b.leads(100)
			if lost.Load() != 100 {
				t.Fatalf("%d hook calls are told lost, want all 100", lost.Load())
			}
			close(end)
		})
	})
}

func TestDrain(t *testing.T) {
	t.Run("a call under way is waited for, and its answer stored", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, crmtest.Fault{Kind: crmtest.Slow, On: crm.KindCreate, Delay: 15 * time.Second})
			b.accept(event(7, 1, "please call me"))
			stop := b.run(b.processor(nil))
			time.Sleep(5 * time.Second)
			stop()
			b.only(store.Done)
		})
	})
	t.Run("a stop in the middle of a backlog leaves every operation pending or done, none in doubt", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.Slow, On: crm.KindCreate, Delay: time.Second})
			for i := range 60 {
				b.accept(event(i+1, i+1, "please call me"))
			}
			p := b.processor(nil)
			for range 4 {
				b.runFor(p, 2500*time.Millisecond)
				if n := len(b.ops(store.Sending, store.NeedsReconciliation, store.Uncertain)); n != 0 {
					t.Fatalf("%d in doubt after a drain", n)
				}
			}
			b.runFor(p, time.Minute)
			b.leads(60)
			b.creates(60)
		})
	})
}

func TestBackOff(t *testing.T) {
	t.Run("not applied never exhausts: it is sent when the CRM comes back, days later", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.Refuse})
			b.accept(event(7, 1, "please call me"))
			stop := b.run(b.processor(nil, func(o *dedup.Options) { o.Poll = time.Minute }))
			time.Sleep(3 * 24 * time.Hour)
			op := b.only(store.Pending)
			if op.Attempts < 3*24*60/7 || op.Attempts > 3*24*60/3 {
				t.Fatalf("%d attempts in three days at a cap of five minutes", op.Attempts)
			}
			b.sim.Heal()
			time.Sleep(6 * time.Minute)
			stop()
			b.leads(1)
		})
	})
	t.Run("the CRM's own wait is kept", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, crmtest.Fault{Kind: crmtest.Throttle, On: crm.KindCreate, Delay: 20 * time.Minute})
			b.accept(event(7, 1, "please call me"))
			stop := b.run(b.processor(nil))
			time.Sleep(19 * time.Minute)
			b.creates(1)
			time.Sleep(2 * time.Minute)
			stop()
			b.only(store.Done)
		})
	})
}

func TestDesk(t *testing.T) {
	v := func(op store.Operation) dedup.Verdict {
		return dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga", Why: "looked"}
	}
	t.Run("a refused lead waits for a person, and goes out once reopened", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.Reject))
			b.accept(event(7, 1, "please call me"))
			p := b.processor(nil)
			stop := b.run(p)
			time.Sleep(time.Hour)
			op := b.only(store.Failed)
			if told := b.told("person"); len(told) != 1 || told[0].State != "failed" || told[0].Reason == "" {
				t.Fatalf("%+v", told)
			}
			for range 2 { // the same click twice
				if _, err := p.Reopen(b.ctx, v(op)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Minute)
			stop()
			b.only(store.Done)
			b.creates(2)
		})
	})
	t.Run("canceling a create ends what waits for it, and the next message opens the next deal", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.LoseReply))
			p := b.processor(noLookup{b.sim.Local()})
			stop := b.run(p)
			b.accept(event(7, 1, "please call me"))
			time.Sleep(time.Minute)
			b.accept(event(7, 2, "hello?"))
			time.Sleep(time.Minute)
			op := b.ops(store.NeedsReconciliation)[0]
			if _, err := p.Cancel(b.ctx, v(op)); err != nil {
				t.Fatal(err)
			}
			if n := b.ops(store.Canceled); len(n) != 2 {
				t.Fatal(show(b.ops()))
			}
			b.accept(event(7, 3, "anybody?"))
			time.Sleep(time.Minute)
			stop()
			if done := b.ops(store.Done); len(done) != 1 || done[0].Kind != string(crm.KindCreate) {
				t.Fatal(show(b.ops()))
			}
		})
	})
	t.Run("what waits for a failed create moves into the next deal", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			// The note is planned while the create is still waiting; then the create is refused.
			b.sim.Next(1, crmtest.Fault{Kind: crmtest.Throttle, On: crm.KindCreate, Delay: 10 * time.Minute})
			b.sim.Next(1, loseCreate(crmtest.Reject))
			p := b.processor(nil)
			stop := b.run(p)
			b.accept(event(7, 1, "one"))
			time.Sleep(time.Minute)
			b.accept(event(7, 2, "two"))
			time.Sleep(20 * time.Minute)
			if f := b.ops(store.Failed); len(f) != 1 {
				t.Fatal(show(b.ops()))
			}
			if s, err := p.Stats(b.ctx); err != nil || s.Blocked.N != 1 {
				t.Fatalf("%v blocked %+v", err, s.Blocked)
			}
			b.accept(event(7, 3, "three"))
			time.Sleep(time.Minute)
			stop()
			b.leads(1)
			l := b.sim.Leads()[0]
			if l.Lead.Title != "three" || len(l.Notes) != 1 || !strings.Contains(l.Notes[0].Note.Text, "two") {
				t.Fatalf("%+v", l)
			}
			if c := b.ops(store.Canceled); len(c) != 1 || !strings.HasPrefix(c[0].Reason, "moved") {
				t.Fatal(show(b.ops()))
			}
		})
	})
	t.Run("after a restored backup nothing is sent blindly", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Always(crmtest.Fault{Kind: crmtest.Refuse})
			b.accept(event(7, 1, "please call me"))
			p := b.processor(noLookup{b.sim.Local()})
			b.runFor(p, time.Minute)
			b.sim.Heal()
			if n, err := p.Restored(b.ctx, "olga", "disk died"); n != 1 || err != nil {
				t.Fatal(n, err)
			}
			b.runFor(p, 3*time.Hour)
			b.only(store.NeedsReconciliation)
			b.leads(0)
		})
	})
	t.Run("a verdict names who, what and the version seen", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			d := dedup.NewDesk(b.st)
			for _, v := range []dedup.Verdict{{}, {OperationID: "x", Seen: 1}, {OperationID: "x", By: "olga"}} {
				if _, err := d.Cancel(b.ctx, v); !errors.Is(err, store.ErrInvalid) {
					t.Fatalf("%+v: %v", v, err)
				}
			}
			if _, err := d.Cancel(b.ctx, dedup.Verdict{OperationID: "x", By: "olga", Seen: 1}); !errors.Is(err, store.ErrNotFound) {
				t.Fatal(err)
			}
		})
	})
	t.Run("a conflict is kept, told, and acknowledged", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.accept(event(7, 1, "please call me"))
			p := b.processor(nil)
			b.runFor(p, time.Minute)
			op := b.only(store.Done)
			op, err := b.st.Advance(b.ctx, store.Report{ID: op.ID, On: store.Confirmed, CRMID: "other"})
			if err != nil || op.ConflictID != "other" {
				t.Fatal(err, op.ConflictID)
			}
			if op, err = p.Acknowledge(b.ctx, v(op)); err != nil || op.ConflictID != "" {
				t.Fatal(err, op.ConflictID)
			}
		})
	})
}

type noLookup struct{ c *crmtest.Client }

func (a noLookup) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	return a.c.CreateLead(ctx, op, l)
}

func (a noLookup) AddNote(ctx context.Context, op crm.Op, id string, n crm.Note) (string, error) {
	return a.c.AddNote(ctx, op, id, n)
}

// Upsert looks before it repeats: a manager's edit is not overwritten.
func TestUpsertDoesNotOverwriteAManager(t *testing.T) {
	virtual(t, upsert, func(b *bed) {
		b.sim.Next(1, loseCreate(crmtest.LoseReply))
		b.accept(event(7, 1, "please call me"))
		stop := b.run(b.processor(nil))
		time.Sleep(100 * time.Millisecond)
		b.only(store.Uncertain)
		b.sim.Edit(b.sim.Leads()[0].ID, func(r *crmtest.Record) { r.Stage = "WON"; r.Lead.Title = "Big order" })
		time.Sleep(time.Hour)
		stop()
		b.only(store.Done)
		if l := b.sim.Leads()[0]; l.Stage != "WON" || l.Lead.Title != "Big order" {
			t.Fatalf("overwritten: %+v", l)
		}
	})
}

func TestAdapterChanges(t *testing.T) {
	virtual(t, keyed, func(b *bed) {
		b.sim.Next(1, loseCreate(crmtest.LoseReply))
		b.accept(event(7, 1, "please call me"))
		b.runFor(b.processorOn(b.st, withoutLookup(b.sim), dedup.OnePerMessage(lead)), 500*time.Millisecond)
		b.only(store.Uncertain)
		d := b.sim.Describe()
		d.Identity = "another portal"
		b.runFor(b.processorOn(b.st, declaring{b.sim.Minimal(), d}, dedup.OnePerMessage(lead)), time.Hour)
		op := b.only(store.NeedsReconciliation)
		b.creates(1)
		if got := b.trail(op.ID); got[len(got)-1] != store.GuaranteeChanged && got[len(got)-1] != store.Inconclusive {
			t.Fatal(got)
		}
		if told := b.told("person"); len(told) != 1 {
			t.Fatalf("a person was told %d times", len(told))
		}
	})
	t.Run("a doubt from another account is a person's, who is told so, even if the adapter could look", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			b.sim.Next(1, loseCreate(crmtest.LoseReply))
			b.accept(event(7, 1, "please call me"))
			b.runFor(b.processor(nil), time.Minute)
			b.only(store.NeedsReconciliation)
			other := crmtest.NewSimulator(crmtest.Config{Identity: "another portal"})
			b.runFor(b.processor(other.Local()), 2*time.Hour)
			op := b.only(store.NeedsReconciliation)
			if told := b.told("person"); len(told) != 1 || !strings.Contains(told[0].Reason, "another portal") || op.Reason != told[0].Reason {
				t.Fatalf("%+v; %s", told, op.Reason)
			}
		})
	})
	t.Run("a submitted lead of a known chat is continued there", func(t *testing.T) {
		virtual(t, none, func(b *bed) {
			p := b.processor(nil)
			stop := b.run(p)
			if _, err := p.Submit(b.ctx, "form/7/1", dedup.Person{ID: "7", Source: "telegram", Bot: "1"}, crm.Lead{Title: "form"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			b.accept(event(7, 1, "and at noon, please"))
			time.Sleep(time.Minute)
			stop()
			b.leads(1)
			if l := b.sim.Leads()[0]; len(l.Notes) != 1 {
				t.Fatalf("%+v", l)
			}
		})
	})
}

func TestNewProcessorRefuses(t *testing.T) {
	virtual(t, keyed, func(b *bed) {
		ok := dedup.OnePerMessage(lead)
		for name, c := range map[string]struct {
			a    crm.Adapter
			r    dedup.Rule
			o    dedup.Options
			want string
		}{
			"no adapter":              {nil, ok, dedup.Options{}, "needs a store and an adapter"},
			"a lease too short":       {b.sim.Local(), ok, dedup.Options{Lease: 25 * time.Second}, "Lease"},
			"no room in the window":   {b.sim.Local(), ok, dedup.Options{QuietPeriod: 29 * time.Minute}, "window"},
			"negative workers":        {b.sim.Local(), ok, dedup.Options{Workers: -1}, "Workers"},
			"back-off upside down":    {b.sim.Local(), ok, dedup.Options{BackoffMin: time.Hour}, "BackoffMin"},
			"notes without notes":     {b.sim.Minimal(), dedup.ContinueWithin(time.Hour, lead), dedup.Options{}, "note.add"},
			"a rule without a lead":   {b.sim.Local(), dedup.OnePerMessage(nil), dedup.Options{}, "LeadFunc"},
			"a rule without duration": {b.sim.Local(), dedup.ContinueWithin(0, lead), dedup.Options{}, "positive duration"},
			"an at-least-once create": {declaring{b.sim.Minimal(), crm.Description{Identity: "x", Create: crm.Guarantee{Kind: crm.AtLeastOnce}}}, ok, dedup.Options{}, "never acceptable"},
		} {
			if _, err := dedup.NewProcessor(b.st, c.a, c.r, &c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// slowClaims commits a claim and tells of it much later, as a frozen machine does.
type slowClaims struct {
	store.Store
	n     atomic.Int64
	delay time.Duration
}

func (s *slowClaims) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	p.Claim = nil
	return s.Store.CommitPlan(ctx, p)
}

func (s *slowClaims) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	ops, err := s.Store.Claim(ctx, c)
	if len(ops) > 0 && s.n.Add(1) == 1 {
		time.Sleep(s.delay)
	}
	return ops, err
}

func TestLeaseIsCheckedRightBeforeTheCall(t *testing.T) {
	for delay, sent := range map[time.Duration]bool{30 * time.Second: true, 40 * time.Second: false} {
		t.Run(fmt.Sprintf("%v after a claim of a minute the call is made: %v", delay, sent), func(t *testing.T) {
			virtual(t, none, func(b *bed) {
				b.accept(event(7, 1, "please call me"))
				stop := b.run(b.processorOn(&slowClaims{Store: b.st, delay: delay}, nil, dedup.OnePerMessage(lead)))
				time.Sleep(10 * time.Minute)
				stop()
				op := b.only(store.Done)
				b.creates(1)
				if gaveBack := len(b.trail(op.ID)) > 0; gaveBack == sent {
					t.Fatalf("trail %v", b.trail(op.ID))
				}
			})
		})
	}
}
