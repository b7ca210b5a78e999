package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// webhook.go: setting the webhook so that nothing is lost, and reading it.

// Webhook is a webhook as it should be.
type Webhook struct {
	// URL is where Telegram posts: https, on port 443, 80, 88 or 8443 [D, setWebhook]; whatever a local server can reach.
	URL string
	// Secret is the one of NewSource, MinSecret to 256 characters; of several the one that is to be used from now on.
	Secret string
	// AllowedUpdates names the kinds that are wanted. nil: all that are known here but chat_member, message_reaction and
	// message_reaction_count. That is what Telegram sends by default, spelled out: left out, the list of an earlier call
	// would stay [D, setWebhook]. A bot that needs those three names everything that it needs.
	AllowedUpdates []string
	// MaxConnections is how many updates Telegram delivers at once, 1 to 100; 0: Telegram's default, 40 [D, setWebhook].
	MaxConnections int
	// IPAddress is used in place of what the URL's host resolves to; empty: none.
	IPAddress string
}

// WebhookInfo is what Telegram says about a bot's webhook [D, WebhookInfo].
type WebhookInfo struct {
	URL               string // empty: there is none, and the bot may poll
	CustomCertificate bool
	Pending           int // updates that wait for delivery
	IPAddress         string
	LastErrorAt       time.Time // of a delivery; zero: none since the webhook was set
	LastError         string
	LastSyncErrorAt   time.Time // of Telegram itself, when it fetched the bot's updates from its data centres
	MaxConnections    int
	AllowedUpdates    []string // nil: the default
}

// unaskedKinds come only to who names them [D, setWebhook].
var unaskedKinds = []string{"chat_member", "message_reaction", "message_reaction_count"}

// defaultUpdates are the kinds that come by default, in the order of the table.
func defaultUpdates() (names []string) {
	for _, k := range kinds {
		if !slices.Contains(unaskedKinds, k.name) {
			names = append(names, k.name)
		}
	}
	return names
}

const answerLimit = 1 << 20

// WebhookInfo asks Telegram about the webhook (getWebhookInfo).
func (c Client) WebhookInfo(ctx context.Context) (WebhookInfo, error) {
	raw, err := c.call(ctx, "getWebhookInfo", nil, answerLimit, 0)
	if err != nil {
		return WebhookInfo{}, err
	}
	o := asObject(raw)
	if o == nil {
		return WebhookInfo{}, errors.New("telegram: getWebhookInfo: the result is no object")
	}
	info := WebhookInfo{URL: o.text("url"), CustomCertificate: o.flag("has_custom_certificate"),
		Pending: int(o.id("pending_update_count")), IPAddress: o.text("ip_address"), LastErrorAt: unixTime(o, "last_error_date"),
		LastError: o.text("last_error_message"), LastSyncErrorAt: unixTime(o, "last_synchronization_error_date"),
		MaxConnections: int(o.id("max_connections"))}
	for _, name := range o.list("allowed_updates") {
		var s string
		if json.Unmarshal(name, &s) == nil {
			info.AllowedUpdates = append(info.AllowedUpdates, s)
		}
	}
	return info, nil
}

// SetWebhook tells Telegram where to post. It always sends the secret and the list of kinds, and never drop_pending_updates,
// which throws away what nobody has received yet: updates that wait are delivered to the new URL.
//
// An earlier webhook is replaced, whoever set it, and a certificate that was uploaded with it is forgotten. A bot that polls
// gets 409 from then on. Telegram takes one call a second [S].
func (c Client) SetWebhook(ctx context.Context, w Webhook) error {
	if err := c.validate(w); err != nil {
		return fmt.Errorf("telegram: setWebhook: %w", err)
	}
	if w.AllowedUpdates == nil {
		w.AllowedUpdates = defaultUpdates()
	}
	allowed, err := json.Marshal(w.AllowedUpdates)
	if err != nil {
		return fmt.Errorf("telegram: setWebhook: AllowedUpdates: %w", err)
	}
	form := url.Values{"url": {w.URL}, "secret_token": {w.Secret}, "allowed_updates": {string(allowed)}}
	if w.MaxConnections > 0 {
		form.Set("max_connections", strconv.Itoa(w.MaxConnections))
	}
	if w.IPAddress != "" {
		form.Set("ip_address", w.IPAddress)
	}
	_, err = c.call(ctx, "setWebhook", form, answerLimit, 0)
	return err
}

// DeleteWebhook takes the webhook away, whoever set it, so that the bot can poll. What waits is kept for who fetches it: it never
// sends drop_pending_updates. Without a webhook it changes nothing.
func (c Client) DeleteWebhook(ctx context.Context) error {
	_, err := c.call(ctx, "deleteWebhook", nil, answerLimit, 0)
	return err
}

// validate refuses what Telegram would, in words that say what to do, and a webhook whose secret is missing or too short.
func (c Client) validate(w Webhook) error {
	most := 100
	if c.local {
		most = 100_000 // [S]
	}
	if w.Secret == "" {
		return errors.New("Webhook.Secret is empty: without one anybody who finds the URL can send updates. " +
			"openssl rand -hex 32 makes one")
	}
	if err := checkSecret(w.Secret); err != nil {
		return fmt.Errorf("Webhook.Secret: %w", err)
	}
	u, err := url.Parse(w.URL)
	switch {
	case err != nil || u.Host == "" || u.Fragment != "":
		return errors.New("Webhook.URL: must be https://host/path")
	case u.Scheme != "https" && !(c.local && u.Scheme == "http"):
		return errors.New("Webhook.URL: must begin with https://")
	case !c.local && !slices.Contains([]string{"", "443", "80", "88", "8443"}, u.Port()):
		return fmt.Errorf("Webhook.URL: port %s: Telegram posts only to 443, 80, 88 and 8443", u.Port())
	case w.MaxConnections < 0 || w.MaxConnections > most:
		return fmt.Errorf("Webhook.MaxConnections is %d, must be 1 to %d, or 0 for Telegram's default", w.MaxConnections, most)
	case w.AllowedUpdates != nil && len(w.AllowedUpdates) == 0:
		return errors.New("Webhook.AllowedUpdates is empty: name the kinds that are wanted, or leave it nil")
	}
	return nil
}
