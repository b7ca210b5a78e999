package telegram

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// check.go: what getWebhookInfo tells about a webhook that delivers nothing, in words for whoever runs the bot.

// Severity is how bad a Finding is.
type Severity string

// The severities.
const (
	SeverityProblem Severity = "problem" // enquiries do not arrive, or not all of them
	SeverityWarning Severity = "warning" // it may be meant, or be over
	SeverityOK      Severity = "ok"
)

// Finding is one thing that CheckWebhook has to say.
type Finding struct {
	Code     string // one of the constants below
	Severity Severity
	What     string // what Telegram says, in plain words
	Do       string // what to do about it; empty if there is nothing to do
}

// The codes of findings. Those of a failed delivery say what Telegram met.
const (
	CodeOK          = "ok"
	CodeNone        = "none"
	CodeForeign     = "foreign_host"
	CodeURL         = "url_differs"
	CodePending     = "pending"
	CodeSync        = "telegram_sync"
	CodeKinds       = "allowed_updates"
	CodeConnections = "max_connections"
	CodeCertificate = "custom_certificate"
	CodeIP          = "ip_address"

	CodeUnauthorized = "error_401"
	CodeForbidden    = "error_403"
	CodeNotFound     = "error_404"
	CodeRedirect     = "error_redirect"
	CodeRefused      = "error_4xx"
	CodeGone         = "error_410"
	CodeUnavailable  = "error_503"
	CodeGateway      = "error_gateway"
	CodeServer       = "error_5xx"
	CodeAnswer       = "error_answer"
	CodeTLS          = "error_tls"
	CodeDNS          = "error_dns"
	CodeAddress      = "error_address"
	CodeConnect      = "error_connect"
	CodeSlow         = "error_slow"
	CodeClosed       = "error_closed"
	CodeOther        = "error_other"
)

// Report is what CheckWebhook found.
type Report struct {
	Info     WebhookInfo // as Telegram gave it
	Findings []Finding   // the worst first; never empty
}

// Problems reports whether something keeps enquiries from arriving.
func (r Report) Problems() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Severity == SeverityProblem })
}

// String is the findings in plain words, for a terminal.
func (r Report) String() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s (%s): %s\n", f.Severity, f.Code, f.What)
		if f.Do != "" {
			fmt.Fprintf(&b, "  -> %s\n", f.Do)
		}
	}
	return b.String()
}

// CheckWebhook asks Telegram about the webhook and says what is wrong with it, and what to do. want is what should be set;
// its empty fields are not compared (Secret never is: Telegram does not tell it). It changes nothing.
//
// It knows what getWebhookInfo tells, which is about deliveries so far: of a webhook that was set a moment ago it knows
// little. The text never contains the token, nor what is behind the ? of a URL.
func (c Client) CheckWebhook(ctx context.Context, want Webhook) (Report, error) {
	info, err := c.WebhookInfo(ctx)
	if e, ok := errors.AsType[*APIError](err); ok && e.refusesToken() {
		return Report{}, fmt.Errorf("telegram: the token is refused: revoked or mistyped; take the one that BotFather shows: %w", err)
	}
	if err != nil {
		return Report{}, err
	}
	r := Report{Info: info, Findings: assess(info, want, time.Now())}
	for i := range r.Findings { // some put the token into the webhook's path
		f := &r.Findings[i]
		f.What, f.Do = c.hide(f.What), c.hide(f.Do)
	}
	return r, nil
}

// assess is all of the judgement, and pure.
func assess(info WebhookInfo, want Webhook, now time.Time) []Finding {
	if info.URL == "" {
		return []Finding{noWebhook(info, want)}
	}
	list := slices.Concat(assessURL(info, want), assessDelivery(info, now), assessKinds(info, want), assessRest(info, want, now))
	rank := map[Severity]int{SeverityProblem: 0, SeverityWarning: 1, SeverityOK: 2}
	if !slices.ContainsFunc(list, func(f Finding) bool { return f.Severity != SeverityOK }) {
		list = append([]Finding{{CodeOK, SeverityOK, fmt.Sprintf("The webhook is %s.", shownURL(info.URL)), ""}}, list...)
	}
	slices.SortStableFunc(list, func(a, b Finding) int { return rank[a.Severity] - rank[b.Severity] })
	return list
}

func noWebhook(info WebhookInfo, want Webhook) Finding {
	f := Finding{CodeNone, SeverityProblem, "No webhook is set: Telegram posts the bot's updates to nobody.",
		"Set it (leadbot set-webhook -url https://HOST/telegram). If it was set before, somebody took it away: most often another " +
			"program with the same token that fetches updates itself (stop it, or give it a bot of its own). Telegram does it too, " +
			"when the server answered \"410 Gone\" to everything for 23 hours (look into the proxy's log for 410)."}
	if want.URL == "" {
		f.Severity = SeverityWarning
		f.Do = "As it should be if the bot polls (getUpdates). Otherwise: " + f.Do
	}
	if info.Pending > 0 {
		f.What += fmt.Sprintf(" %s: they are kept for 24 hours at most.", waiting(info.Pending))
	}
	return f
}

