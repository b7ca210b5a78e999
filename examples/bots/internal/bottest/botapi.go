package bottest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// botapi.go: a stand-in for the Bot API, after its documentation (https://core.telegram.org/bots/api: "Making requests",
// "Getting updates" and the methods below). It is no copy of Telegram: it has no limits, and believes every chat id.

// The bot of the bench.
const (
	BotID  = 123456
	Token  = "123456:AA-token-of-the-test-0123456789abcd"
	Secret = "a-secret-of-the-test"
)

// Call is a call of the Bot API.
type Call struct {
	Method  string
	Form    url.Values // its parameters, however they were sent; what is no string is JSON
	Sent    int        // message_id of what sendMessage sent
	ByReply bool       // it was made in the answer to a delivery
}

// API is the stand-in. Its methods may be called by any number of goroutines.
type API struct {
	*httptest.Server
	at  func(point string)
	end context.Context // of the deliveries

	mu      sync.Mutex
	calls   []Call
	last    int // message_id, of any chat
	queue   []update
	sent    map[int]update // everything that was ever in the queue, by update_id
	nextID  int            // update_id of the next update
	tail    int            // the highest update_id that the queue knows, plus 1
	replay  bool           // the next getUpdates starts at the head, whatever it confirms
	lose    int            // answers of getUpdates that get lost
	changed chan struct{}  // closed when the queue or the webhook changes
	webhook hook
	waiting context.CancelFunc // ends the getUpdates that waits
	busy    map[int64]bool     // chats with a delivery under way
	status  []int              // of the deliveries
	points  map[string]int
	down    bool
	refused int // requests that came while it was down
	polls   int // calls of getUpdates
	given   int // those that were answered with updates
}

// NewAPI starts a stand-in; end makes it stop what it delivers. at, which may be nil, is called with the name of each step,
// before it goes on.
func NewAPI(end context.Context, at func(point string)) *API {
	a := &API{at: at, end: end, last: 1000, nextID: 1, sent: map[int]update{}, changed: make(chan struct{}),
		busy: map[int64]bool{}, points: map[string]int{}}
	if at == nil {
		a.at = func(string) {}
	}
	a.Server = httptest.NewServer(a)
	return a
}

// Calls lists the calls of a method so far.
func (a *API) Calls(method string) (list []Call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.calls {
		if c.Method == method {
			list = append(list, c)
		}
	}
	return list
}

// Texts are those of the messages that the bot has sent, to one chat or, with 0, to all.
func (a *API) Texts(chat int64) (list []string) {
	for _, c := range a.Calls("sendMessage") {
		if chat == 0 || c.Form.Get("chat_id") == strconv.FormatInt(chat, 10) {
			list = append(list, c.Form.Get("text"))
		}
	}
	return list
}

// Down makes the stand-in unreachable, or reachable again.
func (a *API) Down(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down = on
}

// Refused tells how many requests came while it was unreachable.
func (a *API) Refused() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

func (a *API) isDown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		a.refused++
	}
	return a.down
}

// refused is an answer with "ok": false.
type refused struct {
	code int
	why  string
}

func (r *refused) Error() string { return r.why }

// required are the methods that are known, and their required fields.
var required = map[string][]string{"getMe": {}, "sendMessage": {"chat_id", "text"}, "sendChatAction": {"chat_id", "action"},
	"answerCallbackQuery": {"callback_query_id"}, "setWebhook": {"url"}, "deleteWebhook": {}, "getWebhookInfo": {},
	"getUpdates": {}, "setMyCommands": {"commands"}, "deleteMyCommands": {}}

// ServeHTTP answers /bot<token>/<method> with {"ok", "result"} or {"ok", "error_code", "description"}.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if a.isDown() {
		panic(http.ErrAbortHandler)
	}
	method, ok := strings.CutPrefix(r.URL.Path, "/bot"+Token+"/")
	form, err := params(r)
	fields, known := required[method]
	switch {
	case !ok:
		err = &refused{http.StatusUnauthorized, "Unauthorized"}
	case err != nil:
		err = &refused{http.StatusBadRequest, "Bad Request: " + err.Error()}
	case !known:
		err = &refused{http.StatusNotFound, "Not Found"}
	case slices.ContainsFunc(fields, func(f string) bool { return form.Get(f) == "" }):
		err = &refused{http.StatusBadRequest, "Bad Request: a required field is empty"}
	}
	if err != nil {
		write(w, nil, err)
		return
	}
	point := a.point(method)
	a.at(point + received)
	var result any
	lost := false
	if method == "getUpdates" {
		result, lost, err = a.getUpdates(r.Context(), form, func(waits bool) {
			a.at(point + acted)
			if waits { // when it is answered is left to chance
				point = idle
			}
		})
	} else {
		result, err = a.do(method, form, false)
		a.at(point + acted)
	}
	if lost || r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	write(w, result, err)
	a.at(point + answered)
}

const idle = "idle" // is no step

// point names a request among those of its method. Of getUpdates only those count that find something to give or confirm:
// how many others there are is left to chance.
func (a *API) point(method string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if method == "getUpdates" && len(a.queue) == 0 {
		return idle
	}
	a.points[method]++
	return fmt.Sprintf("%s %d", method, a.points[method])
}

func write(w http.ResponseWriter, result any, err error) {
	w.Header().Set("Content-Type", "application/json")
	answer := map[string]any{"ok": true, "result": result}
	if no, ok := err.(*refused); ok {
		w.WriteHeader(no.code)
		answer = map[string]any{"ok": false, "error_code": no.code, "description": no.why}
	}
	_ = json.NewEncoder(w).Encode(answer)
	_ = http.NewResponseController(w).Flush()
}

// params reads the parameters from wherever the documentation allows them: query, form, multipart, JSON.
func params(r *http.Request) (url.Values, error) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind != "application/json" {
		body := bufio.NewReader(r.Body)
		if _, err := body.Peek(1); err == io.EOF { // go-telegram/bot announces a multipart body and sends none
			return r.URL.Query(), nil
		}
		r.Body = io.NopCloser(body)
		err := r.ParseMultipartForm(1 << 20)
		if err == http.ErrNotMultipart {
			err = nil
		}
		return r.Form, err
	}
	form := r.URL.Query()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return form, addJSON(form, body)
}

func addJSON(form url.Values, body []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	for name, raw := range fields {
		var s string
		if json.Unmarshal(raw, &s) != nil {
			s = string(raw)
		}
		form.Set(name, s)
	}
	return nil
}

// do has a call's effect and returns its result.
func (a *API) do(method string, form url.Values, byReply bool) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := Call{Method: method, Form: maps.Clone(form), ByReply: byReply}
	var result any = true
	switch method {
	case "getMe":
		result = map[string]any{"id": BotID, "is_bot": true, "first_name": "Garage", "username": "garage_bot"}
	case "sendMessage":
		a.last++
		c.Sent = a.last
		chat, _ := strconv.ParseInt(form.Get("chat_id"), 10, 64)
		result = map[string]any{"message_id": c.Sent, "date": 1767225600, "text": form.Get("text"),
			"chat": map[string]any{"id": chat, "type": "private"}}
	case "setWebhook":
		a.webhook = hook{url: form.Get("url"), secret: form.Get("secret_token")}
		a.wake()
	case "deleteWebhook":
		a.webhook = hook{}
		a.wake()
	case "getWebhookInfo":
		result = map[string]any{"url": a.webhook.url, "has_custom_certificate": false, "pending_update_count": len(a.queue)}
	}
	if form.Get("drop_pending_updates") == "true" {
		a.queue = nil
	}
	a.calls = append(a.calls, c)
	return result, nil
}
