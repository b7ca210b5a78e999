package telegram_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/telegram"
)

// source_test.go: which secrets are taken, and which requests.

func TestNewSource(t *testing.T) {
	for _, c := range []struct {
		name    string
		bot     int64
		secrets string
		more    []string
		want    string // in the error; empty: none
	}{
		{"one secret", 1, "abcDEF019_-", nil, ""},
		{"several, with the spaces and commas that an environment variable collects", 1, " new , old,", nil, ""},
		{"one only in the options", 1, "", []string{"x"}, ""},
		{"the longest", 1, strings.Repeat("x", 256), nil, ""},
		{"no secret is refused", 1, "", nil, "no secret"},
		{"only commas are refused", 1, " , ,", nil, "no secret"},
		{"a bot id of 0 is refused", 0, "x", nil, "botID"},
		{"a negative bot id is refused", -5, "x", nil, "botID"},
		{"a secret that is too long is refused", 1, strings.Repeat("x", 257), nil, "257 characters"},
		{"the bot's token is refused as a secret", 1, "123456:AAsecretsecret", nil, "character 7"},
		{"a letter outside ASCII is refused", 1, "ok,пароль", nil, "secret number 2: character 1"},
		{"the same secret twice is refused", 1, "a,b,a", nil, "secret number 3: given before"},
		{"the same secret in the options is refused", 1, "a", []string{"a"}, "given before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := telegram.NewSource(c.bot, c.secrets, &telegram.Options{MoreSecrets: c.more})
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("got %v, want %q", err, c.want)
			case err != nil && (strings.Contains(err.Error(), "AAsecret") || strings.Contains(err.Error(), "пароль")):
				t.Fatalf("the error tells the secret: %v", err)
			}
		})
	}
}

func TestAuthenticate(t *testing.T) {
	s, err := telegram.NewSource(1, "new-secret,old-secret", &telegram.Options{MoreSecrets: []string{"third"}})
	if err != nil {
		t.Fatal(err)
	}
	never := func() ([]byte, error) {
		t.Error("the body was asked for")
		return nil, errors.New("no")
	}
	for _, c := range []struct {
		name, header, value string
		want                error
	}{
		{"the first secret", telegram.SecretHeader, "new-secret", nil},
		{"the second, during a rotation", telegram.SecretHeader, "old-secret", nil},
		{"one of the options", telegram.SecretHeader, "third", nil},
		{"the header in another case", "x-telegram-bot-api-secret-token", "old-secret", nil},
		{"another secret", telegram.SecretHeader, "no-secret", dedup.ErrUnauthentic},
		{"the beginning of a secret", telegram.SecretHeader, "new-secre", dedup.ErrUnauthentic},
		{"more than a secret", telegram.SecretHeader, "new-secretx", dedup.ErrUnauthentic},
		{"both at once", telegram.SecretHeader, "new-secret,old-secret", dedup.ErrUnauthentic},
		{"a secret in another case", telegram.SecretHeader, "NEW-SECRET", dedup.ErrUnauthentic},
		{"an empty header", telegram.SecretHeader, "", dedup.ErrUnauthentic},
		{"no header", "X-Other", "new-secret", dedup.ErrUnauthentic},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.Body = nil // touched means a panic
			r.Header.Set(c.header, c.value)
			if err := s.Authenticate(r, never); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}
