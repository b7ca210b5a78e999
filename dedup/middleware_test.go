package dedup_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// middleware_test.go: the door against a store and a source that do what a test tells them. door_test.go has real ones.

const doorSecret = "door-secret-0123456789"

// acceptOnly is a Store with a door and nothing behind it.
type acceptOnly struct {
	store.Store
	before func(context.Context, store.Event) error // may be nil
	mu     sync.Mutex
	events []store.Event
}

func (s *acceptOnly) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	if s.before != nil {
		if err := s.before(ctx, e); err != nil {
			return store.Receipt{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	epoch := 0
	for i, x := range s.events {
		if x.UpdateID == e.UpdateID && x.Bot == e.Bot {
			if x.Hash == e.Hash {
				return store.Receipt{EventID: int64(i + 1), Epoch: epoch, Duplicate: true}, nil
			}
			epoch++
		}
	}
	s.events = append(s.events, e)
	return store.Receipt{EventID: int64(len(s.events)), Epoch: epoch, Reused: epoch > 0}, nil
}

func (s *acceptOnly) stored() []store.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]store.Event(nil), s.events...)
}

// doorLog collects what the door logs.
type doorLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *doorLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *doorLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// entrance is a door with everything that a test looks at.
type entrance struct {
	st   *acceptOnly
	h    http.Handler
	log  *doorLog
	mu   sync.Mutex
	told []dedup.Delivery
}

func (d *entrance) last(t *testing.T) dedup.Delivery {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.told) == 0 {
		t.Fatal("OnDelivery was not called")
	}
	return d.told[len(d.told)-1]
}

func openDoor(t testing.TB, src dedup.Source, next http.Handler, o dedup.MiddlewareOptions) *entrance {
	t.Helper()
	if src == nil {
		s, err := telegram.NewSource(6001, doorSecret, nil)
		if err != nil {
			t.Fatal(err)
		}
		src = s
	}
	d := &entrance{st: &acceptOnly{}, log: &doorLog{}}
	o.Logger = slog.New(slog.NewTextHandler(d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o.OnDelivery = func(x dedup.Delivery) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.told = append(d.told, x)
	}
	d.h = dedup.Middleware(d.st, src, &o)(next)
	return d
}

func updateBody(id int) string {
	return fmt.Sprintf(`{"update_id":%d,"message":{"message_id":%d,"from":{"id":7,"first_name":"Payload Name"},"chat":{"id":7,"type":"private"},"date":9,"text":"payload text"}}`, id, id)
}

func delivery(body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/telegram?token=query-token", body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(telegram.SecretHeader, doorSecret)
	return r
}

func (d *entrance) send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	return w
}

func (d *entrance) post(body string) *httptest.ResponseRecorder {
	return d.send(delivery(strings.NewReader(body)))
}

// silent checks that no part of a request reached a log.
func (d *entrance) silent(t *testing.T) {
	t.Helper()
	for _, word := range []string{doorSecret, "payload text", "Payload Name", "query-token", "panic value"} {
		if strings.Contains(d.log.text(), word) {
			t.Errorf("%q reached the log: %s", word, d.log.text())
		}
	}
}

// untouched is a body that must not be read.
type untouched struct{ t *testing.T }

func (b untouched) Read([]byte) (int, error) {
	b.t.Error("the body was read")
	return 0, io.EOF
}

