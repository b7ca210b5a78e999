// Package dedup turns deliveries into leads: the middleware that stores an update before it answers, the rule that decides
// what an enquiry is, and the processor that drives each operation until it is in the CRM or in front of a person.
//
// It owns the decisions. What is remembered is package store's, what a CRM can do is package crm's, what an update means is
// a Source's (package telegram). It knows no messenger, no CRM and no SQL.
//
//	st, err := sqlite.Open(ctx, "leads.db", nil)
//	src, err := telegram.NewSource(botID, os.Getenv("TELEGRAM_SECRET"), nil)
//	rule := dedup.ContinueWithin(24*time.Hour, func(e dedup.Enquiry) (crm.Lead, error) {
//		return crm.Lead{Title: "Telegram: " + e.Person.Name, Phone: e.Phone, Text: e.Text}, nil
//	})
//	leads, err := dedup.NewProcessor(st, myCRM, rule, nil)
//	go leads.Run(ctx)
//	http.Handle("/telegram", dedup.Middleware(st, src, nil)(botHandler))
//
// Bots that come and go share one handler ([MiddlewareFor]); what is fetched instead of posted comes in by an [Intake].
//
// # What is promised
//
// A 2xx answer, and a nil error from [Processor.Submit], mean: durably stored. A repeated delivery adds nothing. A second
// create for one operation is never sent unless the CRM itself makes the repeat harmless now, absence is proven, or a person
// said so. What can't be known is not guessed: it stands in needs_reconciliation, is counted with its age
// ([Processor.Stats]), told to the host (Options.NeedsPerson), and settled by one call ([Desk]).
//
// # What is not
//
// What the source drops before it reaches us; the bot's own reply after a crash; a CRM that acts on a request later than
// Options.QuietPeriod; a machine frozen between the last check and the write, where the CRM offers no key; a record that a
// manager deletes or merges before it was confirmed; a store whose clock is set back. Notes are at-least-once, with a
// visible reference; creates never are.
//
// # What one enquiry is
//
// The planner makes one of what several events tell: the items of an album (gathered for Options.GatherQuiet, at most
// GatherMax), a button pressed again (Options.RepeatWindow), one content under two update ids, an edit and its original. An
// edit of what certainly is not in the CRM replaces it; of anything else it is a note. The rest is the [Rule]'s: it sees the
// enquiry and the person's deals, and returns effects, each an operation of its own. A deal whose create failed or was
// canceled is not continued. A CRM's hook (package dedup/stagehook) moves a deal's stage only forward.
//
// # How one enquiry goes
//
// Three commits: the event (then the answer), the plan together with the intent to send, the confirmation. Between the second
// and the third there is one call to the adapter. Whatever dies in between, the next Run, anywhere, goes on from what is
// committed: an intent without a report counts as a lost reply.
//
// Errors of the CRM become verdicts: marked as certainly not applied, the operation waits and is sent again; refused, it is
// failed; unmarked, it may have been applied, and what follows depends on what the adapter declares (crm.Guarantee). After
// three lost replies in a row the adapter is paused and probed, one call at a time with growing waits. An adapter with a
// read-only Check (crm.Checker) is probed with that; without one each probe is somebody's enquiry, and an outage that
// swallows answers leaves one more doubt for each probe, about twelve an hour.
package dedup
