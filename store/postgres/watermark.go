package postgres

import (
	"maps"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// watermark.go: where a backlog is claimed from.

// watermark remembers how far claims have come, each tenant's for themselves. While some transaction elsewhere keeps an old
// snapshot open, the index goes on naming every operation that was ever pending, and each claim would read past all of them:
// with 50,000 of them 48 ms instead of 0.5. So as long as claims get all that they ask for, they go on from the mark; now
// and then, and whenever that yields too little, they sweep: they look from the beginning, and whose operations there are.
type watermark struct {
	mu      sync.Mutex
	marks   map[string]int64 // when the latest operation that was claimed became due
	tenants []string         // that the last sweep has found
	claims  map[claims]swept
}

// claims is whose they are: those of any tenant are another thing than those of the tenant without a name.
type claims struct {
	any    bool
	tenant string
}

type swept struct {
	at   time.Time
	full bool // the last claim got all that it asked for
}

const (
	// markSlack is how far before the mark operations may still become due without being passed over until the next sweep.
	markSlack = 2 * time.Second
	// sweepEvery is how long a tenant waits whose first operation comes in amid a backlog.
	sweepEvery = time.Second / 2
)

func of(tenant *string) claims {
	if tenant == nil {
		return claims{any: true}
	}
	return claims{tenant: sqlstore.Clean(*tenant)}
}

// start tells whether a claim is to sweep, else for whom it claims.
func (w *watermark) start(tenant *string) (tenants []string, sweeps bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.claims[of(tenant)]
	if !last.full || time.Since(last.at) >= sweepEvery {
		if w.claims == nil {
			w.claims, w.marks = map[claims]swept{}, map[string]int64{}
		}
		w.claims[of(tenant)] = swept{at: time.Now(), full: last.full}
		return nil, true
	}
	if tenant != nil {
		return []string{*tenant}, false
	}
	return w.tenants, false
}

// found is called with those for whom anything may be claimed.
func (w *watermark) found(tenants []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenants = tenants
}

// mark sets where to begin.
func (w *watermark) mark(asks []sqlstore.Ask) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, a := range asks {
		asks[i].Since = max(w.marks[a.Tenant]-markSlack.Microseconds(), 0)
	}
}

// moveTo is called after start.
func (w *watermark) moveTo(tenant *string, due map[string]int64, full bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.Copy(w.marks, due)
	last := w.claims[of(tenant)]
	last.full = full
	w.claims[of(tenant)] = last
}
