package telegram

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/backoff"
	"github.com/leadonce/leadonce/store"
)

// poller.go: getUpdates for a bot without a library: stored, handed on, and only then confirmed.

// PollerOptions are the optional settings of a Poller. nil and zero values mean the defaults.
type PollerOptions struct {
	// AllowedUpdates names the kinds that are wanted, as Webhook.AllowedUpdates does.
	AllowedUpdates []string
	// Timeout is how long Telegram may hold a request when there is nothing, in whole seconds; default 30 s, 1 s to 50 s [S].
	Timeout time.Duration

	// Handle, if not nil, is called with each update after it was stored, one after the other, in the order in which they
	// came, once in the life of a process: what a process stored and died before the call is handed on by the next one, so that
	// over a crash an update may come twice. It is called in a goroutine of its own, with a context that outlives Run's and ends
	// after HandleTimeout; a call that goes on nevertheless is left behind. A panic is recovered. The lead is made whether or
	// not it is called.
	Handle        func(ctx context.Context, update []byte)
	HandleTimeout time.Duration // default 10 s

	AcceptTimeout time.Duration // as in dedup.IntakeOptions
	HeadStart     time.Duration // as in dedup.IntakeOptions
	AddAccount    bool          // as in dedup.IntakeOptions
	OnDelivery    func(dedup.Delivery)
	Logger        *slog.Logger // default slog.Default(); it never sees a payload or a token
}

// Poller fetches a bot's updates. In the order of each turn: getUpdates, store, Handle; the next getUpdates confirms.
type Poller struct {
	c   *Client
	o   PollerOptions
	in  intake
	log *slog.Logger

	allowed string
	run     sync.Mutex      // held by Run
	offset  int64           // 0: none
	at      time.Time       // of the batch that offset follows, by the wall clock
	fails   int             // in a row
	said    map[string]bool // what of this row of failures was logged already
	handed  map[int64]bool  // events that Handle was called for
	left    chan struct{}   // a place for each Handle that runs, those left behind included
}

// maxLeft bounds the calls of Handle that are left behind. Beyond it Handle is skipped, never the store.
const maxLeft = 64

// longestWait bounds what a server may ask for: an update is kept for 24 hours [D, getting updates].
const longestWait = time.Hour

// NewPoller returns a Poller of the client's bot, which must be the source's.
func NewPoller(st store.Store, src *Source, c *Client, o *PollerOptions) (*Poller, error) {
	var v PollerOptions
	if o != nil {
		v = *o
	}
	switch {
	case st == nil:
		return nil, errors.New("telegram: NewPoller: the store is nil: open one with sqlite.Open")
	case src == nil:
		return nil, errors.New("telegram: NewPoller: the source is nil: make one with NewPollingSource")
	case c == nil:
		return nil, errors.New("telegram: NewPoller: the client is nil: make one with NewClient")
	case strconv.FormatInt(c.bot, 10) != src.bot:
		return nil, fmt.Errorf("telegram: NewPoller: the client is of bot %d, and the source of bot %s", c.bot, src.bot)
	case v.Timeout != 0 && (v.Timeout < time.Second || v.Timeout > 50*time.Second || v.Timeout%time.Second != 0):
		return nil, fmt.Errorf("telegram: PollerOptions.Timeout is %v, must be 1s to 50s in whole seconds, or 0 for "+
			"30s", v.Timeout)
	case v.HandleTimeout < 0:
		return nil, fmt.Errorf("telegram: PollerOptions.HandleTimeout is %v, must not be negative", v.HandleTimeout)
	case v.AllowedUpdates != nil && len(v.AllowedUpdates) == 0:
		return nil, errors.New("telegram: PollerOptions.AllowedUpdates is empty: name the kinds that are wanted, or leave it nil")
	}
	in, err := dedup.NewIntake(st, src, &dedup.IntakeOptions{AcceptTimeout: v.AcceptTimeout, HeadStart: v.HeadStart,
		AddAccount: v.AddAccount, OnDelivery: v.OnDelivery, Logger: v.Logger})
	if err != nil {
		return nil, fmt.Errorf("telegram: NewPoller: %w", err)
	}
	if v.AllowedUpdates == nil {
		v.AllowedUpdates = defaultUpdates()
	}
	allowed, err := json.Marshal(v.AllowedUpdates)
	if err != nil {
		return nil, fmt.Errorf("telegram: PollerOptions.AllowedUpdates: %w", err)
	}
	v.Timeout = cmp.Or(v.Timeout, 30*time.Second)
	v.HandleTimeout = cmp.Or(v.HandleTimeout, 10*time.Second)
	return &Poller{c: c, o: v, in: in, allowed: string(allowed), said: map[string]bool{}, handed: map[int64]bool{},
		left: make(chan struct{}, maxLeft), log: cmp.Or(v.Logger, slog.Default()).With("source", Name, "bot", src.bot)}, nil
}

// Run fetches until ctx ends; then it stores the batch that it has in hand, gives Handle as much as HandleTimeout allows, and
// returns nil. Whatever may pass is waited for with growing pauses, up to 30 s, and logged: no network, a store that
// fails (nothing is confirmed meanwhile), a webhook or another poller in the way (409).
//
// It returns an error for what only a person can mend: Telegram refuses the token (401, or 404 for one that it never gave
// out), or the bot is not the one that the database knows (dedup.ErrAccountChanged).
func (p *Poller) Run(ctx context.Context) error {
	if !p.run.TryLock() {
		return errors.New("telegram: poller: it runs already")
	}
	defer p.run.Unlock()
	for ctx.Err() == nil {
		err := p.turn(ctx)
		e, answered := errors.AsType[*APIError](err)
		switch {
		case err == nil:
			p.fails = 0
			clear(p.said)
			continue
		case ctx.Err() != nil:
			return nil
		case answered && e.refusesToken():
			return fmt.Errorf("telegram: poller: Telegram refuses the token (revoked, or mistyped): %w", err)
		case errors.Is(err, dedup.ErrAccountChanged):
			return fmt.Errorf("telegram: poller: %w", err)
		}
		p.fails++
		wait := backoff.Delay(p.fails, time.Second, 30*time.Second)
		if answered {
			wait = max(wait, min(e.RetryAfter, longestWait))
		}
		p.tell(err, e, wait)
		pause(ctx, wait)
	}
	return nil
}

