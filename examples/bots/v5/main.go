// Command v5 is a bot on github.com/go-telegram-bot-api/telegram-bot-api/v5 that takes enquiries and bookings for a garage,
// with leadonce put in front of it. bot.go is the bot as it was; what leadonce adds is in this file:
//
//   - Middleware around the bot's own handler, on its path alone: an update is on disk before the bot sees it, a repeated
//     delivery does not reach the bot, and neither a panic nor a hang of the bot costs a lead. The bot answers as before.
//   - A rule: every enquiry is a lead, what the same person writes within a day is a note on it.
//   - Submit for the one lead that no single update makes: the booking at the end of a dialogue (/book).
//
// The bot gets its updates from HandleUpdate(r) in an http.Handler. Its ListenForWebhook registers on http.DefaultServeMux,
// answers before anything is handled, and blocks on a channel of 100; around that the middleware works as well
// (dedup.Middleware(st, src, nil)(http.DefaultServeMux)), but what waits in the channel is lost by a crash: the bot's
// answers, not the leads. Unlike a loop over the channel, a handler runs for several chats at once.
//
//	BOT_TOKEN=123456:... TELEGRAM_SECRET=a-long-random-string B24_WEBHOOK=https://portal/rest/1/code/ \
//	PUBLIC_URL=https://bot.example/telegram go run ./v5
//
// LISTEN is where it listens (127.0.0.1:8443), behind a TLS proxy; PUBLIC_URL, if set, is given to setWebhook at the start,
// and MANAGER_CHAT is the chat that is told when a lead needs a person.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/bitrix24"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// main.go: leadonce around the bot.

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Getenv); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, env func(string) string) (err error) {
	api, err := newAPI(env("BOT_TOKEN"), telegramAPI) // (=)
	if err != nil {
		return fmt.Errorf("BOT_TOKEN: %w", err)
	}
	st, err := sqlite.Open(ctx, "leads.db", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	b24, err := bitrix24.New(env("B24_WEBHOOK"), &bitrix24.Options{Entity: bitrix24.Deal})
	if err != nil {
		return fmt.Errorf("B24_WEBHOOK: %w", err)
	}
	manager, err := chatID(env("MANAGER_CHAT"))
	if err != nil {
		return err
	}
	a, err := newApp(api, st, b24, env("TELEGRAM_SECRET"), manager)
	if err != nil {
		return err
	}
	if url := env("PUBLIC_URL"); url != "" {
		if err := setWebhook(api, url, env("TELEGRAM_SECRET")); err != nil {
			return err
		}
	}
	addr := env("LISTEN")
	if addr == "" {
		addr = "127.0.0.1:8443"
	}
	return a.serve(ctx, addr)
}

// chatID reads the number of a chat; a group's is negative. Empty is 0: nobody is told.
func chatID(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, errors.New("MANAGER_CHAT must be the numeric id of a chat")
	}
	return id, nil
}

// app is the bot with leadonce around it.
type app struct {
	bot     *bot
	leads   *dedup.Processor
	handler http.Handler
}

// newApp is all the wiring there is. secrets is the secret_token of setWebhook; several, comma-separated, while it is
// replaced.
func newApp(api *tgbotapi.BotAPI, st store.Store, a crm.Adapter, secrets string, manager int64) (*app, error) {
	src, err := telegram.NewSource(api.Self.ID, secrets, nil)
	if err != nil {
		return nil, fmt.Errorf("TELEGRAM_SECRET: %w", err)
	}
	b := newBot(api) // (=)
	leads, err := dedup.NewProcessor(st, a, newRule(b.form), &dedup.Options{
		NeedsPerson: func(_ context.Context, o dedup.Outcome) {
			b.tell(manager, fmt.Sprintf("A lead needs a person: operation %s is %s", o.OperationID, o.State))
		},
	})
	if err != nil {
		return nil, err
	}
	b.submit = leads.Submit

	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, nil)(b)) // was: mux.Handle("/telegram", b)
	mux.HandleFunc("GET /healthz", health)                     // (=) not behind the secret: the path is wrapped, not the mux
	return &app{bot: b, leads: leads, handler: mux}, nil
}

// newRule makes a lead of everything but the form's own steps: those end in Submit, whole. It is asked again after a crash,
// so it must not depend on what a crash forgets, other than to the safe side: an answer to a question that this process did
// not ask is a lead of its own. One lead too many can be merged; one too few is a customer.
func newRule(f *form) dedup.Rule {
	return dedup.ContinueWithin(24*time.Hour, func(e dedup.Enquiry) (crm.Lead, error) {
		switch {
		case e.Command == "/start" && e.Campaign == "":
			return crm.Lead{}, dedup.Ignore("pressed start")
		case e.Command == "/book", f.asked(e.ChatID, e.ReplyTo), strings.HasPrefix(e.Data, formButtons):
			return crm.Lead{}, dedup.Ignore("a step of the form")
		}
		return crm.Lead{Title: "Telegram: " + e.Person.Name, Name: e.Person.Name, Username: e.Person.Username, Phone: e.Phone,
			Text: e.Text, Campaign: e.Campaign}, nil
	})
}

// serve runs until ctx ends; then nothing new is taken, requests are answered, and calls to the CRM finish.
func (a *app) serve(ctx context.Context, addr string) error {
	srv := &http.Server{Addr: addr, Handler: a.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: 40 * time.Second, IdleTimeout: 2 * time.Minute}
	working, stopWork := context.WithCancel(context.Background())
	defer stopWork()
	served, drained := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.ListenAndServe() }()
	go func() { drained <- a.leads.Run(working) }()
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	}
	grace, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	failed = errors.Join(failed, srv.Shutdown(grace))
	stopWork()
	return errors.Join(failed, <-drained)
}

// setWebhook tells Telegram where to deliver, and the secret that makes the deliveries authentic. v5.5.1 has no field for
// secret_token, hence MakeRequest. drop_pending_updates is never set: it would throw enquiries away.
// https://core.telegram.org/bots/api#setwebhook
func setWebhook(api *tgbotapi.BotAPI, url, secrets string) error {
	newest, _, _ := strings.Cut(secrets, ",") // while it is replaced: the new one first
	_, err := api.MakeRequest("setWebhook", tgbotapi.Params{
		"url":             url,
		"secret_token":    strings.TrimSpace(newest),
		"allowed_updates": `["message","edited_message","callback_query"]`,
	})
	if err != nil {
		return fmt.Errorf("setWebhook: %w", withoutToken(err))
	}
	return nil
}
