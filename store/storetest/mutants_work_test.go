package storetest

import (
	"context"
	"errors"
	"time"

	"github.com/leadonce/leadonce/store"
)

// mutants_work_test.go: mutants of planning, claiming, advancing and reading.

func planMutants() []broken {
	commits := func(f func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error)) func(m *mutant) {
		return func(m *mutant) {
			m.commit = func(ctx context.Context, p store.Plan) ([]store.Operation, error) { return f(ctx, m.Backend, p) }
		}
	}
	return []broken{
		{"commits a plan on a stale key", "plan",
			[]string{"a stale key version is ErrConflict", "a key that must not exist yet and does is ErrConflict",
				"of planners that race for a new key exactly one commits"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				for {
					ops, err := st.CommitPlan(ctx, p)
					if v, e := st.ReadKey(ctx, p.Key); e == nil && errors.Is(err, store.ErrConflict) && v.Version != p.Version {
						p.Version, p.Events = v.Version, nil
						continue
					}
					return ops, err
				}
			})},
		{"forgets which operations were seen", "plan",
			[]string{"an operation that moved since it was read is ErrConflict",
				"a seen row that does not exist is ErrConflict", "a refused plan stores nothing at all"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				p.SeenOps = nil
				return st.CommitPlan(ctx, p)
			})},
		{"forgets which deals were seen", "plan", []string{"a deal that moved since it was read is ErrConflict"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				p.SeenDeals = nil
				return st.CommitPlan(ctx, p)
			})},
		{"stores a plan in two commits", "plan", []string{"a refused plan stores nothing at all"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				first := store.Plan{Key: p.Key, Version: p.Version, Contacts: p.Contacts, Deals: p.Deals, Operations: p.Operations}
				if _, err := st.CommitPlan(ctx, first); err != nil {
					return nil, err
				}
				p.Version, p.Contacts, p.Deals, p.Operations = p.Version+1, nil, nil, nil
				return st.CommitPlan(ctx, p)
			})},
		{"ends every event of the key", "plan",
			[]string{"an event accepted while a plan is made is not left behind", "at most 64 events are read, the oldest"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				read := map[int64]bool{}
				for _, e := range p.Events {
					read[e.ID] = true
				}
				rows, err := st.Events(ctx, store.EventFilter{States: []store.EventState{store.EventPending}})
				for _, r := range rows {
					if r.OrderingKey == p.Key && !read[r.ID] {
						p.Events = append(p.Events, store.EventEnd{ID: r.ID, State: store.EventPlanned})
					}
				}
				if err != nil {
					return nil, err
				}
				return st.CommitPlan(ctx, p)
			})},
		{"forgets the links", "plan",
			[]string{"a link is found from both ends", "an album is several events and one operation"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				p.Links = nil
				return st.CommitPlan(ctx, p)
			})},
		{"retries an event at once", "plan",
			[]string{
				"a retried event is due later and counts the attempt",
				"a gathering event is due later and counts none",
				"later events wait for the oldest unplanned one",
			},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				for i := range p.Events {
					p.Events[i].Retry = 0
				}
				return st.CommitPlan(ctx, p)
			})},
		{"begins beyond the limit", "plan", []string{"a plan claims nothing beyond its limit, and nothing blocked"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				if p.Claim != nil {
					c := *p.Claim
					c.Limit, p.Claim = 100, &c
				}
				return st.CommitPlan(ctx, p)
			})},
		{"keeps what it began to itself", "plan", []string{"a plan begins its own operations under the same rules"},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				_, err := st.CommitPlan(ctx, p)
				return nil, err
			})},
		{"forgets a drop", "plan",
			[]string{
				"a drop cancels a pending operation and says why",
				"a drop of what is not pending is refused",
			},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				p.Drops = nil
				return st.CommitPlan(ctx, p)
			})},
		{"forgets an edit", "plan",
			[]string{
				"an edit replaces the fields of a pending operation",
				"an edit is refused while the operation is sent or in doubt",
			},
			commits(func(ctx context.Context, st Backend, p store.Plan) ([]store.Operation, error) {
				p.Edits = nil
				return st.CommitPlan(ctx, p)
			})},
	}
}

