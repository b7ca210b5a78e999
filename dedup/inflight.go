package dedup

import "sync"

// inflight counts calls under way. Unlike a WaitGroup it may be waited for by a drain that was given up on, while the next
// Run begins calls of its own.
type inflight struct {
	mu   sync.Mutex
	n    int
	idle []chan struct{} // closed at the next moment without a call under way
}

// run calls f on a goroutine of its own.
func (i *inflight) run(f func()) {
	i.mu.Lock()
	i.n++
	i.mu.Unlock()
	go func() {
		defer i.done()
		f()
	}()
}

func (i *inflight) done() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.n--; i.n > 0 {
		return
	}
	for _, c := range i.idle {
		close(c)
	}
	i.idle = nil
}

// wait returns once nothing is under way.
func (i *inflight) wait() {
	i.mu.Lock()
	if i.n == 0 {
		i.mu.Unlock()
		return
	}
	c := make(chan struct{})
	i.idle = append(i.idle, c)
	i.mu.Unlock()
	<-c
}
