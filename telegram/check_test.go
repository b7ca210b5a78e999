package telegram_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/telegram"
)

// check_test.go: each way in which a webhook can be wrong, and the words for it (testdata/check.txt).

const wanted = "https://example.com/telegram"

// situation is what getWebhookInfo says. AGO(n) is the time n seconds ago.
type situation struct {
	name, info string
	want       telegram.Webhook
	code       string // of the first finding
	severity   telegram.Severity
}

// failed is a webhook as it should be, with a failure 10 seconds ago and an update that waits.
func failed(message string) string {
	return fmt.Sprintf(`{"url":"https://example.com/telegram","pending_update_count":1,"last_error_date":AGO(10),`+
		`"last_error_message":%q,"max_connections":40,"ip_address":"203.0.113.5"}`, message)
}

func setTo(url string) string {
	return fmt.Sprintf(`{"url":%q,"pending_update_count":0,"max_connections":40}`, url)
}

func situations() []situation {
	want := telegram.Webhook{URL: wanted}
	list := []situation{
		{"all is well", `{"url":"https://example.com/telegram","pending_update_count":0,"max_connections":40}`, want, telegram.CodeOK, telegram.SeverityOK},
		{"well in other letters", setTo("https://EXAMPLE.com:443/telegram"), want, telegram.CodeOK, telegram.SeverityOK},
		{"any URL is right", setTo("https://other.example.net/?key=AAFsecret"), telegram.Webhook{}, telegram.CodeOK, telegram.SeverityOK},
		{"no webhook", `{"url":"","pending_update_count":12}`, want, telegram.CodeNone, telegram.SeverityProblem},
		{"no webhook, and none is wanted", `{"url":"","pending_update_count":0}`, telegram.Webhook{}, telegram.CodeNone, telegram.SeverityWarning},
		{"another host", setTo("https://crm.example.net/imconnector/?key=AAFsecret"), want, telegram.CodeForeign, telegram.SeverityProblem},
		{"the token in the path", setTo("https://crm.example.net/" + token), want, telegram.CodeForeign, telegram.SeverityProblem},
		{"another path", setTo("https://example.com/webhook"), want, telegram.CodeURL, telegram.SeverityProblem},
		{"a double slash", setTo("https://example.com//telegram"), want, telegram.CodeURL, telegram.SeverityProblem},
		{"a slash at the end", setTo("https://example.com/telegram/"), want, telegram.CodeURL, telegram.SeverityProblem},
		{"another port", setTo("https://example.com:8443/telegram"), want, telegram.CodeURL, telegram.SeverityProblem},
		{"another scheme", setTo("http://example.com/telegram"), want, telegram.CodeURL, telegram.SeverityProblem},
		{"another query", setTo("https://example.com/telegram?bot=1"), want, telegram.CodeURL, telegram.SeverityProblem},

		{"updates under way", `{"url":"https://example.com/telegram","pending_update_count":3}`, want, telegram.CodeOK, telegram.SeverityOK},
		{"updates wait, and the last failure is old", `{"url":"https://example.com/telegram","pending_update_count":3,` +
			`"last_error_date":AGO(7200),"last_error_message":"Connection refused"}`, want, telegram.CodePending, telegram.SeverityWarning},
		{"a failure that is over", `{"url":"https://example.com/telegram","pending_update_count":0,` +
			`"last_error_date":AGO(259200),"last_error_message":"Connection refused"}`, want, telegram.CodeOK, telegram.SeverityOK},
		{"a failure a moment ago", `{"url":"https://example.com/telegram","pending_update_count":0,` +
			`"last_error_date":AGO(150),"last_error_message":"Connection refused"}`, want, telegram.CodeConnect, telegram.SeverityWarning},

		{"kinds are missing", `{"url":"https://example.com/telegram","allowed_updates":["message"]}`, want,
			telegram.CodeKinds, telegram.SeverityWarning},
		{"many updates wait without an error", `{"url":"https://example.com/telegram","pending_update_count":100}`, want,
			telegram.CodePending, telegram.SeverityWarning},
		{"some updates wait without an error", `{"url":"https://example.com/telegram","pending_update_count":99}`, want,
			telegram.CodeOK, telegram.SeverityOK},
		{"corrections are missing", `{"url":"https://example.com/telegram","allowed_updates":["message","callback_query"]}`, want,
			telegram.CodeKinds, telegram.SeverityWarning},
		{"only special kinds are missing", `{"url":"https://example.com/telegram","allowed_updates":["message","edited_message",` +
			`"callback_query"]}`, want, telegram.CodeOK, telegram.SeverityOK},
		{"messages are missing", `{"url":"https://example.com/telegram","allowed_updates":["chat_member"]}`, want,
			telegram.CodeKinds, telegram.SeverityProblem},
		{"the default lacks what is wanted", setTo(wanted), telegram.Webhook{URL: wanted, AllowedUpdates: []string{"message",
			"chat_member", "message_reaction", "of_tomorrow"}}, telegram.CodeKinds, telegram.SeverityProblem},
		{"one connection", `{"url":"https://example.com/telegram","max_connections":1}`, want, telegram.CodeConnections, telegram.SeverityWarning},
		{"more connections than are held", `{"url":"https://example.com/telegram","max_connections":1000}`, want,
			telegram.CodeConnections, telegram.SeverityWarning},
		{"other connections than wanted", setTo(wanted), telegram.Webhook{URL: wanted, MaxConnections: 10}, telegram.CodeConnections, telegram.SeverityWarning},
		{"an uploaded certificate", `{"url":"https://example.com/telegram","has_custom_certificate":true}`, want,
			telegram.CodeCertificate, telegram.SeverityWarning},
		{"another address", `{"url":"https://example.com/telegram","ip_address":"203.0.113.5"}`,
			telegram.Webhook{URL: wanted, IPAddress: "203.0.113.6"}, telegram.CodeIP, telegram.SeverityProblem},
		{"Telegram's own trouble", `{"url":"https://example.com/telegram","last_synchronization_error_date":AGO(1200)}`, want,
			telegram.CodeSync, telegram.SeverityWarning},
		{"Telegram's own trouble of yesterday", `{"url":"https://example.com/telegram","last_synchronization_error_date":AGO(90000)}`, want,
			telegram.CodeOK, telegram.SeverityOK},
		{"several at once, the worst first", `{"url":"https://example.com/other","pending_update_count":200,"last_error_date":AGO(1),` +
			`"last_error_message":"Wrong response from the webhook: 404 Not Found","max_connections":2,` +
			`"allowed_updates":["message"]}`, want, telegram.CodeURL, telegram.SeverityProblem},
	}
	for _, f := range []struct{ message, code string }{
		{"Wrong response from the webhook: 301 Moved Permanently", telegram.CodeRedirect},
		{"Wrong response from the webhook: 302 Found", telegram.CodeRedirect},
		{"Wrong response from the webhook: 307 Temporary Redirect", telegram.CodeRedirect},
		{"Wrong response from the webhook: 400 Bad Request", telegram.CodeRefused},
		{"Wrong response from the webhook: 401 Unauthorized", telegram.CodeUnauthorized},
		{"Wrong response from the webhook: 403 Forbidden", telegram.CodeForbidden},
		{"Wrong response from the webhook: 404 Not Found", telegram.CodeNotFound},
		{"Wrong response from the webhook: 405 Method Not Allowed", telegram.CodeRefused},
		{"Wrong response from the webhook: 410 Gone", telegram.CodeGone},
		{"Wrong response from the webhook: 413 Request Entity Too Large", telegram.CodeRefused},
		{"Wrong response from the webhook: 500 Internal Server Error", telegram.CodeServer},
		{"Wrong response from the webhook: 502 Bad Gateway", telegram.CodeGateway},
		{"Wrong response from the webhook: 503 Service Unavailable", telegram.CodeUnavailable},
		{"Wrong response from the webhook: 504 Gateway Timeout", telegram.CodeGateway},
		{"Wrong response from the webhook: 521 ", telegram.CodeServer},
		{"Wrong response from the webhook: [HttpQuery ...]", telegram.CodeAnswer},
		{"Unsupported Media Type: unsupported content-encoding", telegram.CodeAnswer},
		{"Connection refused", telegram.CodeConnect},
		{"Connection timed out", telegram.CodeConnect},
		{"No route to host", telegram.CodeConnect},
		{"Can't connect to the webhook", telegram.CodeConnect},
		{"Connection reset by peer", telegram.CodeClosed},
		{"Connection closed", telegram.CodeClosed},
		{"Read timeout expired", telegram.CodeSlow},
		{"SSL error {error:0A000086:SSL routines::certificate verify failed}", telegram.CodeTLS},
		{"SSL error {self-signed certificate in certificate chain}", telegram.CodeTLS},
		{"SSL error {error:1416F086:SSL routines:tls_process_server_certificate:certificate verify failed:unable to get local issuer certificate}",
			telegram.CodeTLS},
		{"SSL error {certificate has expired}", telegram.CodeTLS},
		{"SSL error {Hostname mismatch}", telegram.CodeTLS},
		{"SSL error {error:1408F10B:SSL routines:ssl3_get_record:wrong version number}", telegram.CodeTLS},
		{"SSL error {error:0A000438:SSL routines::tlsv1 alert internal error}", telegram.CodeTLS},
		{"Failed to resolve host: Name or service not known", telegram.CodeDNS},
		{"IP address 192.168.1.10 is reserved", telegram.CodeAddress},
		{"IPv6-only addresses are not allowed", telegram.CodeAddress},
		{"Something of next year", telegram.CodeOther},
	} {
		list = append(list, situation{"failed: " + f.message, failed(f.message), want, f.code, telegram.SeverityProblem})
	}
	return list
}