func waiting(n int) string {
	if n == 1 {
		return "1 update waits"
	}
	return fmt.Sprintf("%d updates wait", n)
}

// shownURL leaves out what may be secret in a URL.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(not a URL)"
	}
	s := u.Scheme + "://" + u.Host + u.EscapedPath()
	if u.RawQuery != "" {
		s += "?..."
	}
	return s
}

func assessURL(info WebhookInfo, want Webhook) []Finding {
	if want.URL == "" || info.URL == want.URL {
		return nil
	}
	is, err1 := url.Parse(info.URL)
	should, err2 := url.Parse(want.URL)
	shown := fmt.Sprintf("The webhook is %s, and should be %s", shownURL(info.URL), shownURL(want.URL))
	set := "Set it again with the right URL (leadbot set-webhook)."
	if err1 != nil || err2 != nil {
		return []Finding{{CodeURL, SeverityProblem, shown + ".", set}}
	}
	if !strings.EqualFold(is.Hostname(), should.Hostname()) {
		return []Finding{{CodeForeign, SeverityProblem, shown + ": another host. Another program with the bot's token may have set it, " +
			"for example a CRM's own Telegram channel. A bot has one webhook, so its updates go there and not here.",
			"Make a second bot for the other program, and then set the webhook again here (leadbot set-webhook). Both with one " +
				"token take it from each other."}}
	}
	differs := ""
	switch {
	case is.Scheme != should.Scheme:
		differs = "the scheme differs"
	case portOf(is) != portOf(should):
		differs = "the port differs"
	case is.Path != should.Path && strings.Contains(is.Path, "//"):
		differs = "there is a double slash in its path, which many proxies and routers answer with a redirect or 404"
	case strings.TrimRight(is.Path, "/") == strings.TrimRight(should.Path, "/") && is.Path != should.Path:
		differs = "they differ by the slash at the end, which many routers answer with a redirect or 404"
	case is.Path != should.Path:
		differs = "the path differs"
	case is.RawQuery != should.RawQuery:
		differs = "what follows the question mark differs"
	default: // the same in other letters: a host's case, a default port
		return nil
	}
	return []Finding{{CodeURL, SeverityProblem, shown + ": " + differs + ".", set}}
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "http":
		return "80"
	}
	return "443"
}

// failing is how old the last error may be while deliveries fail: Telegram tries again after 2 minutes at most [S].
const failing = 5 * time.Minute

// many updates that wait are more than a burst of a moment.
const many = 100

// assessDelivery: an error stays in the answer for as long as the webhook does, also when all is well again.
func assessDelivery(info WebhookInfo, now time.Time) (list []Finding) {
	slow := "Look twice, with 10 seconds between: if the number falls, all is well. If it stays or grows, the program takes updates " +
		"too slowly or not at all: is it running, and what does its log say?"
	switch {
	case info.LastErrorAt.IsZero() && info.Pending == 0:
		return append(list, Finding{CodePending, SeverityOK, "Nothing waits, and Telegram reports no failed delivery.", ""})
	case info.LastErrorAt.IsZero() && info.Pending >= many:
		return append(list, Finding{CodePending, SeverityWarning, waiting(info.Pending) + ", though Telegram reports no failed delivery.", slow})
	case info.LastErrorAt.IsZero():
		return append(list, Finding{CodePending, SeverityOK, waiting(info.Pending) + ", and Telegram reports no failed delivery.", slow})
	}
	f := explain(info.LastError)
	age := now.Sub(info.LastErrorAt)
	said := fmt.Sprintf("%s ago: %q. ", round(age), info.LastError)
	switch {
	case age < failing && info.Pending > 0:
		f.Severity = SeverityProblem
		f.What = waiting(info.Pending) + ", and the last delivery failed " + said + f.What
		return append(list, f)
	case age < failing:
		f.Severity = SeverityWarning
		f.What = "Nothing waits, but a delivery failed " + said + f.What
		return append(list, f)
	case info.Pending > 0:
		return append(list, Finding{CodePending, SeverityWarning, waiting(info.Pending) + ". The last failure was " + said + "That is too " +
			"old to be why: Telegram tries again within two minutes, unless it was told to wait longer (Retry-After).", slow})
	}
	f.Severity = SeverityOK
	f.What, f.Do = "Nothing waits. The last failure was "+said+f.What, ""
	return append(list, f)
}

func round(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "a second"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d seconds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d minutes", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d hours", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
