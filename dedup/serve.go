package dedup

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// serve.go: the life of a process: take in and work, then stop in the order that leaves nothing half done.

// shutdownGrace is how long HTTPServer lets requests finish. The middleware answers within AcceptTimeout + InnerTimeout, 15 s
// by default.
const shutdownGrace = 20 * time.Second

// errIntakeGone is what came of an intake that has called runtime.Goexit.
var errIntakeGone = errors.New("dedup: the goroutine of an intake ended without returning")

// RunWith is Run beside what takes enquiries in: servers (HTTPServer), pollers (telegram.Poller.Run), a bot library's own
// loop. Each intake runs until the context that it is given ends. When ctx ends, or an intake returns, all of them are told
// to end and waited for; only then does the Processor drain, so that what came in last is still worked on.
//
// It returns the errors of the intakes and of Run, nil after a clean stop. Close the store after it.
func (p *Processor) RunWith(ctx context.Context, intakes ...func(context.Context) error) error {
	taking, stop := context.WithCancel(ctx)
	defer stop()
	working, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	ran, ended := make(chan error, 1), make(chan error, len(intakes)+1)
	go func() {
		err := p.Run(working)
		ran <- err
		if err != nil {
			stop() // it did not begin: without it nothing is sent
		}
	}()
	for _, in := range intakes {
		go func() {
			err := errIntakeGone
			defer func() { ended <- err }()
			err = in(taking)
		}()
	}
	if len(intakes) == 0 {
		<-taking.Done()
	}
	var errs []error
	for range intakes {
		errs = append(errs, <-ended)
		stop()
	}
	drain()
	return errors.Join(append(errs, <-ran)...)
}

// HTTPServer is an intake for RunWith: it serves on ln, or where that is nil on srv.Addr (with TLS if srv.TLSConfig has
// certificates, or a func that gives them), until its context ends, and then lets requests that are under way finish, for 20 s.
// A server that was shut down otherwise, now or before it was given here, is an error (http.ErrServerClosed): it takes nothing
// in, and nobody has asked for that here.
func HTTPServer(srv *http.Server, ln net.Listener) func(context.Context) error {
	serve := func() error {
		c := srv.TLSConfig
		tls := c != nil && (len(c.Certificates) > 0 || c.GetCertificate != nil || c.GetConfigForClient != nil)
		switch {
		case ln != nil && tls:
			return srv.ServeTLS(ln, "", "")
		case ln != nil:
			return srv.Serve(ln)
		case tls:
			return srv.ListenAndServeTLS("", "")
		}
		return srv.ListenAndServe()
	}
	return func(ctx context.Context) error {
		served := make(chan error, 1)
		go func() { served <- serve() }()
		var err error
		select {
		case err = <-served:
		case <-ctx.Done():
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
			defer cancel()
			if late := srv.Shutdown(grace); late != nil {
				err = fmt.Errorf("dedup: requests were still under way after %v, and are cut off: %w", shutdownGrace, late)
				return errors.Join(err, srv.Close())
			}
			err = <-served
		}
		if errors.Is(err, http.ErrServerClosed) && ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("dedup: the HTTP server ended: %w", err)
	}
}
