package telegram_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/store/storetest"
	"github.com/leadonce/leadonce/telegram"
)

// transport_test.go: under a library that polls, what it asks and what it gets.

// pollBed is a Bot API, a database, and a Transport between a library and them.
type pollBed struct {
	t   *testing.T
	api *botAPI
	st  *sqlite.Store
	tr  *telegram.Transport
	log *buffer
}

// buffer is a log that goroutines share.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// polled runs f in virtual time. over makes the Transport's store of the database, base what its requests go through.
func polled(t *testing.T, first int64, over func(storetest.Backend) store.Store, base func(http.RoundTripper) http.RoundTripper,
	f func(t *testing.T, b *pollBed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leads.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		b := &pollBed{t: t, api: newBotAPI(first), st: st, log: &buffer{}}
		var seen store.Store = st
		if over != nil {
			seen = over(st)
		}
		var rt http.RoundTripper = inMemory{b.api}
		if base != nil {
			rt = base(rt)
		}
		b.tr = transport(t, seen, rt, b.log)
		f(t, b)
		quiet(t, b.log.String())
	})
}

func transport(t *testing.T, st store.Store, base http.RoundTripper, log io.Writer) *telegram.Transport {
	t.Helper()
	src, err := telegram.NewPollingSource(botID, nil)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := telegram.NewTransport(st, src, &telegram.TransportOptions{Base: base, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// quiet checks what must never be in a log or an error.
func quiet(t *testing.T, texts ...string) {
	t.Helper()
	for _, s := range texts {
		for _, word := range []string{"payload text", "Anna", "AAFsecret", "http://", "/bot6001"} {
			if strings.Contains(s, word) {
				t.Errorf("%q is quoted: %s", word, s)
			}
		}
	}
}

const endpoint = "http://tg.test/bot" + token

// get asks as a library does with a form.
func (b *pollBed) get(offset string) ([]byte, error) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), "POST", endpoint+"/getUpdates",
		strings.NewReader(url.Values{"offset": {offset}, "limit": {"100"}}.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

func (b *pollBed) do(req *http.Request) ([]byte, error) {
	resp, err := b.tr.RoundTrip(req)
	if err != nil {
		quiet(b.t, err.Error())
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return raw, nil
}

// stored are the ids of the events that the database holds, in the order of their coming.
func (b *pollBed) stored() (ids []string) {
	b.t.Helper()
	for after := int64(0); ; {
		rows, err := b.st.Events(context.Background(), store.EventFilter{After: after, Limit: 1000})
		if err != nil {
			b.t.Fatal(err)
		}
		if len(rows) == 0 {
			return ids
		}
		for _, r := range rows {
			ids, after = append(ids, r.UpdateID), r.ID
		}
	}
}

// once checks that the database holds exactly the updates from first on, each once.
func (b *pollBed) once(first int64, n int) {
	b.t.Helper()
	got := map[string]int{}
	for _, id := range b.stored() {
		got[id]++
	}
	for i := range n {
		if id := fmt.Sprint(first + int64(i)); got[id] != 1 {
			b.t.Errorf("update %s is stored %d times", id, got[id])
		}
	}
	if len(got) != n {
		b.t.Errorf("%d updates are stored, want %d", len(got), n)
	}
}

// update_ids of an answer.
func idsOf(t *testing.T, raw []byte) (ids []int64) {
	t.Helper()
	var a struct {
		Result []struct {
			ID int64 `json:"update_id"`
		}
	}
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	for _, u := range a.Result {
		ids = append(ids, u.ID)
	}
	return ids
}

// encodings are the ways in which the libraries write the same parameters.
func encodings(t *testing.T, target string, p map[string]string) map[string]*http.Request {
	t.Helper()
	form := url.Values{}
	var multi bytes.Buffer
	w := multipart.NewWriter(&multi)
	object := map[string]any{}
	for k, v := range p {
		form.Set(k, v)
		if err := w.WriteField(k, v); err != nil {
			t.Fatal(err)
		}
		object[k] = v
		if json.Valid([]byte(v)) {
			object[k] = json.RawMessage(v)
		}
	}
	w.Close()
	js, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	make := func(method, to, contentType string, body io.Reader) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, to, body)
		if err != nil {
			t.Fatal(err)
		}
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		return r
	}
	strs, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*http.Request{
		"in the URL, GET":           make("GET", target+"?"+form.Encode(), "", nil),
		"in the URL, POST":          make("POST", target+"?"+form.Encode(), "", nil),
		"a form":                    make("POST", target, "application/x-www-form-urlencoded", strings.NewReader(form.Encode())),
		"multipart, streamed":       make("POST", target, w.FormDataContentType(), io.MultiReader(&multi)),
		"JSON of strings (telebot)": make("POST", target, "application/json", bytes.NewReader(strs)),
		"JSON of its own types":     make("POST", target, "application/json; charset=utf-8", bytes.NewReader(js)),
	}
}

func TestTransportStoresWhatGetUpdatesBrings(t *testing.T) {
	for name := range encodings(t, endpoint, nil) {
		t.Run("parameters are understood: "+name, func(t *testing.T) {
			polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
				b.api.say(3)
				p := map[string]string{"offset": "101", "limit": "50", "allowed_updates": `["message","callback_query"]`}
				raw, err := b.do(encodings(t, endpoint+"/getUpdates", p)[name])
				if err != nil || len(idsOf(t, raw)) != 2 {
					t.Fatalf("got %s, %v", raw, err)
				}
				b.once(101, 2)
				// An offset out of the future is replaced; the rest stays as it was.
				p["offset"] = "5000"
				if _, err := b.do(encodings(t, endpoint+"/getUpdates", p)[name]); err != nil {
					t.Fatal(err)
				}
				p["offset"] = "103"
				for k, v := range p {
					if got := b.api.lastForm()[k]; got != v {
						t.Errorf("%s arrived as %q, want %q", k, got, v)
					}
				}
			})
		})
	}
	for name, path := range map[string]string{
		"in any case":                   endpoint + "/GETupdates",
		"in the test environment":       endpoint + "/test/getUpdates",
		"behind a prefix":               "http://tg.test/api/v1/bot" + token + "/getUpdates",
		"with a slash behind it":        endpoint + "/getUpdates/",
		"with the token percent-coded":  "http://tg.test/bot6001%3AAAFsecretTokenOfTheBot/getUpdates",
		"with an encoded method's name": endpoint + "/%67etUpdates",
	} {
		t.Run("the method is found "+name, func(t *testing.T) {
			polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
				b.api.before = func(w http.ResponseWriter, r *http.Request, _ string) bool {
					b.api.getUpdates(w, r, nil)
					return true
				}
				b.api.say(1)
				req, err := http.NewRequestWithContext(t.Context(), "GET", path, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := b.do(req); err != nil {
					t.Fatal(err)
				}
				b.once(100, 1)
			})
		})
	}
	t.Run("the library gets the same bytes", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			const body = ` {"ok" : true,"result":[ {"update_id":7, "poll" : {"id":"\u0041"} } , {"update_id":8,"x":1e2}],"extra":null}` + "\n"
			b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				fmt.Fprint(w, body)
				return true
			}
			resp, err := b.tr.RoundTrip(encodings(t, endpoint+"/getUpdates", nil)["a form"])
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(resp.Body)
			if string(raw) != body || err != nil || resp.ContentLength != int64(len(body)) ||
				resp.Header.Get("Content-Length") != fmt.Sprint(len(body)) || resp.StatusCode != 200 {
				t.Errorf("got %d, %q, %v, %d bytes announced", resp.StatusCode, raw, err, resp.ContentLength)
			}
			rows, err := b.st.Events(t.Context(), store.EventFilter{})
			got := map[string]bool{} // of two chats, so in any order
			for _, row := range rows {
				got[string(row.Payload)] = true
			}
			if err != nil || len(rows) != 2 || !got[`{"update_id":7, "poll" : {"id":"\u0041"} }`] || !got[`{"update_id":8,"x":1e2}`] {
				t.Errorf("stored: %v, %v", got, err)
			}
		})
	})
	t.Run("what nobody understands is quarantined and handed on", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				fmt.Fprint(w, `{"ok":true,"result":[{"update_id":7,"message":{}},17,null]}`)
				return true
			}
			if raw, err := b.get("0"); err != nil || !bytes.Contains(raw, []byte("17")) {
				t.Fatalf("got %s, %v", raw, err)
			}
			rows, err := b.st.Events(t.Context(), store.EventFilter{States: []store.EventState{store.EventQuarantined}})
			if err != nil || len(rows) != 2 {
				t.Errorf("%d are quarantined, %v", len(rows), err)
			}
		})
	})
	t.Run("a status that is no 200 does not hide ok:true from us, since it does not from a library", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				w.WriteHeader(500)
				fmt.Fprint(w, `{"ok":true,"result":[{"update_id":7,"message":{}}]}`)
				return true
			}
			if _, err := b.get("0"); err != nil {
				t.Fatal(err)
			}
			b.once(7, 1)
		})
	})
}

