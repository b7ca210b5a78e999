package telegram_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/telegram"
)

// token_test.go: the bot's id in its token, and the source without a secret.

func TestBotID(t *testing.T) {
	for _, c := range []struct {
		name, token string
		want        int64
	}{
		{"an ordinary token", "123456:AAF-x_9", 123456},
		{"an id of 52 bits", "4503599627370495:x", 4503599627370495},
		{"nothing is refused", "", 0},
		{"a number alone is refused", "123456", 0},
		{"a number and a colon alone are refused", "123456:", 0},
		{"a secret alone is refused", ":AAFsecret", 0},
		{"an id of 0 is refused", "0:AAFsecret", 0},
		{"a negative id is refused", "-1:AAFsecret", 0},
		{"a sign is refused", "+1:AAFsecret", 0},
		{"an id beyond 64 bits is refused", "9223372036854775808:AAFsecret", 0},
		{"a line break behind it is refused", "1:AAFsecret\n", 0},
		{"a path is refused", "1:AAFsecret/getMe", 0},
		{"letters before the colon are refused", "bot1:AAFsecret", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := telegram.BotID(c.token)
			if got != c.want || (err == nil) != (c.want != 0) {
				t.Fatalf("got %d, %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), "AAFsecret") {
				t.Errorf("the token is in the error: %v", err)
			}
		})
	}
}

func TestNewPollingSource(t *testing.T) {
	t.Run("a bot without an id is refused", func(t *testing.T) {
		if _, err := telegram.NewPollingSource(0, nil); err == nil || !strings.Contains(err.Error(), "botID") {
			t.Errorf("got %v", err)
		}
	})
	s, err := telegram.NewPollingSource(700, &telegram.Options{Tenant: "north"})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("no request is authentic", func(t *testing.T) {
		for _, secret := range []string{"", "x", "700"} {
			r := httptest.NewRequest("POST", "/telegram", nil)
			r.Header.Set(telegram.SecretHeader, secret)
			if err := s.Authenticate(r, nil); !errors.Is(err, dedup.ErrUnauthentic) {
				t.Errorf("with the secret %q: %v", secret, err)
			}
		}
		if err := s.Authenticate(httptest.NewRequest("POST", "/telegram", nil), nil); !errors.Is(err, dedup.ErrUnauthentic) {
			t.Errorf("without a secret: %v", err)
		}
	})
	t.Run("its events are those of the webhook's source", func(t *testing.T) {
		hook, err := telegram.NewSource(700, "secret-of-the-test", &telegram.Options{Tenant: "north"})
		if err != nil {
			t.Fatal(err)
		}
		if s.Account() != hook.Account() {
			t.Errorf("the accounts are %v and %v", s.Account(), hook.Account())
		}
		for _, body := range []string{
			`{"update_id":5,"message":{"message_id":1,"from":{"id":7},"chat":{"id":7,"type":"private"},"date":9,"text":"x"}}`,
			`{"update_id":6,"callback_query":{"id":"1","from":{"id":7},"data":"a"}}`,
			`not an update`,
		} {
			polled, err1 := s.Parse([]byte(body))
			sent, err2 := hook.Parse([]byte(body))
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			if d := cmp.Diff(sent, polled); d != "" {
				t.Errorf("webhook and polling differ:\n%s", d)
			}
		}
	})
}
