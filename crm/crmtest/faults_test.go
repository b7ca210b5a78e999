package crmtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
)

// faults_test.go: what each fault does to the CRM and to the caller, and whom it meets.

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name    string
		fault   crmtest.Fault
		outcome crm.Outcome
		after   time.Duration
		created int
	}{
		{"a refused connection", crmtest.Fault{Kind: crmtest.Refuse}, crm.OutcomeNotApplied, 0, 0},
		{"a dropped request", crmtest.Fault{Kind: crmtest.Drop}, crm.OutcomeUnknown, 0, 0},
		{"a lost reply", crmtest.Fault{Kind: crmtest.LoseReply}, crm.OutcomeUnknown, 0, 1},
		{"a reset in the middle of the answer", crmtest.Fault{Kind: crmtest.ResetMidBody}, crm.OutcomeUnknown, 0, 1},
		{"a hanging CRM", crmtest.Fault{Kind: crmtest.Hang}, crm.OutcomeUnknown, 0, 0},
		{"a CRM that hangs after it acted", crmtest.Fault{Kind: crmtest.Hang, Applied: true}, crm.OutcomeUnknown, 0, 1},
		{"an answer slower than the caller", crmtest.Fault{Kind: crmtest.Slow, Delay: time.Hour}, crm.OutcomeUnknown, 0, 1},
		{"an error behind a 200", crmtest.Fault{Kind: crmtest.ErrorBody}, crm.OutcomeUnknown, 0, 0},
		{"an error behind a 200, acted", crmtest.Fault{Kind: crmtest.ErrorBody, Applied: true}, crm.OutcomeUnknown, 0, 1},
		{"garbage", crmtest.Fault{Kind: crmtest.Garbage, Applied: true}, crm.OutcomeUnknown, 0, 1},
		{"a bare 502", crmtest.Fault{Kind: crmtest.BareStatus}, crm.OutcomeUnknown, 0, 0},
		{"a bare 503 of a CRM that acted", crmtest.Fault{Kind: crmtest.BareStatus, Status: 503, Applied: true},
			crm.OutcomeUnknown, 0, 1},
		{"throttling", crmtest.Fault{Kind: crmtest.Throttle, Delay: 1500 * time.Millisecond},
			crm.OutcomeNotApplied, 2 * time.Second, 0},
		{"a refused token", crmtest.Fault{Kind: crmtest.TokenRefused}, crm.OutcomeUnavailable, 0, 0},
		{"a refusal of the fields", crmtest.Fault{Kind: crmtest.Reject}, crm.OutcomeRejected, 0, 0},
	} {
		t.Run(c.name+" is "+c.outcome.String(), func(t *testing.T) {
			everyWay(t, crmtest.Config{}, func(t *testing.T, s *crmtest.Simulator, a *crmtest.Client) {
				s.Next(1, c.fault)
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				if c.fault.Delay == 0 && c.fault.Kind != crmtest.Hang {
					ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
				}
				defer cancel()
				id, err := a.CreateLead(ctx, op("op1"), anna)
				got, after := crm.OutcomeOf(err)
				if err == nil || id != "" || got != c.outcome || after != c.after || s.Created("op1") != c.created {
					t.Fatalf("%q %v: %v after %v, %d created", id, err, got, after, s.Created("op1"))
				}
				if c.fault.Kind == crmtest.Refuse && !errors.Is(err, syscall.ECONNREFUSED) {
					t.Fatal(err)
				}
				create(t, a, "op2") // it is over
			})
		})
	}
	t.Run("a slow answer arrives in the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := crmtest.NewSimulator(crmtest.Config{})
			s.Next(1, crmtest.Fault{Kind: crmtest.Slow, Delay: time.Minute})
			begin := time.Now()
			create(t, s.Local(), "op1")
			if d := time.Since(begin); d != time.Minute {
				t.Fatal(d)
			}
		})
	})
}

func TestLateLanding(t *testing.T) {
	late := crmtest.Fault{Kind: crmtest.Late, Delay: time.Minute}
	lose := func(t *testing.T, a crm.Adapter) {
		t.Helper()
		if _, err := a.CreateLead(t.Context(), op("op1"), anna); err == nil {
			t.Fatal("an answer came")
		}
	}
	t.Run("the record appears after the delay, and not before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var told []string
			s := crmtest.NewSimulator(crmtest.Config{OnEffect: func(k crm.Kind, id string) {
				told = append(told, fmt.Sprint(k, " ", id))
			}})
			s.Next(1, late)
			begin := time.Now()
			lose(t, s.Local())
			time.Sleep(time.Minute - 1)
			if s.Created("op1") != 0 {
				t.Fatal("too early")
			}
			time.Sleep(time.Hour)
			ids, err := s.Local().FindLead(t.Context(), op("op1"))
			if err != nil || len(ids) != 1 || !slices.Equal(told, []string{"lead.create op1"}) {
				t.Fatal(ids, err, told)
			}
			if at := s.Leads()[0].Created.Sub(begin); at != time.Minute {
				t.Fatalf("dated %v after the request", at)
			}
		})
	})
	t.Run("a repeat meanwhile makes a second record without a guarantee, and one under any other", func(t *testing.T) {
		for _, g := range slices.Concat(repeatable, []crm.Guarantee{{}}) {
			synctest.Test(t, func(t *testing.T) {
				s := crmtest.NewSimulator(crmtest.Config{Guarantee: g})
				s.Next(1, late)
				lose(t, s.Local())
				create(t, s.Local(), "op1")
				time.Sleep(time.Hour)
				want := 1
				if g.Kind == crm.None {
					want = 2
				}
				if got := s.Created("op1"); got != want {
					t.Errorf("%q: %d records, want %d", g.Kind, got, want)
				}
			})
		}
	})
}

