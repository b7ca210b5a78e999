package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// plan.go: decisions. Two of one ordering key never both commit, and what was read must still hold when it does.

func planChecks() []check {
	return []check{
		{"a decision stores its parts", planStores},
		{"a key that was never planned has version 0, and each commit moves it on", planVersions},
		{"a stale key version is ErrConflict", planStaleKey},
		{"a key that must not exist yet and does is ErrConflict", planExists},
		{"an operation that moved since it was read is ErrConflict", planStaleOp},
		{"a deal that moved since it was read is ErrConflict", planStaleDeal},
		{"a seen row that does not exist is ErrConflict", planSeenMissing},
		{"a refused plan stores nothing at all", planNothing},
		{"of planners that race for a new key exactly one commits", planRace},
		{"an event accepted while a plan is made is not left behind", planAcceptBetween},
		{"events accepted while plans are made are all planned, once", planAcceptRace},
		{"a deal is read by its key and by its contact", planReadsDeals},
		{"a waiting note is read with its deal", planReadsWaiting},
		{"a plan begins its own operations under the same rules", planClaims},
		{"a plan claims nothing beyond its limit, and nothing blocked", planClaimLimit},
		{"a plan does not begin an operation that existed", planClaimExisting},
	}
}

func planStores(b *bench) {
	r, o := b.opened("k:1", 1)
	if row := b.event(r.EventID); row.State != store.EventPlanned || row.EndedAt.IsZero() {
		b.Errorf("the event is %s, ended %s", row.State, row.EndedAt)
	}
	want := createOf("k:1", 1)
	if o.Tenant != want.Tenant || o.Kind != want.Kind || o.DealID != want.DealID || o.OrderingKey != want.OrderingKey ||
		o.ContactKey != want.ContactKey || string(o.Fields) != string(want.Fields) || o.State != store.Pending || o.Doubt ||
		o.Blocked {
		b.Errorf("the operation is %+v", o)
	}
	if keys := b.dueKeys(); len(keys) != 0 {
		b.Errorf("still due are %q", keys)
	}
	b.take(o.ID)
}

func planVersions(b *bench) {
	last := int64(0)
	for n := range 4 {
		b.accept(eventOf("k:1", n))
		v := b.read("k:1")
		if (n == 0) != (v.Version == 0) || v.Version < last || (n > 0 && v.Version == last) {
			b.Fatalf("before commit %d the version is %d, before that %d", n, v.Version, last)
		}
		if v.Key != "k:1" || v.Now.IsZero() {
			b.Fatalf("view %+v", v)
		}
		last = v.Version
		b.commit(planOf(v))
	}
}

func planStaleKey(b *bench) {
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	v := b.read("k:1")
	b.commit(store.Plan{Key: "k:1", Version: v.Version}) // someone else decided something
	_, err := b.st.CommitPlan(b.ctx, opening(planOf(v), "content-k:1-2", 2))
	b.wantErr(err, store.ErrConflict, "a plan on an old version of the key")
	b.wantOperations(1)
	if again := b.read("k:1"); len(again.Events) != 1 {
		b.Fatalf("the event is gone: %v", eventIDs(again.Events))
	}
}

func planExists(b *bench) {
	b.opened("k:1", 1)
	_, err := b.st.CommitPlan(b.ctx, store.Plan{Key: "k:1"})
	b.wantErr(err, store.ErrConflict, "version 0 of a key that exists")
	_, err = b.st.CommitPlan(b.ctx, store.Plan{Key: "k:none", Version: 3})
	b.wantErr(err, store.ErrConflict, "version 3 of a key that does not exist")
}

