// Command telebot is a small bot on gopkg.in/telebot.v4 that takes enquiries, with leadonce put in front of it:
//
//   - By webhook, if PUBLIC_URL is set: Middleware around the bot's handler. An update is on disk before the bot sees it
//     and before Telegram is answered.
//   - By long polling, if it is not: a Transport in the bot's HTTP client. What getUpdates brings is on disk before the
//     bot sees it and before the next call confirms it.
//   - A Processor with a rule: an enquiry is a lead in the CRM, what the same person writes within a day is a note on it.
//
// # From a *tele.Bot to an http.Handler
//
// A *tele.Bot is none. The function updates in this file makes one of it, in a few lines: decode a tele.Update, and give
// it to ProcessUpdate. The bot needs Settings.Synchronous, no Poller and no Start:
//
//	mux.Handle("/telegram", dedup.Middleware(st, src, nil)(updates(bot)))
//
// # What to know about telebot
//
// What it does can cost the bot's own reply (not the lead, where nothing else is said):
//
//   - Handlers run in goroutines of their own, where a panic ends the process: hence middleware.Recover.
//   - tele.Webhook answers 200 to a wrong secret and to what it can't decode, blocks every request for ever until Start
//     has run, and hands over through a channel of 100 that a stop throws away. So the webhook here is a handler that
//     calls ProcessUpdate, with Synchronous: the request ends when the reply is sent. If you have a tele.Webhook, wrap
//     that; leave its Listen and SecretToken empty, and set IgnoreSetWebhook.
//   - LongPoller asks again at once after an error, and says nothing unless Verbose is set; the Transport slows it down, and
//     logs what it could not store or read. With a zero Timeout it never pauses at all. Stop cancels replies that are under
//     way.
//   - LongPoller asks again and again for a batch with an update that it can't decode. The Transport takes that one out after
//     five times; it gets no answer. But an empty "photo" ends the process each time, for as long as Telegram gives it.
//   - A reply can't be put into the answer to the webhook.
//
// BOT_TOKEN and CRM_URL (see crm/jsonhook) are needed, with PUBLIC_URL also TELEGRAM_SECRET. The rest is DB (leads.db),
// LISTEN (127.0.0.1:8443, behind a TLS proxy) and BOT_API, for a Bot API server of your own.
//
//	BOT_TOKEN=123456:... CRM_URL=https://backend.example/leads go run ./telebot
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	tele "gopkg.in/telebot.v4"
	"gopkg.in/telebot.v4/middleware"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/jsonhook"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, config{token: os.Getenv("BOT_TOKEN"), secret: os.Getenv("TELEGRAM_SECRET"),
		api: cmp.Or(os.Getenv("BOT_API"), tele.DefaultApiURL), listen: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8443"),
		publicURL: os.Getenv("PUBLIC_URL"), crmURL: os.Getenv("CRM_URL"), db: cmp.Or(os.Getenv("DB"), "leads.db")})
	if err != nil {
		log.Fatal(err)
	}
}

// config is the environment, and what a test plants.
type config struct {
	token, secret, api, listen, publicURL, crmURL, db string

	options dedup.Options
	door    dedup.MiddlewareOptions
	wrap    func(store.Store) store.Store // around the store
	before  func(text string)             // called before a message is answered
}

