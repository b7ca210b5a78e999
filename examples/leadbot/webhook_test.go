package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// webhook_test.go: polling, and the commands about the webhook, against a stand-in for the Bot API that is made from its
// documentation.

const botToken = "123456:AAFtoken-of-the-test"

// botServer holds updates and what the webhook is.
type botServer struct {
	*httptest.Server
	mu      sync.Mutex
	queue   []string // update_id is the place, from 1
	head    int      // what is confirmed
	set     url.Values
	deleted url.Values // nil: not called
	info    string
	refused bool
}

func newBotServer(t *testing.T) *botServer {
	b := &botServer{info: `{"url":"","pending_update_count":0}`}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *botServer) serve(w http.ResponseWriter, r *http.Request) {
	r.ParseForm()
	method, ours := strings.CutPrefix(r.URL.Path, "/bot"+botToken+"/")
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !ours || b.refused:
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprint(w, `{"ok":false,"error_code":401,"description":"Unauthorized"}`)
	case method == "getUpdates":
		if n, _ := strconv.Atoi(r.Form.Get("offset")); n > 0 {
			b.head = n - 1
		}
		list := strings.Join(b.queue[b.head:], ",")
		if list == "" { // a short long poll
			b.mu.Unlock()
			time.Sleep(20 * time.Millisecond)
			b.mu.Lock()
		}
		fmt.Fprintf(w, `{"ok":true,"result":[%s]}`, list)
	case method == "getWebhookInfo":
		fmt.Fprintf(w, `{"ok":true,"result":%s}`, b.info)
	case method == "setWebhook":
		b.set = r.Form
		fmt.Fprint(w, `{"ok":true,"result":true}`)
	case method == "deleteWebhook":
		b.deleted = r.Form
		fmt.Fprint(w, `{"ok":true,"result":true}`)
	default:
		http.NotFound(w, r)
	}
}

func (b *botServer) say(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, update(len(b.queue)+1, 42+len(b.queue), text))
}

func (b *botServer) confirmed() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.head
}

func (b *botServer) tells(info string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.info = info
}

func TestPolling(t *testing.T) {
	api := newBotServer(t)
	env := []string{"BOT_TOKEN=" + botToken, "TELEGRAM_SECRET="}
	api.say("How much is an oil change?")
	s := launch(t, t.TempDir(), "sim", env, []string{"-poll", "-api", api.URL}, nil)
	leads := func() []simLead {
		_, body := s.get("/sim/leads")
		return read[[]simLead](t, body)
	}
	t.Run("what is fetched becomes a lead, and is confirmed", func(t *testing.T) {
		eventually(t, "the first lead", func() bool { return len(leads()) == 1 })
		api.say("And tyres?")
		eventually(t, "the second lead", func() bool { return len(leads()) == 2 })
		eventually(t, "both are confirmed", func() bool { return api.confirmed() == 2 })
	})
	t.Run("there is no door for posted updates", func(t *testing.T) {
		if got := s.deliver(update(9, 42, "forged"), ""); got != http.StatusNotFound {
			t.Errorf("POST /telegram answered %d", got)
		}
	})
	t.Run("neither the token nor a text is in the log", func(t *testing.T) {
		for _, private := range []string{"AAFtoken", "oil change"} {
			if strings.Contains(s.logged(), private) {
				t.Errorf("%q is in the log:\n%s", private, s.logged())
			}
		}
	})
	t.Run("a token that is refused ends leadbot with words for a person", func(t *testing.T) {
		api.mu.Lock()
		api.refused = true
		api.mu.Unlock()
		within(t, "it has ended", s.exited)
		if code := s.cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(s.logged(), "refuses the token") {
			t.Errorf("exit code %d: %s", code, s.logged())
		}
	})
}

func TestPollingNeeds(t *testing.T) {
	for _, c := range []struct {
		name, token, says string
		args              []string
	}{
		{"without a token", "", "BOT_TOKEN is not set", nil},
		{"with what is no token", "AAFtoken", "BOT_TOKEN", nil},
		{"with another bot's id", botToken, "-bot-id is 7, and BOT_TOKEN is of bot 123456", []string{"-bot-id", "7"}},
		{"with an API that is no URL", botToken, "-api", []string{"-api", "nowhere"}},
	} {
		t.Run(c.name+" it refuses to poll and says why", func(t *testing.T) {
			code, _, errOut := invokeEnv(t, t.TempDir(), []string{"BOT_TOKEN=" + c.token, "TELEGRAM_SECRET="},
				append([]string{"-crm", "sim", "-poll", "-listen", "127.0.0.1:0"}, c.args...)...)
			if code != exitUsage || !strings.Contains(errOut, c.says) || strings.Contains(errOut, "AAFtoken") {
				t.Errorf("exit %d: %s", code, errOut)
			}
		})
	}
}

