package dedup_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// scenario_gate_test.go: what a process reaches the world through: a store and a CRM that it loses, both at once, at one
// chosen call. For the process this is death: nothing that it does from there on has an effect.

var errDead = fmt.Errorf("this process is dead: %w", store.ErrUnavailable)

// gate counts the calls that have an effect, and dies at one of them: before the effect, or after it and before the answer.
type gate struct {
	dieAt int // 0: never
	after bool
	dead  chan struct{}

	mu   sync.Mutex
	n    int
	name string // of the call that it died at
	once sync.Once
}

func (g *gate) isDead() bool {
	select {
	case <-g.dead:
		return true
	default:
		return false
	}
}

func (g *gate) die(name string) error {
	g.once.Do(func() {
		g.name = name
		close(g.dead)
	})
	return errDead
}

func (g *gate) calls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// call makes a call, unless the process is dead by then.
func (g *gate) call(name string, do func() error) error {
	if g.isDead() {
		return errDead
	}
	g.mu.Lock()
	g.n++
	now := g.n == g.dieAt
	g.mu.Unlock()
	if now && !g.after {
		return g.die(name)
	}
	err := do()
	if now {
		return g.die(name)
	}
	if g.isDead() {
		return errDead
	}
	return err
}

// gated makes a call with a result.
func gated[T any](g *gate, name string, do func() (T, error)) (out T, err error) {
	err = g.call(name, func() error {
		var err error
		out, err = do()
		return err
	})
	if g.isDead() {
		var none T
		return none, errDead
	}
	return out, err
}

// gatedStore is the store of one process.
type gatedStore struct {
	store.Store
	g *gate
}

func (s *gatedStore) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	return gated(s.g, "Accept", func() (store.Receipt, error) { return s.Store.Accept(ctx, e) })
}

func (s *gatedStore) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	return gated(s.g, "CommitPlan", func() ([]store.Operation, error) { return s.Store.CommitPlan(ctx, p) })
}

func (s *gatedStore) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	return gated(s.g, "Advance "+string(r.On), func() (store.Operation, error) { return s.Store.Advance(ctx, r) })
}

// Claim counts where it has claimed something; most claims find nothing.
func (s *gatedStore) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	if s.g.isDead() {
		return nil, errDead
	}
	ops, err := s.Store.Claim(ctx, c)
	if len(ops) == 0 && !s.g.isDead() {
		return ops, err
	}
	return gated(s.g, "Claim", func() ([]store.Operation, error) { return ops, err })
}

func (s *gatedStore) DueKeys(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
	if s.g.isDead() {
		return nil, errDead
	}
	return s.Store.DueKeys(ctx, limit, tenants...)
}

func (s *gatedStore) ReadKey(ctx context.Context, key string, more ...string) (store.KeyView, error) {
	if s.g.isDead() {
		return store.KeyView{}, errDead
	}
	return s.Store.ReadKey(ctx, key, more...)
}

func (s *gatedStore) Attention(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
	if s.g.isDead() {
		return nil, errDead
	}
	return s.Store.Attention(ctx, limit, lookups, tenants...)
}

// The CRM of one process, with ever more that it can do.
type (
	crmCreates struct {
		to *crmtest.Client
		g  *gate
	}
	crmNotes    struct{ crmCreates }
	crmUpdates  struct{ crmNotes }
	crmStages   struct{ crmUpdates }
	crmContacts struct{ crmStages }
)

// crmUpTo returns an adapter that can do what is named, and everything before it in the list.
func crmUpTo(what string, c crmCreates) (crm.Adapter, error) {
	switch what {
	case "creates":
		return c, nil
	case "notes":
		return crmNotes{c}, nil
	case "updates":
		return crmUpdates{crmNotes{c}}, nil
	case "stages", "":
		return crmStages{crmUpdates{crmNotes{c}}}, nil
	case "contacts":
		return crmContacts{crmStages{crmUpdates{crmNotes{c}}}}, nil
	}
	return nil, fmt.Errorf("crm: it is creates, notes, updates, stages or contacts, not %q", what)
}

func (c crmCreates) Describe() crm.Description { return c.to.Describe() }

func (c crmCreates) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	return gated(c.g, "CreateLead", func() (string, error) { return c.to.CreateLead(ctx, op, l) })
}

func (c crmCreates) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	return gated(c.g, "FindLead", func() ([]string, error) { return c.to.FindLead(ctx, op) })
}

func (c crmNotes) AddNote(ctx context.Context, op crm.Op, lead string, n crm.Note) (string, error) {
	return gated(c.g, "AddNote", func() (string, error) { return c.to.AddNote(ctx, op, lead, n) })
}

func (c crmUpdates) UpdateLead(ctx context.Context, op crm.Op, lead string, u crm.Lead) error {
	return c.g.call("UpdateLead", func() error { return c.to.UpdateLead(ctx, op, lead, u) })
}

func (c crmStages) SetStage(ctx context.Context, op crm.Op, lead string, s crm.Stage) error {
	return c.g.call("SetStage", func() error { return c.to.SetStage(ctx, op, lead, s) })
}

func (c crmStages) ReadStage(ctx context.Context, op crm.Op, lead string) (crm.StageState, error) {
	return gated(c.g, "ReadStage", func() (crm.StageState, error) { return c.to.ReadStage(ctx, op, lead) })
}

func closedStage(stage string) bool { return stage == "won" || stage == "lost" }

func (c crmContacts) EnsureContact(ctx context.Context, op crm.Op, p crm.Contact) (string, error) {
	return gated(c.g, "EnsureContact", func() (string, error) { return c.to.EnsureContact(ctx, op, p) })
}

// files is where a host's AddFile puts them.
type filed struct {
	mu   sync.Mutex
	jobs []dedup.FileJob
}

func (f *filed) hook(g *gate) func(context.Context, dedup.FileJob) error {
	return func(_ context.Context, j dedup.FileJob) error {
		return g.call("AddFile", func() error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.jobs = append(f.jobs, j)
			return nil
		})
	}
}

func (f *filed) of(lead string) (jobs []dedup.FileJob) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range f.jobs {
		if j.LeadID == lead {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// times of a process: short enough for a clock that moves by itself, and for one that does not.
func scenarioOptions(virtual bool) dedup.Options {
	o := dedup.Options{Poll: 500 * time.Millisecond, BackoffMax: 8 * time.Second}
	if !virtual {
		o.Poll, o.BackoffMin, o.BackoffMax = 20*time.Millisecond, 2*time.Second, 4*time.Second
		o.CallTimeout, o.Lease, o.QuietPeriod, o.DrainTimeout = 2*time.Second, 7600*time.Millisecond, time.Second, 5*time.Second
	}
	return o
}
