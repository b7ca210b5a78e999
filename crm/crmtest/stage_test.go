package crmtest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
)

// stage_test.go: where a lead stands, as the adapter reads it and a manager moves it.

func readStage(t *testing.T, a crm.StageReader, leadID string) crm.StageState {
	t.Helper()
	s, err := a.ReadStage(t.Context(), crm.Op{ID: "read", Kind: crm.KindRead}, leadID)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestReadStage(t *testing.T) {
	t.Run("it tells stage, version, time and whether the lead is closed", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := crmtest.NewSimulator(crmtest.Config{})
			a := s.Local()
			id := create(t, a, "op1")
			begin := time.Now()
			if got := readStage(t, a, id); got.Stage != "new" || got.Version != 1 || !got.At.Equal(begin) || got.Closed {
				t.Errorf("a new lead: %+v", got)
			}
			time.Sleep(time.Hour)
			s.Move(id, "won")
			if got := readStage(t, a, id); got.Stage != "won" || got.Version != 2 || !got.At.Equal(begin.Add(time.Hour)) || !got.Closed {
				t.Errorf("a won lead: %+v", got)
			}
			s.Move(id, "lost")
			if got := readStage(t, a, id); got.Stage != "lost" || !got.Closed {
				t.Errorf("a lost lead: %+v", got)
			}
			s.Move(id, "called")
			if got := readStage(t, a, id); got.Stage != "called" || got.Closed {
				t.Errorf("a reopened lead: %+v", got)
			}
		})
	})
	t.Run("every write makes the version grow, and a reading does not", func(t *testing.T) {
		upsert := crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.Upsert}}
		everyWay(t, upsert, func(t *testing.T, s *crmtest.Simulator, a *crmtest.Client) {
			id := create(t, a, "op1")
			for i, change := range []func() error{
				func() error { return a.SetStage(t.Context(), crm.Op{ID: "a"}, id, crm.Stage{To: "called"}) },
				func() error { return a.UpdateLead(t.Context(), crm.Op{ID: "b"}, id, crm.Lead{Phone: "2"}) },
				func() error { _, err := a.AddNote(t.Context(), crm.Op{ID: "c"}, id, crm.Note{Text: "x"}); return err },
				func() error { _, err := a.CreateLead(t.Context(), op("op1"), anna); return err },
				func() error { s.Move(id, "won"); return nil },
				func() error { s.Edit(id, func(r *crmtest.Record) { r.Version = 7 }); return nil },
			} {
				if err := change(); err != nil {
					t.Fatal(err)
				}
				if got, again := readStage(t, a, id), readStage(t, a, id); got.Version != int64(i+2) || again != got {
					t.Errorf("after change %d: %+v and %+v", i, got, again)
				}
			}
		})
	})
	t.Run("a lead that a manager has moved on is left alone", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		a := s.Local()
		id := create(t, a, "op1")
		s.Move(id, "lost")
		if err := a.SetStage(t.Context(), crm.Op{ID: "a"}, id, crm.Stage{To: "called", From: []string{"new"}}); err != nil {
			t.Fatal(err)
		}
		if got := readStage(t, a, id); got.Stage != "lost" || got.Version != 2 || s.Effects(crm.KindStage, "a") != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("an answer without a stage is an error, not a stage without a name", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		id := create(t, s.Local(), "op1")
		s.Move(id, "")
		if got, err := s.Local().ReadStage(t.Context(), crm.Op{ID: "read"}, id); err == nil {
			t.Errorf("%+v", got)
		}
	})
	t.Run("a lead that is gone is a refusal", func(t *testing.T) {
		_, err := crmtest.NewSimulator(crmtest.Config{}).Local().ReadStage(t.Context(), crm.Op{ID: "read"}, "lead-9")
		if o, _ := crm.OutcomeOf(err); err == nil || o != crm.OutcomeRejected {
			t.Fatal(err)
		}
	})
}

func TestFaultsOfAReading(t *testing.T) {
	for _, c := range []struct {
		fault   crmtest.Fault
		outcome crm.Outcome
	}{
		{crmtest.Fault{Kind: crmtest.Refuse}, crm.OutcomeNotApplied},
		{crmtest.Fault{Kind: crmtest.Drop}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.LoseReply}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.ResetMidBody}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.Late, Delay: time.Minute}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.ErrorBody, Applied: true}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.Garbage}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.BareStatus, Status: 503}, crm.OutcomeUnknown},
		{crmtest.Fault{Kind: crmtest.Throttle}, crm.OutcomeNotApplied},
		{crmtest.Fault{Kind: crmtest.TokenRefused}, crm.OutcomeUnavailable},
	} {
		t.Run(string(c.fault.Kind)+" is "+c.outcome.String()+", and counted as a reading of its operation", func(t *testing.T) {
			everyWay(t, crmtest.Config{}, func(t *testing.T, s *crmtest.Simulator, a *crmtest.Client) {
				id := create(t, a, "op1")
				f := c.fault
				f.On = crm.KindRead
				s.Next(1, f)
				if err := a.Check(t.Context()); err != nil { // it is not this one's
					t.Fatal(err)
				}
				got, err := a.ReadStage(t.Context(), crm.Op{ID: "read"}, id)
				o, _ := crm.OutcomeOf(err)
				if err == nil || got != (crm.StageState{}) || o != c.outcome {
					t.Fatalf("%+v %v: %v", got, err, o)
				}
				if got := readStage(t, a, id); got.Version != 1 || s.Effects(crm.KindRead, "read") != 0 {
					t.Errorf("the reading changed something: %+v", got)
				}
				if n := s.Requests(crm.KindRead, "read"); n != 2 || s.Requests(crmtest.Read, "") != 0 {
					t.Errorf("%d readings were counted", n)
				}
			})
		})
	}
	t.Run("a refusal of the fields does not meet it", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{})
		id := create(t, s.Local(), "op1")
		s.Always(crmtest.Fault{Kind: crmtest.Reject})
		readStage(t, s.Local(), id)
	})
}
