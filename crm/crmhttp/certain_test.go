package crmhttp_test

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// certain_test.go: what is certain after each way in which an exchange can end, over real sockets.

func pool(s *httptest.Server) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(s.Certificate())
	return p
}

// refused is an address of this machine where nobody listens.
func refused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// tail cuts the connection right after it has written s.
func tail(s string) func(int32, net.Conn) bool {
	return func(_ int32, conn net.Conn) bool { io.WriteString(conn, s); return false }
}

const secretPath = "/rest/1/S3CRET-in-path/?token=S3CRET-query"

func TestCertainty(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	tlsServer := httptest.NewTLSServer(http.NotFoundHandler())
	defer tlsServer.Close()
	over := `{"id":"1"}` + strings.Repeat(" ", 90) // whole and readable, if only its beginning is read
	withUser := func(base string) string {
		return strings.Replace(base, "://", "://user:S3CRET-password@", 1) + secretPath
	}
	cut := func(answer string) string { return withUser(serve(t, tail(answer)).url) }
	closed := func(_ context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		return ctx, cancel
	}
	silent := func(_ int32, conn net.Conn) bool { io.Copy(io.Discard, conn); return false }
	for _, c := range []struct {
		name string
		url  string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want crm.Outcome
		is   error
	}{
		{"a URL that can't be parsed", "http://127.0.0.1:x" + secretPath, nil, crm.OutcomeNotApplied, nil},
		{"a URL of another scheme", "ftp://127.0.0.1" + secretPath, nil, crm.OutcomeNotApplied, nil},
		{"a URL without a host", secretPath, nil, crm.OutcomeNotApplied, nil},
		{"a refused connection", withUser("http://" + refused(t)), nil, crm.OutcomeNotApplied, nil},
		{"a name that does not resolve", withUser("http://crm.invalid"), nil, crm.OutcomeNotApplied, nil},
		{"a certificate of an unknown authority", withUser(tlsServer.URL), nil, crm.OutcomeNotApplied, nil},
		{"a server without TLS", withUser(strings.Replace(plain.URL, "http:", "https:", 1)), nil, crm.OutcomeNotApplied, nil},
		{"a context that has ended", withUser(plain.URL), closed, crm.OutcomeNotApplied, context.Canceled},
		{"a reset after the request", cut(""), nil, crm.OutcomeUnknown, nil},
		{"an answer that is not HTTP", cut("S3CRET-answer\r\n\r\n"), nil, crm.OutcomeUnknown, nil},
		{"a malformed header", cut("HTTP/1.1 200 OK\r\nS3CRET header\r\n\r\n"), nil, crm.OutcomeUnknown, nil},
		{"headers cut short", cut("HTTP/1.1 201 Created\r\nContent-Le"), nil, crm.OutcomeUnknown, nil},
		{"a reset in the middle of the body",
			cut("HTTP/1.1 201 Created\r\nContent-Length: 50\r\n\r\n{\"id\":\"1\""), nil, crm.OutcomeUnknown, nil},
		{"JSON that ends too early after a 201",
			cut("HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\n{\"id\":\"1\""), nil, crm.OutcomeUnknown, nil},
		{"HTML after a 200", cut("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"), nil, crm.OutcomeUnknown, nil},
		{"nothing after a 200", cut("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), nil, crm.OutcomeUnknown, nil},
		{"two values after a 200", cut("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{}{}"), nil, crm.OutcomeUnknown, nil},
		{"a body over the limit",
			cut("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + over), nil, crm.OutcomeUnknown, nil},
		{"switched protocols",
			cut("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"), nil, crm.OutcomeUnknown, nil},
		{"an answer that is slower than the deadline", withUser(serve(t, silent).url),
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 100*time.Millisecond)
			}, crm.OutcomeUnknown, context.DeadlineExceeded},
	} {
		t.Run(c.name+" is "+c.want.String(), func(t *testing.T) {
			ctx := t.Context()
			if c.ctx != nil {
				var cancel context.CancelFunc
				ctx, cancel = c.ctx(ctx)
				defer cancel()
			}
			client := crmhttp.New(&crmhttp.Options{MaxBody: 64})
			var out struct{ ID string }
			_, err := client.PostJSON(ctx, c.url, map[string]string{"phone": "S3CRET-payload"}, &out)
			if err == nil {
				t.Fatal("no error")
			}
			t.Log(err)
			if o, after := crm.OutcomeOf(err); o != c.want || after != 0 {
				t.Fatalf("%v is %v after %v, want %v", err, o, after, c.want)
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%v is not %v", err, c.is)
			}
			if s := fmt.Sprintf("%v %+v %q", err, err, err); strings.Contains(s, "S3CRET") {
				t.Fatalf("the error tells a secret: %s", s)
			}
			if strings.Contains(err.Error(), "->") {
				t.Fatalf("the error differs with each connection: %v", err)
			}
			if _, ok := errors.AsType[*url.Error](err); ok {
				t.Fatal("a *url.Error can be reached, and it holds the URL")
			}
		})
	}
	t.Run("a proxy that refuses the tunnel is not applied", func(t *testing.T) {
		proxy := serve(t, tail("HTTP/1.1 407 S3CRET\r\nContent-Length: 0\r\n\r\n"))
		u, _ := url.Parse(strings.Replace(proxy.url, "://", "://me:S3CRET@", 1))
		c := crmhttp.New(&crmhttp.Options{Proxy: http.ProxyURL(u)})
		_, err := c.PostJSON(t.Context(), "https://crm.example"+secretPath, 1, nil)
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeNotApplied || strings.Contains(err.Error(), "S3CRET") {
			t.Fatalf("%v: %v", o, err)
		}
	})
	t.Run("the client's own timeout is a deadline", func(t *testing.T) {
		c := crmhttp.New(&crmhttp.Options{Timeout: 50 * time.Millisecond})
		_, err := c.Do(t.Context(), crmhttp.Request{Method: "POST", URL: serve(t, silent).url})
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeUnknown || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v: %v", o, err)
		}
	})
	t.Run("a value that JSON can't hold is rejected, and not quoted", func(t *testing.T) {
		_, err := crmhttp.New(nil).PostJSON(t.Context(), plain.URL, map[string]any{"x": json.Number("S3CRET")}, nil)
		if o, _ := crm.OutcomeOf(err); o != crm.OutcomeRejected || strings.Contains(err.Error(), "S3CRET") {
			t.Fatalf("%v: %v", o, err)
		}
	})
}
