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
)

// serve.go: the server's life: start, work, drain.

// shutdownTime is how long requests under way may take once no new ones are taken.
const shutdownTime = 15 * time.Second

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
	ln, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	mux := routes(leads, ready, sim, log)
	mux.Handle("/telegram", dedup.Middleware(st, c.source, nil)(nil)) // nil: there is no bot behind it; put yours here
	if c.hooks != nil {
		mux.Handle("/crm", dedup.Middleware(st, c.hooks, nil)(nil))
	}
	name, _, _ := strings.Cut(c.crm, ":") // a hook's URL may hold a secret
	say := log.With("url", "http://"+ln.Addr().String(), "crm", name, "db", c.db, "crm_hooks", c.hooks != nil)
	if c.shadow {
		say.Warn("listening", "SHADOW", "NOTHING IS SENT TO THE CRM: what would be is listed by leadbot ops shadow")
	} else {
		say.Info("listening")
	}
	return work(ctx, leads, newServer(mux, log), ln, log)
}

// checkAccount finds a mistyped -bot-id or -tenant before the first update does.
func checkAccount(ctx context.Context, st database, c config) error {
	if c.addAccount {
		return dedup.AddAccount(ctx, st, c.source)
	}
	err := dedup.CheckAccounts(ctx, st, c.source)
	if errors.Is(err, dedup.ErrAccountChanged) {
		return fmt.Errorf("-bot-id or -tenant: %w; here: start leadbot once with -add-account", err)
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

// work runs server and processor until ctx ends or one of them fails, and then stops them in this order: nothing new is
// taken, requests under way are answered, calls to the CRM finish and are recorded.
func work(ctx context.Context, leads *dedup.Processor, srv *http.Server, ln net.Listener, log *slog.Logger) error {
	working, stopWork := context.WithCancel(context.Background())
	defer stopWork()
	served, drained := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	go func() { drained <- leads.Run(working) }()
	var failed error
	select {
	case <-ctx.Done():
		log.Info("stopping: finishing what is under way")
	case failed = <-served:
	}
	grace, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		failed = errors.Join(failed, fmt.Errorf("requests were still under way: %w", err), srv.Close())
	}
	stopWork()
	if err := errors.Join(failed, <-drained); err != nil {
		return err
	}
	log.Info("stopped: drained")
	return nil
}