func claimMutants() []broken {
	claims := func(f func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error)) func(m *mutant) {
		return func(m *mutant) {
			m.claim = func(ctx context.Context, c store.Claim) ([]store.Operation, error) { return f(ctx, m.Backend, c) }
		}
	}
	twice := claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
		held, _ := st.Operations(ctx, store.OperationFilter{States: []store.State{store.Sending}, Limit: 1})
		ops, err := st.Claim(ctx, c)
		if len(ops) < c.Limit && len(held) > 0 {
			held[0].Owner = c.Owner
			ops = append(ops, held[0])
		}
		return ops, err
	})
	return []broken{
		{"gives an operation twice", "claim",
			[]string{"what is being sent is nobody else's, also after its lease"}, twice},
		{"gives an operation twice, at random", "concurrent",
			[]string{"whatever happens at once, the invariants hold"}, twice},
		{"gives an operation of an expired lease away", "claim",
			[]string{"what is being sent is nobody else's, also after its lease"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				late, _ := st.Attention(ctx, c.Limit, false)
				for _, o := range late {
					if o.State == store.Sending {
						st.Advance(ctx, store.Report{ID: o.ID, On: store.NotApplied, Version: o.Version, Fence: o.Fence})
					}
				}
				return st.Claim(ctx, c)
			})},
		{"gives more than there are workers", "claim", []string{"the oldest due comes first, up to the limit"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				c.Limit = 100
				return st.Claim(ctx, c)
			})},
		{"forgets that a late effect takes time", "claim",
			[]string{
				"no repeat from the edge of the window on",
				"the window counts from the first attempt in doubt, not from the last",
			},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				c.Quiet = 0
				return st.Claim(ctx, c)
			})},
		{"repeats under another adapter", "claim", []string{"no repeat under another adapter or promise"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				c.Adapter = adapter
				return st.Claim(ctx, c)
			})},
		{"repeats under another promise", "claim", []string{"no repeat under another adapter or promise"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				c.Terms = claimOf("", 0).Terms
				return st.Claim(ctx, c)
			})},
		{"holds for longer than was asked", "claim", []string{"a claim begins an operation and says so"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				c.Lease += time.Minute
				return st.Claim(ctx, c)
			})},
		{"returns the fence before the claim", "claim",
			[]string{"a claim returns what is stored", "every operation has one owner"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				ops, err := st.Claim(ctx, c)
				for i := range ops {
					ops[i].Fence--
				}
				return ops, err
			})},
		{"lets a broken row spoil a claim", "corrupt", []string{"a broken operation keeps no other from being claimed"},
			claims(func(ctx context.Context, st Backend, c store.Claim) ([]store.Operation, error) {
				ops, err := st.Claim(ctx, c)
				if err != nil {
					ops = nil
				}
				return ops, err
			})},
	}
}

