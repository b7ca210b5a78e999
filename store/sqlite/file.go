package sqlite

import (
	"fmt"
	"os"

	"github.com/leadonce/leadonce/store"
)

// file.go: the file must still be there. SQLite goes on writing into a file that was deleted or replaced under it, and all
// that it commits then is gone with the process.

// place is a path, and the file that stood there when it was opened.
type place struct {
	path string
	info os.FileInfo
}

// placeOf returns where the connection's database lies.
func placeOf(c *conn) (p place, err error) {
	if _, err = c.get(&p.path, `select file from pragma_database_list where name = 'main'`, nil); err != nil {
		return p, err
	}
	p.info, err = os.Stat(p.path)
	return p, err
}

// check returns an error if another file stands there now, or none.
func (p place) check() error {
	if p.info == nil {
		return nil
	}
	info, err := os.Stat(p.path)
	if err == nil && os.SameFile(info, p.info) {
		return nil
	}
	return fmt.Errorf("%w: %s was deleted or replaced while it was open: put it back, or stop every process that has it open "+
		"and start anew", store.ErrUnavailable, p.path)
}

// same reports whether two places are one file.
func (p place) same(q place) bool {
	return p.info != nil && q.info != nil && os.SameFile(p.info, q.info)
}
