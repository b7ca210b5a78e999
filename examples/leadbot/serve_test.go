package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// serve_test.go: the server as Telegram and a monitoring see it.

func TestServer(t *testing.T) {
	s := start(t, "sim")
	leads := func() []simLead {
		_, body := s.get("/sim/leads")
		return read[[]simLead](t, body)
	}
	t.Run("a wrong secret is answered 401 and leaves nothing", func(t *testing.T) {
		for _, wrong := range []string{"", "wrong"} {
			if got := s.deliver(update(1, 42, "forged"), wrong); got != http.StatusUnauthorized {
				t.Errorf("secret %q: %d, want 401", wrong, got)
			}
		}
		if out := s.ops("list", "-events", "-state", "all", "-json"); strings.TrimSpace(out) != "[]" {
			t.Errorf("events: %s", out)
		}
	})
	t.Run("an update delivered three times becomes one lead", func(t *testing.T) {
		for range 3 {
			s.accept(update(1, 42, "How much is an oil change?"))
		}
		eventually(t, "the lead is in the CRM", func() bool { return len(leads()) > 0 })
		eventually(t, "its operation is done", func() bool { return len(s.in("done")) == 1 })
		got := leads()
		if _, page := s.get("/sim/leads"); len(got) != 1 || !strings.Contains(page, "How much is an oil change?") {
			t.Errorf("leads: %s", page)
		}
	})
	t.Run("a later message of the same person is a note of the lead", func(t *testing.T) {
		s.accept(update(2, 42, "And tyres?"))
		eventually(t, "the note is done", func() bool { return len(s.in("done")) == 2 })
		if got := leads(); len(got) != 1 || !slices.Equal(got[0].Notes, []string{"And tyres?"}) {
			t.Errorf("leads: %+v", got)
		}
	})
	t.Run("start alone makes no lead, and is counted with its reason", func(t *testing.T) {
		s.accept(update(3, 43, "/start"))
		eventually(t, "the event has ended", func() bool {
			_, body := s.get("/stats")
			return strings.Contains(body, `"pressed start"`)
		})
		if got := leads(); len(got) != 1 {
			t.Errorf("leads: %+v", got)
		}
	})
	t.Run("GET on the webhook is answered 405", func(t *testing.T) {
		if status, _ := s.get("/telegram"); status != http.StatusMethodNotAllowed {
			t.Error(status)
		}
	})
	t.Run("healthz and readyz are answered 200", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz"} {
			if status, body := s.get(path); status != http.StatusOK {
				t.Errorf("%s: %d %s", path, status, body)
			}
		}
	})
	t.Run("stats count what is finished, and tell that nobody is needed", func(t *testing.T) {
		_, body := s.get("/stats")
		p := read[statsPage](t, body)
		n := int64(0)
		for _, c := range p.Recent {
			if c.State == "done" {
				n += c.N
			}
		}
		if n != 2 || p.NeedPerson != 0 || p.Paused {
			t.Errorf("stats: %s", body)
		}
		if !strings.Contains(body, `"settling": 0`) || !strings.Contains(body, `"operations": []`) {
			t.Errorf("settling or operations are missing: %s", body)
		}
	})
	t.Run("the log quotes neither text, name nor secret", func(t *testing.T) {
		for _, private := range []string{"oil change", "Anna", secret} {
			if strings.Contains(s.logged(), private) {
				t.Errorf("%q is in the log:\n%s", private, s.logged())
			}
		}
	})
}

