package storetest

import (
	"slices"
	"time"

	"github.com/leadonce/leadonce/store"
)

// tenant.go: a worker for one tenant takes nothing of another.

func tenantChecks() []check {
	return []check{
		{"a claim for a tenant takes what is that tenant's", tenantClaim},
		{"a claim for no name takes what has none", tenantEmpty},
		{"a claim for any tenant takes everything", tenantAny},
		{"others' operations don't count against a tenant's limit", tenantLimit},
		{"a repeat for a tenant is that tenant's", tenantRepeat},
		{"a plan begins its own operations whatever tenant its claim names", tenantPlan},
	}
}

// submitFor submits the n-th lead for a tenant.
func (b *bench) submitFor(tenant string, n int) {
	b.Helper()
	s := submissionOf(n)
	s.Contact.Tenant, s.Deal.Tenant, s.Operation.Tenant = tenant, tenant, tenant
	_, err := b.st.Submit(b.ctx, s)
	b.must(err)
}

// claimFor is a claim of a tenant's operations.
func claimFor(tenant string, limit int) store.Claim {
	c := claimOf("worker-"+tenant, limit)
	c.Tenant = &tenant
	return c
}

// wantClaimed claims and checks what that gave.
func (b *bench) wantClaimed(c store.Claim, want ...string) []store.Operation {
	b.Helper()
	ops := b.claim(c)
	got := ids(ops)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.Fatalf("claimed %v, want %v", got, want)
	}
	return ops
}

func tenantClaim(b *bench) {
	for n, tenant := range []string{"north", "south", "north", ""} {
		b.submitFor(tenant, n)
	}
	b.wantClaimed(claimFor("north", 9), opID(0), opID(2))
	b.wantClaimed(claimFor("north", 9))
	b.wantClaimed(claimFor("south", 9), opID(1))
}

func tenantEmpty(b *bench) {
	b.submitFor("north", 1)
	b.submitFor("", 2)
	b.wantClaimed(claimFor("", 9), opID(2))
}

func tenantAny(b *bench) {
	b.submitFor("north", 1)
	b.submitFor("", 2)
	b.wantClaimed(claimOf("a", 9), opID(1), opID(2))
}

func tenantLimit(b *bench) {
	for n := range 5 {
		b.submitFor("north", n)
	}
	b.submitFor("south", 7)
	b.wantClaimed(claimFor("south", 1), opID(7))
}

func tenantRepeat(b *bench) {
	b.submitFor("north", 1)
	b.submitFor("south", 2)
	for _, o := range b.wantClaimed(claimOf("a", 9), opID(1), opID(2)) {
		b.advance(reportOf(o, store.LostRepeatable))
	}
	b.wait(time.Second)
	b.wantClaimed(claimFor("south", 9), opID(2))
	b.wantClaimed(claimFor("north", 9), opID(1))
}

func tenantPlan(b *bench) {
	b.accept(eventOf("k:1", 1))
	p := opening(planOf(b.read("k:1")), "form", 1)
	c := claimFor("somebody else", 1)
	p.Claim = &c
	if begun := b.commit(p); !slices.Equal(ids(begun), []string{opID(1)}) {
		b.Fatalf("begun are %v", ids(begun))
	}
}
