package dedup_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// door_test.go: the door as it is used: Telegram's source, a SQLite file, and real connections.

// failing refuses to accept while it is switched on.
type failing struct {
	*sqlite.Store
	on atomic.Bool
}

func (s *failing) Accept(ctx context.Context, e store.Event) (store.Receipt, error) {
	if s.on.Load() {
		return store.Receipt{}, fmt.Errorf("disk: %w", store.ErrUnavailable)
	}
	return s.Store.Accept(ctx, e)
}

type house struct {
	st  *failing
	srv *httptest.Server
}

func openHouse(t *testing.T, next http.Handler) *house {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "door.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	src, err := telegram.NewSource(6001, "older-secret-0123456789,"+doorSecret, nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{st: &failing{Store: st}}
	h.srv = httptest.NewServer(dedup.Middleware(h.st, src, &dedup.MiddlewareOptions{Logger: slog.New(slog.DiscardHandler)})(next))
	t.Cleanup(func() {
		h.srv.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *house) post(t *testing.T, secret, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.srv.URL+"/telegram", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(telegram.SecretHeader, secret)
	resp, err := h.srv.Client().Do(req)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return resp.StatusCode, string(out)
}

func (h *house) rows(t *testing.T) []store.EventRow {
	t.Helper()
	rows, err := h.st.Events(context.Background(), store.EventFilter{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestTheDoorOnSQLite(t *testing.T) {
	t.Run("the same update twice, then in 64 concurrent requests, is one row and one call of the bot", func(t *testing.T) {
		var calls atomic.Int64
		h := openHouse(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls.Add(1) }))
		for range 2 {
			if status, _ := h.post(t, doorSecret, updateBody(1)); status != 200 {
				t.Errorf("answered %d", status)
			}
		}
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if status, _ := h.post(t, doorSecret, updateBody(1)); status != 200 {
					t.Errorf("answered %d", status)
				}
			})
		}
		all.Wait()
		if rows := h.rows(t); len(rows) != 1 || calls.Load() != 1 {
			t.Errorf("%d rows, %d calls", len(rows), calls.Load())
		}
	})
	t.Run("a new update in 64 concurrent requests is one row and one call of the bot", func(t *testing.T) {
		var calls atomic.Int64
		h := openHouse(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { calls.Add(1) }))
		var all sync.WaitGroup
		for range 64 {
			all.Go(func() {
				if status, _ := h.post(t, doorSecret, updateBody(1)); status != 200 {
					t.Errorf("answered %d", status)
				}
			})
		}
		all.Wait()
		if rows := h.rows(t); len(rows) != 1 || calls.Load() != 1 {
			t.Errorf("%d rows, %d calls", len(rows), calls.Load())
		}
	})
	t.Run("another message of the same person is another row, in order with the first", func(t *testing.T) {
		h := openHouse(t, nil)
		h.post(t, doorSecret, updateBody(1))
		h.post(t, doorSecret, updateBody(2))
		rows := h.rows(t)
		if len(rows) != 2 || rows[0].ContactKey != rows[1].ContactKey || rows[0].OrderingKey != rows[1].OrderingKey || rows[0].ContentID == rows[1].ContentID {
			t.Errorf("%+v", rows)
		}
	})
	t.Run("an update id that is used again for another message is kept", func(t *testing.T) {
		h := openHouse(t, nil)
		h.post(t, doorSecret, updateBody(1))
		h.post(t, doorSecret, strings.Replace(updateBody(2), `"update_id":2`, `"update_id":1`, 1))
		if rows := h.rows(t); len(rows) != 2 || rows[1].Epoch != 1 {
			t.Errorf("%+v", rows)
		}
	})
	t.Run("a forged request is no row", func(t *testing.T) {
		h := openHouse(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the bot was called") }))
		for _, secret := range []string{"", "wrong", doorSecret + "x"} {
			if status, body := h.post(t, secret, updateBody(1)); status != 401 || body != "" {
				t.Errorf("answered %d %q", status, body)
			}
		}
		if rows := h.rows(t); len(rows) != 0 {
			t.Errorf("%d rows", len(rows))
		}
	})
	t.Run("either secret of a rotation is taken", func(t *testing.T) {
		h := openHouse(t, nil)
		h.post(t, "older-secret-0123456789", updateBody(1))
		h.post(t, doorSecret, updateBody(2))
		if rows := h.rows(t); len(rows) != 2 {
			t.Errorf("%d rows", len(rows))
		}
	})
	t.Run("what is not stored is not acknowledged, and is kept when it comes again", func(t *testing.T) {
		h := openHouse(t, nil)
		h.st.on.Store(true)
		if status, _ := h.post(t, doorSecret, updateBody(1)); status != 503 {
			t.Errorf("answered %d", status)
		}
		h.st.on.Store(false)
		if status, _ := h.post(t, doorSecret, updateBody(1)); status != 200 || len(h.rows(t)) != 1 {
			t.Errorf("answered %d, %d rows", status, len(h.rows(t)))
		}
	})
	t.Run("what nobody understands is one quarantined row, however often it comes", func(t *testing.T) {
		h := openHouse(t, nil)
		for range 3 {
			if status, _ := h.post(t, doorSecret, "{not json"); status != 200 {
				t.Errorf("answered %d", status)
			}
		}
		if rows := h.rows(t); len(rows) != 1 || rows[0].State != store.EventQuarantined || string(rows[0].Payload) != "{not json" {
			t.Errorf("%+v", rows)
		}
	})
	t.Run("every update of every kind is taken", func(t *testing.T) {
		h := openHouse(t, nil)
		files, err := filepath.Glob("../../shared/updates/*.json")
		if err != nil {
			t.Fatal(err)
		}
		bodies := []string{updateBody(1), `{"update_id":2}`, `{"update_id":"3","message":"x"}`, `[]`}
		for _, f := range files {
			bodies = append(bodies, readFile(t, f))
		}
		for i, body := range bodies {
			if status, _ := h.post(t, doorSecret, body); status != 200 {
				t.Errorf("body %d: answered %d", i, status)
			}
		}
		if rows := h.rows(t); len(rows) != len(bodies) {
			t.Errorf("%d rows of %d bodies", len(rows), len(bodies))
		}
	})
}

func TestAConnectionThatBreaks(t *testing.T) {
	h := openHouse(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the bot was called") }))
	for name, head := range map[string]string{
		"an announced length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(updateBody(1)), updateBody(1)[:60]),
		"chunks":              "Transfer-Encoding: chunked\r\n\r\n3c\r\n" + updateBody(1)[:60] + "\r\n",
	} {
		t.Run("in the middle of a body of "+name+" leaves no row and gets no 2xx", func(t *testing.T) {
			conn, err := net.Dial("tcp", h.srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST /telegram HTTP/1.1\r\nHost: x\r\n%s: %s\r\n%s", telegram.SecretHeader, doorSecret, head)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != 400 {
					t.Errorf("answered %d", resp.StatusCode)
				}
			} else if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
				t.Errorf("reading the answer: %v", err)
			}
			if rows := h.rows(t); len(rows) != 0 {
				t.Errorf("%d rows", len(rows))
			}
		})
	}
}
