package telegram

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// transport.go: under a bot library that polls: an answer of getUpdates is stored before the library sees it.

// afterFailure is how long a getUpdates that failed is held back: some libraries ask again at once, a thousand times a second.
// Within half a second the same offset is answered with one update only [S].
const afterFailure = 600 * time.Millisecond

// defaultMaxAnswer holds 100 updates of 512 KiB, the largest that [S] makes.
const (
	defaultMaxAnswer = 64 << 20
	maxMaxAnswer     = 1 << 40
)

// TransportOptions are the optional settings of a Transport. nil and zero values mean the defaults.
type TransportOptions struct {
	Base          http.RoundTripper // what talks to Telegram; default http.DefaultTransport
	MaxAnswer     int64             // bytes of an answer to getUpdates; a longer one is an error; default 64 MiB
	AcceptTimeout time.Duration     // as in dedup.IntakeOptions
	HeadStart     time.Duration     // as in dedup.IntakeOptions
	AddAccount    bool              // as in dedup.IntakeOptions
	OnDelivery    func(dedup.Delivery)
	// Logger is told why getUpdates fails, since some libraries keep that to themselves (telebot): once a minute for each
	// kind of cause. What Telegram or the network refuses is left to the library. It never sees a payload, a token or a URL.
	// Default slog.Default().
	Logger *slog.Logger
}

// Transport is an http.RoundTripper for the HTTP client of a bot library that polls. Whatever getUpdates answers is
// committed to the store before the library gets it; if it can't be committed, the library gets an error, and its offset
// stays where it was. So a confirmed update is always a stored one, although every library confirms before it handles:
//
//	src, err := telegram.NewPollingSource(botID, nil) // telegram.BotID(token)
//	tr, err := telegram.NewTransport(st, src, nil)
//	bot, err := tgbotapi.NewBotAPIWithClient(token, tgbotapi.APIEndpoint, &http.Client{Transport: tr})
//
// telebot takes the client as Settings.Client, gotgbot as BaseBotClient.Client, go-telegram/bot and telego through
// WithHTTPClient. It may be used by any number of goroutines, for one bot; every other method of the Bot API, and every
// other request, passes through untouched.
//
// What is different for getUpdates:
//
//   - The bot's id in the URL's path must be the source's. Another one is an error: its leads would be made in this bot's
//     name.
//   - An answer that can't be read to its end, or understood, is an error, and Telegram is asked again. So is a redirect,
//     whose second request would lose the offset. ok:false passes through. An update that nobody understands is
//     quarantined and handed on.
//   - A negative offset is refused: it forgets what was never fetched [D, getUpdates]. So is drop_pending_updates in
//     setWebhook and deleteWebhook (gotgbot: PollingOpts.DropPendingUpdates).
//   - The first offset of a process is passed on as it is. From then on an offset beyond what was handed out becomes the one
//     that follows it, and after an empty answer, or two days without any, none is sent: Telegram's update_id starts anew,
//     perhaps lower, after a week without updates [D, Update], and an offset from before would then leave the new updates
//     where they are, or confirm them unseen.
//   - A library that can't decode one update asks for the batch again, without end (all but gotgbot), and what came after it is
//     not fetched. After 3 times the batch is handed out one by one, and an update that is not taken twice is left out: it is
//     stored and its lead is made, an error in the log names it, and the bot goes on.
//   - A call that fails is returned 0.6 s later: telebot asks again at once. It also says nothing of it, so the log does, once
//     a minute for each kind of cause.
//
// When the ids went back, everything is stored and its leads are made. What the bot makes of it is the library's affair (as of
// v5.5.1, telego v1.6.0, telebot v4.0.0-beta.10, gotgbot rc.34, go-telegram/bot v1.19.0): go-telegram-bot-api and
// telego drop updates below their offset until the process is restarted, and an error in the log says so once a minute;
// telebot, gotgbot and go-telegram/bot take the offset from the last update that they got, and go on.
//
// The body of an answer is held in memory, and its updates once more while they are stored.
type Transport struct {
	base      http.RoundTripper
	bot       string
	in        intake
	maxAnswer int64
	log       *slog.Logger

	mu    sync.Mutex
	at    cursor
	quiet [troubles]throttle
}

var _ http.RoundTripper = (*Transport)(nil)

// intake is dedup.Intake, as far as it is used here.
type intake interface {
	AcceptAll(ctx context.Context, bodies [][]byte) ([]store.Receipt, error)
}

// NewTransport returns a Transport that stores the updates of src's bot. src is NewPollingSource's, or NewSource's of a bot
// that changes between webhook and polling.
func NewTransport(st store.Store, src *Source, o *TransportOptions) (*Transport, error) {
	var v TransportOptions
	if o != nil {
		v = *o
	}
	switch {
	case st == nil:
		return nil, errors.New("telegram: NewTransport: the store is nil: open one with sqlite.Open")
	case src == nil:
		return nil, errors.New("telegram: NewTransport: the source is nil: make one with NewPollingSource")
	case v.MaxAnswer < 0 || v.MaxAnswer > maxMaxAnswer:
		return nil, fmt.Errorf("telegram: TransportOptions.MaxAnswer is %d, must be 1 to %d bytes, or 0 for 64 MiB",
			v.MaxAnswer, int64(maxMaxAnswer))
	}
	in, err := dedup.NewIntake(st, src, &dedup.IntakeOptions{AcceptTimeout: v.AcceptTimeout, HeadStart: v.HeadStart,
		AddAccount: v.AddAccount, OnDelivery: v.OnDelivery, Logger: v.Logger})
	if err != nil {
		return nil, fmt.Errorf("telegram: NewTransport: %w", err)
	}
	t := &Transport{base: v.Base, bot: src.bot, in: in, maxAnswer: cmp.Or(v.MaxAnswer, defaultMaxAnswer),
		log: cmp.Or(v.Logger, slog.Default()).With("source", Name, "bot", src.bot)}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	return t, nil
}

