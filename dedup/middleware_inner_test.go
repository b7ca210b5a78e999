package dedup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// middleware_inner_test.go: a wrapped handler that is well-behaved, and many that are not.

func TestWrappedHandler(t *testing.T) {
	reply := func(f func(w http.ResponseWriter, r *http.Request)) http.Handler { return http.HandlerFunc(f) }
	for _, c := range []struct {
		name   string
		inner  http.Handler
		result dedup.InnerResult
		body   string
		ctype  string
	}{
		{"a reply is passed on", reply(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Other", "1")
			w.WriteHeader(201)
			io.WriteString(w, `{"method":"sendMessage"}`)
		}), dedup.InnerReplied, `{"method":"sendMessage"}`, "application/json"},
		{"silence is an empty 200", reply(func(http.ResponseWriter, *http.Request) {}), dedup.InnerReplied, "", ""},
		{"a 204 is an empty 200", reply(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }), dedup.InnerReplied, "", ""},
		{"an error is an empty 200", reply(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, `{"method":"x"}`, 500) }), dedup.InnerRefused, "", ""},
		{"a 404 is an empty 200", http.NotFoundHandler(), dedup.InnerRefused, "", ""},
		{"a redirect is an empty 200", http.RedirectHandler("/x", http.StatusFound), dedup.InnerRefused, "", ""},
		{"a panic is an empty 200", reply(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "half a rep")
			panic("panic value")
		}), dedup.InnerPanicked, "", ""},
		{"http.ErrAbortHandler is an empty 200", reply(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), dedup.InnerPanicked, "", ""},
		{"a handler that ends its goroutine is an empty 200", reply(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }), dedup.InnerPanicked, "", ""},
		{"an encoded reply is dropped", reply(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "xxxx")
		}), dedup.InnerDropped, "", ""},
		{"a reply that is too long is dropped whole", reply(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "begin")
			if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err == nil {
				t.Error("the handler was not told")
			}
		}), dedup.InnerDropped, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openDoor(t, nil, c.inner, dedup.MiddlewareOptions{})
			w := d.post(updateBody(1))
			if w.Code != 200 || w.Body.String() != c.body || w.Header().Get("Content-Type") != c.ctype || w.Header().Get("X-Other") != "" || w.Header().Get("Content-Encoding") != "" {
				t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
			}
			if x := d.last(t); x.Inner != c.result || x.Status != 200 || len(d.st.stored()) != 1 {
				t.Errorf("told %+v", x)
			}
			d.silent(t)
		})
	}
}

func TestWrappedHandlerGetsTheRequest(t *testing.T) {
	type key struct{}
	var got []byte
	var in *http.Request
	calls := 0
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		calls++
		in = r
		got, _ = io.ReadAll(r.Body)
	})
	d := openDoor(t, nil, inner, dedup.MiddlewareOptions{})
	ctx, gone := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	r := delivery(strings.NewReader(updateBody(1))).WithContext(ctx)
	r.ContentLength, r.TransferEncoding = -1, []string{"chunked"}
	d.send(r)
	gone()
	t.Run("with its body restored", func(t *testing.T) {
		if string(got) != updateBody(1) || in.ContentLength != int64(len(got)) || in.TransferEncoding != nil || in.GetBody != nil {
			t.Errorf("%q, %d %v", got, in.ContentLength, in.TransferEncoding)
		}
	})
	t.Run("with its headers, the secret too, and its path", func(t *testing.T) {
		if in.Header.Get(telegram.SecretHeader) != doorSecret || in.URL.Path != "/telegram" || in.Method != http.MethodPost {
			t.Errorf("%v %v", in.Header, in.URL)
		}
	})
	t.Run("with a context that keeps its values and outlives it", func(t *testing.T) {
		if in.Context().Value(key{}) != "value" || in.Context().Err() != nil {
			t.Errorf("%v %v", in.Context().Value(key{}), in.Context().Err())
		}
	})
	t.Run("not a second time for a repeated delivery", func(t *testing.T) {
		if w := d.post(updateBody(1)); w.Code != 200 || calls != 1 || d.last(t).Inner != dedup.InnerNone {
			t.Errorf("%d, %d calls", w.Code, calls)
		}
	})
	t.Run("a second time with ForwardDuplicates", func(t *testing.T) {
		n := 0
		d := openDoor(t, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n++ }), dedup.MiddlewareOptions{ForwardDuplicates: true})
		d.post(updateBody(1))
		d.post(updateBody(1))
		if n != 2 || len(d.st.stored()) != 1 {
			t.Errorf("%d calls, %d rows", n, len(d.st.stored()))
		}
	})
	t.Run("for what an earlier process stored and did not come to hand on, once", func(t *testing.T) {
		n := 0
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		d.post(updateBody(1))
		src, err := telegram.NewSource(6001, doorSecret, nil)
		if err != nil {
			t.Fatal(err)
		}
		d.h = dedup.Middleware(d.st, src, nil)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { n++ }))
		for range 3 {
			d.post(updateBody(1))
		}
		if n != 1 || len(d.st.stored()) != 1 {
			t.Errorf("%d calls, %d rows", n, len(d.st.stored()))
		}
	})
	t.Run("after the commit, never before", func(t *testing.T) {
		var d *entrance
		d = openDoor(t, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			if len(d.st.stored()) != 1 {
				t.Error("not stored yet")
			}
		}), dedup.MiddlewareOptions{})
		d.post(updateBody(1))
	})
}

