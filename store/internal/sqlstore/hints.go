package sqlstore

import (
	"sync"

	"github.com/leadonce/leadonce/store"
)

// hints.go: who wants to know that work may have become due.

// hintQueue is how many hints wait for one slow subscriber; beyond it they are dropped, and what they were about is found
// by DueKeys and Claim.
const hintQueue = 1024

// Hints tells subscribers. The zero value is ready; its methods may be called by any number of goroutines.
type Hints struct {
	mu     sync.RWMutex
	closed bool
	subs   map[*subscriber]bool
}

// subscriber is called by a goroutine of its own, so that its slowness and its panics are its own.
type subscriber struct {
	queue chan store.Hint
	stop  chan struct{}
	once  sync.Once
}

// Subscribe calls f, in one goroutine, for every hint that is told. cancel, or Close, ends it.
func (h *Hints) Subscribe(f func(store.Hint)) (cancel func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}
	}
	sub := &subscriber{queue: make(chan store.Hint, hintQueue), stop: make(chan struct{})}
	if h.subs == nil {
		h.subs = map[*subscriber]bool{}
	}
	h.subs[sub] = true
	go sub.run(f)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, sub)
		sub.end()
	}
}

func (sub *subscriber) run(f func(store.Hint)) {
	for {
		select {
		case <-sub.stop:
			return
		default:
		}
		select {
		case <-sub.stop:
			return
		case hint := <-sub.queue:
			call(f, hint)
		}
	}
}

// call keeps a subscriber's panic away from the process: a hint may be missing, and so may be what it would have done.
func call(f func(store.Hint), hint store.Hint) {
	defer func() { _ = recover() }()
	f(hint)
}

func (sub *subscriber) end() { sub.once.Do(func() { close(sub.stop) }) }

// Any reports whether anybody listens.
func (h *Hints) Any() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subs) > 0
}

// Tell passes a hint on without waiting.
func (h *Hints) Tell(hint store.Hint) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for sub := range h.subs {
		select {
		case sub.queue <- hint:
		default:
		}
	}
}

// Close ends every subscription. It does not wait: a subscriber may be closing the store.
func (h *Hints) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for sub := range h.subs {
		sub.end()
	}
	clear(h.subs)
}
