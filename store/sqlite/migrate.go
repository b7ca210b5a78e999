package sqlite

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
)

// migrate.go: the schema, and which one a file has.

//go:embed schema.sql
var schemaFile string

// schemaVersion counts the migrations. Until v0.1.0 there is one, edited in place: a file that another build made is told
// by the checksum.
const schemaVersion = "1"

func schemaText() string { return strings.ReplaceAll(schemaFile, "\r\n", "\n") }

func schemaSum() string {
	sum := sha256.Sum256([]byte(schemaText()))
	return hex.EncodeToString(sum[:8])
}

// Schema returns the SQL that makes the tables, for a database that is handed to New. It is to be run once, in a
// transaction.
func Schema() string {
	return schemaText() + fmt.Sprintf("\ninsert into leadonce_meta (name, value) values ('schema', '%s/%s');\n",
		schemaVersion, schemaSum())
}

// prepareFile puts the file into WAL mode and makes the tables if there are none. Another process may be doing the same.
func prepareFile(c *conn, o Options) error {
	if err := enterWAL(c, o.BusyTimeout); err != nil {
		return err
	}
	have, err := schemaOf(c)
	if err != nil || have != "" {
		return errors.Join(err, sameSchema(have))
	}
	if _, err := c.exec("begin immediate", nil); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	have, err = schemaOf(c) // again, with the lock
	if err == nil && have == "" {
		err = c.script(Schema())
		have = schemaVersion + "/" + schemaSum()
	}
	if err = errors.Join(err, sameSchema(have)); err == nil {
		_, err = c.exec("commit", nil)
	}
	if err != nil {
		c.exec("rollback", nil)
		return fmt.Errorf("make the tables: %w", err)
	}
	return nil
}

// enterWAL changes the journal mode. SQLite does not wait for the lock that this needs, so it is tried until the busy
// timeout is over.
func enterWAL(c *conn, timeout time.Duration) error {
	const pause = 10 * time.Millisecond
	for waited := time.Duration(0); ; waited += pause {
		var mode string
		_, err := c.get(&mode, "pragma journal_mode = wal", nil)
		if err == nil || !isBusy(err) || waited >= timeout {
			return err
		}
		time.Sleep(pause)
	}
}

// checkSchema is for a database that was handed in.
func checkSchema(c *conn) error {
	have, err := schemaOf(c)
	if err != nil {
		return err
	}
	if have == "" {
		return errors.New("it has no leadonce tables: run the SQL of sqlite.Schema() first")
	}
	return sameSchema(have)
}

func sameSchema(have string) error {
	if have != "" && have != schemaVersion+"/"+schemaSum() {
		return fmt.Errorf("the tables were made by another version (schema %s, this is %s/%s): use the version that made "+
			"them, or begin with a new file", have, schemaVersion, schemaSum())
	}
	return nil
}

// schemaOf returns which schema the database has, "" without any.
func schemaOf(c *conn) (string, error) {
	var n int
	if _, err := c.get(&n, `
		select count(*) from sqlite_master where type = 'table' and name = 'leadonce_meta'`, nil); err != nil || n == 0 {
		return "", err
	}
	var v string
	found, err := c.get(&v, `
		select value from leadonce_meta where name = 'schema'`, nil)
	if err == nil && !found {
		return "", errors.New("leadonce_meta names no schema: the tables were made by something else")
	}
	return v, err
}
