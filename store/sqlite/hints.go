package sqlite

import (
	"sync"

	"github.com/leadonce/leadonce/store"
)

// hints.go: who wants to know that work may have become due.

type hints struct {
	mu   sync.RWMutex
	next int
	subs map[int]func(store.Hint)
}

// Subscribe calls f after a commit through this handle that may have made work due. Other processes on the file are not
// noticed: they are found by DueKeys and Claim.
func (s *Store) Subscribe(f func(store.Hint)) (cancel func()) {
	h := &s.hints
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.subs == nil {
		h.subs = map[int]func(store.Hint){}
	}
	id := h.next
	h.next++
	h.subs[id] = f
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.subs, id)
	}
}

func (h *hints) any() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(h.subs) > 0
}

// tell calls every subscriber, outside the lock: one of them may cancel.
func (h *hints) tell(hint store.Hint) {
	h.mu.RLock()
	fs := make([]func(store.Hint), 0, len(h.subs))
	for _, f := range h.subs {
		fs = append(fs, f)
	}
	h.mu.RUnlock()
	for _, f := range fs {
		f(hint)
	}
}
