package storetest

import (
	"context"
	"slices"

	"github.com/leadonce/leadonce/store"
)

// mutants_keys_test.go: mutants of what was handled, stages, merges, adoption, tenants and accounts.

func handledMutants() []broken {
	reads := func(f func(ctx context.Context, st Backend, v *store.KeyView)) func(m *mutant) {
		return func(m *mutant) {
			m.readKey = func(ctx context.Context, key string) (store.KeyView, error) {
				v, err := m.Backend.ReadKey(ctx, key)
				f(ctx, m.Backend, &v)
				return v, err
			}
		}
	}
	// also adds whatever ended and matches.
	also := func(match func(v *store.KeyView, old store.EventRow) bool) func(m *mutant) {
		return reads(func(ctx context.Context, st Backend, v *store.KeyView) {
			rows, _ := st.Events(ctx, store.EventFilter{States: []store.EventState{store.EventPlanned}})
			for _, old := range rows {
				if match(v, old) && !slices.Contains(handledIDs(*v), old.ID) {
					v.Handled = append(v.Handled, store.Handled{EventRow: old})
				}
			}
		})
	}
	some := func(v *store.KeyView, f func(e store.EventRow) bool) bool { return slices.ContainsFunc(v.Events, f) }
	return []broken{
		{"misses an album's other items", "handled",
			[]string{"an edit of one item finds the whole album", "of an album the 16 most recent other items are found"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) {
				v.Handled = slices.DeleteFunc(v.Handled, func(h store.Handled) bool {
					return !some(v, func(e store.EventRow) bool { return e.ContentID == h.ContentID })
				})
			})},
		{"finds what another ordering key handled", "handled",
			[]string{"what was handled under another ordering key is not found"},
			also(func(v *store.KeyView, old store.EventRow) bool {
				return some(v, func(e store.EventRow) bool { return e.ContentID == old.ContentID || e.RepeatKey == old.RepeatKey })
			})},
		{"takes no repeat key for one", "handled", []string{"an event without a repeat key repeats no other one without"},
			also(func(v *store.KeyView, old store.EventRow) bool {
				return some(v, func(e store.EventRow) bool { return e.RepeatKey == old.RepeatKey })
			})},
		{"takes no content for one", "handled", []string{"an event without content repeats no other one without"},
			also(func(v *store.KeyView, old store.EventRow) bool {
				return some(v, func(e store.EventRow) bool { return e.ContentID == old.ContentID })
			})},
		{"finds no second press", "handled", []string{"a second press finds the first"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) {
				v.Handled = slices.DeleteFunc(v.Handled, func(h store.Handled) bool { return h.RepeatKey != "" })
			})},
		{"finds what was handled once for each way to it", "handled",
			[]string{"what is handled is found once, in accept order"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) { v.Handled = slices.Concat(v.Handled, v.Handled) })},
		{"does not say what was caused", "handled",
			[]string{"an edit finds the event of its content, what that caused, and its deal"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) {
				for i := range v.Handled {
					v.Handled[i].Operations = nil
				}
			})},
		{"reads no contacts", "handled", []string{"the contacts of the events are read, with their ids in the CRM"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) { v.Contacts = nil })},
		{"tells no home", "stage",
			[]string{"a hook of another key's lead is told that key", "of several homes the most recently opened is told"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) { v.Homes = nil })},
		{"reads a deal without what is pending of it", "stage", []string{"a hook finds what is pending of its deal"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) {
				v.Operations = slices.DeleteFunc(v.Operations, func(o store.Operation) bool { return o.State == store.Pending })
			})},
		{"forgets where a key went", "merge", []string{"a key that was merged says where it goes on"},
			reads(func(_ context.Context, _ Backend, v *store.KeyView) { v.MovedTo = "" })},
	}
}