// infoNow puts times into a situation.
func infoNow(info string, now time.Time) string {
	for _, ago := range []int{1, 10, 150, 1200, 7200, 90000, 259200} {
		info = strings.ReplaceAll(info, fmt.Sprintf("AGO(%d)", ago), fmt.Sprint(now.Unix()-int64(ago)))
	}
	return info
}

func TestCheckWebhook(t *testing.T) {
	file := filepath.Join("testdata", "check.txt")
	raw, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	golden := map[string]string{}
	for block := range strings.SplitSeq(strings.ReplaceAll(string(raw), "\r", ""), "# ") {
		name, text, _ := strings.Cut(block, "\n")
		golden[name] = strings.TrimSpace(text)
	}
	var all strings.Builder
	for _, s := range situations() {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newBotAPI(1)
				api.result = map[string]string{"getwebhookinfo": infoNow(s.info, time.Now())}
				r, err := client(t, api).CheckWebhook(t.Context(), s.want)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Findings) == 0 || r.Findings[0].Severity != s.severity || r.Findings[0].Code != s.code {
					t.Errorf("got %+v", r.Findings)
				}
				if r.Problems() != (s.severity == telegram.SeverityProblem) {
					t.Errorf("problems: %v", r.Problems())
				}
				if strings.Contains(r.String(), "AAFsecret") {
					t.Errorf("a secret is shown: %s", r)
				}
				fmt.Fprintf(&all, "# %s\n%s\n", s.name, r)
				if d := cmp.Diff(golden[s.name], strings.TrimSpace(r.String())); d != "" && !*update {
					t.Errorf("the words have changed; if they are better now: go test ./telegram -run CheckWebhook -update\n%s", d)
				}
			})
		})
	}
	if *update {
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWebhookInfo(t *testing.T) {
	t.Run("every field is read", func(t *testing.T) {
		api := newBotAPI(1)
		api.result = map[string]string{"getwebhookinfo": `{"url":"https://x/","has_custom_certificate":true,"pending_update_count":5,
			"ip_address":"203.0.113.5","last_error_date":1767225600,"last_error_message":"m","last_synchronization_error_date":1767225601,
			"max_connections":40,"allowed_updates":["message","poll"],"of_tomorrow":{}}`}
		got, err := client(t, api).WebhookInfo(t.Context())
		want := telegram.WebhookInfo{URL: "https://x/", CustomCertificate: true, Pending: 5, IPAddress: "203.0.113.5",
			LastErrorAt: time.Unix(1767225600, 0).UTC(), LastError: "m", LastSyncErrorAt: time.Unix(1767225601, 0).UTC(), MaxConnections: 40,
			AllowedUpdates: []string{"message", "poll"}}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%v\n%s", err, d)
		}
	})
	for _, code := range []int{401, 404} {
		t.Run(fmt.Sprint("a token that Telegram refuses is told in the check's words, and not quoted: ", code), func(t *testing.T) {
			api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, `{"ok":false,"error_code":%d,"description":"Refused"}`, code)
			})
			_, err := client(t, api).CheckWebhook(t.Context(), telegram.Webhook{})
			if err == nil || !strings.Contains(err.Error(), "take the one that BotFather shows") || strings.Contains(err.Error(), token) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("an error of Telegram's is one of the check", func(t *testing.T) {
		api := newBotAPI(1)
		api.result = map[string]string{"getwebhookinfo": `[]`}
		if _, err := client(t, api).CheckWebhook(t.Context(), telegram.Webhook{}); err == nil {
			t.Error("no error")
		}
	})
}