func TestRefusesToStart(t *testing.T) {
	sim := []string{"-crm", "sim", "-bot-id", "1", "-listen", "127.0.0.1:0"}
	for _, c := range []struct {
		name string
		env  []string
		args []string
		code int
		says string
	}{
		{"without a secret", []string{"TELEGRAM_SECRET="}, sim, exitUsage, "set it to the secret_token that setWebhook was given"},
		{"with nothing but commas for secrets", []string{"TELEGRAM_SECRET= , "}, sim, exitUsage, "TELEGRAM_SECRET is not set"},
		{"with a secret that Telegram can't send", []string{"TELEGRAM_SECRET=no spaces"}, sim, exitUsage, "TELEGRAM_SECRET"},
		{"with a secret that can be guessed", []string{"TELEGRAM_SECRET=letmein"}, sim, exitUsage, "7 characters long, needs 16"},
		{"without a bot id", nil, []string{"-crm", "sim"}, exitUsage, "-bot-id is missing"},
		{"without a CRM", nil, []string{"-bot-id", "1"}, exitUsage, "-crm is missing"},
		{"with a CRM that it does not know", nil, []string{"-bot-id", "1", "-crm", "amo"}, exitUsage,
			"must be sim, jsonhook:URL or bitrix24"},
		{"with bitrix24 and no webhook", nil, []string{"-bot-id", "1", "-crm", "bitrix24"}, exitUsage, "B24_WEBHOOK is not set"},
		{"with a webhook that is none", []string{"B24_WEBHOOK=https://portal.example/code-secret"},
			[]string{"-bot-id", "1", "-crm", "bitrix24"}, exitUsage, "B24_WEBHOOK"},
		{"with a hook's token that is too short", []string{"CRM_HOOK_TOKEN=code-secret"}, sim, exitUsage, "CRM_HOOK_TOKEN"},
		{"with a comma after a hook's token", []string{"CRM_HOOK_TOKEN=0123456789-code-secret,"}, sim, exitUsage,
			"secret number 2 has 0 bytes"},
		{"with a hook that is no URL", nil, []string{"-bot-id", "1", "-crm", "jsonhook:nowhere"}, exitUsage, "-crm"},
		{"with a server that is not there", nil, append(sim, "-db", "postgres://u:pass-secret@127.0.0.1:1/leads"), exitFailed, "-db"},
		{"with a database that it does not know", nil, append(sim, "-db", "mysql://u:pass-secret@h/leads"), exitUsage,
			`no database "mysql"`},
		{"with a URL that is none", nil, append(sim, "-db", "postgres://u:pass-secret%@h/leads"), exitUsage, "PGPASSWORD"},
		{"with a schema in a file", nil, append(sim, "-schema", "bots"), exitUsage, "-schema"},
		{"with a schema that can't be", nil, append(sim, "-db", "postgres://h/leads", "-schema", "a b"), exitFailed, "Schema"},
		{"with a database in a folder that is not there", nil, append(sim, "-db", "no/such/folder/leads.db"), exitFailed, "-db"},
		{"with an address that can't be listened on", nil, append(sim, "-listen", "256.0.0.1:1"), exitFailed, "-listen"},
		{"with a flag that it does not know", nil, append(sim, "-speed", "9"), exitUsage, "-speed"},
		{"with a command that it does not know", nil, []string{"serve"}, exitUsage, `unknown command "serve"`},
	} {
		t.Run(c.name+" it refuses to start and says why", func(t *testing.T) {
			code, out, errOut := invokeEnv(t, t.TempDir(), c.env, c.args...)
			if code != c.code || !strings.Contains(errOut, c.says) || out != "" {
				t.Fatalf("exit %d, want %d and %q:\n%s%s", code, c.code, c.says, errOut, out)
			}
			for _, private := range []string{"code-secret", "no spaces", "pass-secret"} {
				if strings.Contains(errOut, private) {
					t.Errorf("it quotes %q: %s", private, errOut)
				}
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}, {"ops", "help"}, {"ops", "list", "-h"}} {
		t.Run(strings.Join(args, " ")+" prints the commands and exits 0", func(t *testing.T) {
			code, out, errOut := invoke(t, t.TempDir(), args...)
			if code != exitOK || !strings.Contains(out, "leadbot ops COMMAND") || errOut != "" {
				t.Fatalf("exit %d\n%s%s", code, out, errOut)
			}
		})
	}
}
