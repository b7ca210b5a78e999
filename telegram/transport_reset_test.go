package telegram_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/storetest"
)

// transport_reset_test.go: update_id starts anew, and offsets that would lose something.

// library is how one of them keeps its offset.
type library struct {
	offset int64
	drops  bool // what is below its offset
	got    []int64
}

// poll is one turn of a library's loop.
func (l *library) poll(t *testing.T, b *pollBed) {
	t.Helper()
	raw, err := b.get(fmt.Sprint(l.offset))
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range idsOf(t, raw) {
		if l.drops && id < l.offset {
			continue
		}
		l.offset = id + 1
		l.got = append(l.got, id)
	}
	time.Sleep(time.Second)
}

func TestTransportWhenIDsStartAnew(t *testing.T) {
	for _, drops := range []bool{true, false} {
		for _, skips := range []bool{false, true} {
			name := map[bool]string{true: "a library that drops lower ids", false: "a library that takes ids as they come"}[drops] +
				map[bool]string{true: ", a server that confirms what an offset skips", false: ", a server that answers from the head"}[skips]
			t.Run(name, func(t *testing.T) {
				polled(t, 900_000_000, nil, nil, func(t *testing.T, b *pollBed) {
					b.api.skips = skips
					lib := &library{drops: drops}
					b.api.say(3)
					for range 4 {
						lib.poll(t, b)
					}
					b.api.restart(2_000_001)
					b.api.say(250)
					for range 6 {
						lib.poll(t, b)
					}
					if n := b.api.waiting(); n != 0 {
						t.Errorf("%d updates are still waiting; asked: %v", n, b.api.asked())
					}
					ids := b.stored()
					slices.Sort(ids)
					if n := len(slices.Compact(ids)); n != 253 {
						t.Errorf("%d updates are stored, want 253; asked: %v", n, b.api.asked())
					}
					if want := map[bool]int{true: 3, false: 253}[drops]; len(lib.got) != want {
						t.Errorf("the library took %d, want %d", len(lib.got), want)
					}
					wantLines := map[bool]int{true: 1, false: 1}[drops]
					if n := strings.Count(b.log.String(), "update_id went back"); n != wantLines {
						t.Errorf("said %d times: %s", n, b.log)
					}
					time.Sleep(time.Minute)
					b.api.say(1)
					lib.poll(t, b)
					wantLines = map[bool]int{true: 2, false: 1}[drops]
					if n := strings.Count(b.log.String(), "update_id went back"); n != wantLines {
						t.Errorf("a minute later, said %d times, want %d", n, wantLines)
					}
				})
			})
		}
	}
	t.Run("ids that start anew while Telegram can't be reached are not confirmed unseen", func(t *testing.T) {
		polled(t, 900_000_000, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.skips = true
			lib := &library{drops: true}
			b.api.say(2)
			lib.poll(t, b)
			b.api.before = unreachable
			for range 8 {
				if _, err := b.get(fmt.Sprint(lib.offset)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(24 * time.Hour)
			}
			b.api.before = nil
			b.api.restart(2_000_001)
			b.api.say(250)
			for range 6 {
				lib.poll(t, b)
			}
			if n := len(b.stored()); n != 252 || b.api.waiting() != 0 {
				t.Errorf("%d are stored, %d wait; asked %q", n, b.api.waiting(), b.api.asked())
			}
		})
	})
	t.Run("ids that start anew are seen by each of two loops that have come to different offsets", func(t *testing.T) {
		polled(t, 900_000_000, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.skips = true
			b.api.say(4)
			for _, offset := range []string{"0", "900000004", "900000003", "900000004", "900000003"} {
				if _, err := b.get(offset); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
			}
			b.api.restart(5)
			b.api.say(3)
			for _, offset := range []string{"900000004", "900000003"} {
				if raw, err := b.get(offset); err != nil || len(idsOf(t, raw)) == 0 {
					t.Errorf("asked from %s: %s, %v; sent %q", offset, raw, err, b.api.asked())
				}
				b.api.say(3)
				time.Sleep(time.Minute)
			}
		})
	})
	t.Run("ids that start anew while the store is down are not lost either", func(t *testing.T) {
		over := func(st storetest.Backend) store.Store { return storetest.Fail(st, 40, storetest.Before, "Accept") }
		polled(t, 900_000_000, over, nil, func(t *testing.T, b *pollBed) {
			b.api.skips = true
			lib := &library{drops: true}
			b.api.say(2)
			lib.poll(t, b)
			lib.poll(t, b)
			b.api.restart(5)
			b.api.say(120)
			if _, err := b.get(fmt.Sprint(lib.offset)); err == nil {
				t.Fatal("the store did not fail")
			}
			for range 4 {
				lib.poll(t, b)
			}
			if n := len(b.stored()); n != 122 || b.api.waiting() != 0 {
				t.Errorf("%d are stored, %d wait", n, b.api.waiting())
			}
		})
	})
}

// unreachable answers as a gateway does that does not reach Telegram.
func unreachable(w http.ResponseWriter, _ *http.Request, _ string) bool {
	w.WriteHeader(http.StatusBadGateway)
	return true
}

