package bottest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// suite.go: what every bot has to stand.

// Bot says in what a bot differs from the others.
type Bot struct {
	// Poison is a field of a message that its library can't decode: `"date":"x"`.
	Poison string
	// Replies: the bot answers /start in its answer to the delivery, by a webhook.
	Replies bool
	// Thanks is what it answers to an enquiry.
	Thanks string
	// Polls: the bot has long polling too.
	Polls bool
}

// Suite runs a bot through everything, by webhook and by long polling. It takes some ten seconds. With -short the bot is
// killed at a sample of the steps only.
func Suite(t *testing.T, bot Bot) {
	t.Run("by webhook", func(t *testing.T) {
		t.Parallel()
		s := suite{bot: bot, webhook: true}
		s.both(t)
		s.door(t)
	})
	if bot.Polls {
		t.Run("by long polling", func(t *testing.T) {
			t.Parallel()
			s := suite{bot: bot}
			s.both(t)
			s.polling(t)
		})
	}
}

type suite struct {
	bot     Bot
	webhook bool
}

// run is a subtest with a bed of its own, beside the others. The bot is not started.
func (s suite) run(t *testing.T, name string, f func(t *testing.T, b *bed)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t, newBed(t, s.webhook))
	})
}

const anna = 42 // her chat

// both are the scenarios that do not depend on how updates come.
func (s suite) both(t *testing.T) {
	s.run(t, "a message is answered, and is one lead", func(t *testing.T, b *bed) {
		b.orders.Lean = false
		b.start("")
		b.api.Text(anna, "Do you change tyres?")
		b.settled(1, "Do you change tyres?")
		s.said(b, anna, s.bot.Thanks)
	})
	s.run(t, "start is answered, and is no lead", func(t *testing.T, b *bed) {
		b.start("")
		b.api.Text(anna, "/start")
		b.settled(1)
		b.wait("an answer", func() bool { return len(b.api.Texts(anna)) > 0 })
	})
	s.run(t, "people who write at the same time are answered, and are leads of their own", func(t *testing.T, b *bed) {
		var texts []string
		b.start("")
		for i := range 5 {
			texts = append(texts, fmt.Sprintf("enquiry %d", i))
			b.api.Text(anna+int64(i), texts[i])
		}
		b.settled(len(texts), texts...)
		for i := range texts {
			s.said(b, anna+int64(i), s.bot.Thanks)
		}
	})
	s.run(t, "an update that comes again is no second lead", func(t *testing.T, b *bed) {
		b.start("")
		id := b.api.Text(anna, "Do you change tyres?")
		b.settled(1, "Do you change tyres?")
		b.api.Repeat(id)
		b.api.Repeat(id)
		b.settled(1, "Do you change tyres?")
		if s.webhook { // the middleware keeps a repeat from the bot; a poll's answer is the library's as it came
			s.said(b, anna, s.bot.Thanks)
		}
	})
	s.run(t, "an answer of the CRM that gets lost is no second lead", func(t *testing.T, b *bed) {
		b.crm.LoseAnswers(1)
		b.start("")
		b.api.Text(anna, "Do you change tyres?")
		b.settled(1, "Do you change tyres?")
	})
	s.faults(t)
	t.Run("killed at any step there is one lead", s.kills)
}

// faults are those in which something fails.
func (s suite) faults(t *testing.T) {
	s.run(t, "a Telegram that is down at the start is waited for, and the token is in no log", func(t *testing.T, b *bed) {
		b.api.Down(true) // checkLog looks for the token
		b.start("")
		b.wait("two attempts", func() bool { return b.api.Refused() >= 2 })
		b.api.Down(false)
		b.api.Text(anna, "Do you change tyres?")
		b.settled(1, "Do you change tyres?")
		s.said(b, anna, s.bot.Thanks)
	})
	s.run(t, "a bot that panics costs no lead", func(t *testing.T, b *bed) {
		b.start("")
		b.api.Text(anna, "crash")
		b.api.Text(anna+1, "Do you change tyres?")
		b.settled(2, "crash", "Do you change tyres?")
		if n := b.died(); n > 0 { // the lead would be made all the same; what else the process had to answer would be lost
			t.Errorf("the panic ended %d processes", n)
		}
	})
	s.run(t, "while the store fails nothing is acknowledged, afterwards there is one lead", func(t *testing.T, b *bed) {
		b.start("")
		b.wait("the bot's start", func() bool { return s.started(b) })
		b.fault(true)
		b.api.Text(anna, "Do you change tyres?")
		s.refuses(b)
		if b.api.Waiting() != 1 || len(b.api.Texts(0)) > 0 {
			t.Error("it took the update, or answered it")
		}
		b.fault(false)
		b.settled(1, "Do you change tyres?")
		s.said(b, anna, s.bot.Thanks)
	})
	s.run(t, "update ids that begin again lower are not silent", func(t *testing.T, b *bed) {
		b.api.Restart(900)
		b.start("")
		b.api.Text(anna, "before")
		b.settled(1, "before")
		b.api.Restart(5)
		b.api.Text(anna+1, "after")
		b.settled(2, "before", "after")
	})
}