// run serves until ctx ends; then nothing new is taken, calls to the CRM finish, and the store is closed.
func run(ctx context.Context, c config) (err error) {
	db, err := sqlite.Open(ctx, c.db, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st := store.Store(db)
	if c.wrap != nil {
		st = c.wrap(db)
	}
	if c.before == nil {
		c.before = func(string) {}
	}
	backend, err := jsonhook.New(c.crmURL, &jsonhook.Options{Calls: []crm.Kind{crm.KindNote},
		Guarantee: crm.Guarantee{Kind: crm.UniqueID}}) // only if your back end keeps operation_id under a unique index
	if err != nil {
		return fmt.Errorf("CRM_URL: %w", err)
	}
	leads, err := dedup.NewProcessor(st, backend, dedup.ContinueWithin(24*time.Hour, lead), &c.options)
	if err != nil {
		return err
	}
	take := poll
	if c.publicURL != "" {
		take = webhook
	}
	// It ends the bot first, and goes on sending until all that came is drained.
	return leads.RunWith(ctx, func(ctx context.Context) error { return take(ctx, c, st) })
}

func lead(e dedup.Enquiry) (crm.Lead, error) {
	if e.Command == "/start" && e.Campaign == "" {
		return crm.Lead{}, dedup.Ignore("pressed start")
	}
	return crm.Lead{Title: "Telegram: " + e.Person.Name, Name: e.Person.Name, Username: e.Person.Username,
		Text: e.Summary(), Campaign: e.Campaign}, nil
}

// kinds are the updates that the bot asks for.
func kinds() []string { return []string{"message", "edited_message", "callback_query"} }

// newBot is the bot, which knows nothing of leadonce.
func newBot(c config, s tele.Settings) (*tele.Bot, error) {
	s.Token, s.URL = c.token, c.api
	bot, err := tele.NewBot(s)
	if err != nil {
		return nil, err
	}
	bot.Use(middleware.Recover())
	bot.Handle("/start", func(m tele.Context) error { return m.Send("Hello! What can we do for you?") })
	bot.Handle(tele.OnText, func(m tele.Context) error {
		c.before(m.Text())
		return m.Send("Thank you, we will call you back") // true: it is on disk
	})
	return bot, nil
}

// webhook takes updates at /telegram until ctx ends.
func webhook(ctx context.Context, c config, st store.Store) error {
	bot, err := newBot(c, tele.Settings{Synchronous: true, Client: &http.Client{Timeout: 8 * time.Second}})
	if err != nil {
		return err
	}
	src, err := telegram.NewSource(bot.Me.ID, c.secret, nil)
	if err != nil {
		return fmt.Errorf("TELEGRAM_SECRET: %w", err)
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, &c.door)(updates(bot)))
	newest, _, _ := strings.Cut(c.secret, ",") // there are two while it is replaced, the new one first
	err = bot.SetWebhook(&tele.Webhook{Endpoint: &tele.WebhookEndpoint{PublicURL: c.publicURL}, SecretToken: newest,
		AllowedUpdates: kinds()})
	if err != nil {
		return err
	}
	return dedup.HTTPServer(&http.Server{Handler: mux, ReadTimeout: 20 * time.Second, WriteTimeout: 40 * time.Second}, l)(ctx)
}

// updates is the bot as an http.Handler. With Settings.Synchronous ProcessUpdate returns when the update is handled.
func updates(bot *tele.Bot) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var u tele.Update
		if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
			http.Error(w, "no update", http.StatusBadRequest) // nobody sees it: the update is stored, and answered 200
			return
		}
		bot.ProcessUpdate(u)
	}
}

// poll fetches updates until ctx ends.
func poll(ctx context.Context, c config, st store.Store) error {
	id, err := telegram.BotID(c.token)
	if err != nil {
		return fmt.Errorf("BOT_TOKEN: %w", err)
	}
	src, err := telegram.NewPollingSource(id, nil)
	if err != nil {
		return err
	}
	keep, err := telegram.NewTransport(st, src, nil)
	if err != nil {
		return err
	}
	bot, err := newBot(c, tele.Settings{Poller: &tele.LongPoller{Timeout: 10 * time.Second, AllowedUpdates: kinds()},
		Client: &http.Client{Transport: keep, Timeout: 20 * time.Second}})
	if err != nil {
		return err
	}
	if err := bot.RemoveWebhook(); err != nil { // a webhook excludes getUpdates; what is pending stays
		return err
	}
	go func() {
		<-ctx.Done()
		bot.Stop()
	}()
	bot.Start()
	return nil
}
