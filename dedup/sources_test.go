package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/pgtest"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// sources_test.go: many bots behind one door: each with its own secret, and none in another's way.

// whole is what both of our stores are.
type whole interface {
	store.Store
	store.Reader
	store.Accounts
}

// onBoth runs f on a fresh store of each engine.
func onBoth(t *testing.T, f func(t *testing.T, st whole)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { f(t, openStore(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { f(t, openPostgres(t, pgtest.DSN(t))) })
}

// registry is a host's: bots by the last part of the path.
type registry struct {
	mu   sync.Mutex
	bots map[string]registered
}

type registered struct {
	tenant string
	id     int64
	next   http.Handler
}

// secret is that of one bot.
func secret(id int64) string { return fmt.Sprintf("secret-of-bot-%d-0123456789", id) }

func (g *registry) add(path string, r registered) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bots == nil {
		g.bots = map[string]registered{}
	}
	g.bots[path] = r
}

func (g *registry) remove(path string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.bots, path)
}

// find makes a new source each time.
func (g *registry) find(r *http.Request) (dedup.Source, http.Handler, error) {
	g.mu.Lock()
	b, ok := g.bots[r.PathValue("bot")]
	g.mu.Unlock()
	if !ok {
		return nil, nil, nil
	}
	src, err := telegram.NewSource(b.id, secret(b.id), &telegram.Options{Tenant: b.tenant})
	return src, b.next, err
}

// gatehouse is one door for many, with everything that a test looks at.
type gatehouse struct {
	registry
	url  string
	log  *doorLog
	mu   sync.Mutex
	told []dedup.Delivery
}

// openGate serves the door with find (nil: the registry's) at /telegram/{bot}.
func openGate(t *testing.T, st store.Store, find func(*http.Request) (dedup.Source, http.Handler, error), o dedup.MiddlewareOptions) *gatehouse {
	t.Helper()
	g := &gatehouse{log: &doorLog{}}
	if find == nil {
		find = g.find
	}
	o.Logger = slog.New(slog.NewTextHandler(g.log, nil))
	o.OnDelivery = func(x dedup.Delivery) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.told = append(g.told, x)
	}
	mux := http.NewServeMux()
	mux.Handle("/telegram/{bot}", dedup.MiddlewareFor(st, find, &o))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	g.url = srv.URL + "/telegram/"
	return g
}

// send is a delivery to a bot with a secret.
func (g *gatehouse) send(t *testing.T, path, secret string, body []byte) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, g.url+path+"?token=query-token", strings.NewReader(string(body)))
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	req.Header.Set(telegram.SecretHeader, secret)
	resp, err := telegramClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	if (resp.StatusCode == 503) != (resp.Header.Get("Retry-After") != "") {
		t.Errorf("%d with Retry-After %q", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	return resp.StatusCode, string(out)
}

func (g *gatehouse) silent(t *testing.T) {
	t.Helper()
	for _, word := range []string{"secret-of-bot", "payload text", "Payload Name", "query-token", "panic value", "/telegram/"} {
		if strings.Contains(g.log.text(), word) {
			t.Errorf("%q reached the log: %s", word, g.log.text())
		}
	}
}

func eventRows(t *testing.T, st store.Reader) []store.EventRow {
	t.Helper()
	rows, err := st.Events(context.Background(), store.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// within polls until ok, for 40 seconds at most.
func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 40 s: %s", what)
		}
	}
}

func answers(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })
}

func TestManyBotsEndToEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, st whole) {
		g := openGate(t, st, nil, dedup.MiddlewareOptions{})
		g.add("a", registered{"acme", 1, answers("bot a")})
		a, b := crmtest.NewSimulator(crmtest.Config{Identity: "a"}), crmtest.NewSimulator(crmtest.Config{Identity: "b"})
		o := pgOptions()
		p, err := dedup.NewTenants(st, map[string]dedup.Tenant{"acme": {a.Local(), perMessage}, "emca": {b.Local(), perMessage}}, &o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		if status, _ := g.send(t, "b", secret(2), said(1, 1)); status != 404 || len(eventRows(t, st)) != 0 {
			t.Errorf("a bot that is not there yet: %d, %d rows", status, len(eventRows(t, st)))
		}
		g.add("b", registered{"emca", 2, nil})
		if status, answer := g.send(t, "a", secret(1), said(1, 1)); status != 200 || answer != "bot a" {
			t.Errorf("a: %d %q", status, answer)
		}
		if status, answer := g.send(t, "b", secret(2), said(1, 1)); status != 200 || answer != "" {
			t.Errorf("b: %d %q", status, answer)
		}
		within(t, "one lead in each CRM", func() bool { return len(a.Leads()) == 1 && len(b.Leads()) == 1 })
		for _, cross := range [][2]any{{"a", int64(2)}, {"b", int64(1)}} {
			if status, _ := g.send(t, cross[0].(string), secret(cross[1].(int64)), said(1, 2)); status != 401 {
				t.Errorf("with the other's secret at %s: %d", cross[0], status)
			}
		}
		g.remove("a")
		if status, _ := g.send(t, "a", secret(1), said(1, 3)); status != 404 {
			t.Errorf("a bot that is gone: %d", status)
		}
		rows := eventRows(t, st)
		if len(rows) != 2 || rows[0].Bot != "1" || rows[0].Tenant != "acme" || rows[1].Bot != "2" || rows[1].Tenant != "emca" {
			t.Errorf("%+v", rows)
		}
		if list, err := st.Accounts(t.Context(), telegram.Name); err != nil || len(list) != 2 {
			t.Errorf("known: %v, %v", list, err)
		}
		if !strings.Contains(g.log.text(), `source="telegram 1 acme"`) || !strings.Contains(g.log.text(), `source="telegram 2 emca"`) {
			t.Errorf("the log does not say whose secret was wrong: %s", g.log.text())
		}
		g.silent(t)
	})
}

func TestManyBotsKeepTheDoorsPromises(t *testing.T) {
	t.Run("another method is 405 before find is asked", func(t *testing.T) {
		g := openGate(t, &acceptOnly{}, func(*http.Request) (dedup.Source, http.Handler, error) {
			t.Error("find was asked")
			return nil, nil, nil
		}, dedup.MiddlewareOptions{})
		resp, err := telegramClient.Get(g.url + "a")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 405 || resp.Header.Get("Allow") != "POST" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	})
	t.Run("a repeated delivery reaches its bot only with ForwardDuplicates", func(t *testing.T) {
		for _, forward := range []bool{false, true} {
			var calls atomic.Int64
			g := openGate(t, &acceptOnly{}, nil, dedup.MiddlewareOptions{ForwardDuplicates: forward})
			g.add("a", registered{"", 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) })})
			for range 3 {
				if status, _ := g.send(t, "a", secret(1), said(1, 1)); status != 200 {
					t.Error(status)
				}
			}
			if want := map[bool]int64{false: 1, true: 3}[forward]; calls.Load() != want {
				t.Errorf("%d calls, want %d", calls.Load(), want)
			}
		}
	})
	t.Run("a body over the limit is 413, a forged one is 401 however long", func(t *testing.T) {
		g := openGate(t, &acceptOnly{}, nil, dedup.MiddlewareOptions{MaxBody: 100})
		g.add("a", registered{"", 1, nil})
		long := make([]byte, 200)
		if status, _ := g.send(t, "a", secret(1), long); status != 413 {
			t.Error(status)
		}
		if status, _ := g.send(t, "a", "wrong", long); status != 401 {
			t.Error(status)
		}
	})
	t.Run("floods of unknown bots, of forgeries to one and to many are few lines, and the bots are told apart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, log := &acceptOnly{}, &doorLog{}
			var g registry
			h := dedup.MiddlewareFor(st, g.find, &dedup.MiddlewareOptions{Logger: slog.New(slog.NewTextHandler(log, nil))})
			send := func(path string) int {
				r := delivery(strings.NewReader(updateBody(1)))
				r.SetPathValue("bot", path)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			lines := func() int { return strings.Count(log.text(), "\n") }
			for i := range 1000 {
				if code := send(fmt.Sprint(i)); code != 404 {
					t.Fatal(code)
				}
			}
			if lines() != 1 {
				t.Errorf("%d lines of unknown bots", lines())
			}
			for i := range 1000 {
				g.add(fmt.Sprint(i), registered{"", int64(i + 1), nil})
			}
			for range 1000 {
				send("7")
			}
			if lines() != 2 {
				t.Errorf("%d lines after forgeries to one", lines())
			}
			for i := range 1000 {
				if code := send(fmt.Sprint(i)); code != 401 {
					t.Fatal(code)
				}
			}
			if lines() != 1+64+1 {
				t.Errorf("%d lines after forgeries to many", lines())
			}
			time.Sleep(time.Minute)
			send("999")
			if lines() != 67 || !strings.Contains(log.text(), `source="telegram 1000"`) {
				t.Errorf("%d lines a minute later", lines())
			}
			if len(st.stored()) != 0 {
				t.Errorf("%d rows", len(st.stored()))
			}
		})
	})
	t.Run("a nil find, a nil store and a bad limit are panics", func(t *testing.T) {
		var g registry
		for want, build := range map[string]func(){
			"find is nil":  func() { dedup.MiddlewareFor(&acceptOnly{}, nil, nil) },
			"store is nil": func() { dedup.MiddlewareFor(nil, g.find, nil) },
			"MiddlewareFor: MiddlewareOptions.InFlight": func() {
				dedup.MiddlewareFor(&acceptOnly{}, g.find, &dedup.MiddlewareOptions{InFlight: -1})
			},
		} {
			func() {
				defer func() {
					if v := fmt.Sprint(recover()); !strings.Contains(v, want) {
						t.Errorf("%q, want %q", v, want)
					}
				}()
				build()
			}()
		}
	})
}

