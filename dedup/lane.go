package dedup

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/backoff"
	"github.com/leadonce/leadonce/store"
)

// lane.go: what belongs to one tenant, how several share the workers, and whom a Processor leaves to others.

// Tenant is one account of a host that serves several: its own CRM, and its own rule (nil: it only submits).
type Tenant struct {
	Adapter crm.Adapter
	Rule    Rule
}

// lane is one tenant's way to its CRM. What is wrong with one CRM holds up its own lane only.
type lane struct {
	tenant  *string // nil: every tenant
	adapter crm.Adapter
	desc    crm.Description
	policy  policy
	terms   terms
	health  *health

	due     atomic.Bool // the store may have something to send
	looking atomic.Bool // its look-ups are under way
	more    atomic.Bool // and there may be more of them at once
}

func (p *Processor) newLane(tenant *string, adapter crm.Adapter, rule Rule) (*lane, error) {
	if adapter == nil {
		return nil, errors.New("dedup: an adapter is needed")
	}
	desc, err := crm.Describe(adapter)
	if err != nil {
		return nil, fmt.Errorf("dedup: adapter: %w", err)
	}
	opt := p.opt
	if err := errors.Join(opt.fit(desc), validateRule(rule, adapter)); err != nil {
		return nil, err
	}
	if opt.Contacts && !crm.Supports(adapter, crm.KindContact) {
		return nil, fmt.Errorf("dedup: Options.Contacts is on, and the adapter %T has no %s", adapter, crm.MethodFor(crm.KindContact))
	}
	l := &lane{tenant: tenant, adapter: adapter, desc: desc}
	claim := store.Claim{Owner: opt.Owner, Lease: opt.Lease, Quiet: opt.QuietPeriod, Adapter: desc.Identity,
		Terms: map[string]store.Terms{}, Tenant: tenant}
	for _, k := range kinds {
		g := desc.Guarantee(k)
		claim.Terms[string(k)] = store.Terms{Guarantee: string(g.Kind), Window: g.Window}
		claim.Terms[shadowMark+string(k)] = store.Terms{Guarantee: string(crm.AtLeastOnce), Window: crm.DefaultWindow} // nothing is sent
	}
	l.terms = terms{claim: claim, lo: opt.BackoffMin, hi: opt.BackoffMax}
	l.policy = policy{supports: func(k crm.Kind) bool { return p.supports(adapter, k) }, attempts: opt.RuleAttempts, backoff: l.terms.backoff,
		quiet: opt.GatherQuiet, gather: opt.GatherMax, repeat: opt.RepeatWindow, wait: opt.StageWait,
		transitions: opt.Transitions, shadow: opt.Shadow}
	if rule != nil {
		l.policy.decide = func(e Enquiry, h History) (Decision, error) { return p.decide(rule, e, h) }
	}
	l.health = &health{now: time.Now, wait: func(n int) time.Duration { return backoff.Delay(n, opt.BackoffMin, opt.BackoffMax) },
		changed: func(paused bool, reason string, next time.Duration) { p.pausedChanged(l, paused, reason, next) }}
	return l, nil
}

// name is the lane's tenant for messages; empty where it serves every one.
func (l *lane) name() string {
	if l.tenant == nil {
		return ""
	}
	return *l.tenant
}

// serves is a last guard: what belongs to one tenant never goes to another one's CRM, whatever the store hands out.
func (l *lane) serves(op store.Operation) bool { return l.tenant == nil || op.Tenant == *l.tenant }

// trustsEmpty reports whether a look-up that finds nothing may be a proof there.
func (l *lane) trustsEmpty() bool {
	_, finds := l.adapter.(crm.Finder)
	return finds && l.desc.LookupReadsOwnWrites
}

// lanes are those of a Processor. The zero value serves nobody.
type lanes struct {
	all   []*lane
	by    map[string]*lane // nil: the only one serves every tenant
	names []string         // the tenants that the store is asked for; nil: all

	mu    sync.Mutex
	first int // whose turn it is
}

func (ls *lanes) several() bool { return ls.by != nil }

// of returns the lane of a tenant; nil if it is not served here.
func (ls *lanes) of(tenant string) *lane {
	if !ls.several() {
		return ls.all[0]
	}
	return ls.by[tenant]
}