// said waits for the bot's answers in a chat.
func (s suite) said(b *bed, chat int64, want ...string) {
	b.t.Helper()
	b.wait(fmt.Sprintf("the bot says %q", want), func() bool { return slices.Equal(b.api.Texts(chat), want) })
}

// started tells that the bot takes updates.
func (s suite) started(b *bed) bool {
	if s.webhook {
		return b.api.Forge("wrong", []byte("{}")) == http.StatusUnauthorized
	}
	return b.api.Polls() > 0
}

// refuses waits until the bot did not take an update, three times by webhook.
func (s suite) refuses(b *bed) {
	b.t.Helper()
	if s.webhook {
		b.wait("three deliveries are answered 503", func() bool {
			n := 0
			for _, status := range b.api.Statuses() {
				if status == http.StatusServiceUnavailable {
					n++
				}
			}
			return n >= 3
		})
		return
	}
	b.wait("the update is given", func() bool { return b.api.Given() > 0 })
	time.Sleep(100 * time.Millisecond) // long enough to confirm it, for a bot that does
}

// door are the scenarios of a webhook.
func (s suite) door(t *testing.T) {
	if s.bot.Replies {
		s.run(t, "what the bot answers to the delivery itself reaches Telegram", func(t *testing.T, b *bed) {
			b.start("")
			b.api.Text(anna, "/start")
			b.wait("an answer", func() bool { return len(b.api.Texts(anna)) > 0 })
			if c := b.api.Calls("sendMessage")[0]; !c.ByReply {
				t.Error("it was a call of its own")
			}
			b.settled(1)
		})
	}
	s.run(t, "a forged update is answered 401, and neither stored nor seen by the bot", func(t *testing.T, b *bed) {
		b.start("")
		b.wait("the bot's start", func() bool { return s.started(b) })
		body := update{}.with(`"text":"forged"`)
		for _, secret := range []string{"", "wrong", Secret + "x"} {
			if got := b.api.Forge(secret, body); got != http.StatusUnauthorized {
				t.Errorf("answered %d", got)
			}
		}
		b.settled(0)
		b.api.Text(anna+1, "Do you change tyres?") // so that the bot has had its turn
		b.settled(1, "Do you change tyres?")
		s.said(b, anna+1, s.bot.Thanks)
		if got := b.api.Texts(anna); len(got) > 0 {
			t.Errorf("the bot answered a forgery: %q", got)
		}
	})
	s.run(t, "an update that the library can't read is answered 200, and a lead", func(t *testing.T, b *bed) {
		b.orders.Lean = false
		b.start("")
		b.wait("the bot's start", func() bool { return s.started(b) })
		if got := b.api.Forge(Secret, update{}.with(`"text":"odd",`+s.bot.Poison)); got != http.StatusOK {
			t.Errorf("answered %d", got)
		}
		b.settled(1, "odd")
		b.api.Text(anna+1, "Do you change tyres?")
		b.settled(2, "odd", "Do you change tyres?")
		s.said(b, anna+1, s.bot.Thanks)
	})
	s.run(t, "an update that is no JSON is answered 200", func(t *testing.T, b *bed) {
		b.start("")
		b.wait("the bot's start", func() bool { return s.started(b) })
		if got := b.api.Forge(Secret, []byte(`{"update_id":`)); got != http.StatusOK {
			t.Errorf("answered %d", got)
		}
		b.api.Text(anna+1, "Do you change tyres?")
		s.said(b, anna+1, s.bot.Thanks)
	})
	s.run(t, "a bot that hangs is acknowledged in time, and costs no lead", func(t *testing.T, b *bed) {
		b.orders.InnerTimeout = 200 * time.Millisecond
		b.start("")
		b.wait("the bot's start", func() bool { return s.started(b) })
		began := time.Now()
		b.api.Text(anna, "hang")
		b.wait("the acknowledgement", func() bool { return b.api.Waiting() == 0 })
		if took := time.Since(began); took > 8*time.Second { // 10 s is the default
			t.Errorf("it took %v", took)
		}
		b.settled(1, "hang")
	})
}

// with is an update with a message of anna's that has these fields.
func (update) with(fields string) []byte {
	return fmt.Appendf(nil, `{"update_id":77,"message":{"message_id":5,"from":{"id":%d,"is_bot":false,"first_name":"Anna"},`+
		`"chat":{"id":%d,"type":"private"},%s}}`, anna, anna, fields)
}

