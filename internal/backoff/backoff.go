// Package backoff computes how long to wait before the next try.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Delay returns the wait after n failures in a row (n ≥ 1): lo doubled n-1 times, at most hi, less up to a quarter of it at
// random so that those who failed together do not return together.
func Delay(n int, lo, hi time.Duration) time.Duration {
	d := lo
	for i := 1; i < n && d < hi; i++ {
		d *= 2
	}
	d = min(d, hi)
	return d - rand.N(d/4+1)
}
