package sqlstore

import (
	"cmp"
	"slices"
	"sync"
)

// share.go: how tenants share what there is room for, so that a backlog of one keeps nobody else waiting.

// Ask is how many rows a tenant may have. Since passes over what became due before it; 0 for nothing.
type Ask struct {
	Tenant string `db:"tenant"`
	Limit  int64  `db:"ask"`
	Since  int64  `db:"since"`
}

// Part is what there was for one tenant, in its order, and the rows that can't be read.
type Part[T any] struct {
	List []T
	Bad  []error
}

// Share returns up to limit things of several tenants, by turns. Each tenant has an equal part; what one does not use is
// divided among those that have more. read is called for some tenants at a time, and perhaps again for those with more: with
// how many each may have in all, counted from the beginning.
func Share[T any](limit int, tenants []string, turns *Turns, read func([]Ask) (map[string]*Part[T], error)) (
	list []T, bad []error, err error,
) {
	tenants = turns.order(tenants)
	parts, given := map[string]*Part[T]{}, map[string]int64{}
	rest, more := tenants, []string(nil) // who was not asked for yet, who may have more than was given
	for room := limit; room > 0 && len(rest)+len(more) > 0; {
		next, part := &rest, room
		switch {
		case len(rest) == 0:
			next = &more // those with less first
			slices.SortStableFunc(more, func(a, b string) int { return cmp.Compare(given[a], given[b]) })
		case len(tenants) > limit: // there may be no more than one for each
			part = min(room, len(rest))
		}
		n := min(room, len(*next))
		asks := divide(part, (*next)[:n], given)
		*next = (*next)[n:]
		got, err := read(asks)
		if err != nil {
			return nil, nil, err
		}
		for _, a := range asks {
			p := got[a.Tenant]
			if p == nil {
				p = new(Part[T])
			}
			if before := parts[a.Tenant]; before != nil {
				room += len(before.List)
			}
			room -= len(p.List)
			parts[a.Tenant] = p
			if int64(len(p.List)+len(p.Bad)) >= a.Limit {
				more = append(more, a.Tenant)
			}
		}
	}
	last := ""
	for turn, left := 0, true; left; turn++ {
		left = false
		for _, t := range tenants {
			p := parts[t]
			if p == nil {
				continue
			}
			if turn == 0 {
				bad = append(bad, p.Bad...)
			}
			if turn < len(p.List) {
				list, last, left = append(list, p.List[turn]), t, true
			}
		}
	}
	if len(tenants) > 1 && len(list) > 0 {
		turns.served(last)
	}
	return list, bad, nil
}

// divide gives each tenant an equal part of room, which has one for each at least.
func divide(room int, tenants []string, given map[string]int64) (asks []Ask) {
	for i, t := range tenants {
		n := room / len(tenants)
		if i < room%len(tenants) {
			n++
		}
		given[t] += int64(n)
		asks = append(asks, Ask{Tenant: t, Limit: given[t]})
	}
	return asks
}

// OneByOne is a read of Share that asks for each tenant by itself.
func OneByOne[T any](f func(Ask) (*Part[T], error)) func([]Ask) (map[string]*Part[T], error) {
	return func(asks []Ask) (map[string]*Part[T], error) {
		got := map[string]*Part[T]{}
		for _, a := range asks {
			p, err := f(a)
			if err != nil {
				return nil, err
			}
			got[a.Tenant] = p
		}
		return got, nil
	}
}

// Turns remembers who was served last: where there is less room than tenants, the next call goes on behind. The zero value
// is ready; any number of goroutines may use it.
type Turns struct {
	mu   sync.Mutex
	last string
}

// order returns the tenants, each once, those behind the one that was served last first.
func (t *Turns) order(tenants []string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]string, len(tenants))
	for i, name := range tenants {
		list[i] = Clean(name)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	next, found := slices.BinarySearch(list, t.last)
	if found {
		next++
	}
	return slices.Concat(list[next:], list[:next])
}

func (t *Turns) served(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = tenant
}