func TestTransportStoresFirst(t *testing.T) {
	t.Run("the library sees nothing before the commit", func(t *testing.T) {
		gate := &gated{}
		polled(t, 100, gate.over, nil, func(t *testing.T, b *pollBed) {
			b.api.say(3)
			done := make(chan error, 1)
			go func() {
				_, err := b.get("0")
				done <- err
			}()
			synctest.Wait()
			select {
			case err := <-done:
				t.Fatalf("handed on before it was stored: %v", err)
			default:
			}
			close(gate.open)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			b.once(100, 3)
		})
	})
	for _, when := range []storetest.When{storetest.Before, storetest.After} {
		t.Run(fmt.Sprintf("a store that fails %v its commit loses nothing, whichever update it fails at", when), func(t *testing.T) {
			for n := range 5 {
				over := func(st storetest.Backend) store.Store { return storetest.Fail(st, n, when, "Accept") }
				polled(t, 100, over, nil, func(t *testing.T, b *pollBed) {
					b.api.say(5)
					began := time.Now()
					_, err := b.get("0")
					if !errors.Is(err, storetest.ErrInjected) {
						t.Fatalf("got %v", err)
					}
					if time.Since(began) < 500*time.Millisecond {
						t.Error("a library that asks again at once would spin")
					}
					raw, err := b.get("0")
					if err != nil || len(idsOf(t, raw)) != 5 {
						t.Fatalf("got %s, %v", raw, err)
					}
					b.once(100, 5)
				})
			}
		})
	}
	t.Run("a library that goes away while it is stored gets an error or everything", func(t *testing.T) {
		gate := &gated{}
		polled(t, 100, gate.over, nil, func(t *testing.T, b *pollBed) {
			b.api.say(100)
			ctx, cancel := context.WithCancel(t.Context())
			req := encodings(t, endpoint+"/getUpdates", nil)["a form"].WithContext(ctx)
			done := make(chan error, 1)
			go func() {
				_, err := b.do(req)
				done <- err
			}()
			synctest.Wait()
			cancel()
			close(gate.open)
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
			if n := len(b.stored()); n == 100 {
				t.Error("this test needs a call that ends in the middle")
			}
			time.Sleep(time.Second) // the server gives one at a time to who repeats an offset within half a second
			if _, err := b.get("0"); err != nil {
				t.Fatal(err)
			}
			b.once(100, 100)
		})
	})
}

