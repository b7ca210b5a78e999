package dedup_test

import (
	"context"
	"log"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/jsonhook"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// A bot that takes webhooks, with leadonce in front of it: every message is a lead or a note on one.
func Example_webhook() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var bot http.Handler // the bot that you have: what it answers goes to Telegram as before

	st, err := sqlite.Open(ctx, "leads.db", nil)
	check(err)
	defer st.Close()
	src, err := telegram.NewSource(123456, os.Getenv("TELEGRAM_SECRET"), nil)
	check(err)
	crmHook, err := jsonhook.New("https://shop.example/leads", nil)
	check(err)
	rule := dedup.ContinueWithin(24*time.Hour, func(e dedup.Enquiry) (crm.Lead, error) {
		if e.Command == "/start" && e.Campaign == "" {
			return crm.Lead{}, dedup.Ignore("pressed start")
		}
		return crm.Lead{Title: "Telegram: " + e.Person.Name, Name: e.Person.Name, Phone: e.Phone, Text: e.Summary()}, nil
	})
	leads, err := dedup.NewProcessor(st, crmHook, rule, &dedup.Options{
		NeedsPerson: func(_ context.Context, o dedup.Outcome) { log.Print(o.OperationID, " needs a person: ", o.Reason) },
	})
	check(err)

	mux := http.NewServeMux()
	mux.Handle("/telegram", dedup.Middleware(st, src, nil)(bot))
	check(leads.RunWith(ctx, dedup.HTTPServer(&http.Server{Addr: ":8443", Handler: mux}, nil)))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
