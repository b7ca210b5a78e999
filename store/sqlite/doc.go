// Package sqlite keeps the contract of package store on an SQLite file: no server, no cgo. It owns the file's settings and
// schema and the shared commits; what rows mean and which moves are possible is package store's.
//
//	st, err := sqlite.Open(ctx, "leads.db", nil) // creates and migrates its own file
//	if err != nil {
//		return err
//	}
//	defer st.Close()
//	receipt, err := st.Accept(ctx, event) // nil: on disk
//
// Durability: the file is in WAL mode with synchronous=FULL, so a commit is on disk before it is acknowledged, as far as
// the disk tells the truth. Several processes may use one file on one machine; a file on a network share may not work, since
// WAL needs shared memory.
//
// Writes go through one connection and share commits: what waits while a commit is on its way to the disk goes into the
// next one, each caller with its own result. An open write transaction of another process (or of the host, on a database
// that was handed in) blocks them until BusyTimeout; then they fail with store.ErrUnavailable.
package sqlite
