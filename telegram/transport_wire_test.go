package telegram_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// transport_wire_test.go: real sockets: answers that break off, compression, redirects, limits.

// wired is a pollBed with a real server, which before may answer for.
func wired(t *testing.T, o *telegram.TransportOptions, before func(w http.ResponseWriter, r *http.Request) bool) (*pollBed, string) {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leads.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &pollBed{t: t, api: newBotAPI(100), st: st, log: &buffer{}}
	if before != nil {
		b.api.before = func(w http.ResponseWriter, r *http.Request, _ string) bool { return before(w, r) }
	}
	server := httptest.NewServer(b.api)
	own := &http.Transport{}
	t.Cleanup(func() {
		server.Close()
		own.CloseIdleConnections()
		st.Close()
	})
	src, err := telegram.NewPollingSource(botID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = &telegram.TransportOptions{}
	}
	o.Base, o.Logger = own, slog.New(slog.NewTextHandler(b.log, nil))
	if b.tr, err = telegram.NewTransport(st, src, o); err != nil {
		t.Fatal(err)
	}
	return b, server.URL + "/bot" + token
}

// fetch is what a library does, through an http.Client.
func (b *pollBed) fetch(to string, header ...string) (string, *http.Response, error) {
	req, err := http.NewRequestWithContext(context.Background(), "POST", to+"/getUpdates", strings.NewReader("timeout=0"))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := (&http.Client{Transport: b.tr}).Do(req)
	if err != nil {
		return "", nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return string(raw), resp, err
}

func TestTransportWhenAnAnswerBreaksOff(t *testing.T) {
	const whole = `{"ok":true,"result":[{"update_id":100,"message":{}},{"update_id":101,"message":{}}]}`
	for name, head := range map[string]string{
		"with its length announced":   fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(whole)),
		"in a chunk":                  fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", len(whole)),
		"where the end is the end":    "HTTP/1.0 200 OK\r\n\r\n",
		"before it begins":            "",
		"under another status, whole": fmt.Sprintf("HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n", len(whole)),
	} {
		t.Run(name+", the library gets an error and everything the next time", func(t *testing.T) {
			t.Parallel()
			var at atomic.Int64 // where the answer is cut
			b, to := wired(t, nil, func(w http.ResponseWriter, _ *http.Request) bool {
				cut := int(at.Load())
				if cut >= len(whole) {
					return false
				}
				conn, buf, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return true
				}
				defer conn.Close()
				fmt.Fprint(buf, head)
				if head != "" {
					fmt.Fprint(buf, whole[:cut])
				}
				buf.Flush()
				return true
			})
			b.api.say(2)
			for cut := 1; cut < len(whole); cut += 41 {
				at.Store(int64(cut))
				if raw, _, err := b.fetch(to); err == nil {
					t.Errorf("cut after %d bytes, the library got %q", cut, raw)
				}
				if n := len(b.stored()); n != 0 {
					t.Errorf("cut after %d bytes, %d are stored", cut, n)
				}
			}
			at.Store(int64(len(whole)))
			if _, _, err := b.fetch(to); err != nil {
				t.Fatal(err)
			}
			b.once(100, 2)
		})
	}
	for name, body := range map[string]string{
		"no JSON":              `<html>`,
		"nothing":              ``,
		"a list":               `[{"update_id":1}]`,
		"no ok":                `{"result":[{"update_id":1}]}`,
		"no result":            `{"ok":true}`,
		"a result of null":     `{"ok":true,"result":null}`,
		"a result of one":      `{"ok":true,"result":{"update_id":1}}`,
		"something behind it":  whole + `{`,
		"an ok that is a word": `{"ok":"maybe`,
	} {
		t.Run("a 200 that is not understood is an error: "+name, func(t *testing.T) {
			t.Parallel()
			b, to := wired(t, nil, func(w http.ResponseWriter, _ *http.Request) bool { fmt.Fprint(w, body); return true })
			if raw, _, err := b.fetch(to); err == nil {
				t.Errorf("handed on: %q", raw)
			}
		})
	}
	for name, body := range map[string]string{
		"something behind it":          `{"ok":true,"result":[{"update_id":1}]}{}`,
		"space before, a word behind":  " \n" + `{"ok":true,"result":[{"update_id":1}]} ok`,
		"names in another case":        `{"OK":true,"Result":[{"update_id":1}]}`,
		"a second result":              `{"ok":true,"result":[],"Result":[{"update_id":1}]}`,
		"a second result, by a letter": `{"ok":true,"result":[],"reſult":[{"update_id":1}]}`,
		"a second ok":                  `{"ok":false,"Ok":true,"result":[{"update_id":1}]}`,
		"an ok that is a number":       `{"ok":1,"result":[{"update_id":1}]}`,
		"an ok that is nothing":        `{"ok":null,"result":[{"update_id":1}]}`,
	} {
		t.Run("what a library may find updates in is an error with any status: "+name, func(t *testing.T) {
			t.Parallel()
			for _, status := range []int{200, 201, 400, 502} {
				b, to := wired(t, nil, func(w http.ResponseWriter, _ *http.Request) bool {
					w.WriteHeader(status)
					fmt.Fprint(w, body)
					return true
				})
				if raw, _, err := b.fetch(to); err == nil {
					t.Errorf("%d, handed on: %q", status, raw)
				}
			}
		})
	}
	t.Run("an answer that is too long is an error that names the limit", func(t *testing.T) {
		b, to := wired(t, &telegram.TransportOptions{MaxAnswer: 700}, nil)
		b.api.say(5)
		_, _, err := b.fetch(to)
		if err == nil || !strings.Contains(err.Error(), "MaxAnswer") || len(b.stored()) != 0 {
			t.Errorf("got %v, %d are stored", err, len(b.stored()))
		}
	})
	t.Run("a redirect is an error", func(t *testing.T) {
		b, to := wired(t, nil, func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return true
		})
		if _, _, err := b.fetch(to); err == nil || !strings.Contains(err.Error(), "redirected") {
			t.Errorf("got %v", err)
		}
	})
}