func stageMutants() []broken {
	commits := func(f func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error)) func(m *mutant) {
		return func(m *mutant) {
			m.commit = func(ctx context.Context, p store.Plan) ([]store.Operation, error) { return f(ctx, m.Backend, p) }
		}
	}
	return []broken{
		{"moves a stage without comparing the version", "stage", []string{"a stage move under a stale version is ErrConflict"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				v, _ := st.ReadKey(ctx, p.Key)
				for i := range p.Stages {
					for _, d := range v.Deals {
						if d.ID == p.Stages[i].DealID {
							p.Stages[i].Version = d.Version
						}
					}
				}
				return st.CommitPlan(ctx, p)
			})},
		{"takes a stage for activity", "stage", []string{"a stage is stored with its version and time, and is no activity"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				for _, m := range p.Stages {
					p.Touches = append(p.Touches, store.Touch{DealID: m.DealID, Version: m.Version})
				}
				return st.CommitPlan(ctx, p)
			})},
		{"applies a touch or a stage, not both", "stage", []string{"a deal that is touched and moved in one plan has both"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				if len(p.Stages) > 0 {
					p.Touches = nil
				}
				return st.CommitPlan(ctx, p)
			})},
		{"counts an event that moves as an attempt", "stage",
			[]string{"an event moves to another ordering key, and counts no attempt"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				ops, err := st.CommitPlan(ctx, p)
				for _, e := range p.Events {
					if err != nil || e.MoveTo == "" {
						continue
					}
					v, _ := st.ReadKey(ctx, e.MoveTo)
					st.CommitPlan(ctx, store.Plan{Key: e.MoveTo, Version: v.Version,
						Events: []store.EventEnd{{ID: e.ID, State: store.EventPending}}})
				}
				return ops, err
			})},
		{"moves an event in any state", "stage", []string{"an event moves only while it is pending, and to another key"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				for i, e := range p.Events {
					if e.MoveTo != "" {
						p.Events[i].State = store.EventPending
					}
				}
				return st.CommitPlan(ctx, p)
			})},
	}
}

func mergeMutants() []broken {
	return []broken{
		{"merges without moving the other key's version", "merge",
			[]string{"a plan of the other key that is under way does not commit"}, func(m *mutant) {
				moved := map[string]int64{} // what nobody is to see
				m.readKey = func(ctx context.Context, key string) (store.KeyView, error) {
					v, err := m.Backend.ReadKey(ctx, key)
					v.Version -= moved[key]
					return v, err
				}
				m.commit = func(ctx context.Context, p store.Plan) ([]store.Operation, error) {
					p.Version += moved[p.Key]
					ops, err := m.Backend.CommitPlan(ctx, p)
					if p.Merge != nil && err == nil {
						moved[p.Merge.From]++
						moved[p.Merge.To]++
						moved[p.Key]--
					}
					return ops, err
				}
			}},
		{"leaves unplanned events under the old key", "merge",
			[]string{"unplanned events go on under the other key, in accept order", "either of the two keys may be the plan's"},
			func(m *mutant) {
				m.commit = func(ctx context.Context, p store.Plan) ([]store.Operation, error) {
					if p.Merge == nil {
						return m.Backend.CommitPlan(ctx, p)
					}
					old, _ := m.Backend.ReadKey(ctx, p.Merge.From)
					ops, err := m.Backend.CommitPlan(ctx, p)
					now, _ := m.Backend.ReadKey(ctx, p.Merge.To)
					back := store.Plan{Key: p.Merge.To, Version: now.Version}
					for _, e := range old.Events {
						back.Events = append(back.Events, store.EventEnd{ID: e.ID, State: store.EventPending, MoveTo: p.Merge.From})
					}
					if err == nil && len(back.Events) > 0 {
						m.Backend.CommitPlan(ctx, back)
					}
					return ops, err
				}
			}},
		{"forgets a merge", "merge",
			[]string{"deals go on under the other key", "keys that were never planned are merged too",
				"a key that is merged back goes on itself", "every generation of a deal goes along"}, func(m *mutant) {
				m.commit = func(ctx context.Context, p store.Plan) ([]store.Operation, error) {
					p.Merge = nil
					return m.Backend.CommitPlan(ctx, p)
				}
			}},
	}
}

