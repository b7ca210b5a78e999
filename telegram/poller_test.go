package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/store/storetest"
	"github.com/leadonce/leadonce/telegram"
)

// poller_test.go: a bot without a library, in virtual time.

// runBed is a Poller that runs over a pollBed.
type runBed struct {
	pollBed
	mu   sync.Mutex
	got  []int64 // what Handle was given
	stop context.CancelFunc
	done chan error
}

// run starts a Poller over a fresh database, and ends it after f.
func run(t *testing.T, first int64, over func(storetest.Backend) store.Store, change func(b *runBed, o *telegram.PollerOptions),
	f func(t *testing.T, b *runBed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leads.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		b := &runBed{pollBed: pollBed{t: t, api: newBotAPI(first), st: st, log: &buffer{}}, done: make(chan error, 1)}
		var seen store.Store = st
		if over != nil {
			seen = over(st)
		}
		o := &telegram.PollerOptions{Logger: slog.New(slog.NewTextHandler(b.log, nil)), Handle: func(_ context.Context, u []byte) { b.took(u) }}
		if change != nil {
			change(b, o)
		}
		src, err := telegram.NewPollingSource(botID, nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := telegram.NewPoller(seen, src, client(t, b.api), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b.stop = cancel
		go func() { b.done <- p.Run(ctx) }()
		f(t, b)
		cancel()
		time.Sleep(time.Hour) // whatever was left behind is over by then
		quiet(t, b.log.String())
	})
}

func (b *runBed) took(update []byte) {
	ids := idsOf(b.t, fmt.Appendf(nil, `{"result":[%s]}`, update))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, ids...)
}

func (b *runBed) handled() []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

// ended waits for Run.
func (b *runBed) ended() error {
	b.t.Helper()
	select {
	case err := <-b.done:
		quiet(b.t, fmt.Sprint(err))
		return err
	case <-time.After(10 * time.Minute):
		b.t.Error("Run did not return")
		return nil
	}
}

// series are the ids from first on.
func series(first int64, n int) (ids []int64) {
	for i := range n {
		ids = append(ids, first+int64(i))
	}
	return ids
}

