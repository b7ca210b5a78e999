package dedup

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
)

// keys_test.go: whose turn it is in the planners' queue.

// takes takes n keys and returns them; a key that does not come is "-".
func (q *keyQueue) takes(n int) string {
	var got []string
	for range n {
		c := make(chan string, 1)
		go func() {
			if key, ok := q.take(); ok {
				c <- key
			}
		}()
		synctest.Wait()
		select {
		case key := <-c:
			got = append(got, key)
		default:
			got = append(got, "-")
		}
	}
	return strings.Join(got, " ")
}

func TestKeyQueue(t *testing.T) {
	// play runs f on a queue with n keys of each of the tenants, a tenant's one after the other: a1, a2, …
	play := func(name string, tenants string, n int, f func(t *testing.T, q *keyQueue)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newKeyQueue()
				defer q.close()
				for _, who := range strings.Fields(tenants) {
					for i := range n {
						q.add(fmt.Sprint(who, i+1), who)
					}
				}
				f(t, q)
			})
		})
	}
	want := func(t *testing.T, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	play("tenants take turns, each in the order of its hints", "a b c", 3, func(t *testing.T, q *keyQueue) {
		want(t, q.takes(8), "a1 b1 c1 a2 b2 c2 a3 b3")
	})
	play("a tenant that comes later does not wait for another's backlog", "a", 100, func(t *testing.T, q *keyQueue) {
		want(t, q.takes(2), "a1 a2")
		q.add("b1", "b")
		want(t, q.takes(3), "a3 b1 a4")
	})
	play("a tenant that is alone has all the planners", "a", 10, func(t *testing.T, q *keyQueue) {
		want(t, q.takes(8), "a1 a2 a3 a4 a5 a6 a7 a8")
	})
	play("where there are several one has six planners of the eight", "a", 10, func(t *testing.T, q *keyQueue) {
		q.add("b1", "b")
		want(t, q.takes(9), "a1 b1 a2 a3 a4 a5 a6 - -")
	})
	play("also when the other is gone, and a planner that comes back takes the next", "a", 10, func(t *testing.T, q *keyQueue) {
		q.add("b1", "b")
		want(t, q.takes(2), "a1 b1")
		q.done("b1", false)
		want(t, q.takes(6), "a2 a3 a4 a5 a6 -") // the last one goes on waiting
		q.done("a1", false)
		synctest.Wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		if s := q.state["a7"]; s == nil || !s.taken {
			t.Error("the one that waited did not get it")
		}
	})
	play("a key that turns out another's counts for that one", "a", 10, func(t *testing.T, q *keyQueue) {
		q.add("b1", "")
		want(t, q.takes(2), "a1 b1")
		q.belongs("b1", "a")
		want(t, q.takes(5), "a2 a3 a4 a5 -")
		q.belongs("b1", "b")
		synctest.Wait()
		q.mu.Lock()
		defer q.mu.Unlock()
		if s := q.state["a6"]; s == nil || !s.taken || q.by["b"].held != 1 || q.by[""] != nil {
			t.Errorf("%+v", q.by)
		}
	})
	play("a key that turns out another's comes again in its turn if that one has its planners", "a", 6, func(t *testing.T, q *keyQueue) {
		q.add("x1", "")
		want(t, q.takes(7), "a1 x1 a2 a3 a4 a5 a6")
		if q.belongs("x1", "a") {
			t.Error("it may stay")
		}
		q.done("x1", true)
		want(t, q.takes(1), "-")
		q.done("a1", false)
		synctest.Wait()
		if !q.belongs("x1", "a") || q.by["a"].held != 6 {
			t.Errorf("%+v", q.by["a"])
		}
	})
	play("a key is with one planner, and comes again for a hint that came meanwhile, or if there is more", "a", 1, func(t *testing.T, q *keyQueue) {
		want(t, q.takes(1), "a1")
		q.add("a1", "a")
		q.add("a1", "a")
		want(t, q.takes(1), "-")
		q.done("a1", false)
		synctest.Wait() // the one that waited has it
		q.done("a1", true)
		want(t, q.takes(1), "a1")
		q.done("a1", false)
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(q.by) != 0 || len(q.state) != 0 || q.queued != 0 || len(q.ring) != 0 {
			t.Errorf("something is left: %+v", q)
		}
	})
	play("a full queue keeps nobody else's key out, and is never fuller", "a", maxKeys+100, func(t *testing.T, q *keyQueue) {
		if q.queued != maxKeys {
			t.Fatalf("%d queued", q.queued)
		}
		for i := range 2000 {
			q.add(fmt.Sprint("b", i+1), fmt.Sprint("b", i%1000))
		}
		if q.queued != maxKeys || len(q.state) != maxKeys || len(q.by["b7"].queue) != 2 {
			t.Errorf("%d queued, %d known, %d of b7", q.queued, len(q.state), len(q.by["b7"].queue))
		}
		want(t, q.takes(3), "a1 b1 b2")
	})
	play("two floods share a full queue equally", "a", maxKeys, func(t *testing.T, q *keyQueue) {
		for i := range maxKeys {
			q.add(fmt.Sprint("b", i+1), "b")
		}
		if a, b := len(q.by["a"].queue), len(q.by["b"].queue); a != maxKeys/2 || b != maxKeys/2 {
			t.Errorf("%d and %d", a, b)
		}
	})
	play("more tenants than it has room for leave it full, and forgotten ones are forgotten", "", 0, func(t *testing.T, q *keyQueue) {
		for i := range maxKeys + 100 {
			q.add(fmt.Sprint("k", i), fmt.Sprint("t", i))
		}
		if q.queued != maxKeys || len(q.by) != maxKeys {
			t.Errorf("%d queued, %d tenants", q.queued, len(q.by))
		}
	})
	play("a queue that was closed gives nothing, and begins anew when it is opened", "a", 3, func(t *testing.T, q *keyQueue) {
		want(t, q.takes(1), "a1")
		q.close()
		want(t, q.takes(1), "-")
		q.reopen()
		q.done("a1", true) // of the life before
		want(t, q.takes(1), "-")
		q.add("a2", "a")
		synctest.Wait()
		q.done("a2", false)
	})
	play("a key that is given back late, from the life before, stays where it is queued", "a", 1, func(t *testing.T, q *keyQueue) {
		want(t, q.takes(1), "a1")
		q.close()
		q.reopen()
		q.add("a1", "")
		if !q.belongs("a1", "a") {
			t.Error("it is not the caller's to move")
		}
		q.done("a1", false)
		q.add("a1", "a")
		want(t, q.takes(2), "a1 -")
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.by[""].held != 1 || q.by["a"] != nil {
			t.Errorf("%+v", q.by)
		}
	})
}

