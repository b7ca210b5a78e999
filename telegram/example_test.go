package telegram_test

import (
	"context"
	"log"
	"net/http"
	"sync"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// bots is a registry: bots come and go while the process runs.
type bots struct {
	mu   sync.RWMutex
	byID map[string]bot
}

type bot struct {
	source  *telegram.Source // with the bot's own secret and its tenant
	handler http.Handler     // the bot itself
}

func (b *bots) find(r *http.Request) (dedup.Source, http.Handler, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	one, ok := b.byID[r.PathValue("bot")]
	if !ok {
		return nil, nil, nil // 404
	}
	return one.source, one.handler, nil
}

// Many bots behind one handler. Each has a path and a secret of its own: setWebhook gets https://…/telegram/<bot's id> and
// the secret that its Source was made with.
func ExampleNewSource_manyBots() {
	st, err := sqlite.Open(context.Background(), "leads.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	src, err := telegram.NewSource(6001, "a-secret-of-its-own-32-characters", &telegram.Options{Tenant: "acme"})
	if err != nil {
		log.Fatal(err)
	}
	registry := &bots{byID: map[string]bot{"6001": {source: src}}}

	mux := http.NewServeMux()
	mux.Handle("POST /telegram/{bot}", dedup.MiddlewareFor(st, registry.find, nil))
	log.Fatal(http.ListenAndServe(":8080", mux))
}
