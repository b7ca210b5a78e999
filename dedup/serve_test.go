package dedup_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

func TestRunWith(t *testing.T) {
	untilDone := func(ctx context.Context) error { <-ctx.Done(); return nil }
	t.Run("what an intake takes on its way out is worked on", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			ctx, cancel := context.WithCancel(b.ctx)
			time.AfterFunc(time.Minute, cancel)
			err := b.processor(nil).RunWith(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				b.accept(event(7, 1, "the last one"))
				time.Sleep(time.Second)
				return nil
			}, untilDone)
			if err != nil {
				t.Fatal(err)
			}
			b.only(store.Done)
		})
	})
	t.Run("an intake that fails ends the others, and its error is told", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			gone := errors.New("gone")
			err := b.processor(nil).RunWith(b.ctx, untilDone, func(context.Context) error { return gone })
			if !errors.Is(err, gone) {
				t.Fatal(err)
			}
		})
	})
	t.Run("an intake whose goroutine ends by itself is not waited for", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			err := b.processor(nil).RunWith(b.ctx, untilDone, func(context.Context) error { runtime.Goexit(); return nil })
			if err == nil || !strings.Contains(err.Error(), "ended without returning") {
				t.Fatal(err)
			}
		})
	})
	t.Run("a Processor that runs already ends the intakes", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			p := b.processor(nil)
			defer b.run(p)()
			time.Sleep(time.Second)
			if err := p.RunWith(b.ctx, untilDone); err == nil || !strings.Contains(err.Error(), "running already") {
				t.Fatal(err)
			}
		})
	})
	t.Run("without intakes it is Run", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			ctx, cancel := context.WithCancel(b.ctx)
			time.AfterFunc(time.Minute, cancel)
			b.accept(event(7, 1, "hello"))
			if err := b.processor(nil).RunWith(ctx); err != nil {
				t.Fatal(err)
			}
			b.only(store.Done)
		})
	})
}

func TestHTTPServer(t *testing.T) {
	listen := func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	t.Run("a request that is under way is answered before it ends", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		came, goOn := make(chan struct{}), make(chan struct{})
		ln := listen()
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(came)
			<-goOn
			io.WriteString(w, "answered")
		})}
		ended, answer := make(chan error, 1), make(chan string, 1)
		go func() { ended <- dedup.HTTPServer(srv, ln)(ctx) }()
		go func() {
			res, err := http.Get("http://" + ln.Addr().String())
			if err != nil {
				answer <- err.Error()
				return
			}
			defer res.Body.Close()
			body, _ := io.ReadAll(res.Body)
			answer <- string(body)
		}()
		<-came
		srv.RegisterOnShutdown(func() { close(goOn) }) // the handler is let go only once it stops
		cancel()
		if got := <-answer; got != "answered" {
			t.Error(got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("a TLS configuration that only a func gives is not served in the clear", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ln := listen()
		none := func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, errors.New("none for you") }
		srv := &http.Server{TLSConfig: &tls.Config{GetConfigForClient: none}, ErrorLog: log.New(io.Discard, "", 0)}
		ended := make(chan error, 1)
		go func() { ended <- dedup.HTTPServer(srv, ln)(ctx) }()
		if res, err := http.Get("http://" + ln.Addr().String()); err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusBadRequest { // net/http's to a client without TLS
				t.Errorf("answered %d", res.StatusCode)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Run("a server that was shut down before is an error, and no clean end", func(t *testing.T) {
		srv := &http.Server{Addr: "127.0.0.1:0"}
		for i := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			if i == 0 {
				cancel()
			}
			err := dedup.HTTPServer(srv, nil)(ctx)
			cancel()
			if errors.Is(err, http.ErrServerClosed) != (i == 1) {
				t.Errorf("time %d: %v", i+1, err)
			}
		}
	})
	t.Run("an address that is taken is an error", func(t *testing.T) {
		ln := listen()
		defer ln.Close()
		err := dedup.HTTPServer(&http.Server{Addr: ln.Addr().String()}, nil)(t.Context())
		if err == nil || !strings.Contains(err.Error(), "HTTP server ended") {
			t.Fatal(err)
		}
	})
}
