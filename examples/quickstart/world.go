package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// world.go: what a scenario happens in: a database, a simulated CRM, Telegram, and a bot in this process or in a child.

type world struct {
	st       handle
	crm      *crmtest.Simulator
	served   *crmtest.Server
	telegram *courier
	bot      *bot   // in this process, once started
	child    *child // in another one

	place   place
	config  botConfig
	verbose bool
	log     *slog.Logger
	killer  atomic.Pointer[func()] // called once, by the CRM, after its next effect
	settled string                 // the state that a person found and changed
}

func newWorld(ctx context.Context, sc scenario, dbs databases, s settings, log *slog.Logger) (*world, error) {
	w := &world{telegram: newCourier(), place: dbs.of(sc), verbose: s.verbose, log: log.With("scenario", sc.file())}
	w.crm = crmtest.NewSimulator(crmtest.Config{Guarantee: sc.promise, OnEffect: func(crm.Kind, string) {
		if kill := w.killer.Swap(nil); kill != nil {
			(*kill)()
		}
	}})
	var err error
	if w.served, err = w.crm.Start(); err != nil {
		return nil, err
	}
	if w.st, err = w.place.open(ctx); err != nil {
		return nil, errors.Join(err, w.served.Close())
	}
	w.config = botConfig{CRM: w.served.URL, CRMSays: w.crm.Describe(), LookUp: sc.lookUp, Retries: s.retries}
	return w, nil
}

// startBot starts the bot in this process, over the world's database.
func (w *world) startBot() error { return w.startBotOver(w.st) }

// startBotOver starts the bot with a store between it and the database.
func (w *world) startBotOver(st store.Store) (err error) {
	w.bot, err = startBot(st, w.config, w.log)
	return err
}

// startChild starts the same bot in a process of its own, over the same database.
func (w *world) startChild(ctx context.Context, c botConfig) (err error) {
	w.child, err = startChild(ctx, childConfig{Database: w.place, Bot: c, Verbose: w.verbose})
	return err
}

// await polls until done says so.
func (w *world) await(ctx context.Context, what string, done func() (bool, error)) error {
	for {
		switch ok, err := done(); {
		case err != nil && ctx.Err() == nil:
			return err
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// rest waits until nothing moves any more: every event is decided, every operation done or in front of a person.
func (w *world) rest(ctx context.Context) error {
	return w.await(ctx, "everything to settle", func() (bool, error) {
		events, err := w.st.Events(ctx, store.EventFilter{})
		if err != nil {
			return false, err
		}
		for _, e := range events {
			if e.State.Unplanned() {
				return false, nil
			}
		}
		ops, err := w.st.Operations(ctx, store.OperationFilter{})
		for _, op := range ops {
			switch op.State {
			case store.Pending, store.Sending, store.Uncertain:
				return false, err
			case store.NeedsReconciliation:
				if w.config.LookUp {
					return false, err // it is about to be looked up
				}
			}
		}
		return true, err
	})
}

// settleByHand is what a person does about an operation that nothing else can settle: look into the CRM, and say what is
// there. One call, which is refused if the operation has moved on meanwhile.
func (w *world) settleByHand(ctx context.Context) error {
	ops, err := w.st.Operations(ctx, store.OperationFilter{States: []store.State{store.NeedsReconciliation}})
	if err != nil {
		return err
	}
	if len(ops) != 1 {
		return fmt.Errorf("%d operations wait for a person, not 1", len(ops))
	}
	for _, lead := range w.crm.Leads() {
		if lead.OpID != ops[0].ID {
			continue
		}
		w.settled = string(ops[0].State)
		verdict := dedup.Verdict{OperationID: ops[0].ID, Seen: ops[0].Version, By: "quickstart", Why: "saw it in the CRM"}
		_, err := dedup.NewDesk(w.st).Found(ctx, verdict, lead.ID)
		return err
	}
	return errors.New("the lead is not in the CRM")
}

// read tells how things stand, from the database and from the CRM's own books.
func (w *world) read(ctx context.Context) (r row, err error) {
	r.deliveries, r.answers = w.telegram.tally()
	events, err := w.st.Events(ctx, store.EventFilter{})
	if err != nil {
		return r, err
	}
	r.events = len(events)
	ops, err := w.st.Operations(ctx, store.OperationFilter{})
	if err != nil {
		return r, err
	}
	var states []string
	for _, op := range ops {
		state := string(op.State)
		if op.Kind != string(crm.KindCreate) {
			state = strings.TrimSuffix(op.Kind, ".add") + " " + state
		}
		states = append(states, state)
		if op.Kind == string(crm.KindCreate) {
			r.sent += w.crm.Requests(crm.KindCreate, op.ID)
			if lead, ok := w.crm.Lead(op.CRMID); op.State == store.Done && (!ok || lead.OpID != op.ID) {
				err = fmt.Errorf("operation %s is done as %s, which is not its lead in the CRM", op.ID, op.CRMID)
			}
		}
	}
	r.states = cmp.Or(strings.Join(states, ", "), "none")
	if w.settled != "" {
		r.states = w.settled + " → " + r.states
	}
	leads := w.crm.Leads()
	r.leads = len(leads)
	for _, l := range leads {
		r.notes += len(l.Notes)
	}
	return r, err
}

func (w *world) close() error {
	var errs []error
	if w.child != nil {
		errs = append(errs, w.child.kill())
	}
	if w.bot != nil {
		errs = append(errs, w.bot.stop())
	}
	return errors.Join(append(errs, w.st.Close(), w.served.Close())...)
}
