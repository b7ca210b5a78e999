package telegram

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/dedup"
)

// source.go: the Source itself, and how a request proves that Telegram sent it.

// Name is the Source field of every event from here.
const Name = "telegram"

// SecretHeader carries the secret that was given to setWebhook (https://core.telegram.org/bots/api#setwebhook).
const SecretHeader = "X-Telegram-Bot-Api-Secret-Token"

// MinSecret is how many characters a secret has at least: it is all that tells Telegram's requests from anybody's. Take 32
// random ones or more. Telegram itself takes a single one [D, setWebhook].
const MinSecret = 16

// maxSecret is the longest secret that setWebhook takes.
const maxSecret = 256

// Options are the optional settings of a Source. nil means the defaults.
type Options struct {
	// Tenant is the host's own name for the account that the bot belongs to. It is part of every key; empty by default.
	Tenant string
}

// Source is the dedup.Source of one bot. It never changes and may be used by any number of goroutines.
type Source struct {
	bot     string
	tenant  string
	secrets [][sha256.Size]byte
}

var _ dedup.Source = (*Source)(nil)

// NewSource returns the source of the bot with this numeric id (User.id of getMe, the part of the token before the colon).
//
// secrets is the secret_token that was given to setWebhook, or several of them separated by commas while it is being
// replaced. Each has MinSecret to 256 of the characters A-Z, a-z, 0-9, _ and -. It is all that tells Telegram's requests
// from anybody's, so take 32 random characters or more (openssl rand -hex 32 makes 64), and keep it over restarts: with a new
// one every request is refused until setWebhook was called again. Without any secret, with a shorter one, and with one given
// twice, there is an error; errors never contain a secret.
func NewSource(botID int64, secrets string, o *Options) (*Source, error) {
	if o == nil {
		o = &Options{}
	}
	s, err := newSource(botID, o)
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(secrets, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		if err := s.addSecret(part); err != nil {
			return nil, fmt.Errorf("telegram: secret number %d: %w", len(s.secrets)+1, err)
		}
	}
	if len(s.secrets) == 0 {
		return nil, fmt.Errorf("telegram: no secret: without one anybody who finds the URL can send updates. " +
			"Give setWebhook a secret_token and give the same to NewSource; openssl rand -hex 32 makes one")
	}
	return s, nil
}

func newSource(botID int64, o *Options) (*Source, error) {
	if botID <= 0 {
		return nil, fmt.Errorf("telegram: botID is %d, must be the positive number before the colon of the bot's token", botID)
	}
	return &Source{bot: strconv.FormatInt(botID, 10), tenant: o.Tenant}, nil
}

func (s *Source) addSecret(secret string) error {
	if err := checkSecret(secret); err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(secret))
	for _, have := range s.secrets {
		if have == sum {
			return fmt.Errorf("given before")
		}
	}
	s.secrets = append(s.secrets, sum)
	return nil
}

// checkSecret says what setWebhook would not take [D, setWebhook], and what could be guessed. It does not quote the secret.
func checkSecret(secret string) error {
	if len(secret) > maxSecret {
		return fmt.Errorf("%d characters long, Telegram takes at most %d", len(secret), maxSecret)
	}
	for i := range len(secret) {
		c := secret[i]
		if c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return fmt.Errorf("character %d is none of A-Z, a-z, 0-9, _ and -, which are all that Telegram takes "+
				"(is it the bot's token?)", i+1)
		}
	}
	if len(secret) < MinSecret {
		return fmt.Errorf("%d characters long, needs %d or more: it is all that tells Telegram's requests from anybody's. "+
			"openssl rand -hex 32 makes one", len(secret), MinSecret)
	}
	return nil
}

// Authenticate returns nil if the request carries one of the secrets, else dedup.ErrUnauthentic. It never reads the body.
// Digests are compared, all of them and in constant time, so that an answer's timing tells neither a secret's length nor
// its beginning, nor which of several was meant.
func (s *Source) Authenticate(r *http.Request, _ func() ([]byte, error)) error {
	got := sha256.Sum256([]byte(r.Header.Get(SecretHeader)))
	found := 0
	for i := range s.secrets {
		found |= subtle.ConstantTimeCompare(got[:], s.secrets[i][:])
	}
	if found != 1 {
		return dedup.ErrUnauthentic
	}
	return nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