// polling are the scenarios of long polling.
func (s suite) polling(t *testing.T) {
	s.run(t, "an answer of getUpdates that gets lost is given again, and no second lead", func(t *testing.T, b *bed) {
		b.api.LoseUpdates(1)
		b.api.Text(anna, "Do you change tyres?")
		b.start("")
		b.settled(1, "Do you change tyres?")
		s.said(b, anna, s.bot.Thanks)
	})
	s.run(t, "an update that the library can't read costs no lead, and those behind it no answer", func(t *testing.T, b *bed) {
		odd := message(anna, 7, "odd")
		odd["date"] = "x"
		b.api.Push(anna, "message", odd)
		b.api.Text(anna+1, "Do you change tyres?")
		b.start("")
		b.wait("two leads", func() bool { return b.crm.Leads("odd") == 1 && b.crm.Leads("Do you change tyres?") == 1 })
		s.said(b, anna+1, s.bot.Thanks) // though some libraries ask for the two again and again
		b.api.Text(anna+2, "And oil?")
		s.said(b, anna+2, s.bot.Thanks)
		b.wait("a third lead", func() bool { return b.crm.Leads("And oil?") == 1 })
		if n := b.crm.All(); n != 3 {
			t.Errorf("%d leads, want 3", n)
		}
	})
	s.run(t, "a webhook that is still set is taken away, and what waits is kept", func(t *testing.T, b *bed) {
		if _, err := b.api.do("setWebhook", url.Values{"url": {"https://127.0.0.1:1/nobody"}}, false); err != nil {
			t.Fatal(err)
		}
		b.api.Text(anna, "Do you change tyres?")
		b.start("")
		b.settled(1, "Do you change tyres?")
		s.said(b, anna, s.bot.Thanks)
	})
	s.run(t, "a Telegram that is down for a while is not flooded, and gets on afterwards", func(t *testing.T, b *bed) {
		b.start("")
		b.wait("the bot's start", func() bool { return s.started(b) })
		b.api.Down(true)
		b.api.CloseClientConnections()
		time.Sleep(2 * time.Second) // a window to count in
		if n := b.api.Refused(); n > 20 {
			t.Errorf("%d requests in 2 s", n)
		}
		b.api.Down(false)
		b.api.Text(anna, "Do you change tyres?")
		b.settled(1, "Do you change tyres?")
		s.said(b, anna, s.bot.Thanks)
	})
}

// kills counts the steps of one enquiry, and then runs it once for each of them.
func (s suite) kills(t *testing.T) {
	t.Parallel()
	const text = "Do you change tyres?"
	var steps []string
	t.Run("without a kill", func(t *testing.T) {
		b := newBed(t, s.webhook)
		b.api.Text(anna, text)
		b.start("")
		b.settled(1, text)
		b.end()
		steps = b.killPoints(t)
		if b.died() != 0 || len(steps) < 20 {
			t.Fatalf("%d deaths, steps: %q", b.died(), steps)
		}
	})
	if testing.Short() && len(steps) > 0 {
		steps = sample(t, steps)
	}
	for _, step := range steps {
		s.run(t, "killed "+where(step), func(t *testing.T, b *bed) {
			b.api.Text(anna, text)
			b.start(step)
			b.wait("the kill", func() bool { return b.died() > 0 })
			b.settled(1, text)
			if n := b.died(); n != 1 {
				t.Errorf("it died %d times", n)
			}
		})
	}
}

// killPoints are the steps that every run comes by: of each kind the first, and also the second of what is done again and
// again. A further one may be due to a slow machine, on which a call was given up. A call that only reads is one step.
func (b *bed) killPoints(t *testing.T) (list []string) {
	b.mu.Lock()
	list = slices.Clone(b.steps)
	b.mu.Unlock()
	trail, err := os.ReadFile(trailFile(b.orders.Dir))
	if err != nil {
		t.Fatal(err)
	}
	for call := range strings.Lines(string(trail)) {
		call = strings.TrimSpace(call)
		if method := strings.Fields(call)[1]; !slices.Contains([]string{"DueKeys", "ReadKey", "Attention", "Accounts"}, method) {
			list = append(list, call+before)
		}
		list = append(list, call+after)
	}
	return slices.DeleteFunc(list, func(step string) bool {
		again := slices.ContainsFunc([]string{"getUpdates", "DueKeys", "Claim"},
			func(what string) bool { return strings.Contains(step, what+" 2 ") })
		return !strings.Contains(step, " 1 ") && !again
	})
}

// sample are those where most can go wrong, and a few more.
func sample(t *testing.T, steps []string) []string {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	list := []string{"store Accept 1" + after, "CRM lead.create 1" + acted}
	r := rand.New(rand.NewPCG(seed, 0))
	for _, i := range r.Perm(len(steps))[:2] {
		if !slices.Contains(list, steps[i]) {
			list = append(list, steps[i])
		}
	}
	return list
}

// where reads a step as part of a sentence.
func where(step string) string {
	if s, ok := strings.CutSuffix(step, before); ok {
		return "before " + s
	}
	if s, ok := strings.CutSuffix(step, after); ok {
		return "after " + s
	}
	return "when " + step
}
