// Package leadonce makes one Telegram enquiry exactly one CRM lead: however often the webhook is delivered, whichever
// process dies, whatever answer is lost.
//
// This package is documentation; the code is in the packages below it. A bot developer needs four constructors:
//
//	st, err := sqlite.Open(ctx, "leads.db", nil)                                  // where it is remembered
//	src, err := telegram.NewSource(botID, os.Getenv("TELEGRAM_SECRET"), nil)      // who may deliver
//	leads, err := dedup.NewProcessor(st, myCRM, rule, nil)                        // what becomes of it
//	http.Handle("/telegram", dedup.Middleware(st, src, nil)(botHandler))          // the door
//	go leads.Run(ctx)
//
// # The tour
//
//   - [github.com/leadonce/leadonce/dedup]: the middleware that stores an update before it answers 200; the rule that says
//     what an enquiry is; the processor that drives each lead until it is in the CRM or in front of a person; the desk where
//     that person decides.
//   - [github.com/leadonce/leadonce/crm]: what an adapter for a CRM is. One method is enough.
//     [github.com/leadonce/leadonce/crm/crmhttp] sends a request at most once and says what is certain about it;
//     [github.com/leadonce/leadonce/crm/crmtest] has a simulated CRM and the Contract that any adapter can be held to;
//     crm/jsonhook and crm/bitrix24 are adapters.
//   - [github.com/leadonce/leadonce/telegram]: how Telegram proves itself, and what its updates mean.
//   - [github.com/leadonce/leadonce/store]: the vocabulary, the state machine and the contract of a store; store/sqlite keeps
//     it in a file, store/postgres in a database for many machines; store/storetest is the suite for one of your own.
//   - examples/quickstart runs every promise below against a simulated CRM; examples/leadbot is a server to start from.
//
// # The promises
//
//   - A 2xx answer to Telegram, and a nil error from Submit, mean: durably stored. What is acknowledged is never lost.
//   - A repeated delivery adds nothing: no row, no job, no effect on the CRM.
//   - A second create for one operation is never sent, unless the CRM itself makes the repeat harmless now, absence is proven,
//     or a person said so.
//   - What can't be known is not guessed. It is visible, counted, aged, and one action away from being settled.
//
// # What is not promised
//
// What Telegram drops before it reaches the bot (a button press after 150 s, a message after 24 h); the bot's own reply after
// a crash; a CRM that acts on a request later than the quiet period (2 min by default); a machine frozen between the last
// check and the write, where the CRM offers no idempotency key or its window has passed; a record that a manager deletes or
// merges before it was confirmed; a clock that is set back.
//
// # Why it needs a state of its own
//
// A create whose answer was lost is neither done nor failed. Sending it again may make a second lead; dropping it may lose a
// customer. Here it becomes uncertain (a repeat is harmless, by the CRM's own documentation and within its time) or
// needs_reconciliation (a look-up or a person settles it). The whole machine is one table: store/machine.go.
package leadonce
