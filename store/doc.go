// Package store holds what leadonce remembers: the vocabulary (event, operation, contact, deal), the state machine of an
// operation, and the contract of a Store. It imports nothing but the standard library and knows no CRM, no Telegram and no
// SQL; store/sqlite keeps the contract on a file, and store/storetest is the suite that any Store is run against.
//
// Three rules hold everything together:
//
//   - Callers report what happened ([Trigger]); nobody assigns a state. [Next] is the only place that knows the moves.
//   - Every write is guarded: by the operation's version, by the fencing token of a lease, by the version of an ordering
//     key. A guard that fails is an error with a name ([ErrLeaseLost], [ErrMoved], [ErrConflict]), never a silent no.
//   - What could not be known stays visible. [Uncertain] and [NeedsReconciliation] are states, not log lines.
//
// The shortest life of an enquiry, as a program:
//
//	receipt, err := st.Accept(ctx, event)          // durable: answer 200
//	view, err := st.ReadKey(ctx, event.OrderingKey) // what a decision may look at
//	begun, err := st.CommitPlan(ctx, plan)          // operations, and the intent to send them
//	op, err := st.Advance(ctx, store.Report{ID: begun[0].ID, On: store.Confirmed, CRMID: "77"})
//
// Package dedup is that program.
package store
