package dedup

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func termsFor(g crm.Guarantee) terms {
	return terms{lo: time.Second, hi: 5 * time.Minute, claim: store.Claim{Lease: time.Minute, Quiet: 2 * time.Minute, Adapter: "a",
		Terms: map[string]store.Terms{"lead.create": {Guarantee: string(g.Kind), Window: g.Window}}}}
}

func sending(g crm.Guarantee) store.Operation {
	return store.Operation{ID: "op", Kind: "lead.create", State: store.Sending, Version: 7, Fence: 3, Adapter: "a",
		Guarantee: string(g.Kind), Window: g.Window, FirstSentAt: t0, LastSentAt: t0, UpdatedAt: t0}
}

func TestVerdict(t *testing.T) {
	none, key := crm.Guarantee{}, crm.Guarantee{Kind: crm.IdempotencyKey, Window: 30 * time.Minute}
	e := errors.New("x")
	for _, c := range []struct {
		name string
		g    crm.Guarantee
		r    reply
		now  time.Time
		want store.Trigger
	}{
		{"an id is a confirmation", none, reply{id: "77"}, t0, store.Confirmed},
		{"no id and no error is unknown", none, reply{}, t0, store.Lost},
		{"an unmarked error is a lost reply", none, reply{err: e}, t0, store.Lost},
		{"a deadline is a lost reply", none, reply{err: context.DeadlineExceeded}, t0, store.Lost},
		{"a deadline is a lost reply that a key makes repeatable", key, reply{err: context.DeadlineExceeded}, t0, store.LostRepeatable},
		{"a window that closes before lease and quiet period end is closed", key, reply{err: e}, t0.Add(27 * time.Minute), store.Lost},
		{"and open just before", key, reply{err: e}, t0.Add(27*time.Minute - 1), store.LostRepeatable},
		{"a marked refusal is a refusal", none, reply{err: crm.Rejected(e)}, t0, store.Rejected},
		{"not applied", none, reply{err: crm.NotApplied(e, 0)}, t0, store.NotApplied},
		{"unavailable is not applied", none, reply{err: crm.Unavailable(e)}, t0, store.NotApplied},
		{"an abandoned call is lost, whatever it carries", key, reply{id: "77", abandoned: true}, t0, store.LostRepeatable},
		{"a call that was not made is not applied", none, reply{unsent: "stopping"}, t0, store.NotApplied},
		{"two records found before a repeat are nobody's choice", crm.Guarantee{Kind: crm.Upsert, Window: time.Hour}, reply{err: errAmbiguous}, t0, store.Lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			rep := verdict(sending(c.g), c.r, termsFor(c.g), c.now)
			if rep.On != c.want {
				t.Fatalf("got %s, want %s", rep.On, c.want)
			}
			if rep.On != store.Confirmed && (rep.Version != 7 || rep.Fence != 3) {
				t.Fatal("the report carries no guard")
			}
		})
	}
	t.Run("the CRM's wait is kept when it is longer than the back-off", func(t *testing.T) {
		if rep := verdict(sending(none), reply{err: crm.NotApplied(e, time.Hour)}, termsFor(none), t0); rep.RetryAfter != time.Hour {
			t.Fatal(rep.RetryAfter)
		}
	})
	t.Run("an abandoned call has not returned", func(t *testing.T) {
		if verdict(sending(none), reply{abandoned: true}, termsFor(none), t0).Returned || !verdict(sending(none), reply{err: e}, termsFor(none), t0).Returned {
			t.Fatal("wrong")
		}
	})
}

func TestAttention(t *testing.T) {
	key := crm.Guarantee{Kind: crm.IdempotencyKey, Window: 30 * time.Minute}
	uncertain := func(change func(*store.Operation)) store.Operation {
		op := sending(key)
		op.State, op.Doubt = store.Uncertain, true
		change(&op)
		return op
	}
	for _, c := range []struct {
		name   string
		op     store.Operation
		unsent bool
		now    time.Time
		want   store.Trigger
	}{
		{"a lease that ended is a lost reply", sending(crm.Guarantee{}), false, t0, store.Lost},
		{"a lease that ended is repeatable under a key", sending(key), false, t0, store.LostRepeatable},
		{"a lease of our own without a call is not applied", sending(crm.Guarantee{}), true, t0, store.NotApplied},
		{"an uncertain one in its window is left to the claim", uncertain(func(*store.Operation) {}), false, t0, ""},
		{"its window closes", uncertain(func(*store.Operation) {}), false, t0.Add(27 * time.Minute), store.WindowClosed},
		{"another account", uncertain(func(o *store.Operation) { o.Adapter = "b" }), false, t0, store.GuaranteeChanged},
		{"another guarantee", uncertain(func(o *store.Operation) { o.Guarantee = "upsert" }), false, t0, store.GuaranteeChanged},
		{"another window", uncertain(func(o *store.Operation) { o.Window = time.Hour }), false, t0, store.GuaranteeChanged},
	} {
		t.Run(c.name, func(t *testing.T) {
			rep, ok := attention(c.op, c.unsent, termsFor(key), c.now)
			if ok != (c.want != "") || (ok && rep.On != c.want) {
				t.Fatalf("got %s %v, want %s", rep.On, ok, c.want)
			}
			if rep.Returned {
				t.Fatal("nobody came back, and the report says so")
			}
		})
	}
}

