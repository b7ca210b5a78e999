// Package postgres keeps the contract of package store on PostgreSQL: many processes on many machines, in a schema of the
// host's own database. It owns the tables, the statements and the shared commits; what rows mean and which moves are
// possible is package store's.
//
//	st, err := postgres.Open(ctx, "postgres://leads@db/leads", nil) // creates its tables in the schema leadonce
//	if err != nil {
//		return err
//	}
//	defer st.Close()
//	receipt, err := st.Accept(ctx, event) // nil: on the server's disk
//
// Durability is the server's: fsync, full_page_writes and synchronous_commit must be on, or opening fails (Options.AllowUnsafe
// names exceptions). Leases, due times and ages are measured by the server's clock. Transactions are READ COMMITTED and
// short; none is open while a rule or a CRM is called.
//
// Concurrent calls of Accept, ReadKey, CommitPlan and Advance share transactions, each with its own result. A connection
// that is lost is made again, and what a lost COMMIT did is found out by reading back. What a process with subscribers
// accepts is its own for the event's head start; else other processes are told by NOTIFY, which is a hint and no more:
// without it (a handed-in database, a pooler) they find the work when they look for it.
//
// A database that the host opened, by any driver of database/sql, is handed to [New]; its own transactions can carry an event
// or a submission along ([Store.AcceptTx], [Store.SubmitTx]).
package postgres
