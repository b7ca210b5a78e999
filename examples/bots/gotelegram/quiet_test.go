package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-telegram/bot"
)

func TestQuiet(t *testing.T) {
	t.Run("an update that can't be decoded is not quoted", func(t *testing.T) {
		var logged string
		b, err := bot.New("123456:AA", bot.WithSkipGetMe(), bot.WithErrorsHandler(func(err error) { logged = quiet(err).Error() }))
		if err != nil {
			t.Fatal(err)
		}
		body := strings.NewReader(`{"update_id": 1, "message": {"text": "my number is 12345", "date": "x"}}`)
		b.WebhookHandler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/telegram", body))
		if !strings.Contains(logged, "date") || strings.Contains(logged, "12345") {
			t.Errorf("logged %q", logged)
		}
	})
}
