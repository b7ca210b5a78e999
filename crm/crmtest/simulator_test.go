package crmtest_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
)

// simulator_test.go: what the simulator does on its good days, under each guarantee.

var anna = crm.Lead{Name: "Анна", Phone: "+7 999 000-00-00", Fields: map[string]any{"BUDGET": "100"}}

var repeatable = []crm.Guarantee{{Kind: crm.IdempotencyKey, Window: time.Hour}, {Kind: crm.Upsert}, {Kind: crm.UniqueID}}

func op(id string) crm.Op { return crm.Op{ID: id, Key: id, Kind: crm.KindCreate} }

// everyWay runs f over loopback, and through pipes inside a synctest bubble: the two are to behave alike.
func everyWay(t *testing.T, c crmtest.Config, f func(t *testing.T, s *crmtest.Simulator, a *crmtest.Client)) {
	t.Helper()
	t.Run("over loopback", func(t *testing.T) {
		s := crmtest.NewSimulator(c)
		srv, err := s.Start()
		if err != nil {
			t.Fatal(err)
		}
		defer srv.Close()
		f(t, s, s.Adapter(srv.URL))
	})
	t.Run("in process", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := crmtest.NewSimulator(c)
			f(t, s, s.Local())
		})
	})
}

func create(t *testing.T, a crm.Adapter, id string) string {
	t.Helper()
	got, err := a.CreateLead(t.Context(), op(id), anna)
	if err != nil || got == "" {
		t.Fatalf("create %s: %q %v", id, got, err)
	}
	return got
}

