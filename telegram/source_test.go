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
		want    string // in the error; empty: none
	}{
		{"one secret", 1, "abcDEF019_-xyzXYZ", ""},
		{"the shortest", 1, strings.Repeat("x", telegram.MinSecret), ""},
		{"one that could be guessed is refused, and it is said how to make another", 1, strings.Repeat("x", telegram.MinSecret-1),
			"secret number 1: 15 characters long, needs 16 or more: it is all that tells Telegram's requests from anybody's. " +
				"openssl rand -hex 32 makes one"},
		{"a short one beside a long one is refused", 1, "0123456789abcdef, AAsecret", "secret number 2: 8 characters"},
		{"several, with the spaces and commas that an environment variable collects", 1, " new-secret-012345 , old-secret-012345,", ""},
		{"the longest", 1, strings.Repeat("x", 256), ""},
		{"no secret is refused", 1, "", "no secret"},
		{"only commas are refused", 1, " , ,", "no secret"},
		{"a bot id of 0 is refused", 0, "x", "botID"},
		{"a negative bot id is refused", -5, "x", "botID"},
		{"a secret that is too long is refused", 1, strings.Repeat("x", 257), "257 characters"},
		{"the bot's token is refused as a secret", 1, "123456:AAsecretsecret", "character 7"},
		{"a letter outside ASCII is refused", 1, "0123456789abcdef,пароль", "secret number 2: character 1"},
		{"the same secret twice is refused", 1, "0123456789abcdef,0123456789abcdeg,0123456789abcdef", "secret number 3: given before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := telegram.NewSource(c.bot, c.secrets, nil)
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
	s, err := telegram.NewSource(1, "new-secret-012345,old-secret-012345", nil)
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
		{"the first secret", telegram.SecretHeader, "new-secret-012345", nil},
		{"the second, during a rotation", telegram.SecretHeader, "old-secret-012345", nil},
		{"the header in another case", "x-telegram-bot-api-secret-token", "old-secret-012345", nil},
		{"another secret", telegram.SecretHeader, "any-secret-012345", dedup.ErrUnauthentic},
		{"the beginning of a secret", telegram.SecretHeader, "new-secret-01234", dedup.ErrUnauthentic},
		{"more than a secret", telegram.SecretHeader, "new-secret-012345x", dedup.ErrUnauthentic},
		{"both at once", telegram.SecretHeader, "new-secret-012345,old-secret-012345", dedup.ErrUnauthentic},
		{"a secret in another case", telegram.SecretHeader, "NEW-SECRET-012345", dedup.ErrUnauthentic},
		{"an empty header", telegram.SecretHeader, "", dedup.ErrUnauthentic},
		{"no header", "X-Other", "new-secret-012345", dedup.ErrUnauthentic},
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