func TestMiddlewareRefuses(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(t *testing.T, r *http.Request)
		status int
	}{
		{"another method", func(t *testing.T, r *http.Request) { r.Method, r.Body = http.MethodGet, io.NopCloser(untouched{t}) }, 405},
		{"a forged secret, before anything is read", func(t *testing.T, r *http.Request) {
			r.Header.Set(telegram.SecretHeader, "wrong")
			r.Body = io.NopCloser(untouched{t})
		}, 401},
		{"no secret, though the body is announced too long", func(t *testing.T, r *http.Request) {
			r.Header.Del(telegram.SecretHeader)
			r.Body, r.ContentLength = io.NopCloser(untouched{t}), 1<<40
		}, 401},
		{"a body that is announced too long, before it is read", func(t *testing.T, r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(untouched{t}), 1<<20+1
		}, 413},
		{"a body that turns out too long", func(t *testing.T, r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(strings.Repeat(" ", 1<<20+1))), -1
		}, 413},
		{"a body shorter than announced", func(t *testing.T, r *http.Request) { r.ContentLength++ }, 400},
		{"a body whose connection breaks", func(t *testing.T, r *http.Request) {
			r.Body = io.NopCloser(io.MultiReader(strings.NewReader(updateBody(1)[:40]), brokenReader{}))
		}, 400},
		{"no body", func(t *testing.T, r *http.Request) { r.Body, r.ContentLength = nil, 0 }, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := openDoor(t, nil, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the wrapped handler was called") }), dedup.MiddlewareOptions{})
			r := delivery(strings.NewReader(updateBody(1)))
			c.change(t, r)
			w := d.send(r)
			if w.Code != c.status || w.Body.Len() != 0 {
				t.Errorf("answered %d with %d bytes, want an empty %d", w.Code, w.Body.Len(), c.status)
			}
			if n := len(d.st.stored()); n != 0 {
				t.Errorf("%d rows", n)
			}
			if allow := w.Header().Get("Allow"); (allow == "POST") != (c.status == 405) {
				t.Errorf("Allow: %q", allow)
			}
			if x := d.last(t); x.Status != c.status || x.Err == nil {
				t.Errorf("told %+v", x)
			}
			if (d.log.text() == "") != (c.status == 405) {
				t.Errorf("log: %q", d.log.text())
			}
			d.silent(t)
		})
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestMiddlewareStores(t *testing.T) {
	t.Run("a delivery, and answers an empty 200", func(t *testing.T) {
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		w := d.post(updateBody(1))
		if w.Code != 200 || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "0" {
			t.Errorf("%d %q %v", w.Code, w.Body, w.Header())
		}
		e := d.st.stored()
		if len(e) != 1 || string(e[0].Payload) != updateBody(1) || e[0].HeadStart != 2*time.Second || e[0].Quarantine != "" {
			t.Errorf("%+v", e)
		}
		if x := d.last(t); x.Status != 200 || x.Receipt.EventID != 1 || x.UpdateID != "1" || x.Bot != "6001" || x.Kind != "message" || x.Source != "telegram" || x.Err != nil {
			t.Errorf("told %+v", x)
		}
		if d.log.text() != "" {
			t.Errorf("log: %q", d.log.text())
		}
	})
	t.Run("a repeated delivery once, and answers 200 again", func(t *testing.T) {
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		d.post(updateBody(1))
		if w := d.post(updateBody(1)); w.Code != 200 || len(d.st.stored()) != 1 || !d.last(t).Receipt.Duplicate {
			t.Errorf("%d, %d rows", w.Code, len(d.st.stored()))
		}
	})
	t.Run("a reused update id, and says so", func(t *testing.T) {
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		d.post(updateBody(1))
		if w := d.post(strings.Replace(updateBody(1), "payload text", "payload text two", 1)); w.Code != 200 || len(d.st.stored()) != 2 {
			t.Errorf("%d, %d rows", w.Code, len(d.st.stored()))
		}
		if !strings.Contains(d.log.text(), "level=WARN") {
			t.Errorf("log: %q", d.log.text())
		}
		d.silent(t)
	})
	t.Run("what is authentic and no JSON, in quarantine", func(t *testing.T) {
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		if w := d.post("payload text, no JSON"); w.Code != 200 || len(d.st.stored()) != 1 || d.st.stored()[0].Quarantine == "" || !d.last(t).Quarantined {
			t.Errorf("%d %+v", w.Code, d.st.stored())
		}
		d.silent(t)
	})
	t.Run("before it answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
			commit := make(chan struct{})
			d.st.before = func(context.Context, store.Event) error { <-commit; return nil }
			w := &watched{ResponseRecorder: httptest.NewRecorder()}
			go d.h.ServeHTTP(w, delivery(strings.NewReader(updateBody(1))))
			synctest.Wait()
			if w.wrote.Load() {
				t.Error("answered before the commit")
			}
			close(commit)
			synctest.Wait()
			if !w.wrote.Load() || w.Code != 200 {
				t.Error("not answered after the commit")
			}
		})
	})
	t.Run("though the client has gone away", func(t *testing.T) {
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		ctx, cancel := context.WithCancel(t.Context())
		d.st.before = func(ctx context.Context, _ store.Event) error { cancel(); return ctx.Err() }
		if w := d.send(delivery(strings.NewReader(updateBody(1))).WithContext(ctx)); w.Code != 200 || len(d.st.stored()) != 1 {
			t.Errorf("%d, %d rows", w.Code, len(d.st.stored()))
		}
	})
}