func TestHangingHandler(t *testing.T) {
	t.Run("is left behind at its deadline, and what it writes goes nowhere", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			wake, ended := make(chan struct{}), make(chan error, 1)
			d := openDoor(t, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "begun")
				<-wake
				w.Header().Set("Content-Type", "late/type")
				r.Header.Set("X-Late", "1")
				w.WriteHeader(500)
				_, err := w.Write([]byte("late"))
				ended <- errors.Join(err, r.Context().Err())
			}), dedup.MiddlewareOptions{})
			start := time.Now()
			w := d.post(updateBody(1))
			if took := time.Since(start); took != 10*time.Second || w.Code != 200 || w.Body.Len() != 0 {
				t.Errorf("%d %q after %v", w.Code, w.Body, took)
			}
			if d.last(t).Inner != dedup.InnerOverdue {
				t.Errorf("told %+v", d.last(t))
			}
			close(wake)
			if err := <-ended; !errors.Is(err, http.ErrHandlerTimeout) || !errors.Is(err, context.Canceled) {
				t.Errorf("the handler was told %v", err)
			}
			if w.Body.Len() != 0 || w.Header().Get("Content-Type") != "" {
				t.Error("a late write got through")
			}
		})
	})
	t.Run("that only overstays is told by its context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cause := make(chan error, 1)
			d := openDoor(t, nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				cause <- context.Cause(r.Context())
			}), dedup.MiddlewareOptions{InnerTimeout: time.Second})
			d.post(updateBody(1))
			if err := <-cause; !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("cause %v", err)
			}
		})
	})
	t.Run("takes a place among handlers, never one of the store's", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			wake := make(chan struct{})
			var calls atomic.Int64
			d := openDoor(t, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1); <-wake }), dedup.MiddlewareOptions{InFlight: 2})
			for i := range 5 {
				if w := d.post(updateBody(i)); w.Code != 200 {
					t.Errorf("delivery %d: %d", i, w.Code)
				}
			}
			if len(d.st.stored()) != 5 || calls.Load() != 2 || d.last(t).Inner != dedup.InnerSkipped {
				t.Errorf("%d rows, %d calls, %+v", len(d.st.stored()), calls.Load(), d.last(t))
			}
			close(wake)
			synctest.Wait()
			d.post(updateBody(9))
			if calls.Load() != 3 || d.last(t).Inner != dedup.InnerReplied {
				t.Errorf("afterwards %d calls, %+v", calls.Load(), d.last(t))
			}
		})
	})
	t.Run("that has returned has given its place back before it is answered", func(t *testing.T) {
		d := openDoor(t, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), dedup.MiddlewareOptions{InFlight: 1})
		for i := range 500 {
			if d.post(updateBody(i)); d.last(t).Inner != dedup.InnerReplied {
				t.Fatalf("delivery %d: %+v", i, d.last(t))
			}
		}
	})
	t.Run("does not hold up other deliveries", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			wake := make(chan struct{})
			d := openDoor(t, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-wake }), dedup.MiddlewareOptions{InFlight: 1})
			go d.post(updateBody(1))
			synctest.Wait()
			start := time.Now()
			if w := d.post(updateBody(2)); w.Code != 200 || time.Since(start) != 0 {
				t.Errorf("%d after %v", w.Code, time.Since(start))
			}
			close(wake)
		})
	})
}

// libraryHandler works as the webhook handlers of Go bot libraries do: it checks the secret itself, decodes the body, hands
// the update with the request's context to a loop, and may answer with a method.
func libraryHandler(secret string, updates chan<- libraryUpdate) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(telegram.SecretHeader) != secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		body := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(r.Body, body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		u := libraryUpdate{ctx: r.Context()}
		if err := json.Unmarshal(body, &u); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		updates <- u
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"method":"sendMessage","chat_id":%d,"text":"ok"}`, u.Message.Chat.ID)
	})
}

type libraryUpdate struct {
	ctx      context.Context
	UpdateID int `json:"update_id"`
	Message  struct {
		Chat struct {
			ID int64 `json:"id"`
		} `json:"chat"`
	} `json:"message"`
}

func TestBotLibraryBehindTheDoor(t *testing.T) {
	updates := make(chan libraryUpdate, 1)
	d := openDoor(t, nil, libraryHandler(doorSecret, updates), dedup.MiddlewareOptions{})
	t.Run("it gets the update and its reply reaches Telegram", func(t *testing.T) {
		w := d.post(updateBody(41))
		if w.Code != 200 || w.Body.String() != `{"method":"sendMessage","chat_id":7,"text":"ok"}` || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
		u := <-updates
		if u.UpdateID != 41 || u.ctx.Err() != nil {
			t.Errorf("%+v, %v", u, u.ctx.Err())
		}
	})
	t.Run("what it can't decode is stored and answered 200", func(t *testing.T) {
		if w := d.post(`{"update_id":42,"message":"unknown_format"}`); w.Code != 200 || d.last(t).Inner != dedup.InnerRefused || len(d.st.stored()) != 2 {
			t.Errorf("%d %+v", w.Code, d.last(t))
		}
	})
	t.Run("it never sees what is not stored", func(t *testing.T) {
		d.st.before = func(context.Context, store.Event) error { return store.ErrUnavailable }
		if w := d.post(updateBody(43)); w.Code != 503 || len(updates) != 0 {
			t.Errorf("%d, %d updates", w.Code, len(updates))
		}
	})
}
