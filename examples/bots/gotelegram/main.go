// Command gotelegram is a small bot on github.com/go-telegram/bot that takes enquiries, with leadonce put in front of it:
//
//   - By webhook, if PUBLIC_URL is set: Middleware around the bot's handler. An update is on disk before the bot sees it
//     and before Telegram is answered.
//   - By long polling, if it is not: a Transport in the bot's HTTP client. What getUpdates brings is on disk before the
//     bot sees it and before the next call confirms it.
//   - A Processor with a rule: an enquiry is a lead in the CRM, what the same person writes within a day is a note on it.
//
// What go-telegram/bot does that can cost the bot's own reply (not the lead, where nothing else is said):
//
//   - Handlers run in goroutines of their own, where a panic ends the process: hence a middleware that recovers.
//   - WebhookHandler answers 200 to a wrong secret and to what it can't decode, and the default error handler logs that
//     body: hence one that doesn't. Its secret is one, so that it drops what came with the old one while the secret is
//     replaced: leave WithWebhookSecretToken out.
//   - It answers before the update is handled, through a channel of 1024. What waits there at a stop or a crash gets no
//     reply, and the handlers' context ends with that of Start and StartWebhook: hence a later one.
//   - Start asks again and again for a batch with an update that it can't decode; the Transport takes that one out after five
//     times. It gets no answer.
//   - WithHTTPClient's poll timeout less a second is how long getUpdates waits: with 1 s or less it never pauses, and the
//     client's own Timeout has to be longer.
//   - A reply can't be put into the answer to the webhook.
//
// BOT_TOKEN and CRM_URL (see crm/jsonhook) are needed, with PUBLIC_URL also TELEGRAM_SECRET. The rest is DB (leads.db),
// LISTEN (127.0.0.1:8443, behind a TLS proxy) and BOT_API, for a Bot API server of your own.
//
//	BOT_TOKEN=123456:... CRM_URL=https://backend.example/leads go run ./gotelegram
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

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

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
		api: cmp.Or(os.Getenv("BOT_API"), "https://api.telegram.org"), listen: cmp.Or(os.Getenv("LISTEN"), "127.0.0.1:8443"),
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
func newBot(c config, client *http.Client) (*bot.Bot, error) {
	return bot.New(c.token, bot.WithServerURL(c.api), bot.WithHTTPClient(11*time.Second, client), // getUpdates waits 10 s
		bot.WithAllowedUpdates(kinds()),
		bot.WithMiddlewares(recovered), bot.WithErrorsHandler(func(err error) { log.Printf("bot: %v", quiet(err)) }),
		bot.WithMessageTextHandler("start", bot.MatchTypeCommandStartOnly,
			func(ctx context.Context, b *bot.Bot, u *models.Update) {
				say(ctx, b, u.Message.Chat.ID, "Hello! What can we do for you?")
			}),
		bot.WithDefaultHandler(func(ctx context.Context, b *bot.Bot, u *models.Update) {
			if u.Message != nil && u.Message.Text != "" {
				c.before(u.Message.Text)
				say(ctx, b, u.Message.Chat.ID, "Thank you, we will call you back") // true: it is on disk
			}
		}))
}

func say(ctx context.Context, b *bot.Bot, chat int64, text string) {
	if _, err := b.SendMessage(ctx, &bot.SendMessageParams{ChatID: chat, Text: text}); err != nil {
		log.Printf("message not sent: %v", err)
	}
}

func recovered(next bot.HandlerFunc) bot.HandlerFunc {
	return func(ctx context.Context, b *bot.Bot, u *models.Update) {
		defer func() {
			if r := recover(); r != nil {
				log.Printf("update %d: panic: %v", u.ID, r)
			}
		}()
		next(ctx, b, u)
	}
}

// quiet leaves out the library's own words: they quote an update that it can't decode.
func quiet(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return err
}

// webhook takes updates at /telegram until ctx ends.
func webhook(ctx context.Context, c config, st store.Store) error {
	b, err := newBot(c, &http.Client{Timeout: 8 * time.Second})
	if err != nil {
		return err
	}
	src, err := telegram.NewSource(b.ID(), c.secret, nil)
	if err != nil {
		return fmt.Errorf("TELEGRAM_SECRET: %w", err)
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, &c.door)(b.WebhookHandler()))
	newest, _, _ := strings.Cut(c.secret, ",") // there are two while it is replaced, the new one first
	params := &bot.SetWebhookParams{URL: c.publicURL, SecretToken: newest, AllowedUpdates: kinds()}
	if _, err := b.SetWebhook(ctx, params); err != nil {
		return err
	}
	handling, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends when no request is under way
	handled := make(chan struct{})
	go func() {
		defer close(handled)
		b.StartWebhook(handling)
	}()
	err = dedup.HTTPServer(&http.Server{Handler: mux, ReadTimeout: 20 * time.Second, WriteTimeout: 40 * time.Second}, l)(ctx)
	stop()
	<-handled
	return err
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
	b, err := newBot(c, &http.Client{Transport: keep, Timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	// A webhook excludes getUpdates. What is pending stays.
	if _, err := b.DeleteWebhook(ctx, &bot.DeleteWebhookParams{}); err != nil {
		return err
	}
	b.Start(ctx)
	return nil
}
