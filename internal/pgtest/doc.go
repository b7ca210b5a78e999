// Package pgtest gives tests a PostgreSQL of their own, without anything being set up: it finds the installed binaries, makes a
// cluster in a temporary directory, and sees to it that nothing of it outlives the test process, however that process ends.
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestAccept(t *testing.T) {
//		db := sqlx.MustOpen("postgres", pgtest.DSN(t)) // an empty database of this test's own
//		t.Cleanup(func() { db.Close() })
//		…
//	}
//
// DSN serves from one cluster a test binary, started at its first use. A test that stops, crashes or replaces its server takes
// a private one from [Start]. Both run at PostgreSQL's default durability; only initdb skips its fsync.
//
// The binaries are looked for in the directories listed in LEADONCE_PG_BIN, then where packages install them, then on PATH;
// see [Versions]. Without any, the test is skipped and says what to install; with CI=true it fails instead. PostgreSQL refuses
// to run as root: a test that does starts it as the user postgres, or nobody. Windows is not supported (the package builds there,
// and treats it like missing binaries).
//
// The package owns processes, ports and directories. It knows nothing of schemas and tables.
package pgtest
