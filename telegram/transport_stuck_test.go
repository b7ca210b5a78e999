package telegram_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// transport_stuck_test.go: libraries that decode a batch whole, and an update that they can't take.

// choosy is a library that takes a batch whole or not at all.
type choosy struct {
	offset  int64
	refuses func(id int64) bool
	got     []int64
	asked   int
}

// turn is one turn of its loop, and reports whether it took anything.
func (l *choosy) turn(t *testing.T, b *pollBed) bool {
	t.Helper()
	raw, err := b.get(fmt.Sprint(l.offset))
	if err != nil {
		t.Fatal(err)
	}
	l.asked++
	time.Sleep(time.Second)
	ids := idsOf(t, raw)
	if slices.ContainsFunc(ids, l.refuses) {
		return false
	}
	for _, id := range ids {
		l.offset = id + 1
		l.got = append(l.got, id)
	}
	return len(ids) > 0
}

func TestTransportUnderALibraryThatCantTakeAnUpdate(t *testing.T) {
	const first, n = 1000, 250
	for name, bad := range map[string][]int64{
		"the first one":                   {1000},
		"one in the middle of a batch":    {1042},
		"two beside each other":           {1042, 1043},
		"one at the end of a batch":       {1099},
		"one in each of several batches":  {1001, 1150, 1249},
		"the last one that there is":      {1249},
		"some of which each comes alone ": {1000, 1002, 1004, 1006},
	} {
		t.Run(name, func(t *testing.T) {
			polled(t, first, nil, nil, func(t *testing.T, b *pollBed) {
				lib := &choosy{refuses: func(id int64) bool { return slices.Contains(bad, id) }}
				b.api.say(n)
				for turns := 0; len(lib.got) < n-len(bad); turns++ {
					if turns > 400 {
						t.Fatalf("it took %d of %d; asked %v", len(lib.got), n, b.api.asked())
					}
					lib.turn(t, b)
				}
				for range 8 { // what it can't take is behind it too
					lib.turn(t, b)
				}
				b.api.say(1)
				for range 8 {
					lib.turn(t, b)
				}
				if lib.got[len(lib.got)-1] != first+n || len(lib.got) != n+1-len(bad) || !slices.IsSorted(lib.got) {
					t.Errorf("it took %d, the last %d", len(lib.got), lib.got[len(lib.got)-1])
				}
				b.once(first, n+1)
				if said := strings.Count(b.log.String(), "can't take it"); said != len(bad) {
					t.Errorf("said %d times, want %d: %s", said, len(bad), b.log)
				}
			})
		})
	}
	t.Run("one that takes them at the fifth attempt misses nothing", func(t *testing.T) {
		polled(t, first, nil, nil, func(t *testing.T, b *pollBed) {
			lib := &choosy{}
			lib.refuses = func(int64) bool { return lib.asked < 5 }
			b.api.say(3)
			for range 30 {
				lib.turn(t, b)
			}
			if !slices.Equal(lib.got, []int64{1000, 1001, 1002}) || strings.Contains(b.log.String(), "can't take it") {
				t.Errorf("it took %v: %s", lib.got, b.log)
			}
		})
	})
	t.Run("an offset that stays where nothing is waited for skips nothing", func(t *testing.T) {
		polled(t, first, nil, nil, func(t *testing.T, b *pollBed) {
			lib := &choosy{refuses: func(int64) bool { return false }}
			for range 10 {
				lib.turn(t, b)
			}
			b.api.say(2)
			for range 10 {
				lib.turn(t, b)
			}
			if !slices.Equal(lib.got, []int64{1000, 1001}) {
				t.Errorf("it took %v", lib.got)
			}
		})
	})
}
