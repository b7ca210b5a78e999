package stagehook_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/dedup/stagehook"
)

// auth_test.go: which sources can be made, and which requests they take.

func TestNewRefusesWhatCantBeMeant(t *testing.T) {
	good := stagehook.Token(stagehook.InHeader, "X-Token", token)
	for _, c := range []struct {
		name, source string
		auth         stagehook.Auth
		parse        stagehook.ParseFunc
		want         string
	}{
		{"no name", "", good, stagehook.JSON, "name is"},
		{"a name that is no label", "My CRM", good, stagehook.JSON, "name is"},
		{"a name beyond every column", strings.Repeat("x", 65), good, stagehook.JSON, "name is"},
		{"no parse", "shop", good, nil, "parse is nil"},
		{"no auth", "shop", stagehook.Auth{}, stagehook.JSON, "auth is empty"},
		{"a token without a secret", "shop", stagehook.Token(stagehook.InHeader, "X-Token"), stagehook.JSON, "no secret"},
		{"an empty secret", "shop", stagehook.Token(stagehook.InHeader, "X-Token", ""), stagehook.JSON, "secret number 1 has 0 bytes"},
		{"a short secret beside a long one", "shop", stagehook.Token(stagehook.InQuery, "t", token, "kurz-0123456789"), stagehook.JSON,
			"secret number 2 has 15 bytes, needs 16 or more"},
		{"a secret twice", "shop", stagehook.Token(stagehook.InForm, "t", token, token), stagehook.JSON, "given before"},
		{"a token without a name", "shop", stagehook.Token(stagehook.InQuery, "", token), stagehook.JSON, "has no name"},
		{"a token nowhere", "shop", stagehook.Token("cookie", "t", token), stagehook.JSON, "must be InHeader"},
		{"a signature without a secret", "shop", stagehook.HMAC(stagehook.Signature{Header: "S"}), stagehook.JSON, "no secret"},
		{"a signature with a short secret", "shop", stagehook.HMAC(stagehook.Signature{Header: "S"}, "kurz-0123456789"), stagehook.JSON,
			"16 or more"},
		{"a signature without a header", "shop", stagehook.HMAC(stagehook.Signature{}, token), stagehook.JSON, "Header is empty"},
		{"an age without a time", "shop", stagehook.HMAC(stagehook.Signature{Header: "S", MaxAge: 1}, token), stagehook.JSON, "MaxAge"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := stagehook.New(c.source, c.auth, c.parse, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), token) || strings.Contains(err.Error(), "kurz") {
				t.Fatalf("the error tells a secret: %v", err)
			}
		})
	}
	t.Run("sixteen bytes are enough, and options are optional", func(t *testing.T) {
		auth := stagehook.Token(stagehook.InHeader, "X-Token", "0123456789abcdef")
		if _, err := stagehook.New("shop", auth, stagehook.JSON, nil); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTokens(t *testing.T) {
	never := func() ([]byte, error) {
		t.Error("the body was asked for")
		return nil, errors.New("no")
	}
	for _, in := range []stagehook.Place{stagehook.InHeader, stagehook.InQuery, stagehook.InForm} {
		name := "auth[token]"
		if in == stagehook.InHeader {
			name = "x-token"
		}
		s := must(t, "shop", stagehook.Token(in, name, token, oldToken), stagehook.JSON)
		for value, genuine := range map[string]bool{
			token: true, oldToken: true, "": false, token + "x": false, token[1:]: false, strings.ToUpper(token): false,
			token + "," + oldToken: false, " " + token: false,
		} {
			t.Run(string(in)+" "+strconv.Quote(value)+" is genuine: "+strconv.FormatBool(genuine), func(t *testing.T) {
				r := httptest.NewRequest(http.MethodPost, "/", nil)
				r.Body = nil // touched means a panic
				body := never
				q := r.URL.Query()
				q.Set(name, value)
				switch in {
				case stagehook.InHeader:
					r.Header.Set("X-Token", value)
				case stagehook.InQuery:
					r.URL.RawQuery = q.Encode()
				case stagehook.InForm:
					body = func() ([]byte, error) { return []byte("a=b&" + q.Encode()), nil }
				}
				if err := s.Authenticate(r, body); genuine != (err == nil) || !genuine && !errors.Is(err, dedup.ErrUnauthentic) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
	t.Run("a token elsewhere is none", func(t *testing.T) {
		s := must(t, "shop", stagehook.Token(stagehook.InHeader, "X-Token", token), stagehook.JSON)
		r := httptest.NewRequest(http.MethodPost, "/?X-Token="+token, nil)
		if err := s.Authenticate(r, never); !errors.Is(err, dedup.ErrUnauthentic) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a body that can't be read is an error of the transport, not a forgery", func(t *testing.T) {
		broken := errors.New("reset")
		body := func() ([]byte, error) { return nil, broken }
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("S", hex.EncodeToString(sign(token, "")))
		form, signed := stagehook.Token(stagehook.InForm, "t", token), stagehook.HMAC(stagehook.Signature{Header: "S"}, token)
		for _, a := range []stagehook.Auth{form, signed} {
			err := must(t, "shop", a, stagehook.JSON).Authenticate(r, body)
			if !errors.Is(err, broken) || errors.Is(err, dedup.ErrUnauthentic) {
				t.Errorf("got %v", err)
			}
		}
	})
}

func TestSignatures(t *testing.T) {
	now := time.Unix(1780000000, 0)
	clock := func() time.Time { return now }
	plain := stagehook.Signature{Header: "X-Sign", Prefix: "sha256="}
	b64 := stagehook.Signature{Header: "X-Sign", Base64: true}
	timed := stagehook.Signature{Header: "X-Sign", Timestamp: "X-Time", Now: clock}
	hourly := stagehook.Signature{Header: "X-Sign", Timestamp: "X-Time", MaxAge: time.Hour, Now: clock}
	own := stagehook.Signature{Header: "X-Sign", Timestamp: "X-Time", Now: clock, Text: func(r *http.Request, body []byte) []byte {
		return []byte(r.Method + r.URL.Path + string(body) + r.Header.Get("X-Time"))
	}}
	hexed := func(secret, text string) string { return hex.EncodeToString(sign(secret, text)) }
	const body = `{"lead_id":"1"}`
	for _, c := range []struct {
		name         string
		s            stagehook.Signature
		value, stamp string
		want         bool
	}{
		{"of the body", plain, "sha256=" + hexed(token, body), "", true},
		{"with the other secret, during a rotation", plain, "sha256=" + hexed(oldToken, body), "", true},
		{"in capitals", plain, "sha256=" + strings.ToUpper(hexed(token, body)), "", true},
		{"with somebody's secret", plain, "sha256=" + hexed("somebody's secret", body), "", false},
		{"of another body", plain, "sha256=" + hexed(token, body+" "), "", false},
		{"without its prefix", plain, hexed(token, body), "", false},
		{"cut short", plain, "sha256=" + hexed(token, body)[:62], "", false},
		{"empty", plain, "", "", false},
		{"only a prefix", plain, "sha256=", "", false},
		{"in base64", b64, base64.StdEncoding.EncodeToString(sign(token, body)), "", true},
		{"hexadecimal where base64 is due", b64, hexed(token, body), "", false},
		{"of time and body", timed, hexed(token, "1780000000."+body), "1780000000", true},
		{"five minutes ago", timed, hexed(token, "1779999700."+body), "1779999700", true},
		{"longer ago", timed, hexed(token, "1779999699."+body), "1779999699", false},
		{"as long ahead", timed, hexed(token, "1780000301."+body), "1780000301", false},
		{"in milliseconds", timed, hexed(token, "1780000000123."+body), "1780000000123", true},
		{"within the age that was set", hourly, hexed(token, "1779996400."+body), "1779996400", true},
		{"with another time than the signed one", timed, hexed(token, "1780000000."+body), "1780000001", false},
		{"of the body alone where the time is due", timed, hexed(token, body), "1780000000", false},
		{"without a time", timed, hexed(token, "."+body), "", false},
		{"with a time that is none", timed, hexed(token, "soon."+body), "soon", false},
		{"of a text of one's own", own, hexed(token, "POST/hook"+body+"1780000000"), "1780000000", true},
	} {
		t.Run("a signature "+c.name+" is genuine: "+strconv.FormatBool(c.want), func(t *testing.T) {
			s := must(t, "shop", stagehook.HMAC(c.s, token, oldToken), stagehook.JSON)
			r := httptest.NewRequest(http.MethodPost, "/hook", nil)
			r.Header.Set("X-Sign", c.value)
			r.Header.Set("X-Time", c.stamp)
			err := s.Authenticate(r, func() ([]byte, error) { return []byte(body), nil })
			if c.want != (err == nil) || !c.want && !errors.Is(err, dedup.ErrUnauthentic) {
				t.Errorf("got %v", err)
			}
		})
	}
	t.Run("what carries no signature is refused before it is read", func(t *testing.T) {
		s := must(t, "shop", stagehook.HMAC(timed, token), stagehook.JSON)
		for _, stamp := range []string{"1780000000", "1"} {
			r := httptest.NewRequest(http.MethodPost, "/hook", nil)
			if stamp == "1" {
				r.Header.Set("X-Sign", hexed(token, "1."+body))
			}
			r.Header.Set("X-Time", stamp)
			err := s.Authenticate(r, func() ([]byte, error) { t.Error("it was read"); return nil, nil })
			if !errors.Is(err, dedup.ErrUnauthentic) {
				t.Errorf("got %v", err)
			}
		}
	})
}