type watched struct {
	*httptest.ResponseRecorder
	wrote atomic.Bool
}

func (w *watched) WriteHeader(status int) {
	w.ResponseRecorder.WriteHeader(status)
	w.wrote.Store(true)
}

func TestMiddlewareStoreFails(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the wrapped handler was called") })
	fails := func(name string, before func(context.Context, store.Event) error) {
		t.Run(name+": 503, and the next delivery is stored", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := openDoor(t, nil, never, dedup.MiddlewareOptions{})
				d.st.before = before
				start := time.Now()
				w := d.post(updateBody(1))
				if w.Code != 503 || w.Header().Get("Retry-After") != "1" || w.Body.Len() != 0 {
					t.Errorf("%d %v %q", w.Code, w.Header(), w.Body)
				}
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("it took %v", took)
				}
				if x := d.last(t); x.Err == nil || x.UpdateID != "1" || x.Inner != dedup.InnerNone {
					t.Errorf("told %+v", x)
				}
				if !strings.Contains(d.log.text(), "level=ERROR") {
					t.Errorf("log: %q", d.log.text())
				}
				d.silent(t)
				d.st.before = nil
				if w := d.post(updateBody(1)); w.Code != 200 || len(d.st.stored()) != 1 {
					t.Errorf("afterwards %d, %d rows", w.Code, len(d.st.stored()))
				}
			})
		})
	}
	fails("a failing store", func(context.Context, store.Event) error { return store.ErrUnavailable })
	fails("a store that panics", func(context.Context, store.Event) error { panic("panic value") })
	fails("a store that stalls", func(ctx context.Context, _ store.Event) error { <-ctx.Done(); return ctx.Err() })
	t.Run("a storm of forgeries is one line a minute", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
			for range 1000 {
				r := delivery(strings.NewReader(updateBody(1)))
				r.Header.Set(telegram.SecretHeader, "wrong")
				d.send(r)
				time.Sleep(50 * time.Millisecond)
			}
			if n := strings.Count(d.log.text(), "\n"); n != 1 {
				t.Errorf("%d lines: %s", n, d.log.text())
			}
			if !strings.Contains(d.log.text(), `source="telegram `) {
				t.Errorf("which door was it? %s", d.log.text())
			}
			d.silent(t)
		})
	})
	t.Run("a storm of failures is a few log lines", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
			d.st.before = func(context.Context, store.Event) error { return store.ErrUnavailable }
			for i := range 1000 {
				d.post(updateBody(i))
			}
			time.Sleep(2 * time.Second)
			d.post(updateBody(1))
			if n := strings.Count(d.log.text(), "\n"); n != 2 || !strings.Contains(d.log.text(), "like_it_since_the_last_line=999") {
				t.Errorf("%d lines: %s", n, d.log.text())
			}
		})
	})
}

// told is a Source that does what a test tells it.
type told struct {
	authenticate func(*http.Request, func() ([]byte, error)) error
	parse        func([]byte) (store.Event, error)
}

func (s told) Authenticate(r *http.Request, body func() ([]byte, error)) error {
	if s.authenticate == nil {
		return nil
	}
	return s.authenticate(r, body)
}

func (s told) Parse(body []byte) (store.Event, error) { return s.parse(body) }

// toldAndQuarantines is one that makes quarantined events itself.
type toldAndQuarantines struct{ told }

func (toldAndQuarantines) Quarantine(body []byte, why string) store.Event {
	return store.Event{Source: "told", UpdateID: "q", Hash: "h", OrderingKey: "k", Payload: body, Quarantine: why}
}

