package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/telegram"
)

// client_test.go: the calls, their errors, and the token that must be in none.

func client(t *testing.T, api http.Handler) *telegram.Client {
	t.Helper()
	c, err := telegram.NewClient(token, &telegram.ClientOptions{HTTP: &http.Client{Transport: inMemory{api}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// local is a Client of a local server behind a prefix.
func local(t *testing.T, api http.Handler) *telegram.Client {
	t.Helper()
	c, err := telegram.NewClient(token, &telegram.ClientOptions{BaseURL: "http://bot-api.lan:8081/prefix/",
		HTTP: &http.Client{Transport: inMemory{api}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewClient(t *testing.T) {
	for _, c := range []struct{ name, token, base, want string }{
		{"the defaults are taken", token, "", ""},
		{"a local server behind a prefix is taken", token, "http://localhost:8081/api/", ""},
		{"what is no token is refused", "AAFsecret", "", "token"},
		{"a base without a scheme is refused", token, "api.telegram.org", "BaseURL"},
		{"a base with another scheme is refused", token, "ftp://x", "BaseURL"},
		{"a base with a query is refused", token, "https://x/?a=b", "BaseURL"},
		{"a base with a password is refused", token, "https://u:AAFsecret@x", "BaseURL"},
		{"Telegram without TLS is refused", token, "http://API.telegram.org", "http would show the token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := telegram.NewClient(c.token, &telegram.ClientOptions{BaseURL: c.base})
			if c.want == "" && (err != nil || got.BotID() != botID) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v", err)
			}
			quiet(t, fmt.Sprint(err))
		})
	}
	t.Run("the token is in nothing that prints a client", func(t *testing.T) {
		c := client(t, nil)
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "client", c, "value", *c)
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "client", c, "in", struct{ C *telegram.Client }{c})
		all := log.String() + fmt.Sprintf("%v %+v %#v %s %v %+v %#v", c, c, c, c, *c, *c, *c)
		quiet(t, all)
		if !strings.Contains(all, "bot 6001") {
			t.Errorf("nobody can tell which: %s", all)
		}
	})
}

func TestClientErrors(t *testing.T) {
	answer := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status); fmt.Fprint(w, body) })
	}
	t.Run("ok:false is an APIError with Telegram's words and its wait", func(t *testing.T) {
		c := client(t, answer(429, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 7","parameters":{"retry_after":7}}`))
		_, err := c.WebhookInfo(t.Context())
		e, ok := errors.AsType[*telegram.APIError](err)
		if !ok || e.Code != 429 || e.RetryAfter != 7*time.Second || e.Method != "getWebhookInfo" || !strings.Contains(err.Error(), "Too Many") {
			t.Errorf("got %v", err)
		}
	})
	for name, h := range map[string]http.Handler{
		"a page of HTML":       answer(200, "<html>"),
		"a gateway's error":    answer(502, "Bad Gateway"),
		"nothing":              answer(200, ""),
		"a redirect":           http.RedirectHandler("https://example.com/", http.StatusFound),
		"ok without a result":  answer(200, `{"ok":true}`),
		"a result of a number": answer(200, `{"ok":true,"result":5}`),
		"too much":             answer(200, `{"ok":true,"result":"`+strings.Repeat("x", 2<<20)+`"}`),
	} {
		t.Run("what is no answer is an error: "+name, func(t *testing.T) {
			c, err := telegram.NewClient(token, &telegram.ClientOptions{HTTP: &http.Client{Transport: inMemory{h},
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = c.WebhookInfo(t.Context()); err == nil {
				t.Error("no error")
			}
			quiet(t, fmt.Sprint(err))
		})
	}
	t.Run("an error of the network comes without the URL, and is what it was", func(t *testing.T) {
		c, err := telegram.NewClient(token, &telegram.ClientOptions{BaseURL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.WebhookInfo(t.Context())
		quiet(t, fmt.Sprint(err))
		if _, ok := errors.AsType[*url.Error](err); ok || err == nil {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err = c.WebhookInfo(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("an error that has the token in itself is not passed on", func(t *testing.T) {
		c, err := telegram.NewClient(token, &telegram.ClientOptions{HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return nil, fmt.Errorf("proxy: %w", &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("cause in " + r.URL.String())})
		})}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = c.WebhookInfo(t.Context()); err == nil {
			t.Error("no error")
		}
		quiet(t, fmt.Sprint(err))
	})
	t.Run("nor is one that has the token's secret part in it, with the colon written otherwise", func(t *testing.T) {
		escaped := strings.Replace(token, ":", "%3a", 1)
		c := client(t, answer(400, `{"ok":false,"error_code":400,"description":"Bad Request: https://x/`+escaped+`"}`))
		_, err := c.WebhookInfo(t.Context())
		quiet(t, fmt.Sprint(err))
		c = client(t, http.RedirectHandler("http://[::1/bot"+escaped, http.StatusFound))
		_, err = c.WebhookInfo(t.Context())
		quiet(t, fmt.Sprint(err))
		api := newBotAPI(1)
		api.result = map[string]string{"getwebhookinfo": `{"url":"https://x/` + escaped + `","last_error_date":1767225600,
			"last_error_message":"no such path: ` + escaped + `"}`}
		r, err := client(t, api).CheckWebhook(t.Context(), telegram.Webhook{URL: "https://y/" + escaped})
		if quiet(t, r.String()); err != nil || !strings.Contains(r.String(), "<token>") {
			t.Errorf("%v\n%s", err, r)
		}
	})
	t.Run("a redirect is not followed, whatever the client that was given would do", func(t *testing.T) {
		for _, status := range []int{301, 302, 303, 307, 308} {
			var asked []string
			c := client(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = append(asked, r.Method+" "+r.URL.Host)
				if r.URL.Host != "other.test" {
					http.Redirect(w, r, "https://other.test"+r.URL.Path, status)
					return
				}
				fmt.Fprint(w, `{"ok":true,"result":true,"description":"Webhook is already deleted"}`)
			}))
			err := c.SetWebhook(t.Context(), telegram.Webhook{URL: "https://example.com/telegram", Secret: "s3cr3t-of-sixteen"})
			if err == nil || len(asked) != 1 {
				t.Errorf("%d: %v, asked %q", status, err, asked)
			}
			quiet(t, fmt.Sprint(err))
		}
	})
	t.Run("an answer that breaks off is an error", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"ok":true,"result":{}}`)
		}))
		defer server.Close()
		c, err := telegram.NewClient(token, &telegram.ClientOptions{BaseURL: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WebhookInfo(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSetWebhook(t *testing.T) {
	good := telegram.Webhook{URL: "https://example.com/telegram", Secret: "s3cr3t-0123456789"}
	t.Run("the secret and every kind that comes by default are sent, and nothing is dropped", func(t *testing.T) {
		api := newBotAPI(1)
		if err := client(t, api).SetWebhook(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		f := api.lastForm()
		if f["url"] != good.URL || f["secret_token"] != good.Secret || api.called("setwebhook") != 1 {
			t.Errorf("sent %v", f)
		}
		for _, kind := range []string{"message", "callback_query", "business_message", "guest_message", "pre_checkout_query", "inline_query"} {
			if !strings.Contains(f["allowed_updates"], `"`+kind+`"`) {
				t.Errorf("without %s: %s", kind, f["allowed_updates"])
			}
		}
		for _, kind := range []string{"chat_member", "message_reaction"} {
			if strings.Contains(f["allowed_updates"], `"`+kind+`"`) {
				t.Errorf("with %s", kind)
			}
		}
		for _, not := range []string{"drop_pending_updates", "max_connections", "ip_address"} {
			if _, there := f[not]; there {
				t.Errorf("%s is sent", not)
			}
		}
	})
	t.Run("what is given is sent", func(t *testing.T) {
		api := newBotAPI(1)
		w := good
		w.AllowedUpdates, w.MaxConnections, w.IPAddress = []string{"message"}, 7, "203.0.113.5"
		if err := client(t, api).SetWebhook(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if f := api.lastForm(); f["allowed_updates"] != `["message"]` || f["max_connections"] != "7" || f["ip_address"] != "203.0.113.5" {
			t.Errorf("sent %v", f)
		}
	})
	for name, c := range map[string]struct {
		change func(w *telegram.Webhook)
		want   string
		local  bool // a local server takes it
	}{
		"no secret":                     {func(w *telegram.Webhook) { w.Secret = "" }, "Secret is empty", false},
		"two secrets":                   {func(w *telegram.Webhook) { w.Secret = "s3cr3t-0123456789,b" }, "Secret", false},
		"a secret of other letters":     {func(w *telegram.Webhook) { w.Secret = "s3cr3t-0123456789!" }, "Secret", false},
		"a secret that can be guessed":  {func(w *telegram.Webhook) { w.Secret = "s3cr3t-01234567" }, "Webhook.Secret: 15 characters", false},
		"a secret that is too long":     {func(w *telegram.Webhook) { w.Secret = strings.Repeat("a", 257) }, "Secret", false},
		"no URL":                        {func(w *telegram.Webhook) { w.URL = "" }, "URL", false},
		"a URL without a host":          {func(w *telegram.Webhook) { w.URL = "https:///telegram" }, "URL", false},
		"what is no URL":                {func(w *telegram.Webhook) { w.URL = "https://a b/%zz" }, "URL", false},
		"a port that Telegram does not": {func(w *telegram.Webhook) { w.URL = "https://example.com:8080/" }, "8443", true},
		"http":                          {func(w *telegram.Webhook) { w.URL = "http://example.com/" }, "https", true},
		"more connections than allowed": {func(w *telegram.Webhook) { w.MaxConnections = 101 }, "MaxConnections", true},
		"a negative number":             {func(w *telegram.Webhook) { w.MaxConnections = -1 }, "MaxConnections", false},
		"an empty list of kinds":        {func(w *telegram.Webhook) { w.AllowedUpdates = []string{} }, "AllowedUpdates", false},
	} {
		t.Run("refused before Telegram is asked: "+name, func(t *testing.T) {
			w := good
			c.change(&w)
			api := newBotAPI(1)
			err := client(t, api).SetWebhook(t.Context(), w)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cr3t") || api.called("setwebhook") != 0 {
				t.Errorf("got %v, asked %d times", err, api.called("setwebhook"))
			}
			if err := local(t, api).SetWebhook(t.Context(), w); (err == nil) != c.local {
				t.Errorf("for a local server: %v", err)
			}
		})
	}
}

func TestDeleteWebhook(t *testing.T) {
	t.Run("it throws nothing away", func(t *testing.T) {
		var called string
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.ParseForm()
			called = r.URL.Path[strings.LastIndex(r.URL.Path, "/"):] + "?" + r.Form.Encode()
			fmt.Fprint(w, `{"ok":true,"result":true}`)
		})
		if err := client(t, api).DeleteWebhook(t.Context()); err != nil || called != "/deleteWebhook?" {
			t.Errorf("%q, %v", called, err)
		}
	})
}
