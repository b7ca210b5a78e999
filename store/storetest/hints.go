package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store"
)

// hints.go: a hint makes work start sooner. It may never cost anything.

func hintChecks() []check {
	return []check{
		{"an accepted event is hinted with its ordering key", hintAccept},
		{"a submitted operation is hinted", hintSubmit},
		{"an event that is tried again is hinted", hintRetry},
		{"an event that moved to another key is hinted there", hintMoved},
		{"every subscriber is hinted", hintAll},
		{"a canceled subscription is silent", hintCancel},
		{"canceling twice does nothing", hintCancelTwice},
		{"a panicking subscriber harms nobody", hintPanics},
		{"a slow subscriber holds nobody up", hintSlow},
		{"a subscriber may call the store", hintCalls},
	}
}

// listener collects hints.
type listener struct {
	mu   sync.Mutex
	got  []store.Hint
	more chan struct{}
}

func (b *bench) listen() (*listener, func()) {
	l := &listener{more: make(chan struct{}, 1000)}
	cancel := b.st.Subscribe(func(h store.Hint) {
		l.mu.Lock()
		l.got = append(l.got, h)
		l.mu.Unlock()
		l.more <- struct{}{}
	})
	b.Cleanup(cancel)
	return l, cancel
}

func (l *listener) heard(h store.Hint) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.got, h)
}

// wantHint waits for a hint, within reason.
func (b *bench) wantHint(l *listener, h store.Hint) {
	b.Helper()
	limit := time.After(10 * time.Second)
	for !l.heard(h) {
		select {
		case <-l.more:
		case <-limit:
			b.Fatalf("no hint %+v", h)
		}
	}
}

func hintAccept(b *bench) {
	l, _ := b.listen()
	b.accept(eventOf("k:1", 1))
	b.wantHint(l, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
	b.wantDueSoon("k:1")
}

// wantDueSoon checks that what was hinted can be read already.
func (b *bench) wantDueSoon(key string) {
	b.Helper()
	if v := b.read(key); len(v.Events) == 0 {
		b.Fatalf("hinted before the commit: nothing to plan under %s", key)
	}
}

func hintSubmit(b *bench) {
	l, _ := b.listen()
	b.submit(1)
	b.wantHint(l, store.Hint{})
	b.take(opID(1))
}

func hintRetry(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	v := b.read("k:1")
	b.commit(store.Plan{Key: v.Key, Version: v.Version, Events: []store.EventEnd{{ID: r.EventID, State: store.EventParked,
		Reason: "a test"}}})
	l, _ := b.listen()
	b.must(b.st.RetryEvent(b.ctx, r.EventID, "ann", "looked at it"))
	b.wantHint(l, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
	b.wantDueSoon("k:1")
}

func hintMoved(b *bench) {
	r := b.accept(eventOf("k:1", 1))
	v := b.read("k:1")
	l, _ := b.listen()
	b.commit(store.Plan{Key: v.Key, Version: v.Version, Events: []store.EventEnd{{ID: r.EventID, State: store.EventPending,
		MoveTo: "k:2"}}})
	b.wantHint(l, store.Hint{OrderingKey: "k:2", Tenant: "shop"})
	b.wantDueSoon("k:2")
	v = b.read("k:3")
	b.commit(store.Plan{Key: v.Key, Version: v.Version, Merge: &store.Merge{From: "k:2", To: "k:3"}})
	b.wantHint(l, store.Hint{OrderingKey: "k:3", Tenant: "shop"})
	b.wantDueSoon("k:3")
}

func hintAll(b *bench) {
	first, _ := b.listen()
	second, _ := b.listen()
	b.accept(eventOf("k:1", 1))
	b.wantHint(first, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
	b.wantHint(second, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
}

func hintCancel(b *bench) {
	gone, cancel := b.listen()
	stays, _ := b.listen()
	b.accept(eventOf("k:1", 1))
	b.wantHint(gone, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
	cancel()
	b.accept(eventOf("k:2", 1))
	b.wantHint(stays, store.Hint{OrderingKey: "k:2", Tenant: "shop"})
	late := time.After(200 * time.Millisecond) // a store that keeps the promise never depends on it
	for {
		if gone.heard(store.Hint{OrderingKey: "k:2", Tenant: "shop"}) {
			b.Fatal("hinted after it was canceled")
		}
		select {
		case <-gone.more:
		case <-late:
			return
		}
	}
}

func hintCancelTwice(b *bench) {
	_, cancel := b.listen()
	stays, _ := b.listen()
	cancel()
	cancel()
	b.accept(eventOf("k:1", 1))
	b.wantHint(stays, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
}

func hintPanics(b *bench) {
	b.Cleanup(b.st.Subscribe(func(store.Hint) { panic("a subscriber's bug") }))
	l, _ := b.listen()
	defer func() {
		if p := recover(); p != nil {
			b.Fatalf("the panic came out of the store: %v", p)
		}
	}()
	for n := range 3 {
		b.accept(eventOf("k:1", n))
		b.submit(n)
	}
	b.wantHint(l, store.Hint{OrderingKey: "k:1", Tenant: "shop"})
	b.wantHint(l, store.Hint{})
	b.wantEvents(3)
}

func hintSlow(b *bench) {
	release := make(chan struct{})
	cancel := b.st.Subscribe(func(store.Hint) { <-release })
	defer func() { close(release); cancel() }()
	done := make(chan error, 1)
	go func() {
		for n := range 20 {
			if _, err := b.st.Accept(b.ctx, eventOf("k:1", n)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	select {
	case err := <-done:
		b.must(err)
	case <-time.After(10 * time.Second):
		b.Fatal("events are held up by a subscriber that does not return")
	}
}

func hintCalls(b *bench) {
	errs := make(chan error, 100)
	b.Cleanup(b.st.Subscribe(func(h store.Hint) {
		_, err := b.st.DueKeys(b.ctx, 1)
		errs <- err
	}))
	b.accept(eventOf("k:1", 1))
	select {
	case err := <-errs:
		b.must(err)
	case <-time.After(10 * time.Second):
		b.Fatal("a subscriber that reads the store does not return")
	}
}
