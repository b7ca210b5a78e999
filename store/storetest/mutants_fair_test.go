package storetest

import (
	"cmp"
	"context"
	"slices"

	"github.com/leadonce/leadonce/store"
)

// mutants_fair_test.go: mutants that serve tenants unevenly.

func fairMutants() []broken {
	keys := func(f func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.DueKey, error)) func(m *mutant) {
		return func(m *mutant) {
			m.dueKeys = func(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
				return f(ctx, m.Backend, limit, tenants)
			}
		}
	}
	type attention func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.Operation, error)
	attends := func(f attention) func(m *mutant) {
		return func(m *mutant) {
			m.attention = func(ctx context.Context, limit int, _ bool, tenants ...string) ([]store.Operation, error) {
				return f(ctx, m.Backend, limit, tenants)
			}
		}
	}
	return []broken{
		{"plans the longest backlog first", "fair",
			[]string{"a backlog of due keys leaves the other tenants their share",
				"what a tenant does not use is divided among the others", "with room for one key, tenants take turns"},
			keys(func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.DueKey, error) {
				first, err := st.DueKeys(ctx, limit, "north")
				rest, _ := st.DueKeys(ctx, 100, tenants...)
				list := slices.Concat(first, slices.DeleteFunc(rest, func(k store.DueKey) bool { return k.Tenant == "north" }))
				return list[:min(limit, len(list))], err
			})},
		{"lets a tenant's share of the keys lapse", "fair", []string{"what a tenant does not use is divided among the others"},
			keys(func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.DueKey, error) {
				list, err := st.DueKeys(ctx, limit, tenants...)
				had := map[string]int{}
				return slices.DeleteFunc(list, func(k store.DueKey) bool { had[k.Tenant]++; return had[k.Tenant] > limit/3+1 }), err
			})},
		{"shares the keys, the youngest first", "fair",
			[]string{"of one tenant the most overdue keys come first, whoever else is asked for"},
			keys(func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.DueKey, error) {
				list, err := st.DueKeys(ctx, limit, tenants...)
				slices.Reverse(list)
				return list, err
			})},
		{"finds keys of tenants that were not asked for", "fair",
			[]string{"due keys are of the tenants named, and of all if none is"},
			keys(func(ctx context.Context, st Backend, limit int, _ []string) ([]store.DueKey, error) {
				return st.DueKeys(ctx, limit)
			})},
		{"takes the tenant without a name for all", "fair",
			[]string{"due keys are of the tenants named, and of all if none is"},
			keys(func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.DueKey, error) {
				return st.DueKeys(ctx, limit, slices.DeleteFunc(slices.Clone(tenants), func(t string) bool { return t == "" })...)
			})},
		{"does not tell whose a key is", "fair", []string{"a key is its oldest unplanned event's tenant's"},
			keys(func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.DueKey, error) {
				list, err := st.DueKeys(ctx, limit, tenants...)
				for i := range list {
					list[i].Tenant = "north"
				}
				return list, err
			})},
		{"claims the longest backlog first", "fair",
			[]string{"a backlog of operations leaves the other tenants their share",
				"a backlog of repeats leaves the other tenants their share", "with one free worker, tenants take turns"},
			func(m *mutant) {
				m.claim = func(ctx context.Context, c store.Claim) ([]store.Operation, error) {
					north, rest := c, c
					if c.Tenant == nil {
						north.Tenant = new(string)
						*north.Tenant = "north"
					}
					ops, err := m.Backend.Claim(ctx, north)
					if rest.Limit -= len(ops); err != nil || rest.Limit == 0 {
						return ops, err
					}
					more, err := m.Backend.Claim(ctx, rest)
					return append(ops, more...), err
				}
			}},
		{"begins every claim with the same tenant", "fair", []string{"with one free worker, tenants take turns"},
			func(m *mutant) {
				m.claim = func(ctx context.Context, c store.Claim) ([]store.Operation, error) {
					if c.Limit > 1 || c.Tenant != nil {
						return m.Backend.Claim(ctx, c)
					}
					for _, tenant := range []string{"north", "south"} {
						c.Tenant = &tenant
						if ops, err := m.Backend.Claim(ctx, c); err != nil || len(ops) > 0 {
							return ops, err
						}
					}
					return nil, nil
				}
			}},
		{"asks about the longest backlog first", "fair",
			[]string{"operations that need a verdict are shared, each kind by itself"},
			attends(func(ctx context.Context, st Backend, limit int, tenants []string) ([]store.Operation, error) {
				ops, err := st.Attention(ctx, 100, true, tenants...)
				had := map[store.State]int{}
				slices.SortStableFunc(ops, func(a, b store.Operation) int { return cmp.Compare(a.Tenant, b.Tenant) })
				return slices.DeleteFunc(ops, func(o store.Operation) bool { had[o.State]++; return had[o.State] > limit }), err
			})},
		{"asks about tenants that were not asked for", "fair",
			[]string{"operations that need a verdict are of the tenants named"},
			attends(func(ctx context.Context, st Backend, limit int, _ []string) ([]store.Operation, error) {
				return st.Attention(ctx, limit, true)
			})},
		{"hints without a tenant", "hints",
			[]string{"an accepted event is hinted with its ordering key", "an event that is tried again is hinted",
				"an event that moved to another key is hinted there"},
			func(m *mutant) {
				m.subscribe = func(f func(store.Hint)) func() {
					return m.Backend.Subscribe(func(h store.Hint) { f(store.Hint{OrderingKey: h.OrderingKey}) })
				}
			}},
	}
}
