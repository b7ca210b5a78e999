package bottest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// updates.go: the queue of updates, and the two ways out of it: getUpdates and deliveries to a webhook.

// update is one update, as it is sent each time.
type update struct {
	id   int
	chat int64
	raw  json.RawMessage
}

type hook struct{ url, secret string }

// Push puts an update of this kind into the queue and returns its update_id. What belongs to one chat goes out in order.
func (a *API) Push(chat int64, kind string, content any) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.nextID
	raw, err := json.Marshal(map[string]any{"update_id": id, kind: content})
	if err != nil {
		panic(err)
	}
	a.nextID++
	a.push(update{id: id, chat: chat, raw: raw})
	return id
}

// Text is a private message of a person, whose id is the chat's.
func (a *API) Text(chat int64, text string) int {
	a.mu.Lock()
	a.last++
	id := a.last
	a.mu.Unlock()
	return a.Push(chat, "message", message(chat, id, text))
}

func message(chat int64, id int, text string) map[string]any {
	anna := map[string]any{"id": chat, "is_bot": false, "first_name": "Anna"}
	m := map[string]any{"message_id": id, "date": 1767225600, "text": text, "from": anna,
		"chat": map[string]any{"id": chat, "type": "private", "first_name": "Anna"}}
	if strings.HasPrefix(text, "/") {
		command, _, _ := strings.Cut(text, " ")
		m["entities"] = []any{map[string]any{"type": "bot_command", "offset": 0, "length": len(command)}}
	}
	return m
}

// Repeat sends an update again, byte for byte, as Telegram does when an answer was lost on its way back.
func (a *API) Repeat(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.replay = true
	a.push(a.sent[id])
}

// Restart makes the next update's id this one.
func (a *API) Restart(id int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextID = id
	a.tail = id
}

// LoseUpdates lets the next n answers of getUpdates with updates in them get lost.
func (a *API) LoseUpdates(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lose = n
}

// Waiting tells how many updates are not delivered or confirmed yet.
func (a *API) Waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

// Statuses are the answers to all deliveries so far, 0 where there was none.
func (a *API) Statuses() []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.status)
}

func (a *API) push(u update) {
	a.queue = append(a.queue, u)
	a.sent[u.id] = u
	a.tail = max(a.tail, u.id+1)
	if !a.busy[u.chat] {
		a.busy[u.chat] = true
		go a.deliverAll(u.chat)
	}
	a.wake()
}

// wake tells everybody who waits that something has changed. The caller holds mu.
func (a *API) wake() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// getUpdates answers what is in the queue. An offset forgets everything below it, but one beyond everything that the queue
// ever held means nothing: the server then answers from the head (as https://github.com/tdlib/telegram-bot-api does). acted
// is called when that is done, and told whether there is nothing to answer yet.
func (a *API) getUpdates(ctx context.Context, form url.Values, acted func(waits bool)) (_ any, lost bool, _ error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seconds, _ := strconv.Atoi(form.Get("timeout"))
	enough := time.NewTimer(time.Duration(seconds) * time.Second)
	defer enough.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting != nil {
		a.waiting()
	}
	a.waiting = cancel
	a.polls++
	for first := true; ; first = false {
		if a.webhook.url != "" {
			return nil, false, &refused{http.StatusConflict, "Conflict: can't use getUpdates method while webhook is active; " +
				"use deleteWebhook to delete the webhook first"}
		}
		batch := a.batch(form)
		if first {
			a.mu.Unlock()
			acted(len(batch) == 0)
			a.mu.Lock()
		}
		if len(batch) > 0 {
			a.given++
			lost = a.lose > 0
			a.lose = max(a.lose-1, 0)
			return batch, lost, nil
		}
		changed := a.changed
		a.mu.Unlock()
		stop := false
		select {
		case <-changed:
		case <-enough.C:
			stop = true
		case <-ctx.Done():
			stop = true
		}
		a.mu.Lock()
		switch {
		case ctx.Err() != nil && a.end.Err() == nil:
			return nil, false, &refused{http.StatusConflict, "Conflict: terminated by other getUpdates request; " +
				"make sure that only one bot instance is running"}
		case stop:
			return []json.RawMessage{}, false, nil
		}
	}
}