// turn is one getUpdates and what comes of it.
//
// The offset is what follows the last update of the last batch, whether that is higher or lower than the one before: update_id
// starts anew after a week without updates [D, Update]. After an empty answer, or when it is stale, it is left out, as in a
// Transport (cursor).
func (p *Poller) turn(ctx context.Context) error {
	if wallClock().Sub(p.at) > stale {
		p.offset = 0
	}
	form := url.Values{"timeout": {strconv.Itoa(int(p.o.Timeout / time.Second))}, "allowed_updates": {p.allowed}}
	if p.offset != 0 {
		form.Set("offset", strconv.FormatInt(p.offset, 10))
	}
	began := time.Now()
	raw, err := p.c.call(ctx, "getUpdates", form, defaultMaxAnswer, p.o.Timeout)
	if err != nil {
		return err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || list == nil {
		return errors.New("telegram: getUpdates: the result is no list") // err would quote it
	}
	if len(list) == 0 {
		p.offset = 0
		if time.Since(began) < time.Second { // a server that does not hold the request
			pause(ctx, time.Second)
		}
		return nil
	}
	bodies := make([][]byte, len(list))
	for i, u := range list {
		bodies[i] = u
	}
	receipts, err := p.in.AcceptAll(context.WithoutCancel(ctx), bodies)
	if err != nil {
		return err
	}
	p.hand(ctx, bodies, receipts)
	for i := len(list) - 1; i >= 0; i-- {
		if id, ok := updateID(list[i]); ok {
			p.offset, p.at = id+1, wallClock()
			return nil
		}
	}
	return errors.New("telegram: getUpdates: no update of the batch has an update_id, so it can't be confirmed")
}

// maxHanded bounds what is remembered of Handle's calls: only what is not confirmed yet can come again.
const maxHanded = 10_000

// hand gives Handle what it was not given in this process: also what was stored by one that died before it came to that.
func (p *Poller) hand(ctx context.Context, bodies [][]byte, receipts []store.Receipt) {
	if p.o.Handle == nil {
		return
	}
	var end time.Time // once ctx has ended: when to stop
	for i, body := range bodies {
		if p.handed[receipts[i].EventID] {
			continue
		}
		if ctx.Err() != nil {
			if end.IsZero() {
				end = time.Now().Add(p.o.HandleTimeout)
			}
			if !time.Now().Before(end) {
				p.log.Warn("telegram: Run ended before Handle had all updates in hand; they are stored, and their leads are made",
					"skipped", len(bodies)-i)
				return
			}
		}
		if len(p.handed) >= maxHanded {
			clear(p.handed)
		}
		p.handed[receipts[i].EventID] = true
		p.handle(ctx, body)
	}
}

func (p *Poller) handle(ctx context.Context, body []byte) {
	select {
	case p.left <- struct{}{}:
	default:
		p.log.Error("telegram: Handle was not called: as many calls as allowed hang. The update is stored, and its lead is made",
			"hanging", maxLeft)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.o.HandleTimeout)
	done := make(chan struct{})
	go func() {
		defer func() {
			if v := recover(); v != nil { // its value may quote the update
				p.log.Error("telegram: Handle panicked; the update is stored, and its lead is made", "type", fmt.Sprintf("%T", v))
			}
			<-p.left
			close(done)
			cancel()
		}()
		p.o.Handle(ctx, body)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		select {
		case <-done:
		case <-time.After(100 * time.Millisecond): // one that heeds its context
			p.log.Error("telegram: Handle runs past its time and is left behind", "timeout", p.o.HandleTimeout)
		}
	}
}

// tell logs a failure that passes: each kind once in a row of failures.
func (p *Poller) tell(err error, e *APIError, wait time.Duration) {
	kind, what := "other", "telegram: the updates could not be fetched or stored; nothing is confirmed, and it is tried again"
	switch {
	case e != nil && e.Code == http.StatusConflict:
		kind, what = conflict(e.Description)
	case e != nil:
		kind = strconv.Itoa(e.Code)
	}
	if p.said[kind] {
		return
	}
	p.said[kind] = true
	p.log.Error(what, "err", err, "again_in", wait.Round(time.Second))
}

// conflict tells from Telegram's words [S] which of two things is in the way, and what to do about it.
func conflict(description string) (kind, what string) {
	const apart = "telegram: something else receives this bot's updates: "
	d := strings.ToLower(description)
	switch {
	case strings.Contains(d, "webhook is active"):
		return "conflict with a webhook", apart + "a webhook is set, and while it is, nothing can be fetched. Remove it (leadbot " +
			"delete-webhook, or deleteWebhook without drop_pending_updates): what waits is kept"
	case strings.Contains(d, "terminated by"):
		return "conflict with a poller", apart + "another program polls with the same token. Stop it, or give it a bot of its own"
	}
	return "conflict", apart + "a webhook is set, or another program polls with the same token. Remove the webhook (leadbot " +
		"delete-webhook), or stop the other program"
}
