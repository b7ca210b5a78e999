// Command telego is a bot on github.com/mymmrac/telego that takes enquiries, with leadonce put in front of it. What is the
// bot's own is in bot(); all else is leadonce's, and the same whichever way the updates come:
//
//   - By webhook, if PUBLIC_URL is set: dedup.Middleware around the handler that telego registers. telego answers a body
//     that it can't decode with 500, which Telegram would repeat for a day while the chat stands still; and it answers 200
//     when the update is in a channel in memory. Behind the middleware both are harmless: what counts is on disk.
//   - By long polling: telegram.Transport under telego's HTTP client. telego confirms an update before it is handled; by
//     then it is on disk.
//
// What to know about telego (v1.6.0):
//
//   - It calls the API through fasthttp, unless it is given a client by WithHTTPClient. Without that the Transport is never
//     asked.
//   - The context of a webhook's request travels with the update, and telego does not detach it. The middleware does.
//   - The handler that UpdatesViaWebhook registers has a data race: concurrent requests share the variable for their errors,
//     so that one's failure may be taken for another's. Here it gets one request at a time; all it does is to decode.
//   - It can't answer a delivery with a call (a reply in the answer's body): every answer is a call of its own.
//   - Each update is handled in a goroutine of its own, so that one person's messages may be answered out of order; their
//     notes in the CRM are in order. A panic there ends the process unless PanicRecoveryHandler is used.
//   - When the context of UpdatesViaWebhook ends, its channel is closed, and a request that comes later panics: the
//     server stops first.
//   - Polling that fails sleeps for RetryTimeout, 8 s by default. Updates whose ids are below the offset (Telegram may begin
//     again lower after a quiet week) are leads all the same, but the bot sees them only after a restart. An update
//     that it can't decode it asks for again and again, with all that came beside it; the Transport takes it out after five
//     times.
//
// Run it with
//
//	BOT_TOKEN=123456:... TELEGRAM_SECRET=at-least-16-random-characters CRM_URL=https://backend.example/leads \
//	PUBLIC_URL=https://bot.example/telegram go run ./telego
//
// CRM_URL takes the leads (package crm/jsonhook says how). LISTEN is where it listens (127.0.0.1:8443), behind a TLS proxy;
// without PUBLIC_URL it polls, and needs neither that nor a secret. DB is the database (leads.db), BOT_API another Bot API
// server than Telegram's.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mymmrac/telego"
	th "github.com/mymmrac/telego/telegohandler"
	tu "github.com/mymmrac/telego/telegoutil"

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
	err := run(ctx, config{token: os.Getenv("BOT_TOKEN"), secret: os.Getenv("TELEGRAM_SECRET"), api: os.Getenv("BOT_API"),
		listen: os.Getenv("LISTEN"), publicURL: os.Getenv("PUBLIC_URL"), crmURL: os.Getenv("CRM_URL"), db: os.Getenv("DB")})
	if err != nil {
		log.Fatal(err)
	}
}

// config is the environment, and what a test plants. Zero values are the defaults.
type config struct {
	token, secret, api, listen, publicURL, crmURL, db string

	options dedup.Options
	door    dedup.MiddlewareOptions
	wrap    func(store.Store) store.Store // around the store
	before  func(text string)             // called before a message is handled
}