func adoptMutants() []broken {
	submits := func(f func(ctx context.Context, st Backend, s store.Submission) (store.Operation, error)) func(m *mutant) {
		return func(m *mutant) {
			m.submit = func(ctx context.Context, s store.Submission) (store.Operation, error) { return f(ctx, m.Backend, s) }
		}
	}
	return []broken{
		{"sends what it adopts", "adopt",
			[]string{"an adopted lead is done, and nothing is sent", "an adopted lead is continued by a note at once"},
			submits(func(ctx context.Context, st Backend, s store.Submission) (store.Operation, error) {
				s.Adopt = nil
				return st.Submit(ctx, s)
			})},
		{"adopts a lead twice", "adopt",
			[]string{"a lead that a deal has already is that deal's", "a lead that was created before is that deal's"},
			submits(func(ctx context.Context, st Backend, s store.Submission) (store.Operation, error) {
				o, err := st.Submit(ctx, s)
				if s.Adopt != nil && err == nil && o.ID != s.Operation.ID {
					s.Adopt = &store.Adoption{CRMID: s.Adopt.CRMID + " again"}
					return st.Submit(ctx, s)
				}
				return o, err
			})},
		{"adopts every lead as new", "adopt", []string{"an adopted lead is as old as was said, and stands where was said"},
			submits(func(ctx context.Context, st Backend, s store.Submission) (store.Operation, error) {
				s.Adopt = &store.Adoption{CRMID: s.Adopt.CRMID}
				return st.Submit(ctx, s)
			})},
		{"takes an adoption again for another lead", "adopt", []string{"the same adoption again is the operation as it stands"},
			submits(func(ctx context.Context, st Backend, s store.Submission) (store.Operation, error) {
				if o, err := st.Operation(ctx, s.Operation.ID); err == nil && string(o.Fields) != string(s.Operation.Fields) {
					return o, store.ErrKeyReused
				}
				return st.Submit(ctx, s)
			})},
		{"mixes the leads of tenants", "adopt", []string{"another tenant's lead with the same id is another lead"},
			submits(func(ctx context.Context, st Backend, s store.Submission) (store.Operation, error) {
				s.Deal.Tenant = ""
				return st.Submit(ctx, s)
			})},
	}
}

func tenantMutants() []broken {
	claims := func(f func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error)) func(m *mutant) {
		return func(m *mutant) {
			m.claim = func(ctx context.Context, c store.Claim) ([]store.Operation, error) { return f(ctx, m.Backend, c) }
		}
	}
	return []broken{
		{"gives a tenant what is another's", "tenant",
			[]string{"a claim for a tenant takes what is that tenant's", "a claim for no name takes what has none",
				"a repeat for a tenant is that tenant's"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				c.Tenant = nil
				return st.Claim(ctx, c)
			})},
		{"takes no name for any", "tenant", []string{"a claim for no name takes what has none"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				if c.Tenant != nil && *c.Tenant == "" {
					c.Tenant = nil
				}
				return st.Claim(ctx, c)
			})},
		{"leaves what has no name to tenants alone", "tenant", []string{"a claim for any tenant takes everything"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				if c.Tenant == nil {
					c.Tenant = new(string)
				}
				return st.Claim(ctx, c)
			})},
		{"keeps a tenant's claim from a plan", "tenant",
			[]string{"a plan begins its own operations whatever tenant its claim names"}, func(m *mutant) {
				m.commit = func(ctx context.Context, p store.Plan) ([]store.Operation, error) {
					if p.Claim != nil && p.Claim.Tenant != nil && *p.Claim.Tenant != p.Operations[0].Tenant {
						p.Claim = nil
					}
					return m.Backend.CommitPlan(ctx, p)
				}
			}},
		{"forgets whose an account is", "accounts", []string{"accounts are told apart by source, tenant and bot"},
			func(m *mutant) { m.account = func(a *store.Account) { a.Tenant = "" } }},
		{"lists the accounts of every source", "accounts", []string{"accounts of another source are not listed"},
			func(m *mutant) { m.account = func(a *store.Account) { a.Source = "telegram" } }},
	}
}
