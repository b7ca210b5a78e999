package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/store/storetest"
)

// scenario.go: what happens to the bot, one func each, and what has to come out.

// script is what happens. An error means that it could not be played to its end; whether that end is right, want decides.
type script func(context.Context, *world) error

// scenario is one line of the table, or two where a person is needed.
type scenario struct {
	group   string
	tag     string // of the group, in the names of databases
	name    string
	promise crm.Guarantee // what the CRM documents about a repeated create; the zero value: nothing
	lookUp  bool          // the CRM can be asked for a lead by its operation id
	crash   bool          // a process is killed: most of the time goes by until its lease has ended
	play    script
	want    row
}

// file names the scenario's database, without its ending.
func (s scenario) file() string {
	return strings.NewReplacer(" ", "-", ",", "").Replace(strings.TrimSpace(s.tag + " " + s.name))
}

// scenarios lists them all in the order of the table.
func scenarios() []scenario {
	once := row{events: 1, sent: 1, leads: 1, states: "done"}
	with := func(r row, deliveries int, answers string) row {
		r.deliveries, r.answers = deliveries, answers
		return r
	}
	plain := []scenario{
		{name: "the same update twice", play: twice, want: with(once, 2, "2×200")},
		{name: "the same, 64 at a time", play: crowd, want: with(once, 64, "64×200")},
		{name: "another message of hers", play: another,
			want: row{deliveries: 2, answers: "2×200", events: 2, sent: 1, leads: 1, notes: 1, states: "done, note done"}},
		{name: "a forged secret", play: forged, want: row{deliveries: 2, answers: "2×401", states: "none"}},
		{name: "a database failure", play: failure, want: with(once, 3, "2×503 200")},
		{name: "a form, submitted twice", play: submitted,
			want: row{deliveries: 5, answers: "5×200", events: 5, sent: 1, leads: 1, states: "done"}},
		{name: "killed after the ack", crash: true, play: killedAfterAck, want: with(once, 1, "200")},
	}
	var all []scenario
	for _, sc := range plain {
		sc.lookUp = true // on a machine so busy that an answer comes too late, the row is the same
		all = append(all, sc)
	}
	for _, x := range []struct {
		group, tag string
		crash      bool
		play       script
		deliveries int
		answers    string
	}{
		{"killed after the CRM created the lead, the CRM having", "killed with", true, killedAfterCreate, 2, "2×200"},
		{"the CRM's reply lost, the CRM having", "lost reply with", false, lostReply, 1, "200"},
	} {
		for _, g := range guarantees() {
			g.group, g.tag, g.crash, g.play = x.group, x.tag, x.crash, x.play
			g.want = with(g.want, x.deliveries, x.answers)
			if g.want.settled() {
				g.play = thenByHand(x.play)
			}
			all = append(all, g)
		}
	}
	return all
}

// guarantees lists what a CRM may offer, and what follows when nobody knows whether it has acted. Without a guarantee the
// create is never sent again: the lead is looked up, or a person is asked. With one, the very same request goes out again,
// and the CRM makes nothing new of it.
func guarantees() []scenario {
	const day = 24 * time.Hour
	return []scenario{
		{name: "nothing", want: row{events: 1, sent: 1, leads: 1, states: "needs_reconciliation → done"}},
		{name: "a look-up", lookUp: true, want: row{events: 1, sent: 1, leads: 1, states: "done"}},
		{name: "an idempotency key", promise: crm.Guarantee{Kind: crm.IdempotencyKey, Window: day},
			want: row{events: 1, sent: 2, leads: 1, states: "done"}},
		{name: "an upsert", promise: crm.Guarantee{Kind: crm.Upsert, Window: day},
			want: row{events: 1, sent: 2, leads: 1, states: "done"}},
		{name: "a unique external id", promise: crm.Guarantee{Kind: crm.UniqueID, Window: day},
			want: row{events: 1, sent: 2, leads: 1, states: "done"}},
	}
}

const (
	firstID = 830042001 // an update_id
	text    = "Hello! How much is a new clutch for a 2014 Corolla?"
)

// twice: Telegram missed our answer and delivers once more. The second delivery finds the first and adds nothing.
func twice(ctx context.Context, w *world) error {
	if err := w.startBot(); err != nil {
		return err
	}
	for range 2 {
		if err := w.telegram.deliver(ctx, w.bot.url, message(firstID, 12, text)); err != nil {
			return err
		}
	}
	return w.rest(ctx)
}