func TestMiddlewareOddSources(t *testing.T) {
	good := store.Event{Source: "told", UpdateID: "1", Hash: "1", OrderingKey: "k"}
	for _, c := range []struct {
		name  string
		parse func([]byte) (store.Event, error)
	}{
		{"a parser that panics", func([]byte) (store.Event, error) { panic("panic value") }},
		{"a parser that returns an error of its own", func([]byte) (store.Event, error) { return good, errors.New("x") }},
		{"an event without an id", func([]byte) (store.Event, error) { return store.Event{OrderingKey: "k"}, nil }},
		{"an event without an ordering key", func([]byte) (store.Event, error) { return store.Event{UpdateID: "1"}, nil }},
	} {
		for _, src := range []dedup.Source{told{parse: c.parse}, toldAndQuarantines{told{parse: c.parse}}} {
			t.Run(fmt.Sprintf("%s is kept in quarantine, %T", c.name, src), func(t *testing.T) {
				d := openDoor(t, src, nil, dedup.MiddlewareOptions{})
				w := d.post("payload text")
				e := d.st.stored()
				if w.Code != 200 || len(e) != 1 || e[0].Quarantine == "" || string(e[0].Payload) != "payload text" || e[0].OrderingKey == "" || e[0].Hash == "" {
					t.Fatalf("%d %+v", w.Code, e)
				}
				if _, ok := src.(dedup.Quarantiner); ok != (e[0].Source == "told") {
					t.Errorf("source %q", e[0].Source)
				}
				d.silent(t)
			})
		}
	}
	t.Run("an event that the store will never take goes into quarantine", func(t *testing.T) {
		d := openDoor(t, nil, nil, dedup.MiddlewareOptions{})
		d.st.before = func(_ context.Context, e store.Event) error {
			if e.Quarantine == "" {
				return store.ErrInvalid
			}
			return nil
		}
		if w := d.post(updateBody(1)); w.Code != 200 || d.st.stored()[0].Quarantine == "" {
			t.Errorf("%d %+v", w.Code, d.st.stored())
		}
	})
	t.Run("an incomplete body is no row and no 2xx", func(t *testing.T) {
		d := openDoor(t, told{parse: func([]byte) (store.Event, error) { return good, fmt.Errorf("x: %w", dedup.ErrIncomplete) }}, nil, dedup.MiddlewareOptions{})
		if w := d.post("x"); w.Code != 400 || len(d.st.stored()) != 0 {
			t.Errorf("%d %+v", w.Code, d.st.stored())
		}
	})
	t.Run("a source that panics while it authenticates lets nobody in", func(t *testing.T) {
		d := openDoor(t, told{authenticate: func(*http.Request, func() ([]byte, error)) error { panic("panic value") }}, nil, dedup.MiddlewareOptions{})
		if w := d.post("x"); w.Code != 503 || len(d.st.stored()) != 0 {
			t.Errorf("%d %+v", w.Code, d.st.stored())
		}
		d.silent(t)
	})
	signed := told{parse: func(b []byte) (store.Event, error) { e := good; e.Payload = b; return e, nil },
		authenticate: func(_ *http.Request, body func() ([]byte, error)) error {
			b, err := body()
			if err == nil && !bytes.HasSuffix(b, []byte("signed")) {
				return dedup.ErrUnauthentic
			}
			return nil // an error of body's is not for a source to forgive
		}}
	t.Run("a source that takes an unreadable body for a forged one does not hide why", func(t *testing.T) {
		d := openDoor(t, told{authenticate: func(_ *http.Request, body func() ([]byte, error)) error {
			if _, err := body(); err != nil {
				return dedup.ErrUnauthentic
			}
			return nil
		}}, nil, dedup.MiddlewareOptions{MaxBody: 10})
		if w := d.post("longer than that"); w.Code != 413 {
			t.Errorf("answered %d", w.Code)
		}
	})
	for body, want := range map[string]int{"it is signed": 200, "it is not": 401, strings.Repeat("x", 2000) + "signed": 413} {
		t.Run(fmt.Sprintf("a source that signs the body: %.12s", body), func(t *testing.T) {
			d := openDoor(t, signed, nil, dedup.MiddlewareOptions{MaxBody: 1000})
			if w := d.post(body); w.Code != want || (len(d.st.stored()) == 1) != (want == 200) {
				t.Errorf("%d %+v", w.Code, d.st.stored())
			}
		})
	}
}

