package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/examples/bots/internal/bottest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// v5_test.go: the whole bot between a stand-in for Telegram and a simulated CRM.

const deadline = 30 * time.Second

// bed is the bot, its neighbours, and what they see.
type bed struct {
	t   *testing.T
	api *bottest.API
	sim *crmtest.Simulator
	st  *sqlite.Store
	app *app

	stop func() // ends the bot's life
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{t: t, api: newBotAPI(t), sim: crmtest.NewSimulator(crmtest.Config{})}
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leads.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	b.st = st
	b.start()
	return b
}

// start begins the bot's life, or ends it and begins the next one: on the same database, with its memory empty.
func (b *bed) start() {
	b.t.Helper()
	if b.stop != nil {
		b.stop()
	}
	api, err := newAPI(bottest.Token, b.api.URL, http.DefaultClient)
	if err != nil {
		b.t.Fatal(err)
	}
	c := config{secret: bottest.Secret}
	b.app, err = newApp(api, b.st, b.sim.Local(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.app.listen(api, b.st, c); err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.app.leads.Run(ctx) }()
	b.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	})
	b.t.Cleanup(b.stop)
}

func (b *bed) post(body, secret string) *http.Response {
	r := httptest.NewRequest(http.MethodPost, "/telegram", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	w := httptest.NewRecorder()
	b.app.handler.ServeHTTP(w, r)
	return w.Result()
}

// deliver is Telegram's delivery of an update, which has to be taken.
func (b *bed) deliver(body string) {
	b.t.Helper()
	res := b.post(body, bottest.Secret)
	if res.StatusCode != http.StatusOK {
		b.t.Fatalf("answered %d, want 200", res.StatusCode)
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	b.api.Execute(res.Header.Get("Content-Type"), answer)
}

// settled waits until every update is decided and every operation is done, and returns the CRM's leads.
func (b *bed) settled() []crmtest.Record {
	b.t.Helper()
	for end := time.Now().Add(deadline); ; time.Sleep(5 * time.Millisecond) {
		s, err := b.st.Stats(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		if len(s.Events) == 0 && len(s.Operations) == 0 {
			return b.sim.Leads()
		}
		if time.Now().After(end) {
			b.t.Fatalf("not settled within %v: %+v", deadline, s)
		}
	}
}

func (b *bed) leads(want ...crm.Lead) {
	b.t.Helper()
	var got []string
	for _, r := range b.settled() {
		got = append(got, fmt.Sprint(r.Lead.Title, "|", r.Lead.Name, "|", r.Lead.Phone, "|", r.Lead.Text))
	}
	var wanted []string
	for _, l := range want {
		wanted = append(wanted, fmt.Sprint(l.Title, "|", l.Name, "|", l.Phone, "|", l.Text))
	}
	if !slices.Equal(got, wanted) {
		b.t.Errorf("leads in the CRM are %q, want %q", got, wanted)
	}
}

// said compares everything that the bot has sent.
func (b *bed) said(want ...string) {
	b.t.Helper()
	if got := b.api.Texts(0); !slices.Equal(got, want) {
		b.t.Errorf("the bot said %q, want %q", got, want)
	}
}

const thanks = "Thank you, we will call you back"

// message is an update; replyTo is the id of the bot's message that it answers, 0 for none.
func message(update int, text string, replyTo int) string {
	m := map[string]any{"message_id": update, "date": 1767225600, "text": text, "chat": chat, "from": anna}
	if strings.HasPrefix(text, "/") {
		m["entities"] = []any{map[string]any{"type": "bot_command", "offset": 0, "length": len(text)}}
	}
	if replyTo != 0 {
		m["reply_to_message"] = map[string]any{"message_id": replyTo, "date": 1767225600, "chat": chat, "from": garage}
	}
	return encode(map[string]any{"update_id": update, "message": m})
}

// press is a button of the bot's message.
func press(update int, id, data string, on bottest.Call) string {
	m := map[string]any{"message_id": on.Sent, "date": 1767225600, "chat": chat, "from": garage, "text": on.Form.Get("text")}
	q := map[string]any{"id": id, "from": anna, "chat_instance": "1", "data": data, "message": m}
	return encode(map[string]any{"update_id": update, "callback_query": q})
}

var (
	chat   = map[string]any{"id": 42, "type": "private", "first_name": "Anna"}
	anna   = map[string]any{"id": 42, "is_bot": false, "first_name": "Anna"}
	garage = map[string]any{"id": bottest.BotID, "is_bot": true, "first_name": "Garage"}
)

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestEnquiry(t *testing.T) {
	tyres := crm.Lead{Title: "Telegram: Anna", Name: "Anna", Text: "Do you change tyres?"}
	t.Run("the bot answers, and there is one lead", func(t *testing.T) {
		b := newBed(t)
		b.deliver(message(1, "Do you change tyres?", 0))
		b.said(thanks)
		b.leads(tyres)
	})
	t.Run("a repeated delivery is neither answered again nor a second lead, however many come at once", func(t *testing.T) {
		b := newBed(t)
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() { b.deliver(message(1, "Do you change tyres?", 0)) })
		}
		all.Wait()
		b.leads(tyres)
		b.deliver(message(1, "Do you change tyres?", 0))
		b.said(thanks)
		b.leads(tyres)
	})
	t.Run("start is answered and is no lead", func(t *testing.T) {
		b := newBed(t)
		b.deliver(message(1, "/start", 0))
		b.said("Hello! Ask us anything, or book with /book")
		b.leads()
	})
	t.Run("an update that v5 can't read is stored and answered 200", func(t *testing.T) {
		b := newBed(t)
		m := map[string]any{"message_id": "one", "date": 1767225600, "text": "hi", "chat": chat, "from": anna}
		b.deliver(encode(map[string]any{"update_id": 1, "message": m}))
		b.said()
		b.leads(crm.Lead{Title: "Telegram: Anna", Name: "Anna", Text: "hi"})
	})
}

// dialogue goes through the form and returns the message with its button.
func (b *bed) dialogue() bottest.Call {
	b.t.Helper()
	last := func() bottest.Call { made := b.api.Calls("sendMessage"); return made[len(made)-1] }
	b.deliver(message(1, "/book", 0))
	b.deliver(message(2, "Anna Petrova", last().Sent))
	b.deliver(message(3, "+7 900 000-00-00", last().Sent))
	b.said("Your name?", "Your phone?", "Name: Anna Petrova\nPhone: +7 900 000-00-00")
	if !strings.Contains(last().Form.Get("reply_markup"), `"callback_data":"form:send"`) {
		b.t.Errorf("the last message has no button: %s", last().Form)
	}
	return last()
}

func TestDialogue(t *testing.T) {
	const booked = "You are booked, we will call you back"
	lead := crm.Lead{Title: "Booking", Name: "Anna Petrova", Phone: "+7 900 000-00-00"}
	t.Run("its steps make no lead before it is sent", func(t *testing.T) {
		b := newBed(t)
		b.dialogue()
		b.leads()
	})
	t.Run("pressed once, and the press delivered twice: one lead, one answer", func(t *testing.T) {
		b := newBed(t)
		form := b.dialogue()
		b.deliver(press(4, "p1", "form:send", form))
		b.deliver(press(4, "p1", "form:send", form))
		b.leads(lead)
		if got := b.api.Texts(0)[3:]; !slices.Equal(got, []string{booked}) {
			t.Errorf("said %q", got)
		}
		if got := b.api.Calls("answerCallbackQuery"); len(got) != 1 || got[0].Form.Get("callback_query_id") != "p1" {
			t.Errorf("presses answered: %+v", got)
		}
	})
	t.Run("pressed twice, as callbacks of their own: one lead", func(t *testing.T) {
		b := newBed(t)
		form := b.dialogue()
		b.deliver(press(4, "p1", "form:send", form))
		b.deliver(press(5, "p2", "form:send", form))
		b.leads(lead)
	})
	t.Run("pressed again after a restart, when the bot remembers nothing: one lead", func(t *testing.T) {
		b := newBed(t)
		form := b.dialogue()
		b.deliver(press(4, "p1", "form:send", form))
		b.leads(lead)
		b.start()
		b.deliver(press(5, "p2", "form:send", form))
		b.leads(lead)
	})
	t.Run("filled in twice: two leads", func(t *testing.T) {
		b := newBed(t)
		first := b.dialogue()
		b.deliver(press(4, "p1", "form:send", first))
		b.leads(lead)
		second := first
		second.Sent += 100
		b.deliver(press(5, "p2", "form:send", second))
		b.leads(lead, lead)
	})
	t.Run("what is written in between and answers no question is a lead of its own", func(t *testing.T) {
		b := newBed(t)
		b.deliver(message(1, "/book", 0))
		b.deliver(message(2, "Are you open on Sunday?", 0))
		b.leads(crm.Lead{Title: "Telegram: Anna", Name: "Anna", Text: "Are you open on Sunday?"})
	})
	t.Run("an answer to a question of the bot's last life is a lead, not lost", func(t *testing.T) {
		b := newBed(t)
		b.deliver(message(1, "/book", 0))
		b.settled()
		b.start()
		b.deliver(message(2, "Anna Petrova", b.api.Calls("sendMessage")[0].Sent))
		b.leads(crm.Lead{Title: "Telegram: Anna", Name: "Anna", Text: "Anna Petrova"})
	})
	t.Run("a form that Telegram shows without its text is asked for again", func(t *testing.T) {
		b := newBed(t)
		b.deliver(press(1, "p1", "form:send", bottest.Call{Sent: 7}))
		b.said("This form is too old, please start again: /book")
		b.leads()
	})
	t.Run("nothing is promised when the booking could not be stored", func(t *testing.T) {
		b := newBed(t)
		form := b.dialogue()
		b.app.bot.submit = func(context.Context, string, dedup.Person, crm.Lead) (store.Operation, error) {
			return store.Operation{}, store.ErrUnavailable
		}
		b.deliver(press(4, "p1", "form:send", form))
		if got := b.api.Texts(0)[3:]; !slices.Equal(got, []string{"That did not work, please press again"}) {
			t.Errorf("said %q", got)
		}
	})
}

func TestDoor(t *testing.T) {
	t.Run("a wrong secret is answered 401; the bot does not see it and nothing is stored", func(t *testing.T) {
		b := newBed(t)
		for _, wrong := range []string{"", "wrong"} {
			if got := b.post(message(1, "forged", 0), wrong).StatusCode; got != http.StatusUnauthorized {
				t.Errorf("secret %q: %d", wrong, got)
			}
		}
		b.said()
		b.leads()
		if events, err := b.st.Events(t.Context(), store.EventFilter{}); err != nil || len(events) > 0 {
			t.Errorf("events: %v, %v", events, err)
		}
	})
	t.Run("a bot that panics costs no lead", func(t *testing.T) {
		b := newBed(t)
		b.app.bot.send = func(tgbotapi.Chattable) (tgbotapi.Message, error) { panic("a bug of the bot") }
		b.deliver(message(1, "Do you change tyres?", 0))
		b.leads(crm.Lead{Title: "Telegram: Anna", Name: "Anna", Text: "Do you change tyres?"})
	})
	t.Run("a Bot API that is down costs no lead", func(t *testing.T) {
		b := newBed(t)
		b.api.Close()
		b.deliver(message(1, "Do you change tyres?", 0))
		b.leads(crm.Lead{Title: "Telegram: Anna", Name: "Anna", Text: "Do you change tyres?"})
	})
	t.Run("when the store is down nothing is acknowledged and the bot promises nothing", func(t *testing.T) {
		b := newBed(t)
		b.stop()
		b.st.Close()
		res := b.post(message(1, "Do you change tyres?", 0), bottest.Secret)
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Errorf("%d, %v", res.StatusCode, res.Header)
		}
		b.said()
	})
	t.Run("the other paths are as they were, without a secret", func(t *testing.T) {
		b := newBed(t)
		w := httptest.NewRecorder()
		b.app.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if w.Code != http.StatusOK {
			t.Error(w.Code)
		}
	})
	t.Run("without a secret it does not start", func(t *testing.T) {
		b := newBed(t)
		api, err := newAPI(bottest.Token, b.api.URL, http.DefaultClient)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.app.listen(api, b.st, config{}); err == nil || !strings.Contains(err.Error(), "TELEGRAM_SECRET") {
			t.Error(err)
		}
	})
}

