package dedup

import (
	"slices"
	"sync"
)

// keys.go: the queue between hints and planners. Tenants take turns in it, so that one's flood keeps nobody waiting.

// planners is how many goroutines plan.
const planners = 8

// maxKeys bounds the queue: beyond it a hint is dropped, and the poll brings the key back.
const maxKeys = 20_000

// keyQueue hands out ordering keys so that one key is planned by one goroutine of this process at a time, the tenants by
// turns. As soon as there is more than one of them, each has at most three quarters of the planners (a rule may hang), and,
// when the queue is full, at most an equal part of it.
type keyQueue struct {
	mu     sync.Mutex
	cond   *sync.Cond
	ring   []*tenantKeys // those with queued keys, whose turn it is first
	by     map[string]*tenantKeys
	state  map[string]*keyState
	queued int
	many   bool   // more than one tenant has been seen
	seen   string // the first one, once there are any
	any    bool
	closed bool
}

// tenantKeys are one tenant's.
type tenantKeys struct {
	name  string
	queue []string
	held  int // how many planners plan for it
}

type keyState struct {
	tenant *tenantKeys
	taken  bool
	again  bool // taken, and a hint came meanwhile
}

func newKeyQueue() *keyQueue {
	q := &keyQueue{}
	q.cond = sync.NewCond(&q.mu)
	q.reopen()
	return q
}

// add has a key planned. The tenant is that of its oldest event as far as it is known.
func (q *keyQueue) add(key, tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.put(key, tenant)
}

func (q *keyQueue) put(key, tenant string) {
	if q.closed {
		return
	}
	if s := q.state[key]; s != nil {
		s.again = s.again || s.taken
		return
	}
	t := q.of(tenant)
	if q.queued >= maxKeys && !q.makeRoom(t) {
		q.drop(t)
		return
	}
	q.state[key] = &keyState{tenant: t}
	if len(t.queue) == 0 {
		q.ring = append(q.ring, t)
	}
	t.queue = append(t.queue, key)
	q.queued++
	q.cond.Signal()
}

// makeRoom drops the newest key of a tenant that has more than its part of the full queue, unless t has its own already.
func (q *keyQueue) makeRoom(t *tenantKeys) bool {
	tenants := len(q.ring)
	if len(t.queue) == 0 {
		tenants++
	}
	part := maxKeys / tenants
	if len(t.queue) >= part {
		return false
	}
	i := slices.IndexFunc(q.ring, func(o *tenantKeys) bool { return len(o.queue) > part })
	if i < 0 {
		return false
	}
	long := q.ring[i]
	last := len(long.queue) - 1
	delete(q.state, long.queue[last])
	long.queue = long.queue[:last]
	q.queued--
	return true
}

// take waits for a key whose tenant may have one more planner. It must be given back by done.
func (q *keyQueue) take() (string, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.closed {
		i := slices.IndexFunc(q.ring, q.mayHold)
		if i < 0 {
			q.cond.Wait()
			continue
		}
		t := q.ring[i]
		q.ring = slices.Delete(q.ring, i, i+1)
		key := t.queue[0]
		t.queue = t.queue[1:]
		q.queued--
		if len(t.queue) > 0 {
			q.ring = append(q.ring, t)
		} else {
			t.queue = nil
		}
		q.state[key].taken = true
		t.held++
		return key, true
	}
	return "", false
}

// mayHold reports whether t may have one more planner.
func (q *keyQueue) mayHold(t *tenantKeys) bool { return !q.many || t.held < most(planners) }

// belongs says whose a taken key really is: a hint may be wrong. It reports false if that tenant has all its planners: the key
// must then be given back and come again, in its turn.
func (q *keyQueue) belongs(key, tenant string) (ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state[key]
	if s == nil || !s.taken || s.tenant.name == tenant {
		return true
	}
	old := s.tenant
	old.held--
	s.tenant = q.of(tenant)
	ok = q.mayHold(s.tenant)
	s.tenant.held++
	q.drop(old)
	q.cond.Signal()
	return ok
}

// done gives a taken key back; again has it planned once more.
func (q *keyQueue) done(key string, again bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.state[key]
	if s == nil || !s.taken { // the caller took it in another Run, whose drain was given up
		return
	}
	delete(q.state, key)
	s.tenant.held--
	if again || s.again {
		q.put(key, s.tenant.name)
	}
	q.drop(s.tenant)
	q.cond.Signal()
}

func (q *keyQueue) of(tenant string) *tenantKeys {
	t := q.by[tenant]
	if t == nil {
		t = &tenantKeys{name: tenant}
		q.by[tenant] = t
		if q.any && tenant != q.seen {
			q.many = true
		}
		if !q.any {
			q.any, q.seen = true, tenant
		}
	}
	return t
}

// drop forgets a tenant of which there is nothing left.
func (q *keyQueue) drop(t *tenantKeys) {
	if len(t.queue) == 0 && t.held == 0 {
		delete(q.by, t.name)
	}
}

// several reports whether more than one tenant has been seen.
func (q *keyQueue) several() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.many
}

func (q *keyQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.cond.Broadcast()
}

func (q *keyQueue) reopen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.ring, q.queued = false, nil, 0
	q.by, q.state = map[string]*tenantKeys{}, map[string]*keyState{}
}
