package backoff

import (
	"testing"
	"time"
)

func TestDelay(t *testing.T) {
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{0, time.Second}, {1, time.Second}, {2, 2 * time.Second}, {5, 16 * time.Second}, {9, 256 * time.Second}, {10, 300 * time.Second}, {1 << 30, 300 * time.Second}} {
		for range 100 {
			if d := Delay(c.n, time.Second, 300*time.Second); d > c.want || d < c.want*3/4-1 {
				t.Fatalf("after %d failures: %v, want between three quarters of %v and it", c.n, d, c.want)
			}
		}
	}
}
