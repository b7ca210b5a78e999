package dedup_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// A bot that keeps its own webhook or polling, and only submits what its dialogue has finished: no Source, no rule.
func ExampleProcessor_Submit() {
	ctx, stop := context.WithCancel(context.Background())
	dir, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(dir)
	st, err := sqlite.Open(ctx, filepath.Join(dir, "leads.db"), nil)
	check(err)
	defer st.Close()
	sim := crmtest.NewSimulator(crmtest.Config{}) // in place of your CRM
	leads, err := dedup.NewProcessor(st, sim.Local(), nil, &dedup.Options{
		OnDone: func(_ context.Context, o dedup.Outcome) { stop() },
	})
	check(err)

	// The user has pressed "Send" under the form: its message names the enquiry.
	chat, form := int64(42), 7
	who := dedup.Person{ID: "42", Name: "Anna", Source: telegram.Name, Bot: "123456"}
	for range 2 { // a second press, or the same update again after a crash
		_, err = leads.Submit(ctx, fmt.Sprintf("form/%d/%d", chat, form), who, crm.Lead{Title: "Booking", Name: "Anna"})
		if err != nil {
			fmt.Println("please press again") // safe: the same key
			return
		}
		fmt.Println("you are booked") // true: it is on disk
	}

	check(leads.Run(ctx)) // beside the bot, for as long as it lives
	fmt.Println(len(sim.Leads()), "lead")
	// Output:
	// you are booked
	// you are booked
	// 1 lead
}
