package dedup_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/postgres"
)

// postgres_ended_test.go: a deal ends (canceled by a person, refused by the CRM, closed) between the decision to add a
// note to it and that decision's commit.

// addsNote reports whether a plan continues a deal.
func addsNote(p store.Plan) bool {
	return slices.ContainsFunc(p.Operations, func(o store.Operation) bool { return o.Kind == string(crm.KindNote) })
}

// putOff answers leads with one title by an error, once begin is closed.
type putOff struct {
	*crmtest.Client
	title string
	begin <-chan struct{}
	err   error
}

func (a putOff) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	if l.Title != a.title {
		return a.Client.CreateLead(ctx, op, l)
	}
	select {
	case <-a.begin:
		return "", a.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// busyForAnHour is an answer that leaves a create pending.
var busyForAnHour = crm.NotApplied(errors.New("busy"), time.Hour)

func TestNoNoteIntoADealThatEndedMeanwhile(t *testing.T) {
	type ending struct {
		t      *testing.T
		dsn    string
		st     *postgres.Store
		create string
		refuse func()
	}
	for _, c := range []struct {
		name   string
		answer error
		end    func(e ending)
	}{
		{"canceled", busyForAnHour, func(e ending) {
			e.refuse()
			cancel(e.t, e.st, waitFor(e.t, e.st, e.create, store.Pending))
		}},
		{"failed", crm.Rejected(errors.New("no such phone")), func(e ending) {
			e.refuse()
			waitFor(e.t, e.st, e.create, store.Failed)
		}},
		{"closed", busyForAnHour, func(e ending) {
			e.refuse()
			execSQL(e.t, e.dsn, `update leadonce.leadonce_deals set state = 'closed', version = version + 1`)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.DSN(t)
			st, other := openPostgres(t, dsn), openPostgres(t, dsn)
			sim, _ := simulator(t, none)
			begin := make(chan struct{})
			create := make(chan string, 1)
			m := &meanwhile{Store: st, when: addsNote, got: make(chan error, 1), before: func() {
				c.end(ending{t, dsn, other, <-create, func() { close(begin) }})
			}}
			runPostgres(t, m, putOff{sim.Local(), first, begin, c.answer}, dedup.ContinueWithin(time.Hour, lead))
			for i, text := range []string{first, second} {
				r, err := st.Accept(t.Context(), event(7, i+1, text))
				if err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					create <- createOf(t, st, r.EventID)
				}
			}
			until(t, "the second lead", func() bool { return len(sim.Leads()) > 0 })
			if err := <-m.got; !errors.Is(err, store.ErrConflict) {
				t.Errorf("the note was committed with %v, want a conflict", err)
			}
			list := found(t, dsn)
			if len(list) != 2 || list[1].kind != string(crm.KindCreate) || list[0].deal == list[1].deal {
				t.Errorf("the second message became %+v, want a deal of its own", list)
			}
			if l := sim.Leads(); len(l) != 1 || l[0].Lead.Title != second || len(l[0].Notes) != 0 {
				t.Errorf("the CRM holds %+v", l)
			}
		})
	}
}

// A person cancels a lead at the moment in which the next message is planned, by chance before or after: the message is
// canceled with it, or opens a deal of its own. It never waits for ever in a deal that is over.
func TestCancelRacingWithPlans(t *testing.T) {
	t.Parallel()
	const persons = 60
	p := openPair(t)
	sim, _ := simulator(t, none)
	begin := make(chan struct{})
	close(begin)
	for _, st := range p.st {
		runPostgres(t, st, putOff{sim.Local(), first, begin, busyForAnHour}, dedup.ContinueWithin(time.Hour, lead))
	}
	var all sync.WaitGroup
	creates := make([]string, persons)
	for i := range persons {
		all.Go(func() {
			accept := func(n int, text string) int64 {
				r, err := p.st[i%2].Accept(t.Context(), event(i, 10*i+n, text))
				if err != nil {
					t.Error(err)
				}
				return r.EventID
			}
			creates[i] = createOf(t, p.st[0].Store, accept(1, first))
			op := waitFor(t, p.st[0].Store, creates[i], store.Pending)
			planned := make(chan struct{})
			all.Go(func() {
				createOf(t, p.st[0].Store, accept(2, second))
				close(planned)
			})
			switch i % 3 {
			case 0:
				<-planned
			case 1:
				time.Sleep(time.Duration(i) * time.Millisecond) // before the plan, after it, or at the same time
			}
			cancel(t, p.st[1-i%2].Store, op)
		})
	}
	all.Wait()
	settled(t, p.st[0].Store, 30*time.Second, nil)
	with, own := 0, 0
	for _, m := range found(t, p.dsn) {
		switch {
		case slices.Contains(creates, m.op):
			if m.opState != string(store.Canceled) {
				t.Errorf("update %s: its create is %s, want canceled", m.update, m.opState)
			}
		case m.kind == string(crm.KindNote) && m.opState == string(store.Canceled):
			with++
		case m.kind == string(crm.KindCreate) && m.opState == string(store.Done):
			own++
		default:
			t.Errorf("update %s became a %s, %s (%s)", m.update, m.kind, m.opState, m.opReason)
		}
	}
	if with == 0 || with+own != persons || len(sim.Leads()) != own {
		t.Errorf("%d messages canceled with their deal, %d with a lead of their own, %d leads; want %d in all", with, own,
			len(sim.Leads()), persons)
	}
	t.Logf("%d canceled with their deal, %d in one of their own", with, own)
}

// cancel is a person's verdict.
func cancel(t *testing.T, st *postgres.Store, op store.Operation) {
	t.Helper()
	_, err := dedup.NewDesk(st).Cancel(context.Background(), dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga"})
	if err != nil {
		t.Error(err)
	}
}
