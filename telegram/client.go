package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// client.go: the few calls of the Bot API that are made here, without the token in anything that is said about them.

// DefaultBaseURL is Telegram's own Bot API server.
const DefaultBaseURL = "https://api.telegram.org"

// callTime is how long a call may take; getUpdates has its long poll on top.
const callTime = 30 * time.Second

// ClientOptions are the optional settings of a Client. nil and zero values mean the defaults.
type ClientOptions struct {
	// BaseURL is the Bot API server, without /bot: https://api.telegram.org by default, or a server of your own
	// (https://github.com/tdlib/telegram-bot-api), with a path before /bot if a proxy wants one.
	BaseURL string
	// HTTP makes the requests; by default one of its own. A Timeout must leave room for long polls. Redirects are not followed,
	// whatever its CheckRedirect says: the second request has no parameters, so that a setWebhook would remove the webhook
	// and a getUpdates confirm nothing, and it shows the token to another server.
	HTTP *http.Client
}

// Client calls the Bot API for one bot: what WebhookInfo, SetWebhook, DeleteWebhook, CheckWebhook and a Poller need, and nothing else. It
// repeats nothing by itself; each call ends after 30 seconds (a long poll later). It may be used by any number of goroutines.
//
// Errors are *APIError where Telegram answered, else those of the network; neither they nor a printed Client contain
// the token.
type Client struct {
	token string
	bot   int64
	base  string
	local bool // not Telegram's own server
	http  *http.Client
}

// NewClient returns the Client of the bot that token belongs to.
func NewClient(token string, o *ClientOptions) (*Client, error) {
	if o == nil {
		o = &ClientOptions{}
	}
	bot, err := BotID(token)
	if err != nil {
		return nil, err
	}
	c := &Client{token: token, bot: bot, base: strings.TrimRight(o.BaseURL, "/"), http: o.HTTP}
	if c.base == "" {
		c.base = DefaultBaseURL
	}
	u, err := url.Parse(c.base)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || u.RawQuery+u.Fragment != "" || u.User != nil {
		return nil, errors.New("telegram: ClientOptions.BaseURL: must be http(s)://host[:port][/path], without /bot and the token")
	}
	c.local = !strings.EqualFold(u.Hostname(), "api.telegram.org")
	if u.Scheme == "http" && !c.local {
		return nil, errors.New("telegram: ClientOptions.BaseURL: http would show the token to everybody between: take https")
	}
	own := http.Client{}
	if c.http != nil {
		own = *c.http
	}
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &own
	return c, nil
}

// BotID is the number before the colon of the token.
func (c Client) BotID() int64 { return c.bot }

// String names the bot, without its token.
func (c Client) String() string { return fmt.Sprintf("telegram.Client(bot %d)", c.bot) }

// GoString is String: %#v would print the token.
func (c Client) GoString() string { return c.String() }

// LogValue is String for log/slog.
func (c Client) LogValue() slog.Value { return slog.StringValue(c.String()) }

// APIError is an answer with ok:false [D, making requests].
type APIError struct {
	Method      string
	Code        int           // error_code, like an HTTP status: 401 the token is revoked, 409 webhook or another poller
	Description string        // Telegram's own words
	RetryAfter  time.Duration // ask again no sooner; 0: it did not say
}

// Error quotes Telegram's description, which is about the call and contains no token.
func (e *APIError) Error() string {
	s := fmt.Sprintf("telegram: %s: %d %s", e.Method, e.Code, e.Description)
	if e.RetryAfter > 0 {
		s += fmt.Sprintf(" (try again in %v)", e.RetryAfter)
	}
	return s
}

// refusesToken: 401 for a token that was revoked, 404 for one that was never given out [S].
func (e *APIError) refusesToken() bool {
	return e.Code == http.StatusUnauthorized || e.Code == http.StatusNotFound
}

// call posts a form and returns the result, of limit bytes at most.
func (c Client) call(ctx context.Context, method string, form url.Values, limit int64, wait time.Duration) (
	json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime+wait)
	defer cancel()
	to := c.base + "/bot" + c.token + "/" + method
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("telegram: %s: the request can't be made", method) // err quotes the URL
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("telegram: %s: %w", method, c.unquoted(err))
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("telegram: %s: the answer broke off after %d bytes: %w", method, len(raw), c.unquoted(err))
	case int64(len(raw)) > limit:
		return nil, fmt.Errorf("telegram: %s: the answer is longer than %d bytes", method, limit)
	}
	var a struct {
		OK          *bool           `json:"ok"`
		Result      json.RawMessage `json:"result"`
		Code        int             `json:"error_code"`
		Description string          `json:"description"`
		Parameters  struct {
			RetryAfter int `json:"retry_after"`
		} `json:"parameters"`
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.OK == nil || (*a.OK && a.Result == nil) {
		return nil, fmt.Errorf("telegram: %s: status %d, and the answer is not one of the Bot API: is the base URL right, "+
			"and does a proxy answer in its place?", method, resp.StatusCode)
	}
	if !*a.OK {
		return nil, &APIError{Method: method, Code: a.Code, Description: c.hide(a.Description),
			RetryAfter: time.Duration(a.Parameters.RetryAfter) * time.Second}
	}
	return a.Result, nil
}

// unquoted takes the URL, with the token in it, out of net/http's errors.
func (c Client) unquoted(err error) error {
	for {
		u, ok := errors.AsType[*url.Error](err)
		if !ok {
			break
		}
		err = u.Err
	}
	if text := err.Error(); c.hide(text) != text {
		return errors.New("the request failed; its error is left out, since it has the token in it")
	}
	return err
}

// hide puts <token> in place of the token, and of what is secret in it by itself: the colon may be written as %3A.
func (c Client) hide(s string) string {
	s = strings.ReplaceAll(s, c.token, "<token>")
	if _, secret, _ := strings.Cut(c.token, ":"); len(secret) >= shortSecret {
		s = strings.ReplaceAll(s, secret, "<token>")
	}
	return s
}

// shortSecret is less than any real one has, which are of 35 characters: what is shorter may be an ordinary word.
const shortSecret = 16
