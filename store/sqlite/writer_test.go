package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/leadonce/leadonce/store"
)

// writer_test.go: shared commits.

// hold keeps the writer busy until release is called, so that what is done meanwhile shares the next commit.
func hold(t testing.TB, s *Store) (release func()) {
	t.Helper()
	held, let := make(chan struct{}), make(chan struct{})
	go s.writer.do(background, false, func(*conn) error {
		close(held)
		<-let
		return nil
	})
	<-held
	return sync.OnceFunc(func() { close(let) })
}

// enqueue starts f and returns once it waits for the writer. The writer is held, so nothing but waiting can follow.
func enqueue(t testing.TB, s *Store, single bool, f func(*conn) error) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.writer.do(background, single, f) }()
	return done
}

func mark(c *conn, name string) error {
	_, err := c.exec(`insert into leadonce_meta (name, value) values (:name, '')`, args{"name": name})
	return err
}

func marked(t testing.TB, s *Store, name string) bool {
	t.Helper()
	var v string
	var found bool
	err := s.read.view(background, func(c *conn) (err error) {
		found, err = c.get(&v, `select name from leadonce_meta where name = :name`, args{"name": name})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestSharedCommit(t *testing.T) {
	t.Run("a member that fails takes nobody down and leaves nothing behind", func(t *testing.T) {
		s := open(t, nil)
		release := hold(t, s)
		boom := errors.New("boom")
		a := enqueue(t, s, false, func(c *conn) error { return mark(c, "a") })
		b := enqueue(t, s, false, func(c *conn) error { return errors.Join(mark(c, "b"), boom) })
		d := enqueue(t, s, false, func(c *conn) error { return mark(c, "d") })
		release()
		if err := errors.Join(<-a, <-d); err != nil {
			t.Fatal(err)
		}
		if err := <-b; !errors.Is(err, boom) {
			t.Fatalf("got %v", err)
		}
		if !marked(t, s, "a") || marked(t, s, "b") || !marked(t, s, "d") {
			t.Fatal("a and d must be there, b must not")
		}
	})
	t.Run("a member that panics takes nobody down, and the writer lives", func(t *testing.T) {
		s := open(t, nil)
		release := hold(t, s)
		a := enqueue(t, s, false, func(c *conn) error { return mark(c, "a") })
		b := enqueue(t, s, true, func(c *conn) error { mark(c, "b"); panic("boom") })
		release()
		if err := <-a; err != nil {
			t.Fatal(err)
		}
		if err := <-b; err == nil || !strings.Contains(err.Error(), "panicked") {
			t.Fatalf("got %v", err)
		}
		if !marked(t, s, "a") || marked(t, s, "b") {
			t.Fatal("a must be there, b must not")
		}
	})
	t.Run("a member whose context ended before it began is skipped", func(t *testing.T) {
		s := open(t, nil)
		ctx, cancel := context.WithCancel(background)
		ran := false
		batch := []*request{
			{ctx: background, run: func(c *conn) error { cancel(); return mark(c, "a") }},
			{ctx: ctx, run: func(c *conn) error { ran = true; return nil }},
		}
		inWriter(t, s, func(w *writer) { w.commit(batch) })
		if batch[0].err != nil || !errors.Is(batch[1].err, context.Canceled) || ran {
			t.Fatalf("got %v and %v, ran %v", batch[0].err, batch[1].err, ran)
		}
	})
	t.Run("a caller whose context ends while its member runs is told that the outcome is unknown", func(t *testing.T) {
		s := open(t, nil)
		ctx, cancel := context.WithCancel(background)
		let := make(chan struct{})
		err := make(chan error, 1)
		go func() {
			err <- s.writer.do(ctx, false, func(c *conn) error {
				cancel()
				<-let
				return mark(c, "a")
			})
		}()
		if err := <-err; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "not known") {
			t.Fatalf("got %v", err)
		}
		close(let)
		if err := s.writer.do(background, false, func(*conn) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if !marked(t, s, "a") {
			t.Fatal("what ran was not kept")
		}
	})
	t.Run("a commit that fails is everyone's error", func(t *testing.T) {
		s := open(t, nil)
		batch := []*request{
			{ctx: background, run: func(c *conn) error { return mark(c, "a") }},
			{ctx: background, run: func(c *conn) error {
				_, err := c.exec("rollback", nil) // as a full disk would
				return err
			}, single: true},
		}
		inWriter(t, s, func(w *writer) { w.commit(batch) })
		for i, r := range batch {
			if r.err == nil {
				t.Errorf("member %d was acknowledged", i)
			}
		}
		if marked(t, s, "a") {
			t.Fatal("a was kept")
		}
		if _, err := s.Accept(background, event("1", "k")); err != nil {
			t.Fatalf("afterwards: %v", err)
		}
	})
	t.Run("the writer connects again when its connection is lost", func(t *testing.T) {
		s := open(t, nil)
		inWriter(t, s, func(w *writer) { w.c.c.Raw(func(any) error { return driver.ErrBadConn }) })
		must(s.Accept(background, event("1", "k")))(t)
	})
	t.Run("the writer connects again when its connection is stuck in a transaction", func(t *testing.T) {
		s := open(t, nil)
		inWriter(t, s, func(w *writer) {
			if err := w.c.begin(); err != nil {
				t.Fatal(err)
			}
		})
		must(s.Accept(background, event("1", "k")))(t)
		must(s.Accept(background, event("2", "k")))(t)
	})
	t.Run("Close keeps what was taken and refuses the rest", func(t *testing.T) {
		s := open(t, nil)
		release := hold(t, s)
		var wg sync.WaitGroup
		errs := make(chan error, 20)
		for i := range 20 {
			wg.Go(func() {
				_, err := s.Accept(background, event(fmt.Sprint(i), "k"))
				errs <- err
			})
		}
		closed := make(chan error)
		go func() { closed <- s.Close() }()
		<-s.writer.closing
		release()
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		close(errs)
		for err := range errs {
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
		if _, err := s.Stats(background); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("reading afterwards: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
	})
	t.Run("64 callers at once each get their own result, in few commits", func(t *testing.T) {
		s := open(t, nil)
		release := hold(t, s)
		var wg sync.WaitGroup
		var mu sync.Mutex
		ids := map[int64]int{}
		for i := range 64 {
			wg.Go(func() {
				r, err := s.Accept(background, event(fmt.Sprint(i/2), "k")) // each twice
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				ids[r.EventID]++
			})
		}
		release()
		wg.Wait()
		if len(ids) != 32 {
			t.Fatalf("%d events, want 32", len(ids))
		}
		for id, n := range ids {
			if n != 2 {
				t.Errorf("event %d was given to %d callers", id, n)
			}
		}
	})
}

// inWriter runs f in place of the writer's goroutine, which waits for requests: there must be none.
func inWriter(t testing.TB, s *Store, f func(*writer)) {
	t.Helper()
	if err := s.writer.do(background, true, func(*conn) error { return nil }); err != nil {
		t.Log(err)
	}
	f(s.writer)
}
