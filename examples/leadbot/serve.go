package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/telegram"
)

// serve.go: the server's life: start, work, drain.

func serve(ctx context.Context, c config, errOut io.Writer) (err error) {
	log := slog.New(slog.NewTextHandler(errOut, nil))
	adapter, sim, err := openCRM(c, log)
	if err != nil {
		return err
	}
	st, err := c.db.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	leads, err := dedup.NewProcessor(st, adapter, newRule(adapter), &dedup.Options{
		Logger: log,
		Shadow: c.shadow,
		OnDone: func(_ context.Context, o dedup.Outcome) {
			log.Info("in the CRM", "operation", o.OperationID, "kind", o.Kind, "crm_id", o.CRMID)
		},
		NeedsPerson: func(_ context.Context, o dedup.Outcome) { // the place to write to somebody
			log.Warn("needs a person: leadbot ops list", "operation", o.OperationID, "event", o.EventID, "state", o.State)
		},
	})
	if err != nil {
		return err
	}
	if err := checkAccount(ctx, st, c); err != nil {
		return err
	}
	ready, err := newReadiness(st, c.db)
	if err != nil {
		return err
	}
	mux := routes(leads, ready, sim, log)
	poll, err := takeIn(c, st, mux, log)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	if c.hooks != nil {
		mux.Handle("/crm", dedup.Middleware(st, c.hooks, nil)(nil))
	}
	name, _, _ := strings.Cut(c.crm, ":") // a hook's URL may hold a secret
	say := log.With("url", "http://"+ln.Addr().String(), "crm", name, "db", c.db, "crm_hooks", c.hooks != nil, "poll", poll != nil)
	if c.shadow {
		say.Warn("listening", "SHADOW", "NOTHING IS SENT TO THE CRM: what would be is listed by leadbot ops shadow")
	} else {
		say.Info("listening")
	}
	intakes := []func(context.Context) error{dedup.HTTPServer(newServer(mux, log), ln)}
	if poll != nil {
		intakes = append(intakes, poll)
	}
	return work(ctx, leads, log, intakes...)
}

// takeIn is how updates come: through a door in mux, or by polling, which is returned to be run. The nil, and
// telegram.PollerOptions.Handle, are the places for a bot of your own.
func takeIn(c config, st database, mux *http.ServeMux, log *slog.Logger) (poll func(context.Context) error, err error) {
	if c.client == nil {
		mux.Handle("/telegram", dedup.Middleware(st, c.source, nil)(nil))
		return nil, nil
	}
	p, err := telegram.NewPoller(st, c.source, c.client, &telegram.PollerOptions{Logger: log})
	if err != nil {
		return nil, err
	}
	return p.Run, nil
}

// checkAccount finds a mistyped -bot-id or -tenant before the first update does.
func checkAccount(ctx context.Context, st database, c config) error {
	if c.addAccount {
		return dedup.AddAccount(ctx, st, c.source)
	}
	err := dedup.CheckAccounts(ctx, st, c.source)
	if errors.Is(err, dedup.ErrAccountChanged) {
		return fmt.Errorf("-bot-id or -tenant: %w (leadbot: start it once with -add-account)", err)
	}
	return err
}

// newServer bounds what a slow or idle client can hold. Telegram gives a request 60 s.
func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       20 * time.Second,
		WriteTimeout:      40 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// work takes updates and works on them until ctx ends, or the server or the poller fails.
func work(ctx context.Context, leads *dedup.Processor, log *slog.Logger, intakes ...func(context.Context) error) error {
	defer context.AfterFunc(ctx, func() { log.Info("stopping: finishing what is under way") })()
	if err := leads.RunWith(ctx, intakes...); err != nil {
		return err
	}
	log.Info("stopped: drained")
	return nil
}
