package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
)

// build.go: rows to work with, and short ways to bring them where a check needs them.

// What the adapter of the suite promises, unless a check says otherwise.
const (
	adapter   = "sim account-1"
	guarantee = "upsert"
	window    = time.Hour
	lease     = time.Minute
	quiet     = 2 * time.Minute
)

const (
	kindCreate = "lead.create"
	kindNote   = "note.add"
)

// claimOf asks for up to limit operations in the name of owner.
func claimOf(owner string, limit int) store.Claim {
	return store.Claim{Owner: owner, Limit: limit, Lease: lease, Quiet: quiet, Adapter: adapter,
		Terms: map[string]store.Terms{kindCreate: {Guarantee: guarantee, Window: window},
			kindNote: {Guarantee: "at_least_once", Window: window}}}
}

// uuid is an id as leadonce derives them, readable in a failure.
func uuid(kind, n int) string { return fmt.Sprintf("%08d-0000-8000-8000-%012d", kind, n) }

func opID(n int) string   { return uuid(1, n) }
func dealID(n int) string { return uuid(2, n) }
func noteID(n int) string { return uuid(3, n) }

// eventOf is the n-th event of an ordering key: another message of the same person.
func eventOf(key string, n int) store.Event {
	return store.Event{
		Source: "telegram", Tenant: "shop", Bot: "7001", UpdateID: fmt.Sprintf("%s/%d", key, n),
		Hash: fmt.Sprintf("hash-%s-%d", key, n), Fingerprints: []store.Fingerprint{{Version: 1, Sum: fmt.Sprintf("fp-%s-%d",
			key, n)}},
		Kind: "message", OrderingKey: key, ContactKey: "c:" + key, ContentID: fmt.Sprintf("content-%s-%d", key, n),
		DealKey: fmt.Sprintf("content-%s-%d", key, n), Payload: fmt.Appendf(nil, `{"update_id":%d}`, n),
		Enquiry: fmt.Appendf(nil, `{"text":"hello %d"}`, n),
	}
}

// submissionOf is the n-th lead that the host makes itself.
func submissionOf(n int) store.Submission {
	key := fmt.Sprintf("k:submit-%d", n)
	return store.Submission{
		Contact: contactOf(key),
		Deal:    dealOf(key, fmt.Sprintf("form-%d", n), n),
		Operation: store.Operation{ID: opID(n), Tenant: "shop", Kind: kindCreate, OrderingKey: key, ContactKey: "c:" + key,
			DealID: dealID(n),
			Fields: fmt.Appendf(nil, `{"title":"lead %d"}`, n)},
	}
}

func contactOf(key string) store.Contact {
	return store.Contact{Key: "c:" + key, Tenant: "shop", Source: "telegram", UserID: "user-" + key}
}

func dealOf(key, dealKey string, n int) store.Deal {
	return store.Deal{ID: dealID(n), Tenant: "shop", OrderingKey: key, ContactKey: "c:" + key, Key: dealKey, Generation: 1,
		State: store.DealOpen, CreateOp: opID(n)}
}

// createOf is the operation that creates the n-th deal, noteFor one that adds to it.
func createOf(key string, n int) store.Operation {
	return store.Operation{ID: opID(n), Tenant: "shop", Kind: kindCreate, OrderingKey: key, ContactKey: "c:" + key,
		DealID: dealID(n),
		State:  store.Pending, Fields: fmt.Appendf(nil, `{"title":"lead %d"}`, n)}
}

func noteFor(create store.Operation, n int) store.Operation {
	return store.Operation{ID: noteID(n), Tenant: create.Tenant, Kind: kindNote, OrderingKey: create.OrderingKey,
		ContactKey: create.ContactKey, DealID: create.DealID, DependsOn: create.ID, Blocked: create.State != store.Done,
		State: store.Pending, Fields: fmt.Appendf(nil, `{"text":"note %d"}`, n)}
}

// must ends the check if err is not nil.
func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("unexpected error: %v", err)
	}
}

// wantErr ends the check unless err wraps target.
func (b *bench) wantErr(err, target error, doing string) {
	b.Helper()
	if !errors.Is(err, target) {
		b.Fatalf("%s: got error %v, want %v", doing, err, target)
	}
}

// wantMoveError ends the check unless err is a *store.MoveError about the operation.
func (b *bench) wantMoveError(err error, id, doing string) {
	b.Helper()
	m, ok := errors.AsType[*store.MoveError](err)
	if !ok {
		b.Fatalf("%s: got error %v, want a *store.MoveError", doing, err)
	}
	if m.ID != id {
		b.Fatalf("%s: the MoveError names the operation %q, want %q", doing, m.ID, id)
	}
}

