package main

import (
	"context"
	"testing"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/examples/bots/internal/bottest"
)

func TestMain(m *testing.M) {
	bottest.Main(m, func(ctx context.Context, c bottest.Config) error {
		return run(ctx, config{token: c.Token, secret: c.Secret, api: c.API, listen: c.Listen, publicURL: c.PublicURL,
			crmURL: c.CRMURL, db: c.DB, options: c.Options, wrap: c.Wrap, before: c.Before,
			door: dedup.MiddlewareOptions{InnerTimeout: c.InnerTimeout}})
	})
}

func TestBot(t *testing.T) {
	bottest.Suite(t, bottest.Bot{Thanks: "Thank you, we will call you back", Poison: `"date":"x"`, Polls: true})
}
