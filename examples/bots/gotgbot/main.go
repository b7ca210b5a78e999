// Command gotgbot is a small bot on github.com/PaulSonOfLars/gotgbot/v2 that takes enquiries, with leadonce put in front
// of it:
//
//   - By webhook, if PUBLIC_URL is set: Middleware around the bot's handler. An update is on disk before the bot sees it
//     and before Telegram is answered.
//   - By long polling, if it is not: a Transport in the bot's HTTP client. What getUpdates brings is on disk before the
//     bot sees it and before the next call confirms it.
//   - A Processor with a rule: an enquiry is a lead in the CRM, what the same person writes within a day is a note on it.
//
// What gotgbot does that can cost the bot's own reply, never the lead:
//
//   - GetHandlerFunc takes its prefix off the path itself and answers 404 to what is left unknown: no http.StripPrefix.
//     Its SecretToken is one, so that it refuses (401) what came with the old one while the secret is replaced: leave it
//     empty.
//   - It answers before the update is handled or even decoded; what is not handled at a crash gets no reply.
//   - An error of a handler is dropped silently without DispatcherOpts.Error. A panic is recovered and logged.
//   - While getUpdates fails it waits a second each time, but not at all if UpdaterOpts.UnhandledErrFunc is set. Each call
//     ends after 5 s unless GetUpdatesOpts.RequestOpts says otherwise, and the default is not to wait for updates at all.
//   - Updater.Stop waits for ever for a handler that hangs.
//   - A reply can't be put into the answer to the webhook.
//
// BOT_TOKEN and CRM_URL (see crm/jsonhook) are needed, with PUBLIC_URL also TELEGRAM_SECRET. The rest is DB (leads.db),
// LISTEN (127.0.0.1:8443, behind a TLS proxy) and BOT_API, for a Bot API server of your own.
//
//	BOT_TOKEN=123456:... CRM_URL=https://backend.example/leads go run ./gotgbot
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
	"strings"
	"syscall"
	"time"

	"github.com/PaulSonOfLars/gotgbot/v2"
	"github.com/PaulSonOfLars/gotgbot/v2/ext"
	"github.com/PaulSonOfLars/gotgbot/v2/ext/handlers"
	"github.com/PaulSonOfLars/gotgbot/v2/ext/handlers/filters/message"

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
		api: cmp.Or(os.Getenv("BOT_API"), gotgbot.DefaultAPIURL), listen: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8443"),
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

// newBot is the bot, which knows nothing of leadonce, and the updater that feeds it.
func newBot(c config, client http.Client) (*gotgbot.Bot, *ext.Updater, error) {
	bot, err := gotgbot.NewBot(c.token, &gotgbot.BotOpts{BotClient: &gotgbot.BaseBotClient{Client: client,
		DefaultRequestOpts: &gotgbot.RequestOpts{APIURL: c.api, Timeout: 8 * time.Second}}})
	if err != nil {
		return nil, nil, err
	}
	d := ext.NewDispatcher(&ext.DispatcherOpts{
		Error: func(_ *gotgbot.Bot, _ *ext.Context, err error) ext.DispatcherAction {
			log.Printf("update not handled: %v", err)
			return ext.DispatcherActionNoop
		},
	})
	d.AddHandler(handlers.NewCommand("start", func(b *gotgbot.Bot, m *ext.Context) error {
		_, err := b.SendMessage(m.EffectiveChat.Id, "Hello! What can we do for you?", nil)
		return err
	}))
	d.AddHandler(handlers.NewMessage(message.Text, func(b *gotgbot.Bot, m *ext.Context) error {
		c.before(m.Message.Text)
		_, err := b.SendMessage(m.EffectiveChat.Id, "Thank you, we will call you back", nil) // true: it is on disk
		return err
	}))
	return bot, ext.NewUpdater(d, nil), nil
}

// webhook takes updates at /telegram until ctx ends.
func webhook(ctx context.Context, c config, st store.Store) error {
	bot, updater, err := newBot(c, http.Client{})
	if err != nil {
		return err
	}
	if err := updater.AddWebhook(bot, "telegram", nil); err != nil {
		return err
	}
	src, err := telegram.NewSource(bot.Id, c.secret, nil)
	if err != nil {
		return fmt.Errorf("TELEGRAM_SECRET: %w", err)
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, &c.door)(updater.GetHandlerFunc("/")))
	newest, _, _ := strings.Cut(c.secret, ",") // there are two while it is replaced, the new one first
	opts := &gotgbot.SetWebhookOpts{SecretToken: newest, AllowedUpdates: kinds()}
	if _, err := bot.SetWebhook(c.publicURL, opts); err != nil {
		return err
	}
	err = dedup.HTTPServer(&http.Server{Handler: mux, ReadTimeout: 20 * time.Second, WriteTimeout: 40 * time.Second}, l)(ctx)
	return errors.Join(err, stop(updater))
}

// stop waits for the handlers, but not for ever: Updater.Stop does.
func stop(u *ext.Updater) error {
	stopped := make(chan error, 1)
	go func() { stopped <- u.Stop() }()
	select {
	case err := <-stopped:
		return err
	case <-time.After(5 * time.Second):
		log.Print("a handler of the bot hangs: not waited for")
		return nil
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
	bot, updater, err := newBot(c, http.Client{Transport: keep})
	if err != nil {
		return err
	}
	err = updater.StartPolling(bot, &ext.PollingOpts{
		EnableWebhookDeletion: true, // a webhook excludes getUpdates; what is pending stays
		GetUpdatesOpts: &gotgbot.GetUpdatesOpts{Timeout: 10, RequestOpts: &gotgbot.RequestOpts{Timeout: 20 * time.Second},
			AllowedUpdates: kinds()},
	})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop(updater)
}