// mark says that the store may have something to send for l, or for any lane if that is nil.
func (ls *lanes) mark(l *lane) {
	if l != nil {
		l.due.Store(true)
		return
	}
	for _, l := range ls.all {
		l.due.Store(true)
	}
}

// turn returns the lanes that may have something to send, that whose turn it is first.
func (ls *lanes) turn() (due []*lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for i := range ls.all {
		if l := ls.all[(ls.first+i)%len(ls.all)]; l.due.Load() {
			due = append(due, l)
		}
	}
	return due
}

// served makes it the turn of the one after l.
func (ls *lanes) served(l *lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.first = slices.Index(ls.all, l) + 1
}

// validTenant refuses a name that a store would have to change.
func validTenant(name string) error {
	if !utf8.ValidString(name) || strings.ContainsRune(name, 0) || len(name) > maxHostKey {
		return fmt.Errorf("its name must be UTF-8 without NUL, of at most %d bytes", maxHostKey)
	}
	return nil
}

func (p *Processor) addTenants(tenants map[string]Tenant) (errs error) {
	p.lanes.by = map[string]*lane{}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		err := validTenant(name)
		var l *lane
		if err == nil {
			l, err = p.newLane(&name, tenants[name].Adapter, tenants[name].Rule)
		}
		if err != nil {
			errs = errors.Join(errs, fmt.Errorf("dedup: tenant %q: %w", name, err))
			continue
		}
		p.lanes.all = append(p.lanes.all, l)
		p.lanes.by[name] = l
		p.lanes.names = append(p.lanes.names, name)
	}
	return errs
}

// serving returns the lane of a tenant, or an error that says what to do.
func (p *Processor) serving(tenant string) (*lane, error) {
	if l := p.lanes.of(tenant); l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("%w: tenant %q is not served here: add it to the map given to NewTenants", store.ErrInvalid, tenant)
}

// slots are places that several share: workers of the lanes, bodies of the bots behind one door.
type slots[K comparable] struct {
	mu   sync.Mutex
	all  int
	free int
	each int // how many one of them may hold
	held map[K]int
}

// newSlots leaves, where there are several, a quarter of the places (one at least) to the others: a CRM that hangs holds its
// lane's workers until their deadline.
func newSlots[K comparable](n int, several bool) *slots[K] {
	s := &slots[K]{all: n, free: n, each: n, held: map[K]int{}}
	if several {
		s.each = most(n)
	}
	return s
}

// most is how many of n places one may hold.
func most(n int) int { return max(1, n-max(1, n/4)) }

// take takes up to n places for who without waiting.
func (s *slots[K]) take(who K, n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hold(who, n)
}

func (s *slots[K]) hold(who K, n int) int {
	n = max(0, min(n, s.free, s.each-s.held[who]))
	s.free -= n
	if n > 0 {
		s.held[who] += n
	}
	return n
}

// takeFresh is take for what was decided this moment. Where there are several tenants it leaves a quarter of the places (one at
// least) to what waits: else one tenant's flood of new enquiries would begin before the others' turn.
func (s *slots[K]) takeFresh(who K, n int, several bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if several {
		n = min(n, s.free-max(1, s.all/4))
	}
	return s.hold(who, n)
}

func (s *slots[K]) give(who K, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free += n
	if s.held[who] -= n; s.held[who] == 0 {
		delete(s.held, who)
	}
}

// share is what each of n may take of the free ones.
func (s *slots[K]) share(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.free + n - 1) / n
}

// strangers are the tenants that this Processor does not serve and has told of.
type strangers struct {
	mu   sync.Mutex
	told map[string]bool
}

// meet reports whether a tenant is met for the first time.
func (s *strangers) meet(tenant string) (isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told == nil || len(s.told) >= maxKeys {
		s.told = map[string]bool{}
	}
	isNew = !s.told[tenant]
	s.told[tenant] = true
	return isNew
}

// strange leaves what belongs to another tenant as it is, and says so once for each.
func (p *Processor) strange(tenant string) {
	if p.strangers.meet(tenant) {
		p.opt.Logger.Warn("leadonce: there are events or operations of a tenant that this Processor does not serve; they are left "+
			"as they are: add the tenant to the map given to NewTenants, or run a process that serves it", "tenant", tenant)
	}
}