// TestKeyQueueAtRandom holds the queue's own books together under acts in any order.
func TestKeyQueueAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q := newKeyQueue()
	taken := map[string]bool{}
	for range 20_000 {
		key, tenant := fmt.Sprint(r.IntN(300)), fmt.Sprint(r.IntN(5))
		switch act := r.IntN(4); {
		case act < 2:
			q.add(key, tenant)
		case act == 2 && q.queued > 0 && len(taken) < 5:
			k, _ := q.take()
			if taken[k] {
				t.Fatalf("key %s was handed out twice", k)
			}
			taken[k] = true
		default:
			for k := range taken {
				if r.IntN(2) == 0 {
					q.belongs(k, tenant)
				}
				q.done(k, r.IntN(2) == 0)
				delete(taken, k)
				break
			}
		}
		held, queued, active := 0, 0, 0
		for name, one := range q.by {
			held, queued = held+one.held, queued+len(one.queue)
			if len(one.queue) > 0 {
				active++
			}
			if one.name != name || (one.held == 0 && len(one.queue) == 0) {
				t.Fatalf("tenant %s: %+v", name, one)
			}
		}
		if held != len(taken) || queued != q.queued || active != len(q.ring) || len(q.state) != held+queued {
			t.Fatalf("%d held of %d, %d queued of %d, %d active of %d, %d known", held, len(taken), queued, q.queued, active, len(q.ring), len(q.state))
		}
	}
}
