package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/storetest"
	"github.com/leadonce/leadonce/telegram"
)

// transport_log_test.go: a getUpdates that fails is told, since telebot says nothing of it.

// closed is a store that takes no event. Its error is one of a driver's.
type closed struct{ store.Store }

func (closed) Accept(context.Context, store.Event) (store.Receipt, error) {
	return store.Receipt{}, errors.New("can't reach postgres://leads:pass-word@db/leads:\nrefused")
}

func shut(st storetest.Backend) store.Store { return closed{st} }

// answering makes the Bot API answer getUpdates with that.
func answering(status int, body string) func(b *pollBed) {
	return func(b *pollBed) {
		b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			fmt.Fprint(w, body)
			return true
		}
	}
}

func saying(b *pollBed) { b.api.say(1) }

// askedAs asks for updates as the bot of that endpoint.
func askedAs(endpoint, offset string) func(b *pollBed) error {
	return func(b *pollBed) error {
		req := encodings(b.t, endpoint+"/getUpdates", map[string]string{"offset": offset})["JSON of strings (telebot)"]
		_, err := b.do(req)
		return err
	}
}

func TestTransportTellsOfFailures(t *testing.T) {
	as := askedAs(endpoint, "0")
	known := func(b *pollBed) {
		b.api.say(1)
		if err := b.st.AddAccount(b.t.Context(), store.Account{Source: telegram.Name, Bot: "7"}); err != nil {
			b.t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		over func(storetest.Backend) store.Store
		set  func(b *pollBed)
		ask  func(b *pollBed) error
		says string
	}{
		"a store that fails":            {shut, saying, as, "could not be stored"},
		"another bot than the known":    {nil, known, as, "AddAccount"},
		"an answer that is none":        {nil, answering(200, "<html>payload text"), as, "can't be read"},
		"a redirect":                    {nil, answering(302, ""), as, "the final URL of the Bot API server"},
		"a negative offset":             {nil, saying, askedAs(endpoint, "-1"), "a negative offset is refused"},
		"another bot's token":           {nil, saying, askedAs("http://tg.test/bot7:AAFsecretOther", "0"), "another bot's"},
		"a token that is none":          {nil, saying, askedAs("http://tg.test/botAAFsecretOther", "0"), "another bot's"},
		"a URL in which no bot's token": {nil, saying, askedAs("http://tg.test/proxy", "0"), "no /bot<token>/"},
	} {
		t.Run(name+" is told once a minute", func(t *testing.T) {
			polled(t, 100, c.over, nil, func(t *testing.T, b *pollBed) {
				c.set(b)
				for minute := 1; minute <= 2; minute++ {
					for range 20 {
						if err := c.ask(b); err == nil {
							t.Fatal("it is no failure")
						}
					}
					said := b.log.String()
					if lines := strings.Count(said, "\n"); lines != minute || !strings.Contains(said, "level=ERROR") ||
						!strings.Contains(said, c.says) || strings.Contains(said, "pass-word") {
						t.Errorf("after %d minutes %d lines, want %q in them: %s", minute, lines, c.says, said)
					}
					time.Sleep(time.Minute)
				}
			})
		})
	}
	t.Run("a refusal of Telegram's is told once a minute, and passed on", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			answering(409, `{"ok":false,"error_code":409,"description":"Conflict"}`)(b)
			for range 20 {
				if raw, err := b.get("0"); err != nil || !strings.Contains(string(raw), "Conflict") {
					t.Errorf("%s %v", raw, err)
				}
			}
			if said := b.log.String(); strings.Count(said, "\n") != 1 || !strings.Contains(said, "answer is 409") {
				t.Error(said)
			}
		})
	})
	t.Run("each kind has a line of its own", func(t *testing.T) {
		polled(t, 100, shut, nil, func(t *testing.T, b *pollBed) {
			b.api.say(1)
			for range 3 {
				_, _ = b.get("0")
				_, _ = b.get("-1")
			}
			if said := b.log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "negative") ||
				!strings.Contains(said, "could not be stored") {
				t.Error(said)
			}
		})
	})
	t.Run("a library that fails asks in its own time: each failure takes half a second or more", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			began := time.Now()
			if _, err := b.get("-1"); err == nil || time.Since(began) < 500*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("a library that goes away is no failure, nor is what passes by itself", func(t *testing.T) {
		gate := &gated{}
		polled(t, 100, gate.over, nil, func(t *testing.T, b *pollBed) {
			b.api.say(100)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := b.do(encodings(t, endpoint+"/getUpdates", nil)["a form"].WithContext(ctx))
				done <- err
			}()
			synctest.Wait()
			cancel()
			close(gate.open)
			if err := <-done; err == nil {
				t.Error("this test needs a call that ends in the middle")
			}
			for _, status := range []int{429, 502} {
				answering(status, `{"ok":false}`)(b)
				if _, err := b.get("0"); err != nil {
					t.Error(err)
				}
			}
			if said := b.log.String(); said != "" {
				t.Error(said)
			}
		})
	})
}
