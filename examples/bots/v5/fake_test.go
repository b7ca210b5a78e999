package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fake_test.go: a stand-in for the Bot API, after its documentation (https://core.telegram.org/bots/api: "Making requests",
// getMe, sendMessage, answerCallbackQuery, setWebhook). It knows these four methods, checks what they require, and keeps
// every call. It is no copy of Telegram: it has no limits, and believes every chat id.

const (
	botID    = 123456
	botToken = "123456:token-of-the-test"
)

type call struct {
	method string
	form   url.Values
	sent   int // message_id of what sendMessage sent
}

type fakeAPI struct {
	*httptest.Server
	mu    sync.Mutex
	calls []call
	last  int // message_id
}

func newFakeAPI(t *testing.T) *fakeAPI {
	f := &fakeAPI{last: 1000}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// ServeHTTP answers POST /bot<token>/<method> with {"ok", "result"} or {"ok", "error_code", "description"}.
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code int, why string) {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(map[string]any{"ok": false, "error_code": code, "description": why})
	}
	method, ok := strings.CutPrefix(r.URL.Path, "/bot"+botToken+"/")
	if !ok {
		refuse(http.StatusUnauthorized, "Unauthorized")
		return
	}
	if err := r.ParseForm(); err != nil {
		refuse(http.StatusBadRequest, "Bad Request")
		return
	}
	required := map[string][]string{"getMe": {}, "sendMessage": {"chat_id", "text"},
		"answerCallbackQuery": {"callback_query_id"}, "setWebhook": {"url"}}
	fields, known := required[method]
	switch {
	case !known:
		refuse(http.StatusNotFound, "Not Found")
		return
	case slices.ContainsFunc(fields, func(name string) bool { return r.PostForm.Get(name) == "" }):
		refuse(http.StatusBadRequest, "Bad Request: a required field is empty")
		return
	}
	json.NewEncoder(w).Encode(map[string]any{"ok": true, "result": f.result(method, r.PostForm)})
}

func (f *fakeAPI) result(method string, form url.Values) any {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := call{method: method, form: form}
	var result any = true
	switch method {
	case "getMe":
		result = map[string]any{"id": botID, "is_bot": true, "first_name": "Garage", "username": "garage_bot"}
	case "sendMessage":
		f.last++
		c.sent = f.last
		chat, _ := strconv.ParseInt(form.Get("chat_id"), 10, 64)
		result = map[string]any{"message_id": c.sent, "date": 1767225600, "text": form.Get("text"),
			"chat": map[string]any{"id": chat, "type": "private"}}
	}
	f.calls = append(f.calls, c)
	return result
}

// made lists the calls of a method so far.
func (f *fakeAPI) made(method string) (list []call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c.method == method {
			list = append(list, c)
		}
	}
	return list
}

// texts are those of the messages that the bot has sent.
func (f *fakeAPI) texts() (list []string) {
	for _, c := range f.made("sendMessage") {
		list = append(list, c.form.Get("text"))
	}
	return list
}