// batch is what an offset leaves in the queue, up to the limit.
func (a *API) batch(form url.Values) (list []json.RawMessage) {
	offset, _ := strconv.Atoi(form.Get("offset"))
	limit, _ := strconv.Atoi(form.Get("limit"))
	if limit < 1 || limit > 100 {
		limit = 100
	}
	if a.replay || offset > a.tail {
		offset = 0
	}
	a.replay = false
	if offset < 0 { // the last ones, which forgets those before
		a.queue = a.queue[max(0, len(a.queue)+offset):]
	}
	a.queue = slices.DeleteFunc(a.queue, func(u update) bool { return u.id < offset })
	for _, u := range a.queue[:min(limit, len(a.queue))] {
		list = append(list, u.raw)
	}
	return list
}

// deliverAll delivers a chat's updates, one after the other, each until it is answered with a 2xx.
func (a *API) deliverAll(chat int64) {
	wait := 10 * time.Millisecond
	for a.end.Err() == nil {
		a.mu.Lock()
		i := slices.IndexFunc(a.queue, func(u update) bool { return u.chat == chat })
		if i < 0 {
			a.busy[chat] = false
			a.mu.Unlock()
			return
		}
		u, to, changed := a.queue[i], a.webhook, a.changed
		a.mu.Unlock()
		if to.url == "" {
			select {
			case <-changed:
			case <-a.end.Done():
			}
			continue
		}
		point := a.point("delivery")
		status := a.post(to, u.raw, point)
		a.mu.Lock()
		a.status = append(a.status, status)
		if status/100 == 2 {
			a.queue = slices.DeleteFunc(a.queue, func(q update) bool { return q.id == u.id })
			wait = 10 * time.Millisecond
		}
		a.mu.Unlock()
		a.at(point + answered)
		if status/100 != 2 {
			select {
			case <-time.After(wait):
			case <-a.end.Done():
			}
			wait = min(2*wait, 200*time.Millisecond)
		}
	}
}

// Forge posts a body to the webhook with another secret than the bot's, or without one, and returns the status.
func (a *API) Forge(secret string, body []byte) int {
	a.mu.Lock()
	to := a.webhook
	a.mu.Unlock()
	to.secret = secret
	return a.post(to, body, "")
}

// post delivers as Telegram does: the secret's header only if there is a secret, no redirects, and the answer's body is
// executed. It takes the part of the TLS proxy too: where the bot said https, it speaks http. 0: there was no answer.
func (a *API) post(to hook, body []byte, point string) int {
	ctx, cancel := context.WithTimeout(a.end, deadline)
	defer cancel()
	if point != "" {
		wrote := func(httptrace.WroteRequestInfo) { a.at(point + sent) }
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: wrote})
	}
	at := "http://" + strings.TrimPrefix(strings.TrimPrefix(to.url, "https://"), "http://")
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, bytes.NewReader(body))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	if to.secret != "" {
		r.Header.Set("X-Telegram-Bot-Api-Secret-Token", to.secret)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	if resp.StatusCode/100 == 2 {
		a.Execute(resp.Header.Get("Content-Type"), answer)
	}
	return resp.StatusCode
}

const sent = " sent"

// Execute makes the call that the answer to a delivery asks for
// (https://core.telegram.org/bots/api#making-requests-when-getting-updates).
func (a *API) Execute(contentType string, body []byte) {
	form := url.Values{}
	kind, _, _ := mime.ParseMediaType(contentType)
	var err error
	if kind == "application/json" {
		err = addJSON(form, body)
	} else {
		form, err = url.ParseQuery(string(body))
	}
	method := form.Get("method")
	if _, known := required[method]; err == nil && known {
		form.Del("method")
		_, _ = a.do(method, form, true)
	}
}

// Polls tells how many calls of getUpdates came.
func (a *API) Polls() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.polls
}

// Given tells how many of them were answered with updates.
func (a *API) Given() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.given
}