func TestPoller(t *testing.T) {
	t.Run("what comes is stored, handed on in order, and confirmed", func(t *testing.T) {
		run(t, 100, nil, nil, func(t *testing.T, b *runBed) {
			for range 3 {
				b.api.say(50)
				time.Sleep(time.Minute)
			}
			b.once(100, 150)
			if got := b.handled(); !slices.Equal(got, series(100, 150)) {
				t.Errorf("handled %v", got)
			}
			if n := b.api.waiting(); n != 0 {
				t.Errorf("%d are not confirmed", n)
			}
			f := b.api.lastForm()
			if _, there := f["offset"]; there || f["timeout"] != "30" || !strings.Contains(f["allowed_updates"], `"guest_message"`) {
				t.Errorf("asked %v", f)
			}
			b.stop()
			if err := b.ended(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("what an earlier process stored and did not come to hand on is handed on", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, _ *telegram.PollerOptions) {
			b.api.say(3)
			e, err := source(b.t).Parse([]byte(b.api.queue[1].json))
			if err != nil {
				b.t.Fatal(err)
			}
			if _, err := b.st.Accept(b.t.Context(), e); err != nil {
				b.t.Fatal(err)
			}
		}, func(t *testing.T, b *runBed) {
			time.Sleep(time.Minute)
			b.once(100, 3)
			if got := b.handled(); !slices.Equal(got, series(100, 3)) {
				t.Errorf("handled %v", got)
			}
		})
	})
	for _, when := range []storetest.When{storetest.Before, storetest.After} {
		t.Run(fmt.Sprintf("a store that fails %v its commit: nothing is confirmed, lost, or kept from Handle", when), func(t *testing.T) {
			for n := range 4 {
				over := func(st storetest.Backend) store.Store { return storetest.Fail(st, n, when, "Accept") }
				run(t, 100, over, func(b *runBed, _ *telegram.PollerOptions) { b.api.say(4) }, func(t *testing.T, b *runBed) {
					time.Sleep(100 * time.Millisecond)
					if n := b.api.waiting(); n != 4 || len(b.handled()) != 0 {
						t.Errorf("%d wait, handled %v", n, b.handled())
					}
					time.Sleep(time.Minute)
					b.once(100, 4)
					if got := b.handled(); !slices.Equal(got, series(100, 4)) {
						t.Errorf("handled %v", got)
					}
					if n := strings.Count(b.log.String(), "nothing is confirmed"); n != 1 {
						t.Errorf("said %d times: %s", n, b.log)
					}
				})
			}
		})
	}
	t.Run("an update of a batch that failed is handed on once, also if Telegram repeats it later", func(t *testing.T) {
		over := func(st storetest.Backend) store.Store { return storetest.Fail(st, 1, storetest.Before, "Accept") }
		run(t, 100, over, func(b *runBed, _ *telegram.PollerOptions) { b.api.say(2) }, func(t *testing.T, b *runBed) {
			b.api.mu.Lock()
			again := slices.Clone(b.api.queue)
			b.api.mu.Unlock()
			time.Sleep(time.Minute)
			b.api.mu.Lock()
			b.api.queue = again
			b.api.mu.Unlock()
			time.Sleep(time.Minute)
			b.once(100, 2)
			if got := b.handled(); !slices.Equal(got, series(100, 2)) || b.api.waiting() != 0 {
				t.Errorf("handled %v, %d wait", got, b.api.waiting())
			}
		})
	})
	t.Run("what is being stored when Run ends is stored to its last update", func(t *testing.T) {
		gate := &gated{}
		run(t, 100, gate.over, func(b *runBed, _ *telegram.PollerOptions) { b.api.say(100) }, func(t *testing.T, b *runBed) {
			synctest.Wait()
			b.stop()
			close(gate.open)
			if err := b.ended(); err != nil {
				t.Error(err)
			}
			b.once(100, 100)
		})
	})
	for _, skips := range []bool{false, true} {
		t.Run(fmt.Sprintf("ids that start anew lower are stored and handled (a server that skips: %v)", skips), func(t *testing.T) {
			run(t, 900_000_000, nil, func(b *runBed, _ *telegram.PollerOptions) { b.api.skips = skips; b.api.say(3) }, func(t *testing.T, b *runBed) {
				time.Sleep(time.Hour)
				b.api.restart(2_000_001)
				b.api.say(250)
				time.Sleep(time.Minute)
				if got := b.handled(); len(got) != 253 || b.api.waiting() != 0 {
					t.Errorf("%d are handled, %d wait", len(got), b.api.waiting())
				}
			})
		})
	}
	for _, id := range []string{"-5", "9223372036854775807"} {
		t.Run("an id that would make the offset negative, and forget the queue, confirms nothing: "+id, func(t *testing.T) {
			run(t, 100, nil, func(b *runBed, _ *telegram.PollerOptions) {
				first := true
				b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
					if !first {
						return false
					}
					first = false
					fmt.Fprintf(w, `{"ok":true,"result":[{"update_id":%s}]}`, id)
					return true
				}
				b.api.say(250)
			}, func(t *testing.T, b *runBed) {
				time.Sleep(time.Minute)
				if n := len(b.stored()); n != 251 || b.api.waiting() != 0 {
					t.Errorf("%d are stored, %d wait; asked %q", n, b.api.waiting(), b.api.asked())
				}
			})
		})
	}
	t.Run("ids that start anew while Telegram can't be reached are not confirmed unseen", func(t *testing.T) {
		run(t, 900_000_000, nil, func(b *runBed, _ *telegram.PollerOptions) {
			first, began := true, time.Now()
			b.api.before = func(w http.ResponseWriter, r *http.Request, method string) bool {
				if first || time.Since(began) > 3*24*time.Hour {
					first = false
					return false
				}
				return unreachable(w, r, method)
			}
			b.api.skips = true
			b.api.say(2)
		}, func(t *testing.T, b *runBed) {
			time.Sleep(3 * 24 * time.Hour)
			b.api.restart(2_000_001)
			b.api.say(250)
			time.Sleep(time.Hour)
			if got := b.handled(); len(got) != 252 || b.api.waiting() != 0 {
				t.Errorf("%d are handled, %d wait", len(got), b.api.waiting())
			}
		})
	})
	t.Run("an update without an id is quarantined, handed on, and confirmed with the next", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, o *telegram.PollerOptions) {
			o.Handle = nil
			b.api.queue = []queued{{100, "17"}, {101, `{"update_id":101,"message":{}}`}, {102, "[]"}}
			b.api.tail = 103
		}, func(t *testing.T, b *runBed) {
			time.Sleep(time.Minute)
			if ids := b.stored(); len(ids) != 3 || !slices.Contains(ids, "101") {
				t.Errorf("stored %v", ids)
			}
			if b.api.waiting() != 1 {
				t.Errorf("%d wait", b.api.waiting())
			}
		})
	})
}