func planStaleOp(b *bench) {
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	e := eventOf("k:1", 2)
	v := b.read("k:1")
	if len(v.Operations) != 1 {
		b.Fatalf("the decision sees the operations %v", ids(v.Operations))
	}
	b.take(opID(1)) // the worker is not the planner: the key's version stays
	_, err := b.st.CommitPlan(b.ctx, opening(planOf(v), e.DealKey, 2))
	b.wantErr(err, store.ErrConflict, "a plan that saw the create pending")
	b.wantOperations(1)
	b.commit(opening(planOf(b.read("k:1")), e.DealKey, 2))
	b.wantOperations(2)
}

func planStaleDeal(b *bench) {
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	v := b.read("k:1")
	if len(v.Deals) != 1 {
		b.Fatalf("the decision sees %d deals", len(v.Deals))
	}
	// Confirmed stores the id with the deal. The plan names the deal and not the operation.
	b.advance(reportOf(b.take(opID(1)), store.Confirmed))
	p := planOf(v)
	p.SeenOps = nil
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a plan that saw the deal without its id")
	if again := b.read("k:1"); len(again.Events) != 1 || again.Deals[0].CRMID == "" {
		b.Fatalf("view after the conflict: %+v", again)
	}
}

func planSeenMissing(b *bench) {
	b.accept(eventOf("k:1", 1))
	p := planOf(b.read("k:1"))
	p.SeenOps = []store.Seen{{ID: opID(9), Version: 1}}
	_, err := b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a plan that saw an operation which does not exist")
	p.SeenOps, p.SeenDeals = nil, []store.Seen{{ID: dealID(9), Version: 1}}
	_, err = b.st.CommitPlan(b.ctx, p)
	b.wantErr(err, store.ErrConflict, "a plan that saw a deal which does not exist")
}

func planNothing(b *bench) {
	b.opened("k:1", 1)
	_, waiting := b.noted(b.op(opID(1)), 2)
	b.accept(eventOf("k:1", 3))
	v := b.read("k:1")
	full := opening(planOf(v), "content-k:1-3", 3)
	full.Touches = []store.Touch{{DealID: dealID(1), Version: v.Deals[0].Version}}
	full.Edits = []store.Edit{{OperationID: opID(1), Version: b.op(opID(1)).Version, Fields: []byte(`{"title":"edited"}`)}}
	full.Drops = []store.Ended{{OperationID: waiting.ID, Version: waiting.Version, Reason: "moved"}}
	c := claimOf("planner", 5)
	full.Claim = &c
	before := []any{b.op(opID(1)), b.op(waiting.ID), b.read("k:1").Deals, b.read("k:1").Version, b.stats().Operations}

	for name, breaks := range map[string]func(p *store.Plan){
		"the key":       func(p *store.Plan) { p.Version-- },
		"a seen op":     func(p *store.Plan) { p.SeenOps = append(p.SeenOps, store.Seen{ID: opID(1), Version: 99}) },
		"a seen deal":   func(p *store.Plan) { p.SeenDeals = append(p.SeenDeals, store.Seen{ID: dealID(1), Version: 99}) },
		"a touched one": func(p *store.Plan) { p.Touches = []store.Touch{{DealID: dealID(1), Version: 99}} },
		"an edited one": func(p *store.Plan) {
			p.Edits = []store.Edit{{OperationID: opID(1), Version: 99,
				Fields: []byte(`{}`)}}
		},
		"a dropped one": func(p *store.Plan) { p.Drops = []store.Ended{{OperationID: waiting.ID, Version: 99}} },
	} {
		p := full
		p.SeenOps, p.SeenDeals = slices.Clone(full.SeenOps), slices.Clone(full.SeenDeals)
		breaks(&p)
		ops, err := b.st.CommitPlan(b.ctx, p)
		b.wantErr(err, store.ErrConflict, "another version of "+name)
		after := []any{b.op(opID(1)), b.op(waiting.ID), b.read("k:1").Deals, b.read("k:1").Version, b.stats().Operations}
		if d := cmp.Diff(before, after, ignoreAges); d != "" || len(ops) != 0 {
			b.Fatalf("another version of %s: %d operations began, and the store changed: %s", name, len(ops), d)
		}
		if _, err := b.st.Operation(b.ctx, opID(3)); !errors.Is(err, store.ErrNotFound) {
			b.Fatalf("another version of %s: the new operation is there: %v", name, err)
		}
		if n := len(b.read("k:1").Events); n != 1 {
			b.Fatalf("another version of %s: %d events are unplanned", name, n)
		}
	}
	if began := b.commit(full); len(began) != 1 || began[0].ID != opID(3) {
		b.Fatalf("the same plan with the right versions began %v", ids(began))
	}
}