func TestFindThatFails(t *testing.T) {
	type answer func(*http.Request) (dedup.Source, http.Handler, error)
	for name, c := range map[string]struct {
		find answer
		want int
	}{
		"returns an error": {func(*http.Request) (dedup.Source, http.Handler, error) {
			return nil, nil, &url.Error{Op: "Get", URL: "https://registry.example/telegram/query-token", Err: errors.New("refused")}
		}, 503},
		"returns an error that panics": {func(*http.Request) (dedup.Source, http.Handler, error) {
			var typedNil *url.Error
			return nil, nil, typedNil
		}, 503},
		"panics":             {func(*http.Request) (dedup.Source, http.Handler, error) { panic("panic value") }, 503},
		"ends its goroutine": {func(*http.Request) (dedup.Source, http.Handler, error) { runtime.Goexit(); return nil, nil, nil }, 503},
		"returns a nil pointer": {func(*http.Request) (dedup.Source, http.Handler, error) {
			var nobody *telegram.Source
			return nobody, nil, nil
		}, 404},
	} {
		t.Run(fmt.Sprintf("%s: %d, no row, and the next delivery is asked for anew", name, c.want), func(t *testing.T) {
			st, g := &acceptOnly{}, registry{}
			g.add("a", registered{"", 1, nil})
			var mended atomic.Bool
			d := openGate(t, st, func(r *http.Request) (dedup.Source, http.Handler, error) {
				if mended.Load() {
					return g.find(r)
				}
				return c.find(r)
			}, dedup.MiddlewareOptions{InFlight: 1})
			for range 3 { // more than there are places
				if status, _ := d.send(t, "a", secret(1), said(1, 1)); status != c.want || len(st.stored()) != 0 {
					t.Errorf("%d, %d rows", status, len(st.stored()))
				}
			}
			if n := strings.Count(d.log.text(), "\n"); n == 0 || n > 2 {
				t.Errorf("%d lines: %s", n, d.log.text())
			}
			d.silent(t)
			mended.Store(true)
			if status, _ := d.send(t, "a", secret(1), said(1, 1)); status != 200 || len(st.stored()) != 1 {
				t.Errorf("when it was mended: %d", status)
			}
		})
	}
	t.Run("hangs: 503 after the accept timeout, its context ends, and those beyond the places wait no longer than that", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st, g, back := &acceptOnly{}, registry{}, make(chan struct{})
			g.add("a", registered{"", 1, nil})
			var asked, ended atomic.Int64
			h := dedup.MiddlewareFor(st, func(r *http.Request) (dedup.Source, http.Handler, error) {
				if asked.Add(1) <= 2 {
					<-r.Context().Done()
					ended.Add(1)
					<-back
				}
				return g.find(r)
			}, &dedup.MiddlewareOptions{InFlight: 2, Logger: slog.New(slog.DiscardHandler)})
			send := func() int {
				r := delivery(strings.NewReader(updateBody(1)))
				r.Header.Set(telegram.SecretHeader, secret(1))
				r.SetPathValue("bot", "a")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				return w.Code
			}
			began := time.Now()
			codes := make(chan int)
			for range 5 {
				go func() { codes <- send() }()
			}
			for range 5 {
				if code := <-codes; code != 503 {
					t.Error(code)
				}
			}
			synctest.Wait()
			if time.Since(began) != 5*time.Second || asked.Load() != 2 || ended.Load() != 2 || len(st.stored()) != 0 {
				t.Errorf("after %v: asked %d times, %d were told that time is over", time.Since(began), asked.Load(), ended.Load())
			}
			close(back)
			synctest.Wait()
			if code := send(); code != 200 {
				t.Errorf("%d after it came back", code)
			}
		})
	})
	t.Run("it gets no body, and the delivery is whole all the same", func(t *testing.T) {
		st, g := &acceptOnly{}, registry{}
		g.add("a", registered{"", 1, nil})
		d := openGate(t, st, func(r *http.Request) (dedup.Source, http.Handler, error) {
			if b, err := io.ReadAll(r.Body); len(b) != 0 || err != nil {
				t.Errorf("find read %d bytes, %v", len(b), err)
			}
			r.Header.Set(telegram.SecretHeader, "changed")
			return g.find(r)
		}, dedup.MiddlewareOptions{})
		if status, _ := d.send(t, "a", secret(1), said(1, 1)); status != 200 || string(st.stored()[0].Payload) != string(said(1, 1)) {
			t.Error(status)
		}
	})
	t.Run("a source that panics at forged requests fills no log", func(t *testing.T) {
		src := told{authenticate: func(*http.Request, func() ([]byte, error)) error { panic("panic value") }}
		d := openGate(t, &acceptOnly{}, func(*http.Request) (dedup.Source, http.Handler, error) { return src, nil, nil }, dedup.MiddlewareOptions{})
		began := time.Now()
		for range 100 {
			if status, _ := d.send(t, "a", "x", said(1, 1)); status != 503 {
				t.Fatal(status)
			}
		}
		if n, most := strings.Count(d.log.text(), "\n"), 2*(2+int(time.Since(began)/time.Second)); n > most {
			t.Errorf("%d lines, want %d at most", n, most)
		}
		d.silent(t)
	})
}