func TestTransportUndoesCompression(t *testing.T) {
	pressed := func(all bool) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !all && r.Header.Get("Accept-Encoding") != "gzip" {
				t.Errorf("asked for %q", r.Header.Get("Accept-Encoding"))
			}
			var buf bytes.Buffer
			z := gzip.NewWriter(&buf)
			fmt.Fprint(z, `{"ok":true,"result":[{"update_id":100,"message":{}}]}`)
			z.Close()
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Length", fmt.Sprint(buf.Len()))
			w.Write(buf.Bytes())
			return true
		}
	}
	for name, disabled := range map[string]bool{"by the base": false, "by ourselves where the base does not": true} {
		t.Run("undone "+name, func(t *testing.T) {
			o := &telegram.TransportOptions{}
			b, to := wired(t, o, pressed(disabled))
			o.Base.(*http.Transport).DisableCompression = disabled
			raw, resp, err := b.fetch(to, "Accept-Encoding", "br, gzip")
			if err != nil || !strings.HasPrefix(raw, `{"ok":true`) || resp.Header.Get("Content-Encoding") != "" ||
				resp.ContentLength != int64(len(raw)) {
				t.Errorf("got %q, %v, %v", raw, resp, err)
			}
			b.once(100, 1)
		})
	}
	t.Run("one that nobody asked for is an error", func(t *testing.T) {
		b, to := wired(t, nil, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "xx")
			return true
		})
		if _, _, err := b.fetch(to); err == nil || !strings.Contains(err.Error(), "Content-Encoding") {
			t.Errorf("got %v", err)
		}
	})
}

func TestPollingAndWebhookKnowEachOthersUpdates(t *testing.T) {
	var told []dedup.Delivery
	o := &telegram.TransportOptions{OnDelivery: func(d dedup.Delivery) { told = append(told, d) }}
	b, to := wired(t, o, nil)
	b.api.say(1)
	hook := dedup.Middleware(b.st, source(t), nil)(nil)
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/telegram", strings.NewReader(b.api.queue[0].json))
	r.Header.Set(telegram.SecretHeader, "secret-of-the-test")
	if hook.ServeHTTP(w, r); w.Code != 200 {
		t.Fatalf("the webhook answered %d", w.Code)
	}
	if _, _, err := b.fetch(to); err != nil {
		t.Fatal(err)
	}
	b.once(100, 1)
	if len(told) != 1 || !told[0].Receipt.Duplicate || told[0].UpdateID != "100" {
		t.Errorf("told: %+v", told)
	}
}

func TestNewTransport(t *testing.T) {
	st, src := new(struct{ store.Store }), source(t)
	for _, c := range []struct {
		name string
		st   store.Store
		src  *telegram.Source
		o    *telegram.TransportOptions
		want string
	}{
		{"without a store it is refused", nil, src, nil, "store is nil"},
		{"without a source it is refused", st, nil, nil, "source is nil"},
		{"a negative limit is refused", st, src, &telegram.TransportOptions{MaxAnswer: -1}, "MaxAnswer"},
		{"a limit beyond reason is refused", st, src, &telegram.TransportOptions{MaxAnswer: 1 << 41}, "MaxAnswer"},
		{"what the intake refuses is refused", st, src, &telegram.TransportOptions{AcceptTimeout: -1}, "AcceptTimeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := telegram.NewTransport(c.st, c.src, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
