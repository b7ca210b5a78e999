package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// bot.go: the bot as it was (=): it answers enquiries, and asks for a booking step by step. New in here are submit, where a
// booking used to be mailed, and that nothing is promised to a user before it is stored.

const (
	telegramAPI = "https://api.telegram.org"
	pollFor     = 25 * time.Second // how long getUpdates waits for updates
)

// newAPI connects to the Bot API under base; tests give a stand-in.
func newAPI(token, base string, client *http.Client) (*tgbotapi.BotAPI, error) {
	api, err := tgbotapi.NewBotAPIWithClient(token, base+"/bot%s/%s", client)
	if err != nil {
		return nil, withoutToken(err)
	}
	return api, nil
}

// withoutToken makes an error of a call fit for a log: v5 returns net/http's errors, which quote the URL, and the token is
// part of that.
func withoutToken(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// logger writes what v5 logs by itself: the errors of its polling, in which the URL stands too.
type logger struct{}

func (logger) Printf(format string, v ...any) { log.Printf(format, v...) }

func (logger) Println(v ...any) {
	for i := range v {
		if err, ok := v[i].(error); ok {
			v[i] = withoutToken(err)
		}
	}
	log.Println(v...)
}

type bot struct {
	send    func(tgbotapi.Chattable) (tgbotapi.Message, error)
	request func(tgbotapi.Chattable) (*tgbotapi.APIResponse, error)
	update  func(*http.Request) (*tgbotapi.Update, error)
	submit  func(ctx context.Context, key string, who dedup.Person, lead crm.Lead) (store.Operation, error)
	before  func(text string)
	form    *form
}

func newBot(api *tgbotapi.BotAPI, before func(text string)) *bot {
	if before == nil {
		before = func(string) {}
	}
	return &bot{send: api.Send, request: api.Request, update: api.HandleUpdate, before: before, form: newForm()}
}

func health(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") }

// ServeHTTP takes one update. Several run at once.
func (b *bot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u, err := b.update(r)
	if err != nil {
		http.Error(w, "no update", http.StatusBadRequest) // nobody sees it: the update is stored, and answered 200
		return
	}
	if m := u.Message; m != nil && m.IsCommand() && m.Command() == "start" { // answered in the answer: no call, and no error
		b.before(m.Text)
		if err := tgbotapi.WriteToHTTPResponse(w, tgbotapi.NewMessage(m.Chat.ID, greeting)); err != nil {
			log.Printf("greeting not sent: %v", err)
		}
		return
	}
	b.handle(r.Context(), *u)
}

// poll takes updates by long polling until ctx ends. What then still waits in the channel is stored, and stays unanswered.
func (b *bot) poll(ctx context.Context, api *tgbotapi.BotAPI) error {
	if _, err := b.request(tgbotapi.DeleteWebhookConfig{}); err != nil { // or getUpdates is refused; what waits is kept
		return withoutToken(err)
	}
	updates := api.GetUpdatesChan(tgbotapi.UpdateConfig{Timeout: int(pollFor / time.Second)})
	defer api.StopReceivingUpdates()
	for {
		select {
		case <-ctx.Done():
			return nil
		case u := <-updates:
			b.survive(ctx, u)
		}
	}
}

// survive handles an update that nothing else keeps a panic away from.
func (b *bot) survive(ctx context.Context, u tgbotapi.Update) {
	defer func() {
		if v := recover(); v != nil {
			log.Printf("update %d: panic: %v", u.UpdateID, v)
		}
	}()
	b.handle(ctx, u)
}

// handle takes one update, however it came.
func (b *bot) handle(ctx context.Context, u tgbotapi.Update) {
	switch {
	case u.CallbackQuery != nil:
		b.pressed(ctx, u.CallbackQuery)
	case u.Message != nil && u.Message.From != nil:
		b.message(u.Message)
	}
}

const greeting = "Hello! Ask us anything, or book with /book"

func (b *bot) message(m *tgbotapi.Message) {
	b.before(m.Text)
	draft, answered := b.form.take(m)
	switch {
	case m.IsCommand() && m.Command() == "start":
		b.tell(m.Chat.ID, greeting)
	case m.IsCommand() && m.Command() == "book":
		b.ask(m.Chat.ID, booking{})
	case answered:
		b.ask(m.Chat.ID, draft)
	default:
		b.tell(m.Chat.ID, "Thank you, we will call you back") // true: it is on disk
	}
}

// ask puts the form's next question, or shows what is to be sent.
func (b *bot) ask(chat int64, d booking) {
	next := tgbotapi.NewMessage(chat, "Your name?")
	next.ReplyMarkup = tgbotapi.ForceReply{ForceReply: true, Selective: true}
	complete := d.name != "" && d.phone != ""
	switch {
	case complete:
		next.Text = d.text()
		next.ReplyMarkup = tgbotapi.NewInlineKeyboardMarkup(tgbotapi.NewInlineKeyboardRow(
			tgbotapi.NewInlineKeyboardButtonData("Send", formButtons+"send")))
	case d.name != "":
		next.Text = "Your phone?"
	}
	switch sent, err := b.send(next); {
	case err != nil:
		log.Printf("question not sent: %v", withoutToken(err))
	case !complete:
		b.form.ask(sent, d)
	}
}

// pressed submits a booking. The key is the identity of what the user has finished, the form's message: a second press is
// another callback with another update_id, and the same booking. Everything in the lead is read from that message, so the
// same key always comes with the same lead, after a restart too.
func (b *bot) pressed(ctx context.Context, q *tgbotapi.CallbackQuery) {
	if _, err := b.request(tgbotapi.NewCallback(q.ID, "")); err != nil { // ends the clock on the button
		log.Printf("press not answered: %v", withoutToken(err))
	}
	m := q.Message
	if q.Data != formButtons+"send" || m == nil || m.Chat == nil {
		return
	}
	d, ok := parseBooking(m.Text)
	if !ok { // Telegram leaves the text out of a message that is too old
		b.tell(m.Chat.ID, "This form is too old, please start again: /book")
		return
	}
	key := fmt.Sprintf("form/%d/%d", m.Chat.ID, m.MessageID)
	who := dedup.Person{ID: strconv.FormatInt(q.From.ID, 10), Name: q.From.FirstName}
	if _, err := b.submit(ctx, key, who, crm.Lead{Title: "Booking", Name: d.name, Phone: d.phone}); err != nil {
		b.tell(m.Chat.ID, "That did not work, please press again") // safe: the same key
		return
	}
	b.tell(m.Chat.ID, "You are booked, we will call you back") // true: it is on disk
}

func (b *bot) tell(chat int64, text string) {
	if chat == 0 {
		return
	}
	if _, err := b.send(tgbotapi.NewMessage(chat, text)); err != nil {
		log.Printf("message not sent: %v", withoutToken(err))
	}
}

// booking is what the form asks for.
type booking struct{ name, phone string }

func (d booking) text() string { return "Name: " + d.name + "\nPhone: " + d.phone }

func parseBooking(text string) (booking, bool) {
	name, phone, ok := strings.Cut(strings.TrimPrefix(text, "Name: "), "\nPhone: ")
	return booking{name, phone}, ok
}

const (
	formButtons = "form:" // begins the data of the form's buttons
	maxOpen     = 10_000  // questions that are remembered
)

// form remembers which questions are open, each with what was answered before it: an answer is a reply to a question.
type form struct {
	mu    sync.Mutex
	open  map[place]booking
	order []place // oldest first
}

// place is a message in its chat, as an Enquiry names it.
type place struct{ chat, message string }

func newForm() *form { return &form{open: map[place]booking{}} }

func placeOf(m *tgbotapi.Message) place {
	return place{strconv.FormatInt(m.Chat.ID, 10), strconv.Itoa(m.MessageID)}
}

func (f *form) ask(question tgbotapi.Message, so booking) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := placeOf(&question)
	f.open[at] = so
	if f.order = append(f.order, at); len(f.order) > maxOpen {
		delete(f.open, f.order[0])
		f.order = f.order[1:]
	}
}

// asked reports whether a message is a question of the form.
func (f *form) asked(chat, message string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.open[place{chat, message}]
	return ok
}

// take returns the booking with the answer in it, if m is one.
func (f *form) take(m *tgbotapi.Message) (d booking, ok bool) {
	if m.ReplyToMessage == nil || m.ReplyToMessage.Chat == nil {
		return d, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if d, ok = f.open[placeOf(m.ReplyToMessage)]; !ok {
		return d, false
	}
	answer := strings.Join(strings.Fields(m.Text), " ")
	if d.name == "" {
		d.name = answer
	} else {
		d.phone = answer
	}
	return d, true
}