func TestPollerHandle(t *testing.T) {
	t.Run("a panic costs only its update, and is told without its value", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, o *telegram.PollerOptions) {
			o.Handle = func(_ context.Context, u []byte) {
				b.took(u)
				if strings.Contains(string(u), `"update_id":101`) {
					panic("payload text")
				}
			}
			b.api.say(3)
		}, func(t *testing.T, b *runBed) {
			time.Sleep(time.Minute)
			if got := b.handled(); !slices.Equal(got, series(100, 3)) || !strings.Contains(b.log.String(), "panicked") {
				t.Errorf("handled %v: %s", got, b.log)
			}
		})
	})
	t.Run("one that hangs is left behind at its deadline, and what comes later is stored and handled", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, o *telegram.PollerOptions) {
			o.HandleTimeout = 5 * time.Second
			o.Handle = func(ctx context.Context, u []byte) {
				b.took(u)
				if strings.Contains(string(u), `"update_id":100`) {
					time.Sleep(30 * time.Minute)
				}
			}
			b.api.say(2)
		}, func(t *testing.T, b *runBed) {
			time.Sleep(4 * time.Second)
			if got := b.handled(); !slices.Equal(got, series(100, 1)) {
				t.Errorf("out of order: %v", got)
			}
			time.Sleep(2 * time.Second)
			b.api.say(1)
			time.Sleep(time.Second)
			if got := b.handled(); !slices.Equal(got, series(100, 3)) || !strings.Contains(b.log.String(), "left behind") {
				t.Errorf("handled %v: %s", got, b.log)
			}
		})
	})
	t.Run("no more than 64 are left behind; beyond that everything is stored all the same", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, o *telegram.PollerOptions) {
			o.HandleTimeout = time.Second
			o.Handle = func(ctx context.Context, u []byte) { b.took(u); time.Sleep(30 * time.Minute) }
			b.api.say(80)
		}, func(t *testing.T, b *runBed) {
			time.Sleep(5 * time.Minute)
			b.once(100, 80)
			if got := b.handled(); len(got) != 64 || b.api.waiting() != 0 {
				t.Errorf("handled %d, %d wait", len(got), b.api.waiting())
			}
		})
	})
	t.Run("its context ends at its deadline and not with Run's", func(t *testing.T) {
		var took time.Duration
		run(t, 100, nil, func(b *runBed, o *telegram.PollerOptions) {
			o.HandleTimeout = 3 * time.Second
			o.Handle = func(ctx context.Context, u []byte) {
				began := time.Now()
				b.stop()
				<-ctx.Done()
				took = time.Since(began)
			}
			b.api.say(1)
		}, func(t *testing.T, b *runBed) {
			if err := b.ended(); err != nil || took != 3*time.Second {
				t.Errorf("after %v: %v", took, err)
			}
			if strings.Contains(b.log.String(), "left behind") {
				t.Errorf("it heeded its context: %s", b.log)
			}
		})
	})
	t.Run("when Run ends the batch in hand is stored, and handled as far as one deadline goes", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, o *telegram.PollerOptions) {
			o.HandleTimeout = 10 * time.Second
			o.Handle = func(_ context.Context, u []byte) { b.took(u); b.stop(); time.Sleep(3 * time.Second) }
			b.api.say(20)
		}, func(t *testing.T, b *runBed) {
			began := time.Now()
			err := b.ended()
			b.once(100, 20)
			if took, n := time.Since(began), len(b.handled()); err != nil || took > 16*time.Second || n != 5 {
				t.Errorf("after %v, %d handled: %v", took, n, err)
			}
		})
	})
}