func TestEveryCallWorks(t *testing.T) {
	everyWay(t, crmtest.Config{}, func(t *testing.T, s *crmtest.Simulator, a *crmtest.Client) {
		ctx := t.Context()
		id := create(t, a, "op1")
		if _, err := a.AddNote(ctx, crm.Op{ID: "op2"}, id, crm.Note{Text: "ещё", Ref: "#2"}); err != nil {
			t.Fatal(err)
		}
		if err := a.UpdateLead(ctx, crm.Op{ID: "op3"}, id, crm.Lead{Phone: "2", Fields: map[string]any{"X": "y"}}); err != nil {
			t.Fatal(err)
		}
		if err := a.SetStage(ctx, crm.Op{ID: "op4"}, id, crm.Stage{To: "won", From: []string{"new"}}); err != nil {
			t.Fatal(err)
		}
		if err := a.SetStage(ctx, crm.Op{ID: "op5"}, id, crm.Stage{To: "lost", From: []string{"new"}}); err != nil {
			t.Fatal(err)
		}
		person := crm.Contact{ExternalID: "77", Name: "Анна"}
		c1, err1 := a.EnsureContact(ctx, crm.Op{ID: "op6"}, person)
		c2, err2 := a.EnsureContact(ctx, crm.Op{ID: "op7"}, person)
		if err1 != nil || err2 != nil || c1 == "" || c1 != c2 {
			t.Fatalf("contacts %q %v, %q %v", c1, err1, c2, err2)
		}
		if err := a.Check(ctx); err != nil {
			t.Fatal(err)
		}
		if ids, err := a.FindLead(ctx, op("op1")); err != nil || !slices.Equal(ids, []string{id}) {
			t.Fatalf("found %q, %v", ids, err)
		}
		if ids, err := a.FindLead(ctx, op("op")); err != nil || len(ids) > 0 {
			t.Fatalf("another operation found %q, %v", ids, err)
		}
		got := s.Leads()[0]
		want := crmtest.Record{
			ID: id, OpID: "op1", Stage: "won", Created: got.Created, Updated: got.Updated, Version: 4,
			Lead:  crm.Lead{Name: anna.Name, Phone: "2", Fields: map[string]any{"BUDGET": "100", "X": "y"}},
			Notes: []crmtest.NoteRecord{{ID: got.Notes[0].ID, OpID: "op2", Note: crm.Note{Text: "ещё", Ref: "#2"}}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		effects := []int{
			s.Created("op1"), s.Effects(crm.KindNote, "op2"), s.Effects(crm.KindUpdate, "op3"),
			s.Effects(crm.KindStage, "op4"), s.Effects(crm.KindStage, "op5"), s.Effects(crm.KindContact, "op6"),
			s.Effects(crm.KindContact, "op7"), s.Requests(crmtest.Find, "op1"), s.Requests(crmtest.Check, ""),
		}
		if want := []int{1, 1, 1, 1, 0, 1, 0, 1, 1}; !slices.Equal(effects, want) {
			t.Fatalf("counted %v, want %v", effects, want)
		}
	})
}

func TestGuarantees(t *testing.T) {
	t.Run("without a guarantee a repeat makes a second record, and a look-up finds both", func(t *testing.T) {
		everyWay(t, crmtest.Config{}, func(t *testing.T, s *crmtest.Simulator, a *crmtest.Client) {
			one, two := create(t, a, "op1"), create(t, a, "op1")
			ids, err := a.FindLead(t.Context(), op("op1"))
			if one == two || s.Created("op1") != 2 || err != nil || !slices.Equal(ids, []string{one, two}) {
				t.Fatal(one, two, s.Created("op1"), ids, err)
			}
		})
	})
	t.Run("an idempotency key is answered from memory until its window is over", func(t *testing.T) {
		now := time.Now()
		s := crmtest.NewSimulator(crmtest.Config{
			Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Minute}, Now: func() time.Time { return now },
		})
		a := s.Local()
		one, two := create(t, a, "op1"), create(t, a, "op1")
		now = now.Add(time.Minute)
		three := create(t, a, "op1")
		if one != two || one == three || s.Created("op1") != 2 {
			t.Fatal(one, two, three, s.Created("op1"))
		}
	})
	t.Run("a key that comes with another body is an error, and an unmarked one", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Minute}})
		create(t, s.Local(), "op1")
		_, err := s.Local().CreateLead(t.Context(), op("op1"), crm.Lead{Name: "Boris"})
		if o, _ := crm.OutcomeOf(err); err == nil || o != crm.OutcomeUnknown || s.Created("op1") != 1 {
			t.Fatal(err, s.Created("op1"))
		}
	})
	t.Run("a stored refusal is replayed under its key, and not under a new one", func(t *testing.T) {
		refuse := true
		s := crmtest.NewSimulator(crmtest.Config{
			Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Minute},
			Validate: func(crm.Lead) string {
				if refuse {
					return "no phone"
				}
				return ""
			},
		})
		for range 2 {
			_, err := s.Local().CreateLead(t.Context(), op("op1"), anna)
			if o, _ := crm.OutcomeOf(err); o != crm.OutcomeRejected {
				t.Fatal(err)
			}
			refuse = false
		}
		if _, err := s.Local().CreateLead(t.Context(), crm.Op{ID: "op1", Key: "op1/2"}, anna); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("an upsert overwrites its one record", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.Upsert}})
		one := create(t, s.Local(), "op1")
		two, err := s.Local().CreateLead(t.Context(), op("op1"), crm.Lead{Name: "Boris"})
		if err != nil || one != two || s.Created("op1") != 1 || s.Leads()[0].Lead.Name != "Boris" {
			t.Fatal(one, two, err, s.Leads())
		}
	})
	t.Run("a unique id is refused a second time, and the adapter takes its own record for made", func(t *testing.T) {
		s := crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID}})
		one, two := create(t, s.Local(), "op1"), create(t, s.Local(), "op1")
		if one != two || s.Created("op1") != 1 {
			t.Fatal(one, two, s.Created("op1"))
		}
	})
	t.Run("every guarantee but none survives eight creates at once", func(t *testing.T) {
		for _, g := range repeatable {
			s := crmtest.NewSimulator(crmtest.Config{Guarantee: g})
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() { s.Local().CreateLead(t.Context(), op("op1"), anna) })
			}
			all.Wait()
			if s.Created("op1") != 1 {
				t.Errorf("%s: %d records", g.Kind, s.Created("op1"))
			}
		}
	})
}