func TestLookedUp(t *testing.T) {
	doubt := func(change func(*store.Operation)) store.Operation {
		op := sending(crm.Guarantee{})
		op.State, op.Doubt = store.NeedsReconciliation, true
		change(&op)
		return op
	}
	same := func(*store.Operation) {}
	late := t0.Add(2 * time.Minute)
	for _, c := range []struct {
		name  string
		op    store.Operation
		found []string
		err   error
		trust bool
		now   time.Time
		want  store.Trigger
	}{
		{"one record is a confirmation", doubt(same), []string{"5"}, nil, false, late, store.Confirmed},
		{"two records are a person's", doubt(same), []string{"5", "6"}, nil, true, late, store.Inconclusive},
		{"an empty id is no record", doubt(same), []string{""}, nil, true, late, store.Inconclusive},
		{"an error proves nothing", doubt(same), nil, errors.New("x"), true, late, store.Inconclusive},
		{"nothing found, and the host did not switch it on", doubt(same), nil, nil, false, late, store.Inconclusive},
		{"nothing found, everything vouched for", doubt(same), nil, nil, true, late, store.Absent},
		{"nothing found within the quiet period", doubt(same), nil, nil, true, late.Add(-1), store.Inconclusive},
		{"nothing found, but a call never came back", doubt(func(o *store.Operation) { o.Unreturned = true }), nil, nil, true, late, store.Inconclusive},
		{"nothing found under a guarantee", doubt(func(o *store.Operation) { o.Guarantee = "unique_id" }), nil, nil, true, late, store.Inconclusive},
		{"nothing found in another account", doubt(func(o *store.Operation) { o.Adapter = "b" }), nil, nil, true, late, store.Inconclusive},
		{"nothing found, reported a moment ago", doubt(func(o *store.Operation) { o.UpdatedAt = late }), nil, nil, true, late, store.Inconclusive},
	} {
		t.Run(c.name, func(t *testing.T) {
			rep := lookedUp(c.op, c.found, c.err, c.trust, termsFor(crm.Guarantee{}), c.now)
			if rep.On != c.want {
				t.Fatalf("got %s, want %s", rep.On, c.want)
			}
			if rep.Version != c.op.Version {
				t.Fatal("the verdict is not guarded by the version read before the question")
			}
		})
	}
}

func TestScrub(t *testing.T) {
	secret := "https://portal.example/rest/1/s3cr3t/crm.item.add?x=1"
	for _, err := range []error{
		&url.Error{Op: "Post", URL: secret, Err: errors.New("EOF")},
		fmt.Errorf("create lead: %w", &url.Error{Op: "Post", URL: secret, Err: errors.New("EOF")}),
		errors.New("sent to " + secret + " and lost"),
	} {
		if s := scrub(err); strings.Contains(s, "s3cr3t") || !strings.Contains(s, "[url]") {
			t.Errorf("%q", s)
		}
	}
	if s := scrub(errors.New(strings.Repeat("я", 1000) + "\xff\x00")); len(s) > maxReason+5 || strings.ContainsRune(s, 0) {
		t.Errorf("%d bytes", len(s))
	}
	if s := scrub(errors.New("a\x1b[2Jb\u202ec\nd")); s != "a [2Jb c d" {
		t.Errorf("%q", s)
	}
	if scrub(nil) != "" {
		t.Error("nil has a text")
	}
}

func TestHealth(t *testing.T) {
	now := t0
	newHealth := func() *health {
		now = t0
		return &health{now: func() time.Time { return now }, wait: func(n int) time.Duration { return time.Duration(n) * time.Second },
			changed: func(bool, string, time.Duration) {}}
	}
	lose := func(h *health, n int) {
		for range n {
			h.settle(false, false, crm.OutcomeUnknown)
		}
	}
	t.Run("two lost answers do not pause, the third does", func(t *testing.T) {
		h := newHealth()
		lose(h, 2)
		if n, _ := h.allow(8); n != 8 {
			t.Fatal(n)
		}
		lose(h, 1)
		if n, _ := h.allow(8); n != 0 {
			t.Fatal(n)
		}
	})
	t.Run("an answer in between starts the count anew", func(t *testing.T) {
		h := newHealth()
		lose(h, 2)
		h.settle(false, true, crm.OutcomeUnknown)
		lose(h, 2)
		if h.isPaused() {
			t.Fatal("paused")
		}
	})
	t.Run("one probe goes at a time, with growing waits", func(t *testing.T) {
		h := newHealth()
		lose(h, 3)
		now = now.Add(time.Second)
		if n, probe := h.allow(8); n != 1 || !probe {
			t.Fatal(n, probe)
		}
		if n, _ := h.allow(8); n != 0 {
			t.Fatal("a second probe")
		}
		h.settle(true, false, crm.OutcomeUnknown)
		now = now.Add(2*time.Second - 1)
		if n, _ := h.allow(8); n != 0 {
			t.Fatal("the wait did not grow")
		}
		now = now.Add(1)
		if n, _ := h.allow(8); n != 1 {
			t.Fatal("no probe")
		}
		h.settle(true, true, crm.OutcomeUnknown)
		if n, probe := h.allow(8); n != 8 || probe {
			t.Fatal("not resumed")
		}
	})
	t.Run("late losses of calls under way do not lengthen the pause", func(t *testing.T) {
		h := newHealth()
		lose(h, 20)
		now = now.Add(time.Second)
		if n, _ := h.allow(1); n != 1 {
			t.Fatal("lengthened")
		}
	})
	t.Run("a refused token pauses at once, a throttled call does not", func(t *testing.T) {
		h := newHealth()
		h.settle(false, false, crm.OutcomeNotApplied)
		if h.isPaused() {
			t.Fatal("paused")
		}
		h.settle(false, false, crm.OutcomeUnavailable)
		if !h.isPaused() {
			t.Fatal("not paused")
		}
	})
	t.Run("a probe that had nothing to do is given back", func(t *testing.T) {
		h := newHealth()
		lose(h, 3)
		now = now.Add(time.Second)
		h.allow(1)
		h.unused()
		if n, _ := h.allow(1); n != 1 {
			t.Fatal("the probe is gone")
		}
	})
}
