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
	wal  os.FileInfo // of the log beside it, from the first commit on
}

// placeOf returns where the connection's database lies.
func placeOf(c *conn) (p place, err error) {
	if _, err = c.get(&p.path, `select file from pragma_database_list where name = 'main'`, nil); err != nil {
		return p, err
	}
	p.info, err = os.Stat(p.path)
	return p, err
}

// check returns an error if another file stands there now, or none, or if its log has been taken away: what was committed is
// in the log first.
func (p *place) check() error {
	info, err := os.Stat(p.path)
	if err != nil || !os.SameFile(info, p.info) || info.Size() == 0 {
		return fmt.Errorf("%w: %s was deleted, replaced or emptied while it was open: put it back, or stop every process that has "+
			"it open and start anew", store.ErrUnavailable, p.path)
	}
	wal, err := os.Stat(p.path + "-wal")
	if err != nil || (p.wal != nil && !os.SameFile(wal, p.wal)) {
		return fmt.Errorf("%w: %s-wal was deleted or replaced while it was open: stop every process that has %s open and start "+
			"anew; what was committed last may be lost", store.ErrUnavailable, p.path, p.path)
	}
	p.wal = wal
	return nil
}

// same reports whether two places are one file.
func (p place) same(q place) bool {
	return p.info != nil && q.info != nil && os.SameFile(p.info, q.info)
}