// ignoreAges leaves out what grows by itself.
var ignoreAges = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Oldest" }, cmp.Ignore())

func planRace(b *bench) {
	handles := []Backend{b.st, b.st}
	if b.Second != nil {
		handles[1] = b.Second()
	}
	for round := range 10 {
		key := fmt.Sprintf("k:%d", round)
		b.accept(eventOf(key, 1))
		v := b.read(key)
		errs := make([]error, 8)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() {
				<-start
				n := 100*round + i
				_, errs[i] = handles[i%2].CommitPlan(b.ctx, opening(planOf(v), fmt.Sprint("deal ", i), n))
			})
		}
		close(start)
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				b.wantErr(err, store.ErrConflict, "the loser of a race")
			}
		}
		if won != 1 {
			b.Fatalf("round %d: %d planners committed", round, won)
		}
		if n := len(b.ops(store.OperationFilter{Contact: "c:" + key})); n != 1 {
			b.Fatalf("round %d: %d creates for one event", round, n)
		}
	}
}

func planAcceptBetween(b *bench) {
	b.accept(eventOf("k:1", 1))
	v := b.read("k:1")
	late := b.accept(eventOf("k:1", 2))
	b.commit(opening(planOf(v), "content-k:1-1", 1))
	if keys := b.dueKeys(); !slices.Equal(keys, []string{"k:1"}) {
		b.Fatalf("due are %q", keys)
	}
	if got := b.read("k:1").Events; len(got) != 1 || got[0].ID != late.EventID {
		b.Fatalf("unplanned are %v, want %d", eventIDs(got), late.EventID)
	}
}

func planAcceptRace(b *bench) {
	planner := b.st
	if b.Second != nil {
		planner = b.Second()
	}
	const n = 60
	var accepted atomic.Bool
	var wg sync.WaitGroup
	errs := make([]error, 2)
	wg.Go(func() {
		defer accepted.Store(true)
		for i := range n {
			if _, errs[0] = b.st.Accept(b.ctx, eventOf("k:1", i)); errs[0] != nil {
				return
			}
		}
	})
	for p := range 2 {
		wg.Go(func() {
			for {
				last := accepted.Load()
				v, err := planner.ReadKey(b.ctx, "k:1")
				if err == nil && len(v.Events) > 0 {
					plan := planOf(v)
					for _, e := range v.Events {
						o := createOf("k:1", int(e.ID))
						plan.Operations = append(plan.Operations, o)
						plan.Deals = append(plan.Deals, dealOf("k:1", e.DealKey, int(e.ID)))
						plan.Links = append(plan.Links, store.Link{EventID: e.ID, OperationID: o.ID})
					}
					_, err = planner.CommitPlan(b.ctx, plan)
				} else if last {
					return
				}
				if err != nil && !errors.Is(err, store.ErrConflict) {
					if p == 1 {
						errs[1] = err
					}
					return
				}
			}
		})
	}
	wg.Wait()
	b.must(errors.Join(errs...))
	for _, row := range b.wantEvents(n) {
		if row.State != store.EventPlanned {
			b.Fatalf("event %d is left behind as %s", row.ID, row.State)
		}
		if ops := b.ops(store.OperationFilter{EventID: row.ID}); len(ops) != 1 {
			b.Fatalf("event %d made %v", row.ID, ids(ops))
		}
	}
	b.wantOperations(n)
}

