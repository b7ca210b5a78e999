package telegram

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
)

// transport_log.go: what a Transport says of a getUpdates that fails. A library that polls may keep its error to itself, and
// then nobody would learn why nothing arrives.

// trouble is a kind of cause; each has a line a minute of its own.
type trouble int

const (
	notStored trouble = iota
	otherAccount
	unreadable
	negative
	otherBot
	noToken
	refused
	wentBack
	troubles // how many there are
)

// what is said of each; the error says the rest.
func (k trouble) what() string {
	switch k {
	case notStored:
		return "telegram: getUpdates fails: the updates could not be stored and are not handed on; Telegram gives them again"
	case unreadable:
		return "telegram: getUpdates fails: its answer can't be read; nothing of it is confirmed, and the library has to ask again"
	}
	return "telegram: getUpdates is refused, and the bot gets no updates until this is mended"
}

// tell logs err, and returns it. A library that went away in the middle is no trouble.
func (t *Transport) tell(ctx context.Context, k trouble, err error) error {
	if !errors.Is(ctx.Err(), context.Canceled) && t.quiet[k].pass(time.Now()) {
		t.log.Error(k.what(), "error", unquoted(err))
	}
	return err
}

// unquoted is an error's text on one line and without any URL: that of the Bot API contains the token.
func unquoted(err error) string {
	words := strings.Fields(err.Error())
	for i, w := range words {
		if strings.Contains(w, "://") {
			words[i] = "[url]"
		}
	}
	return strings.Join(words, " ")
}

// throttle lets one line a minute through. The zero value lets the first one.
type throttle struct {
	mu   sync.Mutex
	next time.Time
}

func (t *throttle) pass(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Before(t.next) {
		return false
	}
	t.next = now.Add(time.Minute)
	return true
}
