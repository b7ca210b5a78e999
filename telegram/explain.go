package telegram

import (
	"strconv"
	"strings"
)

// explain.go: what the words of last_error_message mean. They are those of the public server [S]: WebhookActor.cpp and,
// for what goes wrong below HTTP, tdlib's sockets and OpenSSL. They are promised nowhere: unknown ones are passed on.

// cause is one thing that Telegram can meet.
type cause struct {
	words    []string // any of them, in lower case
	code     string
	what, do string
}

var causes = []cause{
	{[]string{"self-signed", "self signed"}, CodeTLS,
		"The server's certificate, or one in its chain, is self-signed, and Telegram does not trust it.",
		"Take a certificate of a public authority (Let's Encrypt), or upload yours with setWebhook (its parameter certificate)."},
	{[]string{"unable to get local issuer", "unable to get issuer", "unable to verify the first certificate"}, CodeTLS,
		"The chain of certificates is incomplete: the intermediate one is missing.",
		"Let the server send the whole chain (certbot's fullchain.pem, not cert.pem)."},
	{[]string{"certificate has expired", "certificate expired"}, CodeTLS,
		"The server's certificate has expired.",
		"Renew it, and restart or reload what serves it."},
	{[]string{"hostname mismatch", "host name mismatch", "ip address mismatch"}, CodeTLS,
		"The server's certificate is for another name.",
		"Set the webhook with a name that is in the certificate, or get one for this name."},
	{[]string{"certificate verify failed"}, CodeTLS,
		"Telegram does not trust the certificate: self-signed, expired, for another name, or without the intermediate one.",
		"Look at it (openssl s_client -connect HOST:443 -servername HOST), and serve the whole chain of a public authority."},
	{[]string{"wrong version number", "http request"}, CodeTLS,
		"The port answers without TLS.",
		"Let the webhook's URL lead to the TLS proxy's port, not to the program behind it."},
	{[]string{"ssl"}, CodeTLS,
		"TLS between Telegram and the server fails.",
		"Telegram needs TLS 1.2 or newer. Look at the server: openssl s_client -connect HOST:443 -servername HOST"},
	{[]string{"is reserved", "ipv6-only", "find ipv4/ipv6 address"}, CodeAddress,
		"The webhook's host has no public IPv4 address.",
		"The name must resolve to an address that can be reached from the internet, over IPv4."},
	{[]string{"resolve host", "dns", "host name"}, CodeDNS,
		"Telegram can't resolve the webhook's host name.",
		"Look at the name's DNS records; after a change give them an hour."},
	{[]string{"read timeout"}, CodeSlow,
		"The server took the update and did not answer in time (60 seconds).",
		"Look into the proxy's log for requests of a minute. The program itself answers in seconds, unless its machine or database " +
			"hangs, or something of its own works before dedup.Middleware: that has to come first."},
	{[]string{"connection refused"}, CodeConnect,
		"Nothing listens there.",
		"Is the proxy running, and on this port? Is the port open in the firewall?"},
	{[]string{"timed out", "write timeout", "no route", "unreachable"}, CodeConnect,
		"Telegram gets no connection to the server.",
		"Open the port in the firewall for " + networks + ", and see that the name's address is the server's."},
	{[]string{"reset by peer", "connection closed", "broken pipe"}, CodeClosed,
		"The server closes the connection without an answer.",
		"Look into the proxy's log: it may have been restarting, or it refuses the connection."},
	{[]string{"can't connect to the webhook"}, CodeConnect,
		"Telegram gets no connection to the server.",
		"See that the address is right, that the port is open, and that the proxy runs."},
	{[]string{"content-encoding", "transfer-encoding", "bad request", "too large", "not implemented", "not supported"}, CodeAnswer,
		"What the server answers is not HTTP as Telegram understands it.",
		"Take compression other than gzip off in the proxy; is something else than a web server on this port?"},
}

// networks are where Telegram posts from (https://core.telegram.org/bots/webhooks). They may change.
const networks = "149.154.160.0/20 and 91.108.4.0/22"

// statuses are the answers that Telegram takes for failures, by range; the first that fits counts.
var statuses = []struct {
	from, to       int
	code, what, do string
}{
	{300, 399, CodeRedirect, "The server redirects, and Telegram does not follow.",
		"Set the webhook with the final URL (https, the right host, the slash at the end or not), or take the redirect off."},
	{401, 401, CodeUnauthorized, "The program refuses the secret: it is not the one that the webhook was set with.",
		"Set the webhook again with the program's secret (leadbot set-webhook with its TELEGRAM_SECRET). If they are the same, a " +
			"proxy drops the header " + SecretHeader + " or asks for a password of its own."},
	{403, 403, CodeForbidden, "Something before the program refuses Telegram: a firewall, a bot protection, an access list.",
		"Let " + networks + " through to the webhook's path."},
	{404, 404, CodeNotFound, "Nothing is served under the webhook's path.",
		"Compare it with the path that the program serves and the proxy passes on (leadbot: /telegram), slashes included."},
	{405, 405, CodeRefused, "The path does not take POST.",
		"Compare it with the path that the program serves (leadbot: /telegram)."},
	{410, 410, CodeGone, "The server says that nothing is there any more. After 23 hours of that Telegram removes the webhook.",
		"Find what answers 410, and then look whether the webhook is still set."},
	{413, 413, CodeRefused, "The update is longer than the proxy allows.",
		"Allow bodies of 1 MiB (nginx: client_max_body_size 1m)."},
	{503, 503, CodeUnavailable, "The program can't store the update, or a proxy can't reach the program.",
		"Look into the program's log: a database that is full, locked, unreachable, or another bot's. Telegram goes on trying."},
	{502, 502, CodeGateway, "The proxy does not reach the program.", gatewayDo},
	{504, 504, CodeGateway, "The proxy does not reach the program.", gatewayDo},
	{500, 599, CodeServer, "The server fails.",
		"Look into the log of the program and the proxy. The middleware answers 503, never another 5xx: is it outermost?"},
	{0, 999, CodeRefused, "The server refuses the update.", "Look into the proxy's log for what answers so."},
}

const gatewayDo = "Is the program running, and does the proxy pass on to its address and port?"

// explain says what a message means, and what to do. Only Severity is left open.
func explain(message string) Finding {
	m := strings.ToLower(message)
	if _, rest, ok := strings.Cut(m, "wrong response from the webhook: "); ok {
		number, _, _ := strings.Cut(rest, " ")
		status, err := strconv.Atoi(number)
		for _, s := range statuses {
			if err == nil && s.from <= status && status <= s.to {
				return Finding{Code: s.code, What: s.what, Do: s.do}
			}
		}
		return Finding{Code: CodeAnswer, What: "The server's answer is not HTTP as Telegram understands it.",
			Do: "Is something else than a web server on this port?"}
	}
	for _, c := range causes {
		for _, w := range c.words {
			if strings.Contains(m, w) {
				return Finding{Code: c.code, What: c.what, Do: c.do}
			}
		}
	}
	return Finding{Code: CodeOther, What: "What that means is not known here.",
		Do: "Look into the logs of the proxy and of the program at that time."}
}
