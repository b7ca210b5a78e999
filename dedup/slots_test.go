package dedup

import "testing"

// slots_test.go: how places are shared.

func TestSlots(t *testing.T) {
	for _, c := range []struct {
		name           string
		places         int
		several        bool // of those who share the places
		fresh, seen    bool // takeFresh, and its several
		a, again, b, c int  // what a gets of all, what it gets more, what b gets, what b gets by take
	}{
		{"one alone has all", 8, false, false, false, 8, 0, 0, 0},
		{"where there are several one has three quarters", 8, true, false, false, 6, 0, 2, 0},
		{"of two places one has one", 2, true, false, false, 1, 0, 1, 0},
		{"a single place is anybody's", 1, true, false, false, 1, 0, 0, 0},
		{"what is fresh has all as long as nobody else is known", 8, false, true, false, 8, 0, 0, 0},
		{"what is fresh leaves a quarter to what waits", 8, false, true, true, 6, 0, 0, 2},
		{"and the only place there is", 1, false, true, true, 0, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSlots[string](c.places, c.several)
			take := func(who string) int {
				if c.fresh {
					return s.takeFresh(who, c.places, c.seen)
				}
				return s.take(who, c.places)
			}
			for i, want := range []int{c.a, c.again, c.b} {
				if got := take([]string{"a", "a", "b"}[i]); got != want {
					t.Errorf("taking %d: got %d, want %d", i+1, got, want)
				}
			}
			if got := s.take("b", c.places); got != c.c {
				t.Errorf("what waits gets %d, want %d", got, c.c)
			}
			s.give("a", c.a)
			s.give("b", c.b+c.c)
			if s.free != c.places || len(s.held) != 0 {
				t.Errorf("given back: %d free, %v held", s.free, s.held)
			}
		})
	}
}
