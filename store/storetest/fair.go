package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// fair.go: whatever waits for one tenant, the others are served.

func fairChecks() []check {
	return []check{
		{"a backlog of due keys leaves the other tenants their share", fairKeys},
		{"what a tenant does not use is divided among the others", fairKeysDivided},
		{"of one tenant the most overdue keys come first, whoever else is asked for", fairKeysOrder},
		{"due keys are of the tenants named, and of all if none is", fairKeysNamed},
		{"a key is its oldest unplanned event's tenant's", fairKeysTenant},
		{"with room for one key, tenants take turns", fairKeysTurns},
		{"a backlog of operations leaves the other tenants their share", fairClaim},
		{"a backlog of repeats leaves the other tenants their share", fairRepeat},
		{"with one free worker, tenants take turns", fairClaimTurns},
		{"operations that need a verdict are shared, each kind by itself", fairAttention},
		{"operations that need a verdict are of the tenants named", fairAttentionNamed},
	}
}

// keysFor accepts events of a tenant, each under a key of its own, a moment apart, and returns the keys.
func (b *bench) keysFor(tenant string, n int) (keys []string) {
	b.Helper()
	for i := range n {
		e := eventOf(fmt.Sprintf("k:%s-%02d", tenant, i), 1)
		e.Tenant = tenant
		b.accept(e)
		b.wait(time.Millisecond)
		keys = append(keys, e.OrderingKey)
	}
	return keys
}

// dueFor returns the due keys, by tenants.
func (b *bench) dueFor(limit int, tenants ...string) map[string][]string {
	b.Helper()
	list, err := b.st.DueKeys(b.ctx, limit, tenants...)
	b.must(err)
	if len(list) > limit {
		b.Fatalf("%d keys, want up to %d", len(list), limit)
	}
	of := map[string][]string{}
	for _, k := range list {
		of[k.Tenant] = append(of[k.Tenant], k.Key)
	}
	return of
}

func fairKeys(b *bench) {
	north, south := b.keysFor("north", 20), b.keysFor("south", 4)
	for _, tenants := range [][]string{nil, {"south", "north"}} {
		due := b.dueFor(8, tenants...)
		if !slices.Equal(due["north"], north[:4]) || !slices.Equal(due["south"], south) {
			b.Fatalf("of two tenants with due keys, asked for %q: %v", tenants, due)
		}
	}
}

func fairKeysDivided(b *bench) {
	north, south, west := b.keysFor("north", 12), b.keysFor("south", 12), b.keysFor("west", 1)
	due := b.dueFor(11)
	if !slices.Equal(due["north"], north[:5]) || !slices.Equal(due["south"], south[:5]) || !slices.Equal(due["west"], west) {
		b.Fatalf("of 12, 12 and 1, with room for 11: %v", due)
	}
	due = b.dueFor(22)
	if len(due["north"])+len(due["south"]) != 21 || !slices.Equal(due["west"], west) {
		b.Fatalf("of 12, 12 and 1, with room for 22: %v", due)
	}
	if due = b.dueFor(11, "north"); !slices.Equal(due["north"], north[:11]) {
		b.Fatalf("of one tenant alone, with room for 11: %v", due)
	}
}

func fairKeysOrder(b *bench) {
	b.keysFor("north", 3)
	for n, headStart := range []time.Duration{5 * time.Second, 3 * time.Second, time.Second} {
		e := eventOf(fmt.Sprintf("k:south-%d", n), 1)
		e.Tenant, e.HeadStart = "south", headStart
		cancel := b.st.Subscribe(func(store.Hint) {}) // else there is no head start
		b.accept(e)
		cancel()
	}
	b.wait(time.Minute)
	if due := b.dueFor(20); !slices.Equal(due["south"], []string{"k:south-2", "k:south-1", "k:south-0"}) {
		b.Fatalf("due are %v", due)
	}
}

func fairKeysNamed(b *bench) {
	all := map[string][]string{"north": b.keysFor("north", 3), "south": b.keysFor("south", 2), "": b.keysFor("", 1)}
	for _, tenants := range [][]string{{"north"}, {"south", "north"}, {""}, {"", "south", "west", "south"}, {"west"}, {"nor"}} {
		due := b.dueFor(20, tenants...)
		for tenant, keys := range all {
			if !slices.Contains(tenants, tenant) {
				keys = nil
			}
			if !slices.Equal(due[tenant], keys) {
				b.Fatalf("asked for %q: %v", tenants, due)
			}
		}
	}
	if due := b.dueFor(20); len(due) != 3 || len(due[""]) != 1 {
		b.Fatalf("asked for all: %v", due)
	}
}

func fairKeysTenant(b *bench) {
	first, second := eventOf("k:1", 1), eventOf("k:1", 2)
	first.Tenant, second.Tenant = "north", "south"
	r := b.accept(first)
	b.accept(second)
	for _, tenant := range []string{"north", "south"} {
		if due := b.dueFor(5); len(due) != 1 || len(due[tenant]) != 1 {
			b.Fatalf("due are %v, want k:1 of %s", due, tenant)
		}
		if due := b.dueFor(5, tenant); len(due[tenant]) != 1 {
			b.Fatalf("asked for %s: %v", tenant, due)
		}
		v := b.read("k:1")
		b.commit(store.Plan{Key: v.Key, Version: v.Version,
			Events: []store.EventEnd{{ID: r.EventID, State: store.EventPlanned}}})
		r.EventID = v.Events[len(v.Events)-1].ID
	}
}