func (b *bench) accept(e store.Event) store.Receipt {
	b.Helper()
	r, err := b.st.Accept(b.ctx, e)
	if err != nil {
		b.Fatalf("accept %s: %v", e.UpdateID, err)
	}
	return r
}

func (b *bench) submit(n int) store.Operation {
	b.Helper()
	o, err := b.st.Submit(b.ctx, submissionOf(n))
	if err != nil {
		b.Fatalf("submit %d: %v", n, err)
	}
	return o
}

// claim claims through the first handle.
func (b *bench) claim(c store.Claim) []store.Operation {
	b.Helper()
	ops, err := b.st.Claim(b.ctx, c)
	if err != nil {
		b.Fatalf("claim: %v", err)
	}
	return ops
}

// take claims the operation with this id, which has to be the oldest due.
func (b *bench) take(id string) store.Operation {
	b.Helper()
	ops := b.claim(claimOf("worker-a", 1))
	if len(ops) != 1 || ops[0].ID != id {
		b.Fatalf("claim gave %v, want %s", ids(ops), id)
	}
	return ops[0]
}

func (b *bench) advance(r store.Report) store.Operation {
	b.Helper()
	o, err := b.st.Advance(b.ctx, r)
	if err != nil {
		b.Fatalf("advance %s by %s: %v", r.ID, r.On, err)
	}
	return o
}

func (b *bench) op(id string) store.Operation {
	b.Helper()
	o, err := b.st.Operation(b.ctx, id)
	if err != nil {
		b.Fatalf("read operation %s: %v", id, err)
	}
	return o
}

func (b *bench) ops(f store.OperationFilter) []store.Operation {
	b.Helper()
	ops, err := b.st.Operations(b.ctx, f)
	if err != nil {
		b.Fatalf("read operations: %v", err)
	}
	return ops
}

func (b *bench) events(f store.EventFilter) []store.EventRow {
	b.Helper()
	rows, err := b.st.Events(b.ctx, f)
	if err != nil {
		b.Fatalf("read events: %v", err)
	}
	return rows
}

func (b *bench) event(id int64) store.EventRow {
	b.Helper()
	rows := b.events(store.EventFilter{ID: id})
	if len(rows) != 1 {
		b.Fatalf("there are %d events with id %d", len(rows), id)
	}
	return rows[0]
}

func (b *bench) trail(id string) []store.TrailEntry {
	b.Helper()
	t, err := b.st.Trail(b.ctx, id)
	if err != nil {
		b.Fatalf("read trail of %s: %v", id, err)
	}
	return t
}

func (b *bench) stats() store.Stats {
	b.Helper()
	s, err := b.st.Stats(b.ctx)
	if err != nil {
		b.Fatalf("stats: %v", err)
	}
	return s
}

func (b *bench) read(key string) store.KeyView {
	b.Helper()
	v, err := b.st.ReadKey(b.ctx, key)
	if err != nil {
		b.Fatalf("read key %s: %v", key, err)
	}
	return v
}

func (b *bench) commit(p store.Plan) []store.Operation {
	b.Helper()
	ops, err := b.st.CommitPlan(b.ctx, p)
	if err != nil {
		b.Fatalf("commit plan of %s: %v", p.Key, err)
	}
	return ops
}

// dueKeys are those that are due, without their tenants.
func (b *bench) dueKeys() []string {
	b.Helper()
	keys, err := b.st.DueKeys(b.ctx, 100)
	if err != nil {
		b.Fatalf("due keys: %v", err)
	}
	return keysOf(keys)
}

func keysOf(due []store.DueKey) []string {
	list := []string{}
	for _, k := range due {
		list = append(list, k.Key)
	}
	return list
}

// planOf begins a decision about what was read: it plans every event, and names every row that was seen.
func planOf(v store.KeyView) store.Plan {
	p := store.Plan{Key: v.Key, Version: v.Version}
	for _, e := range v.Events {
		p.Events = append(p.Events, store.EventEnd{ID: e.ID, State: store.EventPlanned})
	}
	for _, o := range v.Operations {
		p.SeenOps = append(p.SeenOps, store.Seen{ID: o.ID, Version: o.Version})
	}
	for _, d := range v.Deals {
		p.SeenDeals = append(p.SeenDeals, store.Seen{ID: d.ID, Version: d.Version})
	}
	return p
}

