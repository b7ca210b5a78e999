package sqlstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// shelf is what several tenants have: how many things each, the first bad ones of them unreadable.
type shelf struct {
	have, bad map[string]int
	reads     int
	asked     map[string]int64
}

func (s *shelf) read(asks []Ask) (map[string]*Part[string], error) {
	s.reads++
	got := map[string]*Part[string]{}
	for _, a := range asks {
		s.asked[a.Tenant] = max(s.asked[a.Tenant], a.Limit)
		if s.have[a.Tenant] == 0 {
			continue
		}
		p := new(Part[string])
		for i := range min(int(a.Limit), s.have[a.Tenant]) {
			if name := fmt.Sprint(a.Tenant, i); i < s.bad[a.Tenant] {
				p.Bad = append(p.Bad, errors.New(name))
			} else {
				p.List = append(p.List, name)
			}
		}
		got[a.Tenant] = p
	}
	return got, nil
}

func newShelf(have map[string]int) *shelf {
	return &shelf{have: have, bad: map[string]int{}, asked: map[string]int64{}}
}

func share(t *testing.T, s *shelf, limit int, turns *Turns) (list []string, bad []error) {
	t.Helper()
	var tenants []string
	for name := range s.have {
		tenants = append(tenants, name)
	}
	list, bad, err := Share(limit, tenants, turns, s.read)
	if err != nil {
		t.Fatal(err)
	}
	return list, bad
}

func TestShare(t *testing.T) {
	t.Run("one tenant has all, by one reading", func(t *testing.T) {
		s := newShelf(map[string]int{"a": 9})
		if list, _ := share(t, s, 3, new(Turns)); strings.Join(list, " ") != "a0 a1 a2" || s.reads != 1 {
			t.Fatalf("%v by %d readings", list, s.reads)
		}
	})
	t.Run("several are served by turns", func(t *testing.T) {
		list, _ := share(t, newShelf(map[string]int{"a": 9, "b": 1, "c": 9}), 6, new(Turns))
		if strings.Join(list, " ") != "a0 b0 c0 a1 c1 a2" {
			t.Fatal(list)
		}
	})
	t.Run("a backlog is not read beyond the tenant's part", func(t *testing.T) {
		s := newShelf(map[string]int{"a": 50_000, "b": 50_000})
		share(t, s, 10, new(Turns))
		if s.asked["a"] != 5 || s.asked["b"] != 5 {
			t.Fatal(s.asked)
		}
	})
	t.Run("with less room than tenants each call goes on behind the last", func(t *testing.T) {
		var turns Turns
		var got []string
		for range 4 {
			list, _ := share(t, newShelf(map[string]int{"a": 9, "b": 9, "c": 9}), 2, &turns)
			got = append(got, list...)
		}
		if strings.Join(got, " ") != "a0 b0 c0 a0 b0 c0 a0 b0" {
			t.Fatal(got)
		}
	})
	t.Run("tenants that turn out to have nothing leave their place to the next", func(t *testing.T) {
		s := newShelf(map[string]int{"a": 0, "b": 0, "c": 0, "d": 5, "e": 1})
		if list, _ := share(t, s, 2, new(Turns)); strings.Join(list, " ") != "d0 e0" {
			t.Fatal(list)
		}
	})
	t.Run("rows that can't be read take no room, and are named", func(t *testing.T) {
		s := newShelf(map[string]int{"a": 9, "b": 9})
		s.bad["a"] = 4
		list, bad := share(t, s, 6, new(Turns))
		if len(list) != 6 || len(bad) != 4 || !slices.Contains(list, "a4") {
			t.Fatal(list, bad)
		}
	})
	t.Run("a failed reading is the error", func(t *testing.T) {
		broken := errors.New("broken")
		_, _, err := Share(1, []string{"a"}, new(Turns), func([]Ask) (map[string]*Part[int], error) { return nil, broken })
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
	})
}

// Whatever there is: nothing is left while there is room, and nobody has two more than one who has more to come.
func TestShareAnyhow(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		s, limit, all := newShelf(map[string]int{}), 1+r.IntN(30), 0
		for i := range r.IntN(9) {
			n := r.IntN(1 + r.IntN(40))
			s.have[string(rune('a'+i))] = n
			all += n
		}
		list, _ := share(t, s, limit, new(Turns))
		if len(list) != min(limit, all) {
			t.Fatalf("%d of %v, limit %d", len(list), s.have, limit)
		}
		got := map[string]int{}
		for _, name := range list {
			if name[1:] != fmt.Sprint(got[name[:1]]) {
				t.Fatalf("%s after %d of its tenant", name, got[name[:1]])
			}
			got[name[:1]]++
		}
		for a, n := range s.have {
			for b := range s.have {
				if got[a] < n && got[b] > got[a]+1 {
					t.Fatalf("%s has %d and %s %d, of %v with a limit of %d", a, got[a], b, got[b], s.have, limit)
				}
			}
		}
	}
}