func advanceMutants() []broken {
	advances := func(f func(ctx context.Context, st Backend, r store.Report) (store.Operation, error)) func(m *mutant) {
		return func(m *mutant) {
			m.advance = func(ctx context.Context, r store.Report) (store.Operation, error) { return f(ctx, m.Backend, r) }
		}
	}
	before := func(f func(r *store.Report, now store.Operation)) func(m *mutant) {
		return advances(func(ctx context.Context, st Backend, r store.Report) (store.Operation, error) {
			if now, err := st.Operation(ctx, r.ID); err == nil {
				f(&r, now)
			}
			return st.Advance(ctx, r)
		})
	}
	rereads := before(func(r *store.Report, now store.Operation) { r.Version, r.Fence = now.Version, now.Fence })
	return []broken{
		{"reads the version again instead of comparing it", "advance",
			[]string{"a report under a stale version is ErrLeaseLost", "a worker whose lease was taken over is ErrLeaseLost",
				"a verdict under a stale version is ErrMoved"}, rereads},
		{"reads the version again instead of comparing it, for a person", "verdict",
			[]string{"another person on a page that has moved on is refused",
				"a person's Confirmed and Absent need the version that was seen"}, rereads},
		{"reads the version again instead of comparing it, at random", "concurrent",
			[]string{"whatever happens at once, the invariants hold"}, rereads},
		{"forgets the fence", "advance", []string{"a report under a stale fence is ErrLeaseLost"},
			before(func(r *store.Report, now store.Operation) { r.Fence = now.Fence })},
		{"asks evidence for a version", "evidence",
			[]string{
				"late evidence is taken in every state",
				"evidence of a worker whose lease was taken over is kept, and ends the new attempt's life",
			},
			advances(func(ctx context.Context, st Backend, r store.Report) (store.Operation, error) {
				if now, err := st.Operation(ctx, r.ID); err == nil && r.On == store.Confirmed && r.Version == 0 &&
					now.State != store.Sending {
					return store.Operation{}, store.ErrLeaseLost
				}
				return st.Advance(ctx, r)
			})},
		{"swallows a second id", "evidence",
			[]string{
				"another id is kept as a conflict beside the first",
				"a conflict is a person's, until it is acknowledged",
			},
			before(func(r *store.Report, now store.Operation) {
				if r.On == store.Confirmed && now.State == store.Done {
					r.CRMID = now.CRMID
				}
			})},
		{"overwrites the first id", "evidence", []string{"another id is kept as a conflict beside the first"},
			before(func(r *store.Report, now store.Operation) {
				if r.On == store.Confirmed && now.State == store.Done && r.CRMID != now.CRMID {
					r.On, r.Version, r.By = store.Correct, now.Version, "nobody"
				}
			})},
		{"calls the same id again a change", "evidence", []string{"the same id again changes nothing"},
			before(func(r *store.Report, now store.Operation) {
				if r.On == store.Confirmed && now.State == store.Done {
					r.On, r.Version, r.By = store.Acknowledge, now.Version, "nobody"
				}
			})},
		{"sends again at once", "advance",
			[]string{
				"a retry is not due before its time",
				"an inconclusive look-up moves only when it is looked up again",
			},
			before(func(r *store.Report, _ store.Operation) { r.RetryAfter = 0 })},
		{"believes that every call returned", "advance",
			[]string{
				"an attempt that never returned is remembered as long as doubt lasts",
				"an expired lease is lost under the version and fence that were read",
			},
			before(func(r *store.Report, _ store.Operation) { r.Returned = true })},
		{"counts a call that was never made", "advance", []string{"an attempt that was never sent counts as none"},
			before(func(r *store.Report, _ store.Operation) { r.Unsent = false })},
		{"takes a failure for proof of success", "advance",
			[]string{"a create that is lost or refused leaves its notes waiting"},
			before(func(r *store.Report, _ store.Operation) {
				if r.On == store.Lost {
					r.On, r.CRMID = store.Confirmed, "0"
				}
			})},
		{"takes anybody's word", "verdict", []string{"a person's trigger needs a name"},
			before(func(r *store.Report, _ store.Operation) {
				if r.By == "" && r.On.Personal() {
					r.By = "somebody"
				}
			})},
		{"refuses a second click", "verdict", []string{"a person's trigger again is the operation as it stands"},
			advances(func(ctx context.Context, st Backend, r store.Report) (store.Operation, error) {
				if now, err := st.Operation(ctx, r.ID); err == nil && r.By != "" && now.Version != r.Version {
					return store.Operation{}, store.ErrMoved
				}
				return st.Advance(ctx, r)
			})},
		{"forgets who and why", "verdict", []string{"who and why are in the trail, with the version seen"},
			before(func(r *store.Report, _ store.Operation) { r.Why = "" })},
		{"leaves the notes of a canceled create", "verdict",
			[]string{"canceling a create ends what waits for it, in the same commit"},
			advances(func(ctx context.Context, st Backend, r store.Report) (store.Operation, error) {
				o, err := st.Advance(ctx, r)
				notes, _ := st.Operations(ctx, store.OperationFilter{DealID: o.DealID, Kind: kindNote})
				for _, n := range notes {
					if err == nil && r.On == store.Cancel && o.DependsOn == "" {
						st.Advance(ctx, store.Report{ID: n.ID, On: store.Reopen, Version: n.Version, By: "nobody"})
					}
				}
				return o, err
			})},
	}
}