func TestMiddlewareIsBuiltOfSense(t *testing.T) {
	src, err := telegram.NewSource(1, doorSecret, nil)
	if err != nil {
		t.Fatal(err)
	}
	st := &acceptOnly{}
	for _, c := range []struct {
		name string
		st   store.Store
		src  dedup.Source
		o    *dedup.MiddlewareOptions
		want string
	}{
		{"no store", nil, src, nil, "store is nil"},
		{"no source", st, nil, nil, "source is nil"},
		{"a negative body limit", st, src, &dedup.MiddlewareOptions{MaxBody: -1}, "MaxBody"},
		{"a negative reply limit", st, src, &dedup.MiddlewareOptions{MaxReply: -1}, "MaxReply"},
		{"a negative number in flight", st, src, &dedup.MiddlewareOptions{InFlight: -1}, "InFlight"},
		{"a negative deadline of the store", st, src, &dedup.MiddlewareOptions{AcceptTimeout: -1}, "AcceptTimeout"},
		{"a negative deadline of the handler", st, src, &dedup.MiddlewareOptions{InnerTimeout: -1}, "InnerTimeout"},
		{"a negative wait", st, src, &dedup.MiddlewareOptions{RetryAfter: -1}, "RetryAfter"},
		{"a negative head start", st, src, &dedup.MiddlewareOptions{HeadStart: -1}, "HeadStart"},
	} {
		t.Run(c.name+" is a panic that names it", func(t *testing.T) {
			defer func() {
				if v := fmt.Sprint(recover()); !strings.Contains(v, c.want) {
					t.Errorf("panic %q, want %q", v, c.want)
				}
			}()
			dedup.Middleware(c.st, c.src, c.o)
		})
	}
	t.Run("no options are the defaults", func(t *testing.T) {
		w := httptest.NewRecorder()
		dedup.Middleware(st, src, nil)(nil).ServeHTTP(w, delivery(strings.NewReader(updateBody(1))))
		if w.Code != 200 || len(st.stored()) != 1 {
			t.Errorf("%d", w.Code)
		}
	})
	t.Run("a panic in OnDelivery costs nothing", func(t *testing.T) {
		o := &dedup.MiddlewareOptions{OnDelivery: func(dedup.Delivery) { panic("x") }, Logger: slog.New(slog.DiscardHandler)}
		w := httptest.NewRecorder()
		dedup.Middleware(st, src, o)(nil).ServeHTTP(w, delivery(strings.NewReader(updateBody(2))))
		if w.Code != 200 {
			t.Errorf("%d", w.Code)
		}
	})
}

// held counts the bodies that were begun to be read while the store stalls.
type heldBody struct {
	io.Reader
	once *sync.Once
	n    *atomic.Int64
}

func (b heldBody) Read(p []byte) (int, error) {
	b.once.Do(func() { b.n.Add(1) })
	return b.Reader.Read(p)
}

func TestMiddlewareUnderAStalledStore(t *testing.T) {
	const offered, places = 10_000, 256
	d := openDoor(t, nil, nil, dedup.MiddlewareOptions{AcceptTimeout: time.Minute})
	back := make(chan struct{})
	d.st.before = func(ctx context.Context, _ store.Event) error {
		select {
		case <-back:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var read, busy, refused atomic.Int64
	var all sync.WaitGroup
	codes := make([]*httptest.ResponseRecorder, offered)
	began := time.Now()
	for i := range offered {
		all.Go(func() {
			r := delivery(nil)
			r.Body, r.ContentLength = io.NopCloser(heldBody{strings.NewReader(updateBody(i)), new(sync.Once), &read}), int64(len(updateBody(i)))
			busy.Add(1)
			w := d.send(r)
			if codes[i] = w; w.Code == 503 {
				refused.Add(1)
			}
		})
	}
	deadline := time.Now().Add(20 * time.Second)
	for refused.Load() < offered-places && time.Now().Before(deadline) {
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d requests, %d refused after %v", busy.Load(), refused.Load(), time.Since(began))
	if n := read.Load(); n != places || refused.Load() != offered-places {
		t.Fatalf("%d bodies are held and %d requests refused, want %d and %d", n, refused.Load(), places, offered-places)
	}
	close(back)
	returned := time.Now()
	for {
		if w := d.post(updateBody(offered)); w.Code == 200 {
			break
		}
		if time.Since(returned) > time.Second {
			t.Fatal("no delivery was taken within a second of the store's return")
		}
		time.Sleep(time.Millisecond)
	}
	all.Wait()
	taken := 0
	for _, w := range codes {
		switch {
		case w.Code == 200:
			taken++
		case w.Code != 503 || w.Header().Get("Retry-After") == "":
			t.Fatalf("answered %d, %v", w.Code, w.Header())
		}
	}
	if taken != places || len(d.st.stored()) != places+1 {
		t.Errorf("%d answered 200, %d rows", taken, len(d.st.stored()))
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
