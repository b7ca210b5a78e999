package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tele "gopkg.in/telebot.v4"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// webhook_test.go: the library's own webhook behind the middleware, as somebody may have it.

func TestTheLibrarysWebhook(t *testing.T) {
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leads.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	src, err := telegram.NewSource(123456, "secret-of-leadonce", nil)
	if err != nil {
		t.Fatal(err)
	}
	var last dedup.Delivery
	deliver := func(timeout time.Duration, secret, body string) int {
		door := dedup.Middleware(st, src, &dedup.MiddlewareOptions{InnerTimeout: timeout,
			OnDelivery: func(d dedup.Delivery) { last = d }})
		r := httptest.NewRequest(http.MethodPost, "/telegram", strings.NewReader(body))
		r.Header.Set(telegram.SecretHeader, secret)
		w := httptest.NewRecorder()
		door(&tele.Webhook{}).ServeHTTP(w, r)
		return w.Code
	}

	t.Run("before Start it blocks, and the enquiry is stored and answered", func(t *testing.T) {
		status := deliver(20*time.Millisecond, "secret-of-leadonce", `{"update_id": 1, "message": {"message_id": 1}}`)
		if status != 200 || last.Inner != dedup.InnerOverdue || last.Receipt.EventID == 0 {
			t.Errorf("status %d, the library %q, event %d", status, last.Inner, last.Receipt.EventID)
		}
	})

	t.Run("a panic of its decoder costs nothing", func(t *testing.T) {
		status := deliver(time.Minute, "secret-of-leadonce", `{"update_id": 2, "message": {"message_id": 2, "photo": []}}`)
		if status != 200 || last.Inner != dedup.InnerPanicked || last.Receipt.EventID == 0 {
			t.Errorf("status %d, the library %q, event %d", status, last.Inner, last.Receipt.EventID)
		}
	})

	t.Run("a wrong secret is refused before it can answer 200", func(t *testing.T) {
		status := deliver(time.Minute, "a-guess", `{"update_id": 3, "message": {"message_id": 3}}`)
		if status != 401 || last.Inner != dedup.InnerNone || last.Receipt.EventID != 0 {
			t.Errorf("status %d, the library %q, event %d", status, last.Inner, last.Receipt.EventID)
		}
	})
}