// RoundTrip implements http.RoundTripper. Its own errors contain neither the URL nor the token; http.Client puts
// the URL around any error.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	token, method := apiMethod(req.URL.Path)
	switch strings.ToLower(method) {
	case "getupdates":
		resp, err := t.getUpdates(req, token)
		if err != nil {
			pause(req.Context(), afterFailure)
			return nil, fmt.Errorf("telegram: getUpdates: %w", err)
		}
		return resp, nil
	case "setwebhook", "deletewebhook":
		out, p, err := readParams(req)
		if err != nil {
			return nil, fmt.Errorf("telegram: %s: %w", method, err)
		}
		if truth(p.get("drop_pending_updates")) {
			return nil, fmt.Errorf("telegram: %s: drop_pending_updates is refused: "+
				"it throws away enquiries that nobody has fetched yet. Leave it out", method)
		}
		return t.base.RoundTrip(out)
	}
	return t.base.RoundTrip(req)
}

var (
	errOtherBot = errors.New("the token is another bot's than the source's: give each bot a Transport of its own")
	errNoToken  = errors.New("there is no /bot<token>/ before it in the URL's path, so it can't be said whose updates " +
		"these are")
	errNegative = errors.New("a negative offset is refused: it forgets the updates before it, which nobody has fetched. " +
		"Begin without an offset: what was not confirmed is handed out then")
	errRedirect = errors.New("redirected: give the bot library the final URL of the Bot API server")
)

func (t *Transport) getUpdates(req *http.Request, token string) (*http.Response, error) {
	out, p, err := readParams(req)
	if err != nil {
		return nil, err
	}
	offset, ok := p.offset()
	switch id, err := BotID(token); {
	case token == "":
		return nil, t.tell(req.Context(), noToken, errNoToken)
	case err != nil || strconv.FormatInt(id, 10) != t.bot:
		return nil, t.tell(req.Context(), otherBot, errOtherBot)
	case ok && offset < 0:
		return nil, t.tell(req.Context(), negative, errNegative)
	}
	if ok {
		out = t.from(out, p, offset)
	}
	out.Header.Del("Accept-Encoding") // net/http asks for gzip by itself, and decodes it
	resp, a, err := t.fetch(out)
	if err == nil {
		err = t.keep(req.Context(), a, offset, ok)
	}
	if err != nil {
		return nil, err
	}
	if !a.ok {
		if resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
			_ = t.tell(req.Context(), refused, fmt.Errorf("the answer is %d: 401 and 404 refuse the token; 409 tells of a webhook "+
				"that is set, or of another program that polls with the same token", resp.StatusCode))
		}
		pause(req.Context(), afterFailure)
	}
	resp.Request = req
	return resp, nil
}

func (t *Transport) fetch(out *http.Request) (*http.Response, answer, error) {
	resp, err := t.base.RoundTrip(out)
	if err != nil {
		return nil, answer{}, err
	}
	a, err := readAnswer(resp, t.maxAnswer)
	if err != nil {
		return nil, answer{}, t.tell(out.Context(), unreadable, err)
	}
	return resp, a, nil
}

// from makes the request ask from where all that is stored ends, and around what the library can't take.
func (t *Transport) from(out *http.Request, p params, offset int64) *http.Request {
	t.mu.Lock()
	send, one := t.at.ask(offset, wallClock())
	stuck, first := t.at.stuck(offset), t.at.first
	t.mu.Unlock()
	if send == first+1 && stuck {
		t.log.Error("telegram: the bot's library asks again and again for an update that it was given: it can't take it. "+
			"It is stored, and its lead is made; the bot goes on without it", "update_id", first)
	}
	if send == offset && !one {
		return out
	}
	return p.request(out, send, one)
}

// keep stores what an answer brought, before anybody sees it.
func (t *Transport) keep(ctx context.Context, a answer, offset int64, asked bool) error {
	if !a.ok {
		return nil
	}
	if len(a.updates) > 0 {
		if _, err := t.in.AcceptAll(ctx, a.updates); err != nil {
			err = fmt.Errorf("%d updates came and are not all stored, so they are not handed on; "+
				"Telegram gives them again: %w", len(a.updates), err)
			if errors.Is(err, dedup.ErrAccountChanged) {
				return t.tell(ctx, otherAccount, err)
			}
			return t.tell(ctx, notStored, err)
		}
	}
	first, last, numbered := a.ids()
	t.mu.Lock()
	defer t.mu.Unlock()
	if asked || len(a.updates) > 0 {
		t.at = t.at.answered(offset, len(a.updates), first, last, numbered, wallClock())
	}
	if numbered && first < offset && t.quiet[wentBack].pass(time.Now()) {
		t.log.Error("telegram: update_id went back. All of it is stored; but a bot library that drops ids below its offset "+
			"shows the bot nothing of it until the process is restarted", "update_id", first, "bot_asked_from", offset)
	}
	return nil
}

// wallClock has no monotonic reading: that may stand still while a machine is suspended.
func wallClock() time.Time { return time.Now().Round(0) }

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