func run(ctx context.Context, c config) (err error) {
	db, err := sqlite.Open(ctx, cmp.Or(c.db, "leads.db"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	st := store.Store(db)
	if c.wrap != nil {
		st = c.wrap(st)
	}
	// UniqueID: the back end keeps operation_id unique, so that a lost answer may be asked for again.
	hook, err := jsonhook.New(c.crmURL, &jsonhook.Options{Calls: []crm.Kind{crm.KindNote},
		Guarantee: crm.Guarantee{Kind: crm.UniqueID}})
	if err != nil {
		return fmt.Errorf("CRM_URL: %w", err)
	}
	leads, err := dedup.NewProcessor(st, hook, dedup.ContinueWithin(24*time.Hour, lead), &c.options)
	if err != nil {
		return err
	}
	take := poll
	if c.publicURL != "" {
		take = webhook
	}
	// It ends the bot first, and goes on sending until all that came is drained.
	return leads.RunWith(ctx, func(ctx context.Context) error { return withoutToken(take(ctx, c, st)) })
}

// withoutToken makes an error of a call fit for a log: net/http's quote the URL, and the token is part of that. What telego
// logs by itself it has cleaned already.
func withoutToken(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// lead makes a lead of everything that a person asks, but of commands.
func lead(e dedup.Enquiry) (crm.Lead, error) {
	if e.Command != "" && e.Campaign == "" {
		return crm.Lead{}, dedup.Ignore("a command")
	}
	return crm.Lead{Title: "Telegram: " + e.Person.Name, Name: e.Person.Name, Username: e.Person.Username, Phone: e.Phone,
		Text: e.Summary(), Campaign: e.Campaign}, nil
}

// poll takes updates by long polling until ctx ends.
func poll(ctx context.Context, c config, st store.Store) error {
	id, err := telegram.BotID(c.token)
	if err != nil {
		return err
	}
	src, err := telegram.NewPollingSource(id, nil)
	if err != nil {
		return err
	}
	tr, err := telegram.NewTransport(st, src, nil)
	if err != nil {
		return err
	}
	api, err := newAPI(c, &http.Client{Transport: tr, Timeout: 40 * time.Second}) // longer than the poll below
	if err != nil {
		return err
	}
	if err := api.DeleteWebhook(ctx, nil); err != nil { // or getUpdates is refused; what waits is kept
		return err
	}
	updates, err := api.UpdatesViaLongPolling(ctx, &telego.GetUpdatesParams{Timeout: 25},
		telego.WithLongPollingRetryTimeout(time.Second))
	if err != nil {
		return err
	}
	stop, err := bot(api, updates, c.before)
	if err != nil {
		return err
	}
	<-ctx.Done()
	stop()
	return nil
}

// webhook takes deliveries until ctx ends.
func webhook(ctx context.Context, c config, st store.Store) error {
	id, err := telegram.BotID(c.token)
	if err != nil {
		return err
	}
	src, err := telegram.NewSource(id, c.secret, nil)
	if err != nil {
		return fmt.Errorf("TELEGRAM_SECRET: %w", err)
	}
	api, err := newAPI(c, &http.Client{Timeout: 10 * time.Second})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cmp.Or(c.listen, "127.0.0.1:8443"))
	if err != nil {
		return err
	}
	open, closeUpdates := context.WithCancel(context.WithoutCancel(ctx))
	defer closeUpdates() // after the server's end
	inner := http.NewServeMux()
	register := telego.WebhookHTTPServeMux(inner, "/telegram") // the secret is the middleware's affair
	updates, err := api.UpdatesViaWebhook(open, func(h telego.WebhookHandler) error { return register(oneAtATime(h)) })
	if err != nil {
		return err
	}
	stop, err := bot(api, updates, c.before)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, &c.door)(inner)) // was: mux.Handle("/telegram", inner)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: 40 * time.Second, IdleTimeout: 2 * time.Minute}
	newest, _, _ := strings.Cut(c.secret, ",") // while it is replaced: the new one first
	err = api.SetWebhook(ctx, &telego.SetWebhookParams{URL: c.publicURL, SecretToken: strings.TrimSpace(newest),
		AllowedUpdates: []string{"message", "edited_message", "callback_query"}})
	if err == nil {
		err = dedup.HTTPServer(srv, l)(ctx)
	}
	stop()
	return err
}

// oneAtATime keeps telego's handler from running twice at once: its requests share a variable for their errors.
func oneAtATime(h telego.WebhookHandler) telego.WebhookHandler {
	var mu sync.Mutex
	return func(ctx context.Context, data []byte) error {
		mu.Lock()
		defer mu.Unlock()
		return h(ctx, data)
	}
}

func newAPI(c config, client *http.Client) (*telego.Bot, error) {
	api, err := telego.NewBot(c.token, telego.WithHTTPClient(client),
		telego.WithAPIServer(cmp.Or(c.api, "https://api.telegram.org")))
	if err != nil {
		return nil, fmt.Errorf("BOT_TOKEN: %w", err)
	}
	return api, nil
}

// bot is the bot as it was. It answers in the background; stop waits for the answers that are under way.
func bot(api *telego.Bot, updates <-chan telego.Update, before func(text string)) (stop func(), _ error) {
	bh, err := th.NewBotHandler(api, updates)
	if err != nil {
		return nil, err
	}
	bh.Use(th.PanicRecoveryHandler(func(v any) error { return fmt.Errorf("panic: %v", v) }))
	say := func(text string) th.MessageHandler {
		return func(ctx *th.Context, m telego.Message) error {
			if before != nil {
				before(m.Text)
			}
			_, err := ctx.Bot().SendMessage(ctx, tu.Message(m.Chat.ChatID(), text))
			return err
		}
	}
	bh.HandleMessage(say("Hello! Ask us anything"), th.CommandEqual("start"))
	bh.HandleMessage(say("Thank you, we will call you back")) // true: it is on disk
	go func() {
		if err := bh.Start(); err != nil { // what was left in the channel is stored, and stays without an answer
			log.Print(err)
		}
	}()
	return func() {
		grace, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := bh.StopWithContext(grace); err != nil {
			log.Printf("not everything was answered: %v", err)
		}
	}, nil
}