func TestOneBotsFloodLeavesRoom(t *testing.T) {
	t.Run("in the store: three quarters of the places at most are one bot's", func(t *testing.T) {
		st, back := &acceptOnly{}, make(chan struct{})
		var inside atomic.Int64
		st.before = func(_ context.Context, e store.Event) error {
			if e.Bot == "1" {
				inside.Add(1)
				<-back
			}
			return nil
		}
		g := openGate(t, st, nil, dedup.MiddlewareOptions{InFlight: 8, AcceptTimeout: time.Minute})
		release := sync.OnceFunc(func() { close(back) })
		t.Cleanup(release) // before the server waits for its requests
		g.add("a", registered{"acme", 1, nil})
		g.add("b", registered{"emca", 2, nil})
		var flood sync.WaitGroup
		var refused atomic.Int64
		for i := range 20 {
			flood.Go(func() {
				if status, _ := g.send(t, "a", secret(1), said(1, i+1)); status == 503 {
					refused.Add(1)
				}
			})
		}
		within(t, "the flood stands", func() bool { return refused.Load() == 14 && inside.Load() == 6 })
		for i := range 5 {
			if status, _ := g.send(t, "b", secret(2), said(1, i+1)); status != 200 {
				t.Errorf("the other bot is answered %d", status)
			}
		}
		release()
		flood.Wait()
		if n := len(st.stored()); n != 11 {
			t.Errorf("%d rows, want 6 and 5", n)
		}
		for i := range 20 { // the places are free again
			if status, _ := g.send(t, "a", secret(1), said(1, 100+i)); status != 200 {
				t.Error(status)
			}
		}
	})
	t.Run("in the handlers: a bot that hangs is skipped, the other answers", func(t *testing.T) {
		st, back := &acceptOnly{}, make(chan struct{})
		defer close(back)
		g := openGate(t, st, nil, dedup.MiddlewareOptions{InFlight: 4, InnerTimeout: 20 * time.Millisecond})
		g.add("a", registered{"", 1, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-back })})
		g.add("b", registered{"", 2, answers("bot b")})
		for i := range 6 {
			if status, _ := g.send(t, "a", secret(1), said(1, i+1)); status != 200 {
				t.Error(status)
			}
		}
		if status, answer := g.send(t, "b", secret(2), said(1, 1)); status != 200 || answer != "bot b" {
			t.Errorf("%d %q", status, answer)
		}
		var became []dedup.InnerResult
		within(t, "seven are told", func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return len(g.told) == 7
		})
		for _, x := range g.told {
			became = append(became, x.Inner)
		}
		if n := slices.Index(became, dedup.InnerSkipped); n != 3 {
			t.Errorf("%v", became)
		}
	})
}