func TestBotAPI(t *testing.T) {
	f := newBotAPI(t)
	api, err := newAPI(bottest.Token, f.URL, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("setWebhook gives the newest secret and keeps what waits", func(t *testing.T) {
		if err := setWebhook(api, "https://bot.example/telegram", "new, old"); err != nil {
			t.Fatal(err)
		}
		form := f.Calls("setWebhook")[0].Form
		if form.Get("url") != "https://bot.example/telegram" || form.Get("secret_token") != "new" {
			t.Error(form)
		}
		if form.Has("drop_pending_updates") {
			t.Error("it throws away what waits")
		}
		if !strings.Contains(form.Get("allowed_updates"), `"callback_query"`) {
			t.Error("buttons are not among the allowed updates")
		}
	})
	t.Run("a wrong token is an error", func(t *testing.T) {
		var refused *tgbotapi.Error
		if _, err := newAPI("1:wrong", f.URL, http.DefaultClient); !errors.As(err, &refused) || refused.Code != http.StatusUnauthorized {
			t.Error(err)
		}
	})
	t.Run("errors do not contain the token", func(t *testing.T) {
		f.Close()
		_, err1 := newAPI(bottest.Token, f.URL, http.DefaultClient)
		err2 := setWebhook(api, "https://bot.example/telegram", "s")
		for _, err := range []error{err1, err2} {
			if err == nil || strings.Contains(err.Error(), "token-of-the-test") {
				t.Error(err)
			}
		}
	})
	t.Run("a chat id is a number, a group's too, or missing", func(t *testing.T) {
		for in, want := range map[string]int64{"": 0, "42": 42, "-1001234567890": -1001234567890} {
			if got, err := chatID(in); got != want || err != nil {
				t.Errorf("%q: %d, %v", in, got, err)
			}
		}
		if _, err := chatID("@garage"); err == nil {
			t.Error("no error")
		}
	})
}

func newBotAPI(t *testing.T) *bottest.API {
	api := bottest.NewAPI(t.Context(), nil)
	t.Cleanup(api.Close)
	return api
}
