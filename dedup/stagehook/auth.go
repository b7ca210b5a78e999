package stagehook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadonce/leadonce/dedup"
)

// auth.go: how a request proves that the CRM sent it. Every error is about a setting or is dedup.ErrUnauthentic; none
// contains a secret.

// MinSecret is how many bytes a secret has at least: it is all that tells the CRM's requests from anybody's.
const MinSecret = 16

// Auth tells genuine requests from forged ones: [Token] or [HMAC]. What is wrong with one is told by [New].
type Auth struct {
	err   error
	field string // of a form, with the token in it
	check func(r *http.Request, body func() ([]byte, error)) error
}

// Place is where a request carries a token.
type Place string

// The places. What is in a URL is written to the logs of every proxy on the way: prefer the others.
const (
	InHeader Place = "header"
	InQuery  Place = "query"
	InForm   Place = "form" // a field of a form-encoded body, which has to be read first
)

// Token takes requests that carry one of secrets in the header, query parameter or form field of this name. Several are for
// the time in which one is replaced. In a header the whole value is compared: for "Authorization: Bearer x" the secret is
// "Bearer x".
func Token(in Place, name string, secrets ...string) Auth {
	var get func(r *http.Request, body func() ([]byte, error)) (string, error)
	switch in {
	case InHeader:
		get = func(r *http.Request, _ func() ([]byte, error)) (string, error) { return r.Header.Get(name), nil }
	case InQuery:
		get = func(r *http.Request, _ func() ([]byte, error)) (string, error) { return r.URL.Query().Get(name), nil }
	case InForm:
		get = func(_ *http.Request, body func() ([]byte, error)) (string, error) {
			raw, err := body()
			if err != nil {
				return "", err
			}
			form, _ := url.ParseQuery(string(raw)) // of a body that is no form nothing, or not the token, is found
			return form.Get(name), nil
		}
	default:
		return Auth{err: fmt.Errorf("a token is %q, must be InHeader, InQuery or InForm", in)}
	}
	if name == "" {
		return Auth{err: fmt.Errorf("the %s of the token has no name", in)}
	}
	if err := sound(secrets); err != nil {
		return Auth{err: err}
	}
	sums := make([][sha256.Size]byte, 0, len(secrets))
	for _, s := range secrets {
		sums = append(sums, sha256.Sum256([]byte(s)))
	}
	field := ""
	if in == InForm {
		field = name
	}
	return Auth{field: field, check: func(r *http.Request, body func() ([]byte, error)) error {
		value, err := get(r, body)
		if err != nil {
			return err
		}
		got, found := sha256.Sum256([]byte(value)), 0
		for i := range sums { // all of them, so that the timing tells neither which one nor how much of it
			found |= subtle.ConstantTimeCompare(got[:], sums[i][:])
		}
		return verdict(found == 1)
	}}
}

// Signature says where a CRM puts the HMAC-SHA256 of what it sends, and of what it is one.
type Signature struct {
	Header string // that carries it; required
	Prefix string // before the signature, such as "sha256="
	Base64 bool   // standard base64; else hexadecimal

	// Timestamp is the header with the time of sending, in Unix seconds or milliseconds. With it a request whose time is
	// further than MaxAge (default 5 min) from now is refused, and the time is signed.
	Timestamp string
	MaxAge    time.Duration
	// Text returns what is signed. nil: the body; with a Timestamp its header, a dot and the body.
	Text func(r *http.Request, body []byte) []byte

	Now func() time.Time // default time.Now
}

// HMAC takes requests that are signed with one of secrets. Several are for the time in which one is replaced.
func HMAC(s Signature, secrets ...string) Auth {
	switch {
	case s.Header == "":
		return Auth{err: errors.New("Signature.Header is empty")}
	case s.MaxAge < 0 || s.MaxAge > 0 && s.Timestamp == "":
		return Auth{err: fmt.Errorf("Signature.MaxAge is %v, must be positive and stand beside a Timestamp", s.MaxAge)}
	}
	if err := sound(secrets); err != nil {
		return Auth{err: err}
	}
	secrets = slices.Clone(secrets)
	if s.MaxAge == 0 {
		s.MaxAge = 5 * time.Minute
	}
	if s.Now == nil {
		s.Now = time.Now
	}
	return Auth{check: func(r *http.Request, body func() ([]byte, error)) error {
		got, ok := s.decode(r.Header.Get(s.Header))
		if !ok || !s.fresh(r) {
			return dedup.ErrUnauthentic // before anything is read
		}
		raw, err := body()
		if err != nil {
			return err
		}
		text, found := s.text(r, raw), false
		for _, secret := range secrets {
			mac := hmac.New(sha256.New, []byte(secret))
			mac.Write(text)
			found = hmac.Equal(got, mac.Sum(nil)) || found
		}
		return verdict(found)
	}}
}

func (s *Signature) decode(v string) ([]byte, bool) {
	v, ok := strings.CutPrefix(v, s.Prefix)
	if !ok {
		return nil, false
	}
	decode := hex.DecodeString
	if s.Base64 {
		decode = base64.StdEncoding.DecodeString
	}
	sum, err := decode(v)
	return sum, err == nil && len(sum) == sha256.Size
}

func (s *Signature) fresh(r *http.Request) bool {
	if s.Timestamp == "" {
		return true
	}
	n, err := strconv.ParseInt(r.Header.Get(s.Timestamp), 10, 64)
	if err != nil || n < 0 {
		return false
	}
	at := time.Unix(n, 0)
	if n > 1e11 { // as seconds, that is the year 5138
		at = time.UnixMilli(n)
	}
	return s.Now().Sub(at).Abs() <= s.MaxAge
}

func (s *Signature) text(r *http.Request, body []byte) []byte {
	switch {
	case s.Text != nil:
		return s.Text(r, body)
	case s.Timestamp != "":
		return slices.Concat([]byte(r.Header.Get(s.Timestamp)), []byte("."), body)
	}
	return body
}

// redact returns a body without the token in it: bodies are stored, and shown to whoever looks into quarantine.
func (a Auth) redact(body []byte) []byte {
	if a.field == "" {
		return body
	}
	pairs := bytes.Split(body, []byte("&"))
	for i, p := range pairs {
		name, _, _ := bytes.Cut(p, []byte("="))
		if plain, err := url.QueryUnescape(string(name)); err == nil && plain == a.field {
			pairs[i] = append(bytes.Clone(name), "=redacted"...)
		}
	}
	return bytes.Join(pairs, []byte("&"))
}

func verdict(genuine bool) error {
	if !genuine {
		return dedup.ErrUnauthentic
	}
	return nil
}

func sound(secrets []string) error {
	if len(secrets) == 0 {
		return errors.New("no secret: without one anybody who finds the URL can move deals")
	}
	for i, s := range secrets {
		switch {
		case len(s) < MinSecret:
			return fmt.Errorf("secret number %d has %d bytes, needs %d or more: it is all that tells the CRM's requests from anybody's",
				i+1, len(s), MinSecret)
		case slices.Contains(secrets[:i], s):
			return fmt.Errorf("secret number %d was given before", i+1)
		}
	}
	return nil
}
