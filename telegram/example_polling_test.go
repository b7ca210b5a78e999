package telegram_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// A bot that polls with a library: its HTTP client gets a Transport.
func ExampleNewTransport() {
	st, err := sqlite.Open(context.Background(), "leads.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	token := os.Getenv("BOT_TOKEN")
	id, err := telegram.BotID(token)
	if err != nil {
		log.Fatal(err)
	}
	src, err := telegram.NewPollingSource(id, nil)
	if err != nil {
		log.Fatal(err)
	}
	tr, err := telegram.NewTransport(st, src, nil)
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: tr}
	_ = client // tgbotapi.NewBotAPIWithClient(token, tgbotapi.APIEndpoint, client)
}

// A bot without a library: each new update is handed over once it is stored.
func ExamplePoller() {
	ctx := context.Background()
	st, err := sqlite.Open(ctx, "leads.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := telegram.NewClient(os.Getenv("BOT_TOKEN"), nil)
	if err != nil {
		log.Fatal(err)
	}
	src, err := telegram.NewPollingSource(client.BotID(), nil)
	if err != nil {
		log.Fatal(err)
	}
	poller, err := telegram.NewPoller(st, src, client, &telegram.PollerOptions{
		Handle: func(ctx context.Context, update []byte) { /* answer */ },
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(poller.Run(ctx)) // beside the Processor's Run
}

// Before looking for hours why nothing arrives.
func ExampleClient_CheckWebhook() {
	client, err := telegram.NewClient(os.Getenv("BOT_TOKEN"), nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := client.CheckWebhook(context.Background(), telegram.Webhook{URL: "https://example.com/telegram"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(report)
	for _, f := range report.Findings {
		if f.Code == telegram.CodeForeign {
			// tell somebody
		}
	}
}
