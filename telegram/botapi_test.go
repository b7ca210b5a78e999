package telegram_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// botapi_test.go: a stand-in for the Bot API server. It is built from the documentation and from the public server's source
// (do_get_updates and process_get_updates_query in Client.cpp, TQueue.cpp), not from watching Telegram: the cloud may differ.

const token = "6001:AAFsecretTokenOfTheBot"

// botAPI is the queue of one bot.
type botAPI struct {
	// skips: an offset beyond the newest id confirms everything, the worst that the documentation allows for.
	skips bool
	// before, if not nil, may answer in place of the server.
	before func(w http.ResponseWriter, r *http.Request, method string) bool
	result map[string]string // answers of other methods

	mu       sync.Mutex
	queue    []queued
	tail     int64 // the next id
	offsets  []string
	forms    []map[string]string
	posted   []string // the methods that were called
	wake     chan struct{}
	previous int64 // offset and time of the last getUpdates
	started  time.Time
	polling  chan struct{} // closed to end the poll that waits
}

type queued struct {
	id   int64
	json string
}

func newBotAPI(first int64) *botAPI {
	return &botAPI{tail: first, wake: make(chan struct{}), previous: -1}
}

// say queues n private messages, each of a person of its own.
func (a *botAPI) say(n int) {
	for range n {
		a.mu.Lock()
		id := a.tail
		a.mu.Unlock()
		a.push(fmt.Sprintf(`"message":{"message_id":%d,"from":{"id":%d,"is_bot":false,"first_name":"Anna"},`+
			`"chat":{"id":%d,"type":"private"},"date":1767225600,"text":"payload text"}`, id, id+1e9, id+1e9))
	}
}

// push queues one update, written as the server does.
func (a *botAPI) push(fields string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue = append(a.queue, queued{a.tail, fmt.Sprintf("{\"update_id\":%d,\n%s}", a.tail, fields)})
	a.tail++
	close(a.wake)
	a.wake = make(chan struct{})
}

// restart is a week without updates: the next id is another one.
func (a *botAPI) restart(next int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queue, a.tail = nil, next
}

func (a *botAPI) waiting() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.queue)
}

func (a *botAPI) asked() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.offsets)
}

// lastForm are the parameters of the latest call of any method.
func (a *botAPI) lastForm() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.forms[len(a.forms)-1]
}

func (a *botAPI) called(method string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.posted {
		if m == method {
			n++
		}
	}
	return n
}

func (a *botAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path[strings.LastIndex(r.URL.Path, "/bot"):]
	method := strings.ToLower(path[strings.LastIndex(path, "/")+1:])
	form := formOf(r)
	a.mu.Lock()
	a.forms, a.posted = append(a.forms, form), append(a.posted, method)
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch result, ok := a.result[method]; {
	case a.before != nil && a.before(w, r, method):
	case method == "getupdates":
		a.getUpdates(w, r, form)
	case ok:
		fmt.Fprintf(w, `{"ok":true,"result":%s}`, result)
	default:
		fmt.Fprint(w, `{"ok":true,"result":true}`)
	}
}

func (a *botAPI) getUpdates(w http.ResponseWriter, r *http.Request, form map[string]string) {
	offset, _ := strconv.ParseInt(form["offset"], 10, 32)
	limit, _ := strconv.Atoi(cmp.Or(form["limit"], "100"))
	timeout, _ := strconv.Atoi(form["timeout"])
	a.mu.Lock()
	a.offsets = append(a.offsets, form["offset"])
	if offset == a.previous && time.Since(a.started) < 500*time.Millisecond {
		limit = 1
	}
	a.previous, a.started = offset, time.Now()
	if a.polling != nil {
		close(a.polling)
	}
	ended := make(chan struct{})
	a.polling = ended
	a.mu.Unlock()
	deadline := time.NewTimer(time.Duration(timeout) * time.Second)
	defer deadline.Stop()
	for {
		a.mu.Lock()
		list, wake := a.get(offset, limit), a.wake
		a.mu.Unlock()
		if len(list) == 0 && timeout > 0 {
			select {
			case <-wake:
				continue
			case <-deadline.C:
			case <-r.Context().Done():
			case <-ended:
				w.WriteHeader(http.StatusConflict)
				fmt.Fprint(w, `{"ok":false,"error_code":409,"description":"Conflict: terminated by other getUpdates request; `+
					`make sure that only one bot instance is running"}`)
				return
			}
		}
		a.mu.Lock()
		if a.polling == ended {
			a.polling = nil
		}
		a.mu.Unlock()
		fmt.Fprintf(w, `{"ok":true,"result":[%s]}`, strings.Join(list, ",\n"))
		return
	}
}

// get is do_get_updates with TQueue's get and clear.
func (a *botAPI) get(offset int64, limit int) (list []string) {
	if offset < 0 {
		a.queue = a.queue[max(0, len(a.queue)+int(offset)):]
	}
	head := a.tail
	if len(a.queue) > 0 {
		head = a.queue[0].id
	}
	if offset <= 0 || (offset > a.tail+10 && !a.skips) || offset < head-100000 {
		offset = head // the future and the distant past: from the head, and nothing is forgotten
	}
	a.queue = slices.DeleteFunc(a.queue, func(q queued) bool { return q.id < offset })
	for _, q := range a.queue[:min(limit, len(a.queue))] {
		list = append(list, q.json)
	}
	return list
}

func formOf(r *http.Request) map[string]string {
	form := map[string]string{}
	if strings.Contains(r.Header.Get("Content-Type"), "json") {
		b, _ := io.ReadAll(r.Body)
		var o map[string]json.RawMessage
		_ = json.Unmarshal(b, &o)
		for k, v := range o {
			s := string(v)
			_ = json.Unmarshal(v, &s)
			form[k] = s
		}
	} else {
		_ = r.ParseMultipartForm(1 << 20)
	}
	for k, v := range r.Form {
		form[k] = v[0]
	}
	for k, v := range r.URL.Query() {
		form[k] = v[0]
	}
	return form
}

// inMemory is an http.RoundTripper without sockets, for virtual time.
type inMemory struct{ h http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r.Clone(r.Context())
	if r.Body == nil {
		in.Body = http.NoBody
	} else {
		defer r.Body.Close()
	}
	w := httptest.NewRecorder()
	m.h.ServeHTTP(w, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}
