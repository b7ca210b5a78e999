package stagehook_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/dedup/stagehook"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
)

// bed_test.go: the door as a CRM meets it: a real connection, the middleware, a SQLite file.

const (
	token    = "application-token-0123456789"
	oldToken = "application-token-9876543210"
)

func must(t testing.TB, name string, auth stagehook.Auth, parse stagehook.ParseFunc) *stagehook.Source {
	t.Helper()
	s, err := stagehook.New(name, auth, parse, &stagehook.Options{Tenant: "omsk"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type house struct {
	st  *sqlite.Store
	srv *httptest.Server
	log *safeLog
}

// safeLog collects log lines of several goroutines.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func open(t *testing.T, src dedup.Source) *house {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "stage.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := &house{st: st, log: &safeLog{}}
	logger := slog.New(slog.NewTextHandler(h.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h.srv = httptest.NewServer(dedup.Middleware(st, src, &dedup.MiddlewareOptions{Logger: logger})(nil))
	t.Cleanup(func() {
		h.srv.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// post sends a body and checks the status; header has names and values in turn.
func (h *house) post(t *testing.T, want int, query, body string, header ...string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.srv.URL+"/stage"+query, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := h.srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want || len(out) > 0 {
		t.Errorf("answered %d %q, %v; want an empty %d", resp.StatusCode, out, err, want)
	}
}

// rows returns what is stored, after checking that there are n.
func (h *house) rows(t *testing.T, n int) []store.EventRow {
	t.Helper()
	rows, err := h.st.Events(t.Context(), store.EventFilter{})
	if err != nil || len(rows) != n {
		t.Fatalf("%d events are stored, %v; want %d", len(rows), err, n)
	}
	return rows
}

func enquiry(t testing.TB, e store.Event) (q dedup.Enquiry) {
	t.Helper()
	if err := json.Unmarshal(e.Enquiry, &q); err != nil {
		t.Fatal(err)
	}
	return q
}

func sign(secret, text string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func bitrix(change ...string) string {
	form := url.Values{"event": {"ONCRMDEALUPDATE"}, "data[FIELDS][ID]": {"7713"}, "ts": {"1780000000"},
		"auth[domain]": {"portal.example"}, "auth[application_token]": {token}}
	for i := 0; i+1 < len(change); i += 2 {
		form.Set(change[i], change[i+1])
	}
	return form.Encode()
}