func fairKeysTurns(b *bench) {
	b.keysFor("north", 9)
	b.keysFor("south", 2)
	b.keysFor("west", 2)
	seen := map[string]int{}
	for range 6 {
		for tenant := range b.dueFor(1) {
			seen[tenant]++
		}
	}
	if seen["north"] != 2 || seen["south"] != 2 || seen["west"] != 2 {
		b.Fatalf("in six turns of three tenants: %v", seen)
	}
}

// leadsFor submits the leads from..from+n-1 of a tenant, a moment apart, and returns their operations' ids.
func (b *bench) leadsFor(tenant string, from, n int) (list []string) {
	b.Helper()
	for i := range n {
		b.submitFor(tenant, from+i)
		b.wait(time.Millisecond)
		list = append(list, opID(from+i))
	}
	return list
}

func byTenant(ops []store.Operation) map[string][]string {
	of := map[string][]string{}
	for _, o := range ops {
		of[o.Tenant] = append(of[o.Tenant], o.ID)
	}
	return of
}

func fairClaim(b *bench) {
	north, south := b.leadsFor("north", 100, 20), b.leadsFor("south", 200, 3)
	west := b.leadsFor("west", 300, 6)
	got := byTenant(b.claim(claimOf("a", 13)))
	if !slices.Equal(got["north"], north[:5]) || !slices.Equal(got["south"], south) || !slices.Equal(got["west"], west[:5]) {
		b.Fatalf("of 20, 3 and 6, with 13 workers: %v", got)
	}
	got = byTenant(b.claim(claimOf("a", 40)))
	if !slices.Equal(got["north"], north[5:]) || !slices.Equal(got["west"], west[5:]) || len(got) != 2 {
		b.Fatalf("of what is left, with 40 workers: %v", got)
	}
}

func fairRepeat(b *bench) {
	north, south := b.leadsFor("north", 100, 9), b.leadsFor("south", 200, 4)
	for _, o := range b.claim(claimOf("a", 20)) {
		b.advance(reportOf(o, store.LostRepeatable))
		b.wait(time.Millisecond)
	}
	b.leadsFor("north", 300, 5)
	got := byTenant(b.claim(claimOf("a", 8)))
	if !slices.Equal(got["north"], north[:4]) || !slices.Equal(got["south"], south) {
		b.Fatalf("of two tenants with repeats, with 8 workers: %v", got)
	}
}

func fairClaimTurns(b *bench) {
	north, south := b.leadsFor("north", 100, 9), b.leadsFor("south", 200, 3)
	var got []store.Operation
	for range 6 {
		got = append(got, b.claim(claimOf("a", 1))...)
	}
	of := byTenant(got)
	if !slices.Equal(of["north"], north[:3]) || !slices.Equal(of["south"], south) {
		b.Fatalf("in six turns of two tenants: %v", of)
	}
	if got := b.claim(claimOf("a", 1)); !slices.Equal(ids(got), north[3:4]) {
		b.Fatalf("when only one tenant has something: %v", ids(got))
	}
}

// doubts leaves n operations of each kind that needs a verdict with a tenant, from the number from on.
func (b *bench) doubts(tenant string, from, n int) {
	b.Helper()
	b.leadsFor(tenant, from, 3*n)
	for i, o := range b.claim(claimFor(tenant, 3*n)) {
		switch i % 3 {
		case 0:
			b.advance(reportOf(o, store.Lost))
		case 1:
			b.advance(reportOf(o, store.LostRepeatable))
		}
		b.wait(time.Millisecond)
	}
}

// attentionFor returns how many operations of each state and tenant need attention.
func (b *bench) attentionFor(limit int, tenants ...string) map[string]int {
	b.Helper()
	ops, err := b.st.Attention(b.ctx, limit, true, tenants...)
	b.must(err)
	of := map[string]int{}
	for _, o := range ops {
		of[o.Tenant+" "+string(o.State)]++
	}
	return of
}

func fairAttention(b *bench) {
	b.doubts("north", 100, 6)
	b.doubts("south", 200, 2)
	b.wait(2 * lease)
	for _, tenants := range [][]string{nil, {"north", "south"}} {
		of := b.attentionFor(5, tenants...)
		for _, s := range []store.State{store.Sending, store.Uncertain, store.NeedsReconciliation} {
			if of["north "+string(s)] != 3 || of["south "+string(s)] != 2 {
				b.Fatalf("of 6 and 2 of each, up to 5, asked for %q: %v", tenants, of)
			}
		}
	}
}

func fairAttentionNamed(b *bench) {
	b.doubts("north", 100, 3)
	b.doubts("", 200, 2)
	b.wait(2 * lease)
	for tenant, n := range map[string]int{"north": 3, "": 2, "west": 0} {
		of := b.attentionFor(20, tenant)
		for _, s := range []store.State{store.Sending, store.Uncertain, store.NeedsReconciliation} {
			if of[tenant+" "+string(s)] != n || (n == 0 && len(of) > 0) || (n > 0 && len(of) != 3) {
				b.Fatalf("asked for %q: %v", tenant, of)
			}
		}
	}
}
