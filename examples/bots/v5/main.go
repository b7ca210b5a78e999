// Command v5 is a bot on github.com/go-telegram-bot-api/telegram-bot-api/v5 that takes enquiries and bookings for a garage,
// with leadonce put in front of it. bot.go is the bot as it was; what leadonce adds is in this file:
//
//   - Middleware around the bot's own handler, on its path alone: an update is on disk before the bot sees it, a repeated
//     delivery does not reach the bot, and neither a panic nor a hang of the bot costs a lead. The bot answers as before.
//   - A rule: every enquiry is a lead, what the same person writes within a day is a note on it.
//   - Submit for the one lead that no single update makes: the booking at the end of a dialogue (/book).
//   - Without PUBLIC_URL the bot polls, and telegram.Transport under its HTTP client takes the middleware's place: v5
//     confirms updates while they wait in a channel in memory; by then they are on disk.
//
// By webhook the bot gets its updates from HandleUpdate(r) in an http.Handler. Its ListenForWebhook registers on
// http.DefaultServeMux, answers before anything is handled, and blocks on a channel of 100; around that the middleware
// works as well (dedup.Middleware(st, src, nil)(http.DefaultServeMux)), but what waits in the channel is lost by a
// crash: the bot's answers, not the leads. Unlike a loop over the channel, a handler runs for several chats at once.
// What else to know about v5 (v5.5.1): it checks no secret; it answers what it can't decode with 400, which Telegram
// would repeat for a day while the chat stands still; and a handler's panic in a loop over its channel ends the process.
//
// By long polling, it asks for an update that it can't decode again and again, every 3 seconds, with all that came beside it;
// the Transport takes that one out after five times. Updates whose ids are below its offset (Telegram may begin again lower after a quiet week) are
// leads as well, but the bot sees them only after a restart. It logs the errors of polling with the URL, the token in it.
//
//	BOT_TOKEN=123456:... TELEGRAM_SECRET=at-least-16-random-characters CRM_URL=https://backend.example/leads \
//	PUBLIC_URL=https://bot.example/telegram go run ./v5
//
// CRM_URL takes the leads (package crm/jsonhook says how). LISTEN is where the bot listens (127.0.0.1:8443), behind a TLS
// proxy; PUBLIC_URL is given to setWebhook at the start, and without it neither that nor a secret is needed. DB is the
// database (leads.db), BOT_API another Bot API server than Telegram's, and MANAGER_CHAT the chat that is told when a lead
// needs a person.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/jsonhook"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// main.go: leadonce around the bot.

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, config{token: os.Getenv("BOT_TOKEN"), secret: os.Getenv("TELEGRAM_SECRET"), api: os.Getenv("BOT_API"),
		listen: os.Getenv("LISTEN"), publicURL: os.Getenv("PUBLIC_URL"), crmURL: os.Getenv("CRM_URL"), db: os.Getenv("DB"),
		manager: os.Getenv("MANAGER_CHAT")})
	if err != nil {
		log.Fatal(err)
	}
}

// config is the environment, and what a test plants. Zero values are the defaults.
type config struct {
	token, secret, api, listen, publicURL, crmURL, db, manager string

	options dedup.Options
	door    dedup.MiddlewareOptions
	wrap    func(store.Store) store.Store // around the store
	before  func(text string)             // called before a message is handled
}

func run(ctx context.Context, c config) (err error) {
	tgbotapi.SetLogger(logger{})
	db, err := sqlite.Open(ctx, cmp.Or(c.db, "leads.db"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st := store.Store(db)
	if c.wrap != nil {
		st = c.wrap(st)
	}
	client := &http.Client{Timeout: 8 * time.Second} // well within the 10 s that the middleware gives the bot
	if c.publicURL == "" {
		client, err = pollingClient(c.token, st)
		if err != nil {
			return err
		}
	}
	api, err := newAPI(c.token, cmp.Or(c.api, telegramAPI), client) // (=)
	if err != nil {
		return fmt.Errorf("BOT_TOKEN: %w", err)
	}
	// UniqueID: the back end keeps operation_id unique, so that a lost answer may be asked for again.
	hook, err := jsonhook.New(c.crmURL, &jsonhook.Options{Calls: []crm.Kind{crm.KindNote},
		Guarantee: crm.Guarantee{Kind: crm.UniqueID}})
	if err != nil {
		return fmt.Errorf("CRM_URL: %w", err)
	}
	a, err := newApp(api, st, hook, c)
	if err != nil {
		return err
	}
	if c.publicURL == "" {
		return a.leads.RunWith(ctx, func(ctx context.Context) error { return a.bot.poll(ctx, api) })
	}
	if err := a.listen(api, st, c); err != nil {
		return err
	}
	l, err := net.Listen("tcp", cmp.Or(c.listen, "127.0.0.1:8443"))
	if err != nil {
		return err
	}
	if err := setWebhook(api, c.publicURL, c.secret); err != nil {
		return err
	}
	return a.leads.RunWith(ctx, func(ctx context.Context) error { return a.serve(ctx, l) })
}

// pollingClient returns the client of a bot that polls: what getUpdates brings is stored before v5 gets it.
func pollingClient(token string, st store.Store) (*http.Client, error) {
	id, err := telegram.BotID(token)
	if err != nil {
		return nil, fmt.Errorf("BOT_TOKEN: %w", err)
	}
	src, err := telegram.NewPollingSource(id, nil)
	if err != nil {
		return nil, err
	}
	tr, err := telegram.NewTransport(st, src, nil)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: tr, Timeout: pollFor + 15*time.Second}, nil
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

// newApp is what both ways of getting updates have in common.
func newApp(api *tgbotapi.BotAPI, st store.Store, a crm.Adapter, c config) (*app, error) {
	manager, err := chatID(c.manager)
	if err != nil {
		return nil, err
	}
	b := newBot(api, c.before) // (=)
	c.options.NeedsPerson = func(_ context.Context, o dedup.Outcome) {
		b.tell(manager, fmt.Sprintf("A lead needs a person: operation %s is %s", o.OperationID, o.State))
	}
	leads, err := dedup.NewProcessor(st, a, newRule(b.form), &c.options)
	if err != nil {
		return nil, err
	}
	b.submit = leads.Submit
	return &app{bot: b, leads: leads}, nil
}

// listen puts the middleware before the bot. The secret is the secret_token of setWebhook; several, comma-separated, while
// it is replaced.
func (a *app) listen(api *tgbotapi.BotAPI, st store.Store, c config) error {
	src, err := telegram.NewSource(api.Self.ID, c.secret, nil)
	if err != nil {
		return fmt.Errorf("TELEGRAM_SECRET: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, &c.door)(a.bot)) // was: mux.Handle("/telegram", b)
	mux.HandleFunc("GET /healthz", health)                             // (=) not behind the secret: the path is wrapped
	a.handler = mux
	return nil
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

// serve takes deliveries until ctx ends; then nothing new is taken, and requests are answered.
func (a *app) serve(ctx context.Context, l net.Listener) error {
	return dedup.HTTPServer(&http.Server{Handler: a.handler, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: 40 * time.Second, IdleTimeout: 2 * time.Minute}, l)(ctx)
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