func TestStaleLookup(t *testing.T) {
	t.Run("records younger than the lag are not seen", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := crmtest.NewSimulator(crmtest.Config{LookupLag: time.Minute})
			a := s.Local()
			create(t, a, "op1")
			for _, want := range []int{0, 1} {
				if ids, err := a.FindLead(t.Context(), op("op1")); err != nil || len(ids) != want {
					t.Fatal(ids, err)
				}
				time.Sleep(time.Minute)
			}
		})
	})
	t.Run("as a fault it happens to look-ups alone", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		s.Next(1, crmtest.Fault{Kind: crmtest.Stale, Delay: time.Hour})
		create(t, s.Local(), "op1")
		for _, want := range []int{0, 1} {
			if ids, err := s.Local().FindLead(t.Context(), op("op1")); err != nil || len(ids) != want {
				t.Fatal(ids, err)
			}
		}
	})
}

func TestWhomAFaultMeets(t *testing.T) {
	check := func(t *testing.T, a *crmtest.Client, want bool) {
		t.Helper()
		if err := a.Check(t.Context()); (err == nil) != want {
			t.Fatal(err)
		}
	}
	refused := crmtest.Fault{Kind: crmtest.TokenRefused}
	t.Run("queued ones come in order, each for its own call", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		s.Next(1, crmtest.Fault{Kind: crmtest.TokenRefused, On: crmtest.Check})
		s.Next(2, crmtest.Fault{Kind: crmtest.LoseReply, On: crm.KindCreate})
		for range 2 {
			if _, err := s.Local().CreateLead(t.Context(), op("op1"), anna); err == nil {
				t.Fatal("no fault")
			}
		}
		create(t, s.Local(), "op2")
		check(t, s.Local(), false)
		check(t, s.Local(), true)
	})
	t.Run("a permanent one lasts until it is replaced, and queued ones go first", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		s.Always(refused)
		check(t, s.Local(), false)
		s.Next(1, crmtest.Fault{Kind: crmtest.Slow})
		check(t, s.Local(), true)
		check(t, s.Local(), false)
		s.Always()
		check(t, s.Local(), true)
	})
	t.Run("healing ends them all", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		s.Always(refused)
		s.Next(3, refused)
		s.Sometimes(crmtest.Chance{Fault: refused, P: 1})
		s.Heal()
		check(t, s.Local(), true)
	})
	t.Run("one seed draws the same faults for the same operations in any order", func(t *testing.T) {
		draw := func(seed uint64, reverse bool) (met []string) {
			s := crmtest.NewSimulator(crmtest.Config{Seed: seed})
			s.Sometimes(crmtest.Chance{Fault: crmtest.Fault{Kind: crmtest.Refuse}, P: 0.3}, crmtest.Chance{Fault: refused, P: 0.3})
			ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"}
			if reverse {
				slices.Reverse(ids)
			}
			for _, id := range ids {
				_, err := s.Local().CreateLead(t.Context(), op(id), anna)
				o, _ := crm.OutcomeOf(err)
				met = append(met, fmt.Sprint(id, o, err == nil))
			}
			slices.Sort(met)
			if s.Seed() != seed {
				t.Fatal("another seed")
			}
			return met
		}
		one, two, other := draw(7, false), draw(7, true), draw(8, false)
		if !slices.Equal(one, two) || slices.Equal(one, other) {
			t.Fatalf("%v\n%v\n%v", one, two, other)
		}
	})
	t.Run("without a seed one is picked", func(t *testing.T) {
		if crmtest.NewSimulator(crmtest.Config{}).Seed() == 0 {
			t.Fatal("no seed")
		}
	})
	t.Run("faults and chances that can't be meant panic", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		for i, f := range []func(){
			func() { s.Next(1, crmtest.Fault{}) },
			func() { s.Always(crmtest.Fault{Kind: crmtest.Slow, Delay: -1}) },
			func() { s.Sometimes(crmtest.Chance{Fault: refused, P: 2}) },
			func() {
				drop := crmtest.Fault{Kind: crmtest.Drop, On: crmtest.Check}
				s.Sometimes(crmtest.Chance{Fault: refused, P: 0.6}, crmtest.Chance{Fault: drop, P: 0.6})
			},
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%d did not panic", i)
					}
				}()
				f()
			}()
		}
	})
}

func TestOnEffect(t *testing.T) {
	t.Run("it is told before the answer leaves, with the record in place", func(t *testing.T) {
		everyWay(t, crmtest.Config{}, func(t *testing.T, _ *crmtest.Simulator, _ *crmtest.Client) {
			var s *crmtest.Simulator
			release, seen := make(chan bool), make(chan int, 1)
			s = crmtest.NewSimulator(crmtest.Config{OnEffect: func(k crm.Kind, id string) {
				seen <- s.Created(id)
				<-release
			}})
			answered := make(chan error, 1)
			go func() {
				_, err := s.Local().CreateLead(t.Context(), op("op1"), anna)
				answered <- err
			}()
			if n := <-seen; n != 1 {
				t.Fatalf("%d records", n)
			}
			select {
			case err := <-answered:
				t.Fatal("answered already", err)
			default:
			}
			close(release)
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		})
	})
}