func planReadsDeals(b *bench) {
	b.opened("k:1", 1)
	b.opened("k:2", 2)
	again := eventOf("k:1", 5)
	again.DealKey, again.ContactKey = "content-k:1-1", "" // the same content, nobody's
	b.accept(again)
	v := b.read("k:1")
	if len(v.Deals) != 1 || v.Deals[0].ID != dealID(1) || v.Deals[0].CreateOp != opID(1) ||
		v.Deals[0].State != store.DealOpen ||
		v.Deals[0].Generation != 1 || v.Deals[0].Key != "content-k:1-1" || v.Deals[0].OpenedAt.IsZero() {
		b.Fatalf("by its key: %+v", v.Deals)
	}
	if !slices.Equal(ids(v.Operations), []string{opID(1)}) {
		b.Fatalf("the deal's operations are %v", ids(v.Operations))
	}
	b.commit(planOf(v))
	b.accept(eventOf("k:1", 6)) // other content, the same person
	if v = b.read("k:1"); len(v.Deals) != 1 || v.Deals[0].ID != dealID(1) {
		b.Fatalf("by its contact: %+v", v.Deals)
	}
}

func planReadsWaiting(b *bench) {
	_, create := b.opened("k:1", 1)
	_, note := b.noted(create, 2)
	b.accept(eventOf("k:1", 3))
	got := ids(b.read("k:1").Operations)
	slices.Sort(got)
	if want := []string{create.ID, note.ID}; !slices.Equal(got, want) {
		b.Fatalf("read %v, want %v", got, want)
	}
}

func planClaims(b *bench) {
	e := eventOf("k:1", 1)
	b.accept(e)
	p := opening(planOf(b.read("k:1")), e.DealKey, 1)
	c := claimOf("planner", 3)
	p.Claim = &c
	began := b.commit(p)
	if len(began) != 1 {
		b.Fatalf("began %v", ids(began))
	}
	b.wantBegun(began[0], "planner")
	if d := cmp.Diff(began[0], b.op(opID(1))); d != "" {
		b.Fatalf("returned and read differ: %s", d)
	}
	if got := b.claim(claimOf("other", 5)); len(got) != 0 {
		b.Fatalf("claimed a second time: %v", ids(got))
	}
	b.advance(reportOf(began[0], store.Confirmed))
}

func planClaimLimit(b *bench) {
	b.accept(eventOf("k:1", 1))
	p := planOf(b.read("k:1"))
	for n := range 3 {
		p = opening(p, fmt.Sprint("deal ", n), n)
	}
	p = adding(p, noteFor(createOf("k:1", 0), 1))
	c := claimOf("planner", 2)
	p.Claim = &c
	began := b.commit(p)
	if len(began) != 2 || slices.Contains(ids(began), noteID(1)) {
		b.Fatalf("began %v with a limit of 2", ids(began))
	}
	if rest := b.claim(claimOf("other", 5)); len(rest) != 1 || rest[0].Kind != kindCreate {
		b.Fatalf("left to claim are %v", ids(rest))
	}

	b.accept(eventOf("k:2", 1))
	c = claimOf("planner", 0)
	p = opening(planOf(b.read("k:2")), "content-k:2-1", 5)
	p.Claim = &c
	if began := b.commit(p); len(began) != 0 {
		b.Fatalf("began %v with a limit of 0", ids(began))
	}
}

func planClaimExisting(b *bench) {
	b.opened("k:1", 1)
	b.accept(eventOf("k:1", 2))
	p := adding(planOf(b.read("k:1")), createOf("k:1", 1))
	c := claimOf("planner", 5)
	p.Claim = &c
	if began := b.commit(p); len(began) != 0 {
		b.Fatalf("began %v", ids(began))
	}
	if o := b.op(opID(1)); o.State != store.Pending {
		b.Fatalf("it is %s, and nobody was told", o.State)
	}
}
