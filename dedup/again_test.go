package dedup_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// again_test.go: what hangs is left behind: no more of it than there is room for, and in nobody's way.

func TestARuleThatAlwaysHangs(t *testing.T) {
	t.Run("it holds no more than 1000 goroutines of a tenant, what comes is parked, and another tenant's is planned", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			back := make(chan struct{})
			var inside atomic.Int64
			rule := dedup.OnePerMessage(func(e dedup.Enquiry) (crm.Lead, error) {
				if e.Tenant == "a" {
					inside.Add(1)
					<-back
					inside.Add(-1)
				}
				return crm.Lead{Title: "a lead"}, nil
			})
			defer b.run(b.processorOn(b.st, nil, rule))()
			for i := range 250 {
				b.accept(eventOf("a", 100+i, 100+i, "hello"))
			}
			time.Sleep(time.Hour)
			b.accept(eventOf("b", 1, 1, "hello"))
			time.Sleep(time.Minute)
			parked := func() int {
				rows, err := b.st.Events(b.ctx, store.EventFilter{States: []store.EventState{store.EventParked}, Limit: 1000})
				if err != nil {
					t.Fatal(err)
				}
				return len(rows)
			}
			if n := inside.Load(); n != 1000 || parked() != 250 || len(b.ops(store.Done)) != 1 {
				t.Errorf("%d calls hang, %d events are parked, %d leads", n, parked(), len(b.ops(store.Done)))
			}
			close(back)
			b.accept(eventOf("a", 2, 2, "hello"))
			time.Sleep(time.Minute)
			if n := inside.Load(); n != 0 || parked() != 250 || len(b.ops(store.Done)) != 2 {
				t.Errorf("afterwards %d calls hang, %d events are parked, %d leads", n, parked(), len(b.ops(store.Done)))
			}
		})
	})
}

func TestRunAgain(t *testing.T) {
	t.Run("planners that a hanging rule has kept beyond the drain take no keys of the next Run", func(t *testing.T) {
		virtual(t, crmtest.Config{}, func(b *bed) {
			var hangs atomic.Bool
			hangs.Store(true)
			rule := dedup.OnePerMessage(func(dedup.Enquiry) (crm.Lead, error) {
				if hangs.Load() {
					time.Sleep(4 * time.Second)
				}
				return crm.Lead{Title: "a lead"}, nil
			})
			p := b.processorOn(b.st, nil, rule, func(o *dedup.Options) { o.DrainTimeout, o.Poll = time.Second, time.Minute })
			for i := range 8 {
				b.accept(event(100+i, 100+i, "hello"))
			}
			ctx, cancel := context.WithCancel(b.ctx)
			time.AfterFunc(3*time.Second, cancel)
			if err := p.Run(ctx); err == nil {
				t.Fatal("it is drained, and shows nothing")
			}
			hangs.Store(false)
			ctx, cancel = context.WithCancel(b.ctx)
			defer cancel()
			go p.Run(ctx)
			time.Sleep(10 * time.Second) // the hanging rules have returned
			for i := range 50 {
				b.accept(event(1000+i, 1000+i, "hello"))
				synctest.Wait()
			}
			time.Sleep(time.Second) // long before the next poll
			if n := len(b.ops(store.Done)); n != 58 {
				t.Errorf("%d leads of 58", n)
			}
		})
	})
}
