package postgres

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/leadonce/leadonce/store"
)

// bench_test.go: what the door and the whole path cost. Only ratios of one run on one machine mean anything.

func benchEvent(n int64) store.Event {
	e := event(fmt.Sprint(n), fmt.Sprintf("k:%08d", n))
	e.Payload = make([]byte, 700)
	e.Enquiry = []byte(`{"source":"telegram","kind":"message","person":{"id":"1"},"text":"hello"}`)
	return e
}

func benchmarkCallers(b *testing.B, callers int, f func(s *Store, n int64) error) {
	s := open(b, nil)
	defer s.Subscribe(func(store.Hint) {})()
	var n atomic.Int64
	done := make(chan error, callers)
	b.ResetTimer()
	for range callers {
		go func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					done <- nil
					return
				}
				if err := f(s, i); err != nil {
					done <- err
					return
				}
			}
		}()
	}
	for range callers {
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func BenchmarkAccept(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			benchmarkCallers(b, callers, func(s *Store, n int64) error {
				_, err := s.Accept(background, benchEvent(n))
				return err
			})
		})
	}
}

// BenchmarkEnquiry is the shortest life: accept, plan and begin, confirm.
func BenchmarkEnquiry(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			benchmarkCallers(b, callers, func(s *Store, n int64) error {
				e := benchEvent(n)
				if _, err := s.Accept(background, e); err != nil {
					return err
				}
				v, err := s.ReadKey(background, e.OrderingKey)
				if err != nil {
					return err
				}
				c := claimOf("w", 1)
				ops, err := s.CommitPlan(background, planFor(v, &c))
				if err != nil {
					return err
				}
				_, err = s.Advance(background, store.Report{ID: ops[0].ID, On: store.Confirmed, CRMID: "77"})
				return err
			})
		})
	}
}
