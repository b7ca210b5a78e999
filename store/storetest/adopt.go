package storetest

import (
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// adopt.go: a lead that was in the CRM before. Nothing of it is ever sent.

func adoptChecks() []check {
	return []check{
		{"an adopted lead is done, and nothing is sent", adoptDone},
		{"an adopted lead is as old as was said, and stands where was said", adoptAges},
		{"an adopted lead is continued by a note at once", adoptNote},
		{"an adopted lead is found by its id in the CRM", adoptHome},
		{"the same adoption again is the operation as it stands", adoptAgain},
		{"a lead that a deal has already is that deal's", adoptTaken},
		{"a lead that was created before is that deal's", adoptCreated},
		{"another tenant's lead with the same id is another lead", adoptTenant},
		{"a lead adopted in 16 concurrent calls is one deal", adoptConcurrent},
		{"an adoption without an id, or from the future, is refused", adoptInvalid},
		{"an adoption keeps a plan that is under way from committing", adoptConflict},
	}
}

func adoptionOf(n int, crmID string) store.Submission {
	s := submissionOf(n)
	s.Adopt = &store.Adoption{CRMID: crmID, Opened: 48 * time.Hour, Idle: time.Hour, Stage: "talking"}
	return s
}

func (b *bench) adopt(n int, crmID string) store.Operation {
	b.Helper()
	o, err := b.st.Submit(b.ctx, adoptionOf(n, crmID))
	if err != nil {
		b.Fatalf("adopt %s: %v", crmID, err)
	}
	return o
}

func adoptDone(b *bench) {
	o := b.adopt(1, "77")
	if o.ID != opID(1) || o.State != store.Done || o.CRMID != "77" || o.LeadID != "77" || o.Attempts != 0 || o.Doubt ||
		o.EndedAt.IsZero() || o.Blocked {
		b.Fatalf("it stands as %+v", o)
	}
	if d := cmp.Diff(o, b.op(o.ID)); d != "" {
		b.Fatalf("returned and read differ: %s", d)
	}
	b.wantUnclaimed("it is in the CRM already")
	if got, err := b.st.Attention(b.ctx, 5, true); err != nil || len(got) != 0 {
		b.Fatalf("need attention: %v, %v", ids(got), err)
	}
}

func adoptAges(b *bench) {
	before := b.read("k:submit-1").Now
	b.adopt(1, "77")
	v := b.asked("k:submit-1", "form-1")
	if len(v.Deals) != 1 {
		b.Fatalf("the deals are %+v", v.Deals)
	}
	d := v.Deals[0]
	near := func(at time.Time, age time.Duration) bool {
		return !at.Before(before.Add(-age).Truncate(time.Microsecond)) && !at.After(v.Now.Add(-age))
	}
	if !near(d.OpenedAt, 48*time.Hour) || !near(d.LastActivity, time.Hour) {
		b.Errorf("at %s it was opened at %s, active at %s", v.Now, d.OpenedAt, d.LastActivity)
	}
	if d.Stage != "talking" || d.CRMID != "77" || d.State != store.DealOpen || d.Version < 1 {
		b.Errorf("it is %+v", d)
	}
}

func adoptNote(b *bench) {
	o := b.adopt(1, "77")
	r := b.accept(eventOf(o.OrderingKey, 2))
	p := adding(planOf(b.asked(o.OrderingKey, "form-1")), noteFor(o, 2))
	b.commit(p)
	got := b.take(noteID(2))
	if got.LeadID != "77" || b.event(r.EventID).State != store.EventPlanned {
		b.Fatalf("the note is for the lead %q", got.LeadID)
	}
}

func adoptHome(b *bench) {
	b.adopt(1, "77")
	b.hook("k:hook", 1, "77")
	if got := b.read("k:hook").Homes["77"]; got != "k:submit-1" {
		b.Fatalf("it is at home in %q", got)
	}
}

func adoptAgain(b *bench) {
	first := b.adopt(1, "77")
	s := adoptionOf(1, "78")
	s.Operation.Fields = []byte(`{"title":"read from the CRM at another time"}`)
	again, err := b.st.Submit(b.ctx, s)
	b.must(err)
	if d := cmp.Diff(first, again); d != "" {
		b.Fatal(d)
	}
	if d := cmp.Diff(first, b.op(first.ID)); d != "" {
		b.Fatalf("it changed: %s", d)
	}
	b.wantOperations(1)
}

func adoptTaken(b *bench) {
	first := b.adopt(1, "77")
	again := b.adopt(2, "77")
	if d := cmp.Diff(first, again); d != "" {
		b.Fatal(d)
	}
	b.wantOperations(1)
	if v := b.asked("k:submit-2", "form-2"); len(v.Deals) != 0 || v.Version != 0 {
		b.Fatalf("a second deal: %+v, version %d", v.Deals, v.Version)
	}
}

func adoptCreated(b *bench) {
	create := b.confirmed("k:1", 1, "77")
	if d := cmp.Diff(b.op(create.ID), b.adopt(2, "77")); d != "" {
		b.Fatal(d)
	}
	b.wantOperations(1)
}

func adoptTenant(b *bench) {
	b.adopt(1, "77")
	s := adoptionOf(2, "77")
	s.Deal.Tenant, s.Operation.Tenant = "other shop", "other shop"
	o, err := b.st.Submit(b.ctx, s)
	b.must(err)
	if o.ID != opID(2) {
		b.Fatalf("it is %s of %s", o.ID, o.Tenant)
	}
	b.wantOperations(2)
}

func adoptConcurrent(b *bench) {
	handles := []Backend{b.st}
	if b.Second != nil {
		handles = append(handles, b.Second())
	}
	var wg sync.WaitGroup
	errs := make([]error, 16)
	got := make([]store.Operation, 16)
	for i := range errs {
		wg.Go(func() { got[i], errs[i] = handles[i%len(handles)].Submit(b.ctx, adoptionOf(i, "77")) })
	}
	wg.Wait()
	for i, err := range errs {
		b.must(err)
		if got[i].ID != got[0].ID {
			b.Fatalf("call %d got %s, the first %s", i, got[i].ID, got[0].ID)
		}
	}
	b.wantOperations(1)
}

func adoptInvalid(b *bench) {
	for field, f := range map[string]func(*store.Adoption){
		"CRMID":  func(a *store.Adoption) { a.CRMID = "" },
		"Opened": func(a *store.Adoption) { a.Opened = -1 },
		"Idle":   func(a *store.Adoption) { a.Idle = -1 },
	} {
		s := adoptionOf(1, "77")
		f(s.Adopt)
		_, err := b.st.Submit(b.ctx, s)
		b.wantErr(err, store.ErrInvalid, "adopt with another "+field)
		b.wantNamed(err, field)
	}
	s := adoptionOf(1, "77")
	s.Adopt.Opened = 1 << 62 // before any clock began
	_, err := b.st.Submit(b.ctx, s)
	b.wantErr(err, store.ErrInvalid, "a lead of that age")
	b.wantOperations(0)
}

func adoptConflict(b *bench) {
	b.accept(eventOf("k:submit-1", 1))
	p := planOf(b.read("k:submit-1"))
	b.adopt(1, "77")
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a plan from before the adoption")
}
