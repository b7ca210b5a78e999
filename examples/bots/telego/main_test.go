package main

import (
	"context"
	"encoding/json"
	"testing"

	lib "github.com/mymmrac/telego"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/examples/bots/internal/bottest"
)

// main_test.go: the whole program, as a process that is killed between every two steps.

func TestMain(m *testing.M) {
	bottest.Main(m, func(ctx context.Context, c bottest.Config) error {
		if c.Lean { // telego's own JSON takes longer to begin with than everything else here together
			lib.SetJSONMarshal(json.Marshal)
			lib.SetJSONUnmarshal(json.Unmarshal)
		}
		return run(ctx, config{token: c.Token, secret: c.Secret, api: c.API, listen: c.Listen, publicURL: c.PublicURL,
			crmURL: c.CRMURL, db: c.DB, options: c.Options, door: dedup.MiddlewareOptions{InnerTimeout: c.InnerTimeout},
			wrap: c.Wrap, before: c.Before})
	})
}

func TestBot(t *testing.T) {
	bottest.Suite(t, bottest.Bot{Poison: `"date":"x"`, Thanks: "Thank you, we will call you back", Polls: true})
}