func readMutants() []broken {
	return []broken{
		{"asks for every look-up", "attention",
			[]string{"a look-up is asked for only where look-ups are made, and once it is due"}, func(m *mutant) {
				m.attention = func(ctx context.Context, limit int, _ bool, tenants ...string) ([]store.Operation, error) {
					return m.Backend.Attention(ctx, limit, true, tenants...)
				}
			}},
		{"settles what it is asked about", "attention",
			[]string{"attention changes nothing, and is found again"}, func(m *mutant) {
				m.attention = func(ctx context.Context, limit int, lookups bool, tenants ...string) ([]store.Operation, error) {
					ops, err := m.Backend.Attention(ctx, limit, lookups, tenants...)
					for _, o := range ops {
						m.Backend.Advance(ctx, store.Report{ID: o.ID, On: store.Lost, Version: o.Version, Fence: o.Fence})
					}
					return ops, err
				}
			}},
		{"finds no expired lease", "durable", []string{"a lease outlives its process, and ends"}, func(m *mutant) {
			m.attention = func(context.Context, int, bool, ...string) ([]store.Operation, error) { return nil, nil }
		}},
		{"hides what needs a person", "stats",
			[]string{
				"operations are counted by state",
				"what waits for a create that failed is blocked and does not settle",
				"a conflict is counted",
			}, func(m *mutant) {
				m.stats = func(ctx context.Context) (store.Stats, error) {
					s, err := m.Backend.Stats(ctx)
					s.Conflicts, s.Blocked, s.Operations = store.Count{}, store.Count{}, nil
					return s, err
				}
			}},
		{"counts no age", "stats", []string{"the oldest of a state is as old as its row"}, func(m *mutant) {
			m.stats = func(ctx context.Context) (store.Stats, error) {
				s, err := m.Backend.Stats(ctx)
				for i := range s.Operations {
					s.Operations[i].Oldest = 0
				}
				return s, err
			}
		}},
		{"hides broken rows", "corrupt", []string{"a broken operation is counted for a person"}, func(m *mutant) {
			m.stats = func(ctx context.Context) (store.Stats, error) {
				s, err := m.Backend.Stats(ctx)
				s.Broken = 0
				return s, err
			}
		}},
		{"gives the same page again", "reader",
			[]string{"pages of operations are whole and don't overlap"}, func(m *mutant) {
				m.ops = func(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
					f.After = ""
					return m.Backend.Operations(ctx, f)
				}
			}},
		{"finds a lead by its create alone", "reader",
			[]string{"operations are found by every field", "the chain holds from every end"}, func(m *mutant) {
				m.ops = func(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
					if f.CRMID != "" {
						f.Kind = kindCreate
					}
					return m.Backend.Operations(ctx, f)
				}
			}},
		{"keeps no trail", "advance",
			[]string{"what deviates is in the trail, with what is known of the call"}, func(m *mutant) {
				m.trail = func(context.Context, string) ([]store.TrailEntry, error) { return nil, nil }
			}},
		{"does not retry a parked event", "reader", []string{"a parked event is retried by a person"}, func(m *mutant) {
			m.retry = func(context.Context, int64, string, string) error { return nil }
		}},
		{"reads no deals", "plan",
			[]string{"a deal is read by its key and by its contact", "a waiting note is read with its deal"}, func(m *mutant) {
				m.readKey = func(ctx context.Context, key string) (store.KeyView, error) {
					v, err := m.Backend.ReadKey(ctx, key)
					v.Deals, v.Operations = nil, nil
					return v, err
				}
			}},
		{"finds the due keys in any order", "plan",
			[]string{"due keys come most overdue first and up to the limit"}, func(m *mutant) {
				m.dueKeys = func(ctx context.Context, limit int, tenants ...string) ([]store.DueKey, error) {
					keys, err := m.Backend.DueKeys(ctx, 100, tenants...)
					for i := range len(keys) / 2 {
						keys[i], keys[len(keys)-1-i] = keys[len(keys)-1-i], keys[i]
					}
					return keys[:min(limit, len(keys))], err
				}
			}},
		{"hints who has canceled", "hints", []string{"a canceled subscription is silent"}, func(m *mutant) {
			m.subscribe = func(f func(store.Hint)) func() { m.Backend.Subscribe(f); return func() {} }
		}},
	}
}