// opening adds the opening of the n-th deal to a plan, caused by the plan's events.
func opening(p store.Plan, dealKey string, n int) store.Plan {
	p.Contacts = append(p.Contacts, contactOf(p.Key))
	p.Deals = append(p.Deals, dealOf(p.Key, dealKey, n))
	return adding(p, createOf(p.Key, n))
}

// adding adds an operation to a plan, caused by the plan's events.
func adding(p store.Plan, o store.Operation) store.Plan {
	p.Operations = append(p.Operations, o)
	for _, e := range p.Events {
		p.Links = append(p.Links, store.Link{EventID: e.ID, OperationID: o.ID})
	}
	return p
}

// opened accepts the n-th event of a key and plans the n-th deal for it.
func (b *bench) opened(key string, n int) (store.Receipt, store.Operation) {
	b.Helper()
	e := eventOf(key, n)
	r := b.accept(e)
	b.commit(opening(planOf(b.read(key)), e.DealKey, n))
	return r, b.op(opID(n))
}

// noted accepts the n-th event of the key of a deal's create and plans it as a note to that deal.
func (b *bench) noted(create store.Operation, n int) (store.Receipt, store.Operation) {
	b.Helper()
	r := b.accept(eventOf(create.OrderingKey, n))
	b.commit(adding(planOf(b.read(create.OrderingKey)), noteFor(b.op(create.ID), n)))
	return r, b.op(noteID(n))
}

// reportOf is a report about an operation with every guard and field that any trigger asks for.
func reportOf(o store.Operation, on store.Trigger) store.Report {
	r := store.Report{ID: o.ID, On: on, Version: o.Version, Fence: o.Fence, Returned: true,
		Reason: "because of " + string(on)}
	if on.Personal() {
		r.By, r.Why = "ann", "looked at it"
	}
	if on == store.Confirmed || on == store.Correct {
		r.CRMID = "crm-" + o.ID[len(o.ID)-4:]
	}
	return r
}

// evidence is a success as a worker that holds nothing any more reports it.
func evidence(id, crmID string) store.Report {
	return store.Report{ID: id, On: store.Confirmed, CRMID: crmID}
}

// step moves an operation by one trigger, with Begin and Repeat done by a claim.
func (b *bench) step(o store.Operation, on store.Trigger) store.Operation {
	b.Helper()
	if on == store.Begin || on == store.Repeat {
		return b.take(o.ID)
	}
	return b.advance(reportOf(o, on))
}

// place is a state with or without doubt, and one way to it from pending.
type place struct {
	state store.State
	doubt bool
	way   []store.Trigger
}

// places lists every place that an operation can come to.
func places() []place {
	const (
		begin, repeat, lostRep = store.Begin, store.Repeat, store.LostRepeatable
	)
	return []place{
		{store.Pending, false, nil},
		{store.Sending, false, []store.Trigger{begin}},
		{store.Sending, true, []store.Trigger{begin, lostRep, repeat}},
		{store.Uncertain, true, []store.Trigger{begin, lostRep}},
		{store.NeedsReconciliation, true, []store.Trigger{begin, store.Lost}},
		{store.Done, false, []store.Trigger{begin, store.Confirmed}},
		{store.Failed, false, []store.Trigger{begin, store.Rejected}},
		{store.Canceled, false, []store.Trigger{store.Cancel}},
		{store.Canceled, true, []store.Trigger{begin, store.Lost, store.Cancel}},
	}
}

// name says where.
func (p place) name() string {
	if p.doubt {
		return string(p.state) + " with doubt"
	}
	return string(p.state)
}

// at submits the n-th lead and brings it to a place. Nothing else may be due meanwhile.
func (b *bench) at(p place, n int) store.Operation {
	b.Helper()
	o := b.submit(n)
	for _, on := range p.way {
		o = b.step(o, on)
	}
	if o.State != p.state || o.Doubt != p.doubt {
		b.Fatalf("operation is %s doubt=%v after %v, want %s", o.State, o.Doubt, p.way, p.name())
	}
	return o
}

// atState is at for a state that is named alone: without doubt where both are possible.
func (b *bench) atState(s store.State, n int) store.Operation {
	b.Helper()
	for _, p := range places() {
		if p.state == s {
			return b.at(p, n)
		}
	}
	b.Fatalf("no way to state %s", s)
	return store.Operation{}
}

func ids(ops []store.Operation) []string {
	list := []string{}
	for _, o := range ops {
		list = append(list, o.ID)
	}
	return list
}

func eventIDs(rows []store.EventRow) []int64 {
	list := []int64{}
	for _, r := range rows {
		list = append(list, r.ID)
	}
	return list
}