func TestManyBotsAccounts(t *testing.T) {
	t.Run("unknown bots are further ones, and one that is known under another tenant is refused alone", func(t *testing.T) {
		st := &remembering{list: []store.Account{{Source: telegram.Name, Tenant: "acme", Bot: "1"}, {Source: telegram.Name, Tenant: "old", Bot: "3"}}}
		g := openGate(t, st, nil, dedup.MiddlewareOptions{})
		g.add("a", registered{"acme", 1, nil})
		g.add("b", registered{"acme", 2, nil})
		g.add("c", registered{"new", 3, nil})
		for range 3 {
			for path, want := range map[string]int{"a": 200, "b": 200, "c": 503} {
				if status, _ := g.send(t, path, secret(int64(path[0]-'a'+1)), said(1, 1)); status != want {
					t.Errorf("bot %s: %d", path, status)
				}
			}
		}
		if len(st.list) != 3 || len(st.stored()) != 2 || strings.Count(g.log.text(), "level=ERROR") != 1 {
			t.Errorf("known %v, %d rows, %s", st.list, len(st.stored()), g.log.text())
		}
		_ = st.AddAccount(t.Context(), store.Account{Source: telegram.Name, Tenant: "new", Bot: "3"})
		if status, _ := g.send(t, "c", secret(3), said(1, 1)); status != 200 {
			t.Errorf("%d after it was mended", status)
		}
	})
	t.Run("what one reading of the database tells is not asked again", func(t *testing.T) {
		st := &remembering{}
		g := openGate(t, st, nil, dedup.MiddlewareOptions{})
		for i := range int64(50) {
			_ = st.AddAccount(t.Context(), store.Account{Source: telegram.Name, Tenant: "acme", Bot: fmt.Sprint(i + 1)})
			g.add(fmt.Sprint(i+1), registered{"acme", i + 1, nil})
		}
		for i := range int64(50) {
			if status, _ := g.send(t, fmt.Sprint(i+1), secret(i+1), said(1, 1)); status != 200 {
				t.Error(status)
			}
		}
		if st.asked != 1 || len(st.stored()) != 50 {
			t.Errorf("asked %d times, %d rows", st.asked, len(st.stored()))
		}
	})
	t.Run("nobody without the secret makes it ask", func(t *testing.T) {
		st := &remembering{}
		g := openGate(t, st, nil, dedup.MiddlewareOptions{})
		g.add("a", registered{"acme", 1, nil})
		if status, _ := g.send(t, "a", secret(2), said(1, 1)); status != 401 || st.asked != 0 {
			t.Errorf("%d, asked %d times", status, st.asked)
		}
	})
}
