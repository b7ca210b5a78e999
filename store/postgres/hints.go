package postgres

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// hints.go: who is told that work may have become due: the subscribers of this handle directly, other processes by NOTIFY.
//
// A notice is the number of the handle that sends it and, each on a line of its own, the ordering keys, with their tenants
// before them; none: operations.

// opening are the parameters with which a write begins.
type opening struct {
	Fixed    int64  `db:"fixed"`
	Patience string `db:"patience"`
	Channel  string `db:"channel"`
	Notices  string `db:"notices"`
}

func (s *Store) opening(patience string, notices []string) opening {
	return opening{Fixed: s.fixed(), Patience: patience, Channel: s.channel, Notices: sqlstore.JSONTexts(notices)}
}

// maxNotice is below the 8000 bytes that the server takes.
const maxNotice = 7900

// afterTenant ends a tenant's name in a notice.
const afterTenant = "\x1f"

// notices packs hints about keys, each once. One too long to be sent, or with a sign that parts a notice, is left out: the
// key is found by whoever looks.
func (s *Store) notices(hints ...store.Hint) (list []string) {
	if !s.telling {
		return nil
	}
	seen := map[store.Hint]bool{}
	for _, h := range hints {
		line := h.Tenant + afterTenant + h.OrderingKey
		if seen[h] || len(line) > maxNotice/2 || strings.Contains(line, "\n") || strings.Count(line, afterTenant) > 1 {
			continue
		}
		seen[h] = true
		if n := len(list); n > 0 && len(list[n-1])+len(line) < maxNotice {
			list[n-1] += "\n" + line
		} else {
			list = append(list, s.handle+"\n"+line)
		}
	}
	return list
}

// dueNotice says that an operation became due.
func (s *Store) dueNotice(due bool) []string {
	if !due || !s.telling {
		return nil
	}
	return []string{s.handle}
}

// tell sends notices with the commit.
func (s *Store) tell(c *session, notices []string) error {
	if len(notices) == 0 {
		return nil
	}
	_, err := c.exec(`
		select count(pg_notify(:channel, n)) from json_array_elements_text(cast(:notices as json)) n`,
		args{"channel": s.channel, "notices": sqlstore.JSONTexts(notices)})
	return err
}

// Subscribe calls f, in one goroutine, after commits through this handle that may have made work due, and, where the Store
// was opened by a DSN, when another process tells of such. cancel, or Close, ends it.
func (s *Store) Subscribe(f func(store.Hint)) (cancel func()) {
	cancel = s.hints.Subscribe(f)
	s.listener.start(s)
	return cancel
}

// listener hears what other processes tell. It connects when the first subscriber comes, and again whenever the connection
// is lost.
type listener struct {
	dsn  string // empty: there is none
	mu   sync.Mutex
	l    *pq.Listener
	stop chan struct{}
	done bool
	wait sync.WaitGroup
}

const (
	listenAgainMin = 100 * time.Millisecond
	listenAgainMax = 10 * time.Second
	// listenCheck is how long a silent connection is trusted.
	listenCheck = time.Minute
)

func (l *listener) start(s *Store) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dsn == "" || l.l != nil || l.done {
		return
	}
	l.l = pq.NewListener(l.dsn, listenAgainMin, listenAgainMax, func(e pq.ListenerEventType, err error) {
		if err != nil {
			s.log.Warn("postgres: not told of other processes' work until the connection is made again", "error", err)
		}
	})
	own := l.l
	l.wait.Go(func() {
		// It returns once the server is reached; until then Listen waits.
		if err := own.Listen(s.channel); err != nil {
			return
		}
		check := time.NewTicker(listenCheck)
		defer check.Stop()
		for {
			select {
			case <-l.stop:
				return
			case n, open := <-own.Notify:
				switch {
				case !open:
					return
				case n == nil: // connected again: something may have been missed
					s.hints.Tell(store.Hint{})
				default:
					s.heard(n.Extra)
				}
			case <-check.C:
				own.Ping() // an error makes it connect again
			}
		}
	})
}

func (s *Store) heard(notice string) {
	handle, lines, some := strings.Cut(notice, "\n")
	switch {
	case handle == s.handle: // its own subscribers know
	case !some:
		s.hints.Tell(store.Hint{})
	default:
		for line := range strings.SplitSeq(lines, "\n") {
			tenant, key, _ := strings.Cut(line, afterTenant)
			s.hints.Tell(store.Hint{OrderingKey: key, Tenant: tenant})
		}
	}
}

func (l *listener) close() {
	l.mu.Lock()
	if !l.done {
		l.done = true
		close(l.stop)
		if l.l != nil {
			l.l.Close() // ends Listen
		}
	}
	l.mu.Unlock()
	l.wait.Wait()
}

func newHandle() string { return strconv.FormatInt(newToken(), 36) }