func TestByHand(t *testing.T) {
	s := crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID}})
	a := s.Local()
	t.Run("a deleted record is gone and stays counted", func(t *testing.T) {
		id := create(t, a, "op1")
		if !s.Delete(id) || s.Delete(id) || s.Created("op1") != 1 || len(s.Leads()) != 0 {
			t.Fatal("wrong")
		}
		_, err := a.AddNote(t.Context(), crm.Op{ID: "n"}, id, crm.Note{Text: "x"})
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeRejected {
			t.Fatal(err)
		}
	})
	t.Run("a planted record is found and not counted, and an edit is seen", func(t *testing.T) {
		id := s.Plant(crmtest.Record{OpID: "op2"})
		s.Edit(id, func(r *crmtest.Record) { r.Stage = "lost" })
		r, found := s.Lead(id)
		if !found || r.Stage != "lost" || s.Created("op2") != 0 || create(t, a, "op2") != id {
			t.Fatalf("%+v", r)
		}
	})
}

func TestDeclarations(t *testing.T) {
	g := crm.Guarantee{Kind: crm.Upsert, Window: time.Hour}
	s := crmtest.NewSimulator(crmtest.Config{Guarantee: g, Identity: "shop"})
	t.Run("the adapters declare what the simulator keeps", func(t *testing.T) {
		d, err := crm.Describe(s.Local())
		if err != nil || d.Create != g || d.Identity != "shop" || !d.LookupReadsOwnWrites {
			t.Fatalf("%+v %v", d, err)
		}
		lagging := crmtest.NewSimulator(crmtest.Config{LookupLag: time.Second})
		if lagging.Describe().LookupReadsOwnWrites {
			t.Fatal("a lagging look-up claims to read its own writes")
		}
	})
	t.Run("the minimal adapter creates and has nothing else", func(t *testing.T) {
		a := s.Minimal()
		create(t, a, "op1")
		_, finds := a.(crm.Finder)
		_, describes := a.(crm.Describer)
		if finds || describes || crm.Supports(a, crm.KindNote) || s.Created("op1") != 1 {
			t.Fatal("not minimal")
		}
	})
	t.Run("one call hidden is hidden, and every other stays", func(t *testing.T) {
		all := []crm.Kind{crm.KindUpdate, crm.KindNote, crm.KindStage, crm.KindContact, crm.KindRead, crmtest.Find}
		offers := func(a crm.Adapter, k crm.Kind) bool {
			if k == crmtest.Find {
				_, finds := a.(crm.Finder)
				return finds
			}
			return crm.Supports(a, k)
		}
		for _, hidden := range all {
			a := crmtest.Without(s.Local(), hidden)
			for _, k := range all {
				if offers(a, k) != (k != hidden) {
					t.Errorf("without %s: %s is offered: %v", hidden, k, offers(a, k))
				}
			}
			_, checks := a.(crm.Checker)
			if d, err := crm.Describe(a); err != nil || d.Create != g || !checks {
				t.Errorf("without %s: %+v %v", hidden, d, err)
			}
		}
		defer func() {
			if recover() == nil {
				t.Error("a create can be hidden")
			}
		}()
		crmtest.Without(s.Local(), crm.KindCreate)
	})
	t.Run("a configuration that can't be meant panics with the field's name", func(t *testing.T) {
		for _, c := range []crmtest.Config{
			{Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey}}, {Guarantee: crm.Guarantee{Kind: crm.AtLeastOnce}},
			{Guarantee: crm.Guarantee{Kind: "x"}}, {LookupLag: -1},
		} {
			func() {
				defer func() {
					if p, _ := recover().(string); !strings.Contains(p, "Config.") {
						t.Errorf("%+v: %q", c, p)
					}
				}()
				crmtest.NewSimulator(c)
			}()
		}
	})
}

func TestServer(t *testing.T) {
	s := crmtest.NewSimulator(crmtest.Config{})
	srv, err := s.Start()
	if err != nil {
		t.Fatal(err)
	}
	s.Always(crmtest.Fault{Kind: crmtest.Hang})
	failed := make(chan error)
	go func() { failed <- s.Adapter(srv.URL).Check(context.Background()) }()
	for s.Requests(crmtest.Check, "") == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := errors.Join(srv.Close(), srv.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Fatal("the hanging request got an answer")
	}
	if _, err := http.Get(srv.URL); err == nil {
		t.Fatal("still served")
	}
}