func TestTransportOffsets(t *testing.T) {
	t.Run("in the ordinary course offsets are the library's own", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			lib := &library{drops: true}
			for range 3 {
				b.api.say(2)
				lib.poll(t, b)
			}
			want := []string{"0", "102", "104"}
			if got := b.api.asked(); !slices.Equal(got, want) || len(lib.got) != 6 {
				t.Errorf("asked %v, want %v; the library got %v", got, want, lib.got)
			}
			if strings.Contains(b.log.String(), "went back") {
				t.Errorf("logged: %s", b.log)
			}
		})
	})
	t.Run("after an empty answer no offset is sent, and what comes then is confirmed as ever", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			lib := &library{drops: true}
			b.api.say(2)
			for range 4 {
				lib.poll(t, b)
			}
			b.api.say(1)
			for range 3 {
				lib.poll(t, b)
			}
			want := []string{"0", "102", "", "", "", "103", ""}
			if got := b.api.asked(); !slices.Equal(got, want) || len(lib.got) != 3 || b.api.waiting() != 0 {
				t.Errorf("asked %q, want %q; the library got %v", got, want, lib.got)
			}
		})
	})
	t.Run("a library may ask again for what it had", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.say(5)
			for range 2 {
				raw, err := b.get("102")
				if err != nil || len(idsOf(t, raw)) != 3 {
					t.Fatalf("got %s, %v", raw, err)
				}
				time.Sleep(time.Second)
			}
			b.once(102, 3)
		})
	})
	t.Run("an offset that skips a single update is not passed on", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.say(1)
			if _, err := b.get("0"); err != nil {
				t.Fatal(err)
			}
			b.api.say(2)
			raw, err := b.get("102")
			if got := b.api.asked(); err != nil || !slices.Equal(got, []string{"0", "101"}) || len(idsOf(t, raw)) != 2 {
				t.Errorf("asked %q and got %s, %v", got, raw, err)
			}
			b.once(100, 3)
		})
	})
	t.Run("no id makes an offset negative, which would forget the queue", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.before = func(w http.ResponseWriter, r *http.Request, _ string) bool {
				if formOf(r)["offset"] != "0" {
					return false
				}
				fmt.Fprint(w, `{"ok":true,"result":[{"update_id":9223372036854775807}]}`)
				return true
			}
			b.api.say(2)
			if _, err := b.get("0"); err != nil {
				t.Fatal(err)
			}
			if _, err := b.get("7"); err != nil || b.api.asked()[0] != "7" {
				t.Errorf("asked %q, %v", b.api.asked(), err)
			}
		})
	})
	t.Run("after an update without an id the library's offset is its own affair", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			b.api.before = func(w http.ResponseWriter, r *http.Request, _ string) bool {
				if formOf(r)["offset"] != "0" {
					return false
				}
				fmt.Fprint(w, `{"ok":true,"result":[{"update_id":100},{"update_id":1.01e2}]}`)
				return true
			}
			if _, err := b.get("0"); err != nil {
				t.Fatal(err)
			}
			if _, err := b.get("102"); err != nil {
				t.Fatal(err)
			}
			if got := b.api.asked(); !slices.Equal(got, []string{"102"}) {
				t.Errorf("asked %q", got)
			}
		})
	})
	for name := range encodings(t, endpoint, nil) {
		t.Run("what forgets unfetched updates is refused: "+name, func(t *testing.T) {
			polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
				b.api.say(3)
				for _, c := range []struct{ method, key, value, want string }{
					{"getUpdates", "offset", "-1", "negative offset"},
					{"getUpdates", "offset", " -100", "negative offset"},
					{"getUpdates", "offset", "-1.5", "negative offset"},
					{"deleteWebhook", "drop_pending_updates", "true", "drop_pending_updates"},
					{"DELETEWEBHOOK", "drop_pending_updates", "1", "drop_pending_updates"},
					{"setWebhook", "drop_pending_updates", " Yes", "drop_pending_updates"},
				} {
					_, err := b.do(encodings(t, endpoint+"/"+c.method, map[string]string{"limit": "5", c.key: c.value})[name])
					if err == nil || !strings.Contains(err.Error(), c.want) {
						t.Errorf("%s with %s=%q: %v", c.method, c.key, c.value, err)
					}
				}
				if n := len(b.api.forms); n != 0 || b.api.waiting() != 3 {
					t.Errorf("%d requests reached Telegram", n)
				}
				p := map[string]string{"drop_pending_updates": "false", "url": "https://example.com/x"}
				if _, err := b.do(encodings(t, endpoint+"/setWebhook", p)[name]); err != nil || b.api.lastForm()["url"] != p["url"] {
					t.Errorf("without it: %v, %v", err, b.api.forms)
				}
			})
		})
	}
	t.Run("another bot's token is refused, and a URL without one", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			for path, want := range map[string]string{
				"/bot6002:AAFsecret/getUpdates": "another bot's",
				"/botnonsense/getUpdates":       "another bot's",
				"/getUpdates":                   "no /bot<token>/",
				"/robot6001:A/getUpdates":       "no /bot<token>/",
			} {
				if _, err := b.do(encodings(t, "http://tg.test"+path, nil)["a form"]); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", path, err)
				}
			}
			if len(b.api.forms) != 0 {
				t.Error("Telegram was asked")
			}
		})
	})
	t.Run("two loops of one bot lose nothing", func(t *testing.T) {
		polled(t, 100, nil, nil, func(t *testing.T, b *pollBed) {
			var both sync.WaitGroup
			for range 2 {
				lib := &library{drops: true}
				both.Go(func() {
					for range 20 {
						b.api.say(7)
						lib.poll(t, b)
					}
				})
			}
			both.Wait()
			lib := &library{}
			for range 5 {
				lib.poll(t, b)
			}
			b.once(100, 280)
		})
	})
}