func TestPollerInTrouble(t *testing.T) {
	refuse := func(status int, body string, until time.Duration) func(b *runBed, _ *telegram.PollerOptions) {
		return func(b *runBed, _ *telegram.PollerOptions) {
			began := time.Now()
			b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				if time.Since(began) >= until {
					return false
				}
				w.WriteHeader(status)
				fmt.Fprint(w, body)
				return true
			}
			b.api.say(2)
		}
	}
	const conflict = `{"ok":false,"error_code":409,"description":"Conflict: can't use getUpdates method while webhook is active"}`
	for name, c := range map[string]struct {
		status     int
		body, says string
		most       int // requests in 10 minutes
	}{
		"a webhook that is set": {409, conflict, "a webhook is set, and while it is, nothing can be fetched. Remove it (leadbot delete-webhook", 40},
		"another program that polls": {409, `{"ok":false,"error_code":409,"description":"Conflict: terminated by other getUpdates ` +
			`request; make sure that only one bot instance is running"}`, "another program polls with the same token. Stop it", 40},
		"a conflict in other words": {409, `{"ok":false,"error_code":409,"description":"Conflict"}`,
			"a webhook is set, or another program polls", 40},
		"a gateway without words": {502, ``, "nothing is confirmed", 40},
		"a page of HTML":          {200, `<html>`, "nothing is confirmed", 40},
		"a result of one":         {200, `{"ok":true,"result":{}}`, "nothing is confirmed", 40},
		"a wait of five minutes": {429, `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":300}}`,
			"nothing is confirmed", 3},
	} {
		t.Run("waited for, told once, and over when it is over: "+name, func(t *testing.T) {
			run(t, 100, nil, refuse(c.status, c.body, 10*time.Minute), func(t *testing.T, b *runBed) {
				time.Sleep(10*time.Minute - time.Second)
				if n := b.api.called("getupdates"); n < 2 || n > c.most {
					t.Errorf("asked %d times in 10 minutes", n)
				}
				if n := strings.Count(b.log.String(), c.says); n != 1 {
					t.Errorf("said %d times: %s", n, b.log)
				}
				time.Sleep(6 * time.Minute)
				if got := b.handled(); !slices.Equal(got, series(100, 2)) {
					t.Errorf("handled %v", got)
				}
			})
		})
	}
	t.Run("a wait beyond what updates are kept for is not waited", func(t *testing.T) {
		const years = `{"ok":false,"error_code":429,"description":"Too Many Requests","parameters":{"retry_after":1000000000}}`
		run(t, 100, nil, refuse(429, years, time.Minute), func(t *testing.T, b *runBed) {
			time.Sleep(2 * time.Hour)
			if got := b.handled(); !slices.Equal(got, series(100, 2)) {
				t.Errorf("handled %v", got)
			}
		})
	})
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"a revoked token":                  {401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`},
		"a token that was never given out": {404, `{"ok":false,"error_code":404,"description":"Not Found"}`},
	} {
		t.Run("ends Run with words for a person: "+name, func(t *testing.T) {
			run(t, 100, nil, refuse(c.status, c.body, time.Hour), func(t *testing.T, b *runBed) {
				if err := b.ended(); err == nil || !strings.Contains(err.Error(), "refuses the token") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
	t.Run("another bot than the database knows ends Run, and confirms nothing", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, _ *telegram.PollerOptions) {
			other, err := telegram.NewPollingSource(7, nil)
			if err != nil {
				b.t.Fatal(err)
			}
			if err := dedup.AddAccount(b.t.Context(), b.st, other); err != nil {
				b.t.Fatal(err)
			}
			b.api.say(1)
		}, func(t *testing.T, b *runBed) {
			if err := b.ended(); !errors.Is(err, dedup.ErrAccountChanged) || b.api.waiting() != 1 {
				t.Errorf("got %v", err)
			}
		})
	})
	t.Run("a server that does not hold the request is not asked without end", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, _ *telegram.PollerOptions) {
			b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				fmt.Fprint(w, `{"ok":true,"result":[]}`)
				return true
			}
		}, func(t *testing.T, b *runBed) {
			time.Sleep(time.Minute)
			if n := b.api.called("getupdates"); n > 61 {
				t.Errorf("asked %d times in a minute", n)
			}
		})
	})
	t.Run("trouble that comes again is told again", func(t *testing.T) {
		run(t, 100, nil, func(b *runBed, _ *telegram.PollerOptions) {
			b.api.before = func(w http.ResponseWriter, _ *http.Request, _ string) bool {
				if time.Now().Minute()%10 < 5 {
					return false
				}
				w.WriteHeader(409)
				fmt.Fprint(w, conflict)
				return true
			}
		}, func(t *testing.T, b *runBed) {
			time.Sleep(20*time.Minute - time.Second)
			if n := strings.Count(b.log.String(), "a webhook is set"); n != 2 {
				t.Errorf("said %d times: %s", n, b.log)
			}
		})
	})
	t.Run("the end interrupts a long poll at once", func(t *testing.T) {
		run(t, 100, nil, nil, func(t *testing.T, b *runBed) {
			time.Sleep(5 * time.Second)
			began := time.Now()
			b.stop()
			if err := b.ended(); err != nil || time.Since(began) != 0 {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	})
}

func TestNewPoller(t *testing.T) {
	st, src, c := new(struct{ store.Store }), source(t), client(t, nil)
	other, err := telegram.NewClient("1:x", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		st   store.Store
		src  *telegram.Source
		c    *telegram.Client
		o    *telegram.PollerOptions
		want string
	}{
		"no store":                {nil, src, c, nil, "store"},
		"no source":               {st, nil, c, nil, "source"},
		"no client":               {st, src, nil, nil, "client"},
		"another bot's client":    {st, src, other, nil, "bot 1, and the source of bot 6001"},
		"a timeout of half":       {st, src, c, &telegram.PollerOptions{Timeout: 1500 * time.Millisecond}, "Timeout"},
		"a timeout of a minute":   {st, src, c, &telegram.PollerOptions{Timeout: time.Minute}, "Timeout"},
		"a negative deadline":     {st, src, c, &telegram.PollerOptions{HandleTimeout: -1}, "HandleTimeout"},
		"an empty list":           {st, src, c, &telegram.PollerOptions{AllowedUpdates: []string{}}, "AllowedUpdates"},
		"what the intake refuses": {st, src, c, &telegram.PollerOptions{HeadStart: time.Hour}, "HeadStart"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if _, err := telegram.NewPoller(x.st, x.src, x.c, x.o); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}