func TestWebhookCommands(t *testing.T) {
	api, dir := newBotServer(t), t.TempDir()
	env := []string{"BOT_TOKEN=" + botToken, "TELEGRAM_SECRET= new-secret-0123456789, old-secret-0123456789"}
	leadbot := func(t *testing.T, args ...string) (int, string, string) {
		t.Helper()
		code, out, errOut := invokeEnv(t, dir, env, append(args, "-api", api.URL)...)
		for _, private := range []string{"AAFtoken", "new-secret"} {
			if strings.Contains(out+errOut, private) {
				t.Errorf("%q is shown:\n%s%s", private, out, errOut)
			}
		}
		return code, out, errOut
	}
	t.Run("check says what is wrong and what to do, and exits 1", func(t *testing.T) {
		code, out, errOut := leadbot(t, "check", "-url", "https://example.com/telegram")
		if code != exitFailed || !strings.Contains(out, "problem (none): No webhook is set") || !strings.Contains(out, "  -> ") ||
			!strings.Contains(errOut, "see above") {
			t.Errorf("exit %d\n%s%s", code, out, errOut)
		}
	})
	t.Run("set-webhook sends the first secret and the kinds", func(t *testing.T) {
		code, out, errOut := leadbot(t, "set-webhook", "-url", "https://example.com/telegram", "-max-connections", "20")
		if code != exitOK || !strings.Contains(out, "bot 123456") {
			t.Fatalf("exit %d\n%s%s", code, out, errOut)
		}
		if f := api.set; f.Get("url") != "https://example.com/telegram" || f.Get("secret_token") != "new-secret-0123456789" ||
			f.Get("max_connections") != "20" || !strings.Contains(f.Get("allowed_updates"), "callback_query") {
			t.Errorf("sent %v", f)
		}
	})
	t.Run("check of a webhook that works exits 0", func(t *testing.T) {
		api.tells(`{"url":"https://example.com/telegram","pending_update_count":0}`)
		for _, args := range [][]string{{"check", "-url", "https://example.com/telegram"}, {"check"}} {
			code, out, errOut := leadbot(t, args...)
			if code != exitOK || !strings.Contains(out, "ok (ok)") || errOut != "" {
				t.Errorf("exit %d\n%s%s", code, out, errOut)
			}
		}
	})
	t.Run("-updates names the kinds that are set and compared", func(t *testing.T) {
		code, out, errOut := leadbot(t, "set-webhook", "-url", "https://example.com/telegram", "-updates", "message, chat_member")
		if got := api.set.Get("allowed_updates"); code != exitOK || got != `["message","chat_member"]` {
			t.Errorf("exit %d, sent %s\n%s%s", code, got, out, errOut)
		}
		if code, out, _ := leadbot(t, "check", "-updates", "message,chat_member"); code != exitFailed || !strings.Contains(out, "chat_member") {
			t.Errorf("exit %d\n%s", code, out)
		}
		if code, _, errOut := leadbot(t, "check", "-updates", "message,,"); code != exitUsage || !strings.Contains(errOut, "commas") {
			t.Errorf("exit %d\n%s", code, errOut)
		}
	})
	t.Run("delete-webhook removes it and throws nothing away", func(t *testing.T) {
		code, out, errOut := leadbot(t, "delete-webhook")
		if code != exitOK || !strings.Contains(out, "What waits is kept") || api.deleted == nil || api.deleted.Has("drop_pending_updates") {
			t.Errorf("exit %d, sent %v\n%s%s", code, api.deleted, out, errOut)
		}
	})
	t.Run("set-webhook without a URL or a secret, or with a short one, is refused", func(t *testing.T) {
		if code, _, errOut := leadbot(t, "set-webhook"); code != exitUsage || !strings.Contains(errOut, "-url is missing") {
			t.Errorf("exit %d: %s", code, errOut)
		}
		env = []string{"BOT_TOKEN=" + botToken, "TELEGRAM_SECRET=new-secret"}
		if code, _, errOut := leadbot(t, "set-webhook", "-url", "https://x/y"); code == exitOK || !strings.Contains(errOut, "openssl") {
			t.Errorf("exit %d: %s", code, errOut)
		}
		env = []string{"BOT_TOKEN=" + botToken, "TELEGRAM_SECRET= , "}
		if code, _, errOut := leadbot(t, "set-webhook", "-url", "https://x/y"); code != exitUsage || !strings.Contains(errOut, "TELEGRAM_SECRET") {
			t.Errorf("exit %d: %s", code, errOut)
		}
	})
	t.Run("a token that Telegram refuses, or none, is told", func(t *testing.T) {
		env = []string{"BOT_TOKEN=1:AAFtoken"}
		if code, _, errOut := leadbot(t, "check"); code != exitFailed || !strings.Contains(errOut, "take the one that BotFather shows") {
			t.Errorf("exit %d: %s", code, errOut)
		}
		env = nil
		if code, _, errOut := leadbot(t, "check"); code != exitUsage || !strings.Contains(errOut, "BOT_TOKEN is not set") {
			t.Errorf("exit %d: %s", code, errOut)
		}
	})
}
