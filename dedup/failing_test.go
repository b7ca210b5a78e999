package dedup_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/storetest"
)

// Every single call to the store fails once, before its effect or after it (the unknown outcome of our own database), and
// nothing is lost or doubled for it.
func TestAnyStoreCallMayFail(t *testing.T) {
	for name, c := range map[string]crmtest.Config{"none": none, "unique id": uniqueID} {
		for _, when := range []storetest.When{storetest.Before, storetest.After} {
			t.Run(fmt.Sprintf("%s/%v", name, when), func(t *testing.T) {
				for n := 0; ; n++ {
					failed := ""
					virtual(t, c, func(b *bed) {
						st := storetest.Fail(b.st, n, when, "ReadKey", "CommitPlan", "Claim", "Advance", "Accept", "DueKeys", "Attention")
						p := b.processorOn(st, nil, dedup.ContinueWithin(24*time.Hour, lead))
						stop := b.run(p)
						for i := range 2 {
							for {
								_, err := st.Accept(b.ctx, event(7, i+1, fmt.Sprint("please call me ", i)))
								if err == nil {
									break
								}
								if !errors.Is(err, storetest.ErrInjected) {
									t.Fatal(err)
								}
								time.Sleep(time.Second) // Telegram's retry
							}
							time.Sleep(20 * time.Second)
						}
						time.Sleep(10 * time.Minute)
						stop()
						failed = st.Failed()
						b.leads(1)
						if failed == "" {
							return
						}
						if left := b.ops(store.Pending, store.Sending, store.Uncertain, store.Failed); len(left) != 0 {
							t.Fatalf("call %d failing %v left %s", n, when, show(left))
						}
						evs, err := b.st.Events(b.ctx, store.EventFilter{})
						if err != nil || len(evs) != 2 {
							t.Fatalf("call %d: %v, %d events", n, err, len(evs))
						}
					})
					if failed == "" || t.Failed() || n > 200 {
						return
					}
					n += n / 16 // the later calls are polls, alike
				}
			})
		}
	}
}
