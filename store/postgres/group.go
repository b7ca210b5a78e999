package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/leadonce/leadonce/store"
)

// group.go: shared transactions. What is asked for while one is on its way goes into the next one, each caller with its own
// result.

// maxBatch is how many calls share a transaction at most.
const maxBatch = 128

// call is one caller's part: in is what it asks for, out and err what it is answered. Whoever runs the batch sets them
// before done is closed.
type call[In, Out any] struct {
	ctx  context.Context
	in   In
	out  Out
	err  error
	done chan struct{}
	// apart: the call has left its batch, and somebody else closes done.
	apart bool
}

// group gathers calls of one kind.
type group[In, Out any] struct {
	run     func([]*call[In, Out])
	wake    chan struct{}
	closing chan struct{}
	once    sync.Once
	ended   sync.WaitGroup

	mu     sync.Mutex
	queue  []*call[In, Out]
	closed bool
}

// startGroup starts so many goroutines that run batches, until close.
func startGroup[In, Out any](workers int, run func([]*call[In, Out])) *group[In, Out] {
	g := &group[In, Out]{run: run, wake: make(chan struct{}, workers), closing: make(chan struct{})}
	for range workers {
		g.ended.Go(g.loop)
	}
	return g
}

// do answers in together with what others ask for. If ctx ends first, what became of it is not known.
func (g *group[In, Out]) do(ctx context.Context, in In) (out Out, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	c := &call[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return out, errClosed
	}
	g.queue = append(g.queue, c)
	g.mu.Unlock()
	g.poke()
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
		return out, fmt.Errorf("the outcome is not known: %w", ctx.Err())
	}
}

func (g *group[In, Out]) poke() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// gather lets the callers of the batch before, who were answered a moment ago, ask again: it waits no longer than it takes
// everybody else to run once.
func (g *group[In, Out]) gather() {
	for n := -1; ; {
		g.mu.Lock()
		more := len(g.queue) > n && len(g.queue) < maxBatch
		n = len(g.queue)
		g.mu.Unlock()
		if !more {
			return
		}
		runtime.Gosched()
	}
}

// take returns what waits. Calls that nobody waits for any more are dropped: nothing of them has begun.
func (g *group[In, Out]) take() []*call[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.queue), maxBatch)
	batch := make([]*call[In, Out], 0, n)
	for _, c := range g.queue[:n] {
		if c.err = c.ctx.Err(); c.err != nil {
			close(c.done)
		} else {
			batch = append(batch, c)
		}
	}
	if g.queue = g.queue[n:]; len(g.queue) > 0 {
		g.poke()
	}
	return batch
}

func (g *group[In, Out]) loop() {
	for {
		select {
		case <-g.wake:
			g.gather()
			if batch := g.take(); len(batch) > 0 {
				g.answer(batch)
			}
		case <-g.closing:
			return
		}
	}
}

// answer runs a batch. A panic is the error of its calls.
func (g *group[In, Out]) answer(batch []*call[In, Out]) {
	defer func() {
		p := recover()
		for _, c := range batch {
			if c.apart {
				continue
			}
			if p != nil {
				c.err = fmt.Errorf("a shared transaction panicked: %v", p)
			}
			close(c.done)
		}
	}()
	g.run(batch)
}

// close waits for the batches that run, and refuses the rest.
func (g *group[In, Out]) close() {
	g.once.Do(func() { close(g.closing) })
	g.ended.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, c := range g.queue {
		c.err = errClosed
		close(c.done)
	}
	g.queue = nil
}

// waves splits a batch so that no key is twice in one wave: what concerns the same thing happens one after the other.
func waves[In, Out any](batch []*call[In, Out], key func(In) string) (list [][]*call[In, Out]) {
	count := map[string]int{}
	for _, c := range batch {
		n := count[key(c.in)]
		count[key(c.in)]++
		if n == len(list) {
			list = append(list, nil)
		}
		list[n] = append(list[n], c)
	}
	return list
}

// Patience is how long a transaction waits for a lock. A batch's is short: what holds a lock longer is a transaction of the
// host.
const shortPatience = "50ms"

// shared runs a batch in one transaction. If that fails for a reason that may be one member's own, each member is run again
// by itself; one that meets a lock again goes on waiting beside the batches, so that nobody else waits with it.
func shared[In, Out any](s *Store, batch []*call[In, Out], run func(batch []*call[In, Out], patience string) error) {
	err := run(batch, shortPatience)
	switch {
	case err == nil:
		return
	case errors.Is(err, store.ErrUnavailable) && state(err) != lockNotAvailable:
		for _, c := range batch {
			c.err = err
		}
		return
	}
	for _, c := range batch {
		if len(batch) > 1 {
			err = run([]*call[In, Out]{c}, shortPatience)
		}
		if state(err) == lockNotAvailable && s.waitApart(c.wait(run, s.patience)) {
			c.apart = true
		} else if err != nil {
			c.err = err
		}
	}
}

// wait returns what runs c by itself, and answers it.
func (c *call[In, Out]) wait(run func([]*call[In, Out], string) error, patience string) func() {
	return func() {
		defer close(c.done)
		defer func() {
			if p := recover(); p != nil {
				c.err = fmt.Errorf("a transaction panicked: %v", p)
			}
		}()
		if err := run([]*call[In, Out]{c}, patience); err != nil {
			c.err = err
		}
	}
}

// waitApart runs f in a goroutine of its own, if there is room for one more.
func (s *Store) waitApart(f func()) bool {
	select {
	case s.apart <- struct{}{}:
	default:
		return false
	}
	s.waiting.Go(func() {
		defer func() { <-s.apart }()
		f()
	})
	return true
}
