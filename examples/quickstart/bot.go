package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// bot.go: the bot itself, as it would be in production: a source, a rule, a processor, and one wrapped handler. The parent
// and its children run this same code.

const (
	botID  = int64(5550001234)
	secret = "quickstart-secret_0123456789abcdef" // what setWebhook was given as secret_token
)

// lease is how long an operation belongs to a process that may have died. It and the times below are about as short as they
// may be, so that you need not wait; the defaults (20 s for a call, a lease of 60 s, 2 min of quiet) suit a CRM on the
// other side of the internet.
const lease = 12 * time.Second

func processorOptions(log *slog.Logger) *dedup.Options {
	return &dedup.Options{
		CallTimeout: 5 * time.Second,
		Lease:       lease,
		QuietPeriod: 500 * time.Millisecond,
		BackoffMin:  100 * time.Millisecond,
		BackoffMax:  time.Second,
		Poll:        250 * time.Millisecond,
		Logger:      log,
	}
}

// diskPatience is how long a busy disk may take for a commit. The defaults (5 s) answer 503 sooner, which is right, and
// would be one line in the table too many.
const diskPatience = 20 * time.Second

func middlewareOptions(log *slog.Logger) *dedup.MiddlewareOptions {
	return &dedup.MiddlewareOptions{
		AcceptTimeout:     diskPatience,
		ForwardDuplicates: true, // the dialogue in form.go hears of every delivery, and bears repeats
		Logger:            log,
	}
}

// botConfig is all that a bot has to know beside its database. A child gets it as JSON.
type botConfig struct {
	CRM     string          // the CRM's base URL
	CRMSays crm.Description // what its documentation promises
	LookUp  bool            // the CRM can be asked for a lead by its operation id
	Intake  bool            // only take deliveries in, and leave the work to another process
	Form    bool            // a dialogue that ends in Submit, instead of a rule
	Retries bool            // the adapter sends again by itself: what -break is for
}

// bot is a running one.
type bot struct {
	url  string // where Telegram delivers
	form *form
	stop func() error // takes nothing in any more, finishes what is under way
}

// startBot serves the webhook over st and, unless it only takes in, works on what was stored.
func startBot(st store.Store, c botConfig, log *slog.Logger) (*bot, error) {
	src, err := telegram.NewSource(botID, secret, nil)
	if err != nil {
		return nil, err
	}
	leads, err := dedup.NewProcessor(st, adapter(c), rule(c), processorOptions(log))
	if err != nil {
		return nil, err
	}
	b := &bot{form: &form{leads: leads, answers: map[int64]map[int64]string{}}}
	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, middlewareOptions(log))(b.form))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b.url = "http://" + l.Addr().String() + "/telegram"
	srv := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	go srv.Serve(l) // returns when shut down

	ctx, cancel := context.WithCancel(context.Background())
	drained := make(chan error, 1)
	if c.Intake {
		drained <- nil
	} else {
		go func() { drained <- leads.Run(ctx) }()
	}
	b.stop = sync.OnceValue(func() error {
		ctx, end := context.WithTimeout(context.Background(), lease)
		defer end()
		err := srv.Shutdown(ctx)
		cancel()
		return errors.Join(err, <-drained)
	})
	return b, nil
}

// rule: a person's first message opens a lead, what the same person writes within a day is added to it.
func rule(c botConfig) dedup.Rule {
	if c.Form {
		return nil // the host submits its leads itself
	}
	return dedup.ContinueWithin(24*time.Hour, func(e dedup.Enquiry) (crm.Lead, error) {
		return crm.Lead{Title: "Telegram: " + e.Person.Name, Name: e.Person.Name, Username: e.Person.Username,
			Phone: e.Phone, Text: e.Text}, nil
	})
}

// adapter talks to the simulated CRM, and offers only what that CRM is said to have.
func adapter(c botConfig) crm.Adapter {
	client := crmtest.NewClient(c.CRM, c.CRMSays)
	var full interface {
		crm.Adapter
		crm.Noter
		crm.Describer
	} = client
	if c.Retries {
		full = impatient{client}
	}
	if c.LookUp {
		return full
	}
	return struct { // nothing but these three: no look-up
		crm.Adapter
		crm.Noter
		crm.Describer
	}{full, full, full}
}

// impatient is the adapter that everybody writes first: no answer, so once more. The processor can't see it happen.
type impatient struct{ *crmtest.Client }

func (a impatient) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	id, err := a.Client.CreateLead(ctx, op, l)
	if err != nil && ctx.Err() == nil {
		return a.Client.CreateLead(ctx, op, l)
	}
	return id, nil
}