// gated is a store whose Accept waits.
type gated struct {
	store.Store
	open chan struct{}
}

func (g *gated) over(st storetest.Backend) store.Store {
	g.Store, g.open = st, make(chan struct{}) // of the bubble
	return g
}

func (g *gated) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	<-g.open
	return g.Store.Accept(ctx, e)
}

func TestTransportLeavesTheRestAlone(t *testing.T) {
	t.Run("another method goes to the base as it is", func(t *testing.T) {
		var got *http.Request
		base := func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) { got = r; return next.RoundTrip(r) })
		}
		polled(t, 100, nil, base, func(t *testing.T, b *pollBed) {
			for _, path := range []string{"/sendMessage", "/getMe", "/getUpdatesLater", "/x?y=/getUpdates"} {
				req := encodings(t, endpoint+path, map[string]string{"offset": "-1"})["a form"]
				if _, err := b.do(req); err != nil || got != req {
					t.Errorf("%s: %v, the same request: %v", path, err, got == req)
				}
			}
		})
	})
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"ok:false":                {401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`},
		"ok:false and nothing":    {200, `{"ok":false}`},
		"a conflict":              {409, `{"ok":false,"error_code":409,"description":"Conflict: can't use getUpdates"}`},
		"too many requests":       {429, `{"ok":false,"error_code":429,"parameters":{"retry_after":5}}`},
		"a gateway's own page":    {502, `<html>Bad Gateway</html>`},
		"a gateway with no words": {504, ``},
	} {
		t.Run("passed through: "+name, func(t *testing.T) {
			polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
				b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
					w.Header().Set("Retry-After", "5")
					w.WriteHeader(c.status)
					fmt.Fprint(w, c.body)
					return true
				}
				resp, err := b.tr.RoundTrip(encodings(t, endpoint+"/getUpdates", nil)["a form"])
				if err != nil {
					t.Fatal(err)
				}
				raw, err := io.ReadAll(resp.Body)
				if resp.StatusCode != c.status || string(raw) != c.body || err != nil || resp.Header.Get("Retry-After") != "5" {
					t.Errorf("got %d %q %v %v", resp.StatusCode, raw, err, resp.Header)
				}
			})
		})
	}
	t.Run("an error of the base is the library's", func(t *testing.T) {
		broken := errors.New("no route")
		base := func(http.RoundTripper) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) { return nil, broken })
		}
		polled(t, 100, nil, base, func(t *testing.T, b *pollBed) {
			if _, err := b.get("0"); !errors.Is(err, broken) {
				t.Errorf("got %v", err)
			}
		})
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
