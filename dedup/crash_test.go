package dedup_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// crash_test.go: a real process, killed (SIGKILL) between every two steps of one enquiry, under every guarantee. The next
// process, here, finds one lead in the end, or a doubt that a person settles into one.

// crashPlan is what the child is told.
type crashPlan struct {
	DB, CRM     string
	Description crm.Description
	Point       string // where it dies
	TwoSteps    bool   // plan and begin in commits of their own
}

const crashEnv = "LEADONCE_TEST_CRASH"

func TestMain(m *testing.M) {
	if s := os.Getenv(crashEnv); s != "" {
		var p crashPlan
		if err := json.Unmarshal([]byte(s), &p); err != nil {
			panic(err)
		}
		crashChild(p)
	}
	if s := os.Getenv(fleetEnv); s != "" {
		fleetChild(s)
	}
	pgtest.Main(m)
}

// die kills this process so that nothing of it can tidy up.
func die() {
	p, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		panic(err)
	}
	select {}
}

func crashChild(p crashPlan) {
	ctx := context.Background()
	st, err := sqlite.Open(ctx, p.DB, nil)
	if err != nil {
		panic(err)
	}
	mortal := &mortalStore{Store: st, plan: p}
	a := mortalAdapter{crmtest.NewClient(p.CRM, p.Description), p}
	proc, err := dedup.NewProcessor(mortal, a, dedup.ContinueWithin(time.Hour, lead), nil)
	if err != nil {
		panic(err)
	}
	go proc.Run(ctx)
	if _, err := mortal.Accept(ctx, event(7, 1, "please call me")); err != nil {
		panic(err)
	}
	fmt.Println("acknowledged") // the 200
	time.Sleep(30 * time.Second)
	fmt.Println("the point was never reached")
	os.Exit(3)
}

// mortalStore dies before or after a call.
type mortalStore struct {
	*sqlite.Store
	plan crashPlan
}

func (m *mortalStore) at(point string) {
	if m.plan.Point == point {
		die()
	}
}

func (m *mortalStore) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	m.at("before accept")
	r, err := m.Store.Accept(ctx, e)
	m.at("after accept")
	return r, err
}

func (m *mortalStore) CommitPlan(ctx context.Context, p store.Plan) ([]store.Operation, error) {
	if m.plan.TwoSteps {
		p.Claim = nil
	}
	m.at("before plan")
	ops, err := m.Store.CommitPlan(ctx, p)
	m.at("after plan")
	return ops, err
}

func (m *mortalStore) Claim(ctx context.Context, c store.Claim) ([]store.Operation, error) {
	ops, err := m.Store.Claim(ctx, c)
	if len(ops) > 0 {
		m.at("after claim")
	}
	return ops, err
}

func (m *mortalStore) Advance(ctx context.Context, r store.Report) (store.Operation, error) {
	m.at("before advance")
	op, err := m.Store.Advance(ctx, r)
	m.at("after advance")
	return op, err
}

type mortalAdapter struct {
	*crmtest.Client
	plan crashPlan
}

func (a mortalAdapter) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	if a.plan.Point == "before call" {
		die()
	}
	id, err := a.Client.CreateLead(ctx, op, l)
	if a.plan.Point == "after call" {
		die()
	}
	return id, err
}

func TestKilledBetweenEveryTwoSteps(t *testing.T) {
	points := []string{"before accept", "after accept", "before plan", "after plan", "after claim", "before call", "in the call", "after call",
		"before advance", "after advance"}
	for _, g := range []struct {
		name   string
		config crmtest.Config
		lookup bool
	}{
		{"nothing promised, no look-up", none, false}, {"nothing promised, look-up", none, true}, {"idempotency key", keyed, false},
		{"upsert", upsert, true}, {"unique id", uniqueID, false},
	} {
		for _, point := range points {
			t.Run(g.name+"/"+point, func(t *testing.T) {
				t.Parallel()
				crash(t, g.config, g.lookup, point)
			})
		}
	}
}

func crash(t *testing.T, c crmtest.Config, lookup bool, point string) {
	db := filepath.Join(t.TempDir(), "leads.db")
	var cmd *exec.Cmd
	started := make(chan struct{})
	c.OnEffect = func(kind crm.Kind, _ string) {
		if point == "in the call" && kind == crm.KindCreate {
			<-started
			cmd.Process.Kill() // after the effect, before the answer
		}
	}
	offset := time.Duration(0)
	c.Now = func() time.Time { return time.Now().Add(offset) }
	sim := crmtest.NewSimulator(c)
	srv, err := sim.Start()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(crashPlan{DB: db, CRM: srv.URL, Description: sim.Describe(), Point: point, TwoSteps: point == "after claim"})
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+string(plan))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	for s := bufio.NewScanner(out); s.Scan(); {
		t.Log(s.Text())
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() > 0 {
		t.Fatalf("the child was not killed: %v", err)
	}
	srv.Close()
	died := time.Now()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		offset = died.Sub(began) // the CRM's and the store's clocks go on from the crash; the processor's own is decades behind
		st, err := sqlite.Open(t.Context(), db, &sqlite.Options{Now: c.Now})
		if err != nil {
			t.Fatal(err)
		}
		b := &bed{t: t, ctx: t.Context(), st: st, sim: sim, got: map[string][]dedup.Outcome{}}
		var a crm.Adapter = sim.Local()
		if !lookup {
			a = declaring{noLookup{sim.Local()}, sim.Describe()}
		}
		p := b.processorOn(st, a, dedup.OnePerMessage(lead))
		stop := b.run(p)
		defer func() {
			stop()
			st.Close()
		}()
		b.accept(event(7, 1, "please call me")) // Telegram, which may never have heard of the answer
		time.Sleep(20 * time.Minute)
		for _, op := range b.ops(store.NeedsReconciliation) {
			settle(b, p, op)
		}
		time.Sleep(5 * time.Minute)
		b.only(store.Done)
		b.leads(1)
	})
}

// settle is what a person does: looks into the CRM, and says.
func settle(b *bed, p *dedup.Processor, op store.Operation) {
	v := dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga", Why: "looked"}
	var err error
	if l := b.sim.Leads(); len(l) > 0 {
		_, err = p.Found(b.ctx, v, l[0].ID)
	} else {
		v.Force = true // this CRM acts at once or never
		_, err = p.Absent(b.ctx, v)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
