package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leadonce/leadonce/telegram"
)

// telegram.go: Telegram's side: what an update looks like, and how it is delivered until it is acknowledged.

const (
	anna     = 700100200 // user id, and id of her private chat with the bot
	formID   = 41        // message_id of the form with the button
	someDate = 1767258000
)

// message is an update with a text that Anna wrote.
func message(updateID, messageID int64, text string) string {
	return fmt.Sprintf(`{"update_id":%d,
"message":{"message_id":%d,"from":{"id":%d,"is_bot":false,"first_name":"Anna","username":"anna_k","language_code":"en"},`+
		`"chat":{"id":%d,"first_name":"Anna","username":"anna_k","type":"private"},"date":%d,"text":%s}}`,
		updateID, messageID, anna, anna, someDate+messageID, quoted(text))
}

// press is an update that tells that Anna pressed the button under the form. One impatient press may come as several
// updates, with another update_id and another id of the query.
func press(updateID int64, query string) string {
	return fmt.Sprintf(`{"update_id":%d,
"callback_query":{"id":%s,"from":{"id":%d,"is_bot":false,"first_name":"Anna","username":"anna_k","language_code":"en"},`+
		`"message":{"message_id":%d,"from":{"id":%d,"is_bot":true,"first_name":"Garage","username":"garage_bot"},`+
		`"chat":{"id":%d,"first_name":"Anna","username":"anna_k","type":"private"},"date":%d,"text":"Shall we send it?"},`+
		`"chat_instance":"-3141592653589793238","data":"form:send"}}`,
		updateID, quoted(query), anna, formID, botID, anna, someDate)
}

func quoted(text string) string {
	b, err := json.Marshal(text)
	if err != nil {
		panic(err) // no string does that
	}
	return string(b)
}

// courier delivers updates, and keeps what was answered.
type courier struct {
	http *http.Client

	mu      sync.Mutex
	answers []string // status codes, "none" where the connection broke
}

func newCourier() *courier {
	// No connection is used twice: a request that meets a dead process must not be sent again behind our back.
	return &courier{http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// try posts an update once. The status is 0 if the connection broke.
func (c *courier) try(ctx context.Context, url, withSecret, update string) (status int, after time.Duration) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(update))
	if err != nil {
		panic(err) // the URL is our own
	}
	r.Header.Set("Content-Type", "application/json")
	if withSecret != "" {
		r.Header.Set(telegram.SecretHeader, withSecret)
	}
	answer := "none"
	if res, err := c.http.Do(r); err == nil {
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		status, after, answer = res.StatusCode, time.Duration(seconds)*time.Second, strconv.Itoa(res.StatusCode)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers = append(c.answers, answer)
	return status, after
}

// deliver posts an update until it is acknowledged, as Telegram does: anything but a 2xx, and no answer at all, means again,
// after a wait that grows and honours Retry-After.
func (c *courier) deliver(ctx context.Context, url, update string) error {
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		status, after := c.try(ctx, url, secret, update)
		if status/100 == 2 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the update was not acknowledged: the last answer was %d", status)
		case <-time.After(max(wait, after)):
		}
	}
}

// tally returns how many deliveries were made, and the answers in order, equal neighbours taken together.
func (c *courier) tally() (n int, answers string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var parts []string
	for i := 0; i < len(c.answers); {
		j := i
		for j < len(c.answers) && c.answers[j] == c.answers[i] {
			j++
		}
		part := c.answers[i]
		if j-i > 1 {
			part = fmt.Sprintf("%d×%s", j-i, part)
		}
		parts = append(parts, part)
		i = j
	}
	return len(c.answers), cmp.Or(strings.Join(parts, " "), "none")
}