// crowd: the same, with 64 requests that race each other into the database.
func crowd(ctx context.Context, w *world) error {
	if err := w.startBot(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 64 {
		wg.Go(func() {
			<-start
			w.telegram.try(ctx, w.bot.url, secret, message(firstID, 12, text))
		})
	}
	close(start)
	wg.Wait()
	return w.rest(ctx)
}

// another: the same person goes on writing. The second message is not dropped as a repeat, and does not open a second lead:
// it is a note to the first.
func another(ctx context.Context, w *world) error {
	if err := w.startBot(); err != nil {
		return err
	}
	for i, words := range []string{text, "And can you do it this week?"} {
		if err := w.telegram.deliver(ctx, w.bot.url, message(firstID+int64(i), 12+int64(i), words)); err != nil {
			return err
		}
	}
	return w.rest(ctx)
}

// forged: somebody found the URL. Without the secret nothing is read and nothing is stored.
func forged(ctx context.Context, w *world) error {
	if err := w.startBot(); err != nil {
		return err
	}
	w.telegram.try(ctx, w.bot.url, "a-guess", message(firstID, 12, text))
	w.telegram.try(ctx, w.bot.url, "", message(firstID, 12, text))
	return w.rest(ctx)
}

// failure: the database fails before it stored the update, and at the next delivery after it did. Neither is acknowledged,
// so Telegram delivers again; the third delivery finds what the second had stored.
func failure(ctx context.Context, w *world) error {
	st := storetest.Fail(w.st, 0, storetest.After, "Accept")
	st = storetest.Fail(st, 0, storetest.Before, "Accept")
	if err := w.startBotOver(st); err != nil {
		return err
	}
	if err := w.telegram.deliver(ctx, w.bot.url, message(firstID, 12, text)); err != nil {
		return err
	}
	return w.rest(ctx)
}

// submitted: a dialogue of three messages makes one lead when its button is pressed, and it is pressed twice. Five updates,
// five events; both calls of Submit carry the same key and return the same operation.
func submitted(ctx context.Context, w *world) error {
	w.config.Form = true
	if err := w.startBot(); err != nil {
		return err
	}
	updates := []string{
		message(firstID, 12, "Anna"), message(firstID+1, 13, "+1 555 010 0199"), message(firstID+2, 14, "A new clutch, please"),
		press(firstID+3, "3006477921002240513"), press(firstID+4, "3006477921881902342"),
	}
	for _, u := range updates {
		if err := w.telegram.deliver(ctx, w.bot.url, u); err != nil {
			return err
		}
	}
	if got := w.bot.form.presses(); len(got) < 2 || len(slices.Compact(got)) != 1 {
		return fmt.Errorf("submit returned %q, not one operation for two presses", got)
	}
	return w.rest(ctx)
}

// killedAfterAck: a process answers 200 and is killed before it could do anything about it. The answer meant "on disk": the
// next process finds the update, and Telegram need not repeat it.
func killedAfterAck(ctx context.Context, w *world) error {
	intake := w.config
	intake.Intake = true // else it might be quicker than the kill
	if err := w.startChild(ctx, intake); err != nil {
		return err
	}
	if err := w.telegram.deliver(ctx, w.child.url, message(firstID, 12, text)); err != nil {
		return err
	}
	if err := w.child.kill(); err != nil {
		return err
	}
	if err := w.startBot(); err != nil {
		return err
	}
	return w.rest(ctx)
}

// killedAfterCreate: a process is killed when the CRM has made the lead and has not answered yet, so that nobody knows. The
// intent to send was committed before the request left: to the next process it is a lost reply, once the lease of the dead
// one has ended. Telegram, which may have missed the answer too, delivers again.
func killedAfterCreate(ctx context.Context, w *world) error {
	if err := w.startChild(ctx, w.config); err != nil {
		return err
	}
	acked, killed := make(chan struct{}), make(chan error, 1)
	kill := func() { // called by the CRM, between the effect and its answer
		<-acked
		killed <- w.child.kill()
	}
	w.killer.Store(&kill)
	err := w.telegram.deliver(ctx, w.child.url, message(firstID, 12, text))
	close(acked)
	if err != nil {
		return err
	}
	select {
	case err := <-killed:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return errors.New("waited in vain for the CRM to make the lead")
	}
	if err := w.startBot(); err != nil {
		return err
	}
	if err := w.telegram.deliver(ctx, w.bot.url, message(firstID, 12, text)); err != nil {
		return err
	}
	return w.rest(ctx)
}

// lostReply: the CRM makes the lead, and its answer never arrives. To the bot it looks the same as if nothing was made.
func lostReply(ctx context.Context, w *world) error {
	if err := w.startBot(); err != nil {
		return err
	}
	w.crm.Next(1, crmtest.Fault{Kind: crmtest.LoseReply, On: crm.KindCreate})
	if err := w.telegram.deliver(ctx, w.bot.url, message(firstID, 12, text)); err != nil {
		return err
	}
	return w.rest(ctx)
}

// thenByHand: what can't be known is not guessed. It stands in needs_reconciliation, is counted and told, and one action of
// a person settles it.
func thenByHand(play script) script {
	return func(ctx context.Context, w *world) error {
		if err := play(ctx, w); err != nil {
			return err
		}
		if err := w.settleByHand(ctx); err != nil {
			return err
		}
		return w.rest(ctx)
	}
}
