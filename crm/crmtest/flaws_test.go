package crmtest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// flaws_test.go: adapters as one finds them, each wrong in one way, and the subtests that have to say so.

const (
	onceAfter   = "/at most one creating request is sent"
	absentAfter = "/a lead that may exist is not reported as certainly absent"
)

// judged is a flaw of how an answer is judged.
func judged(judge func(int, []byte, string, error) (string, error)) func(string, *Client) crm.Adapter {
	return func(base string, a *Client) crm.Adapter {
		return wrong{Client: a, create: raw{client: onceOnly(), base: base, judge: judge}.create}
	}
}

// sent is a flaw of how a request is sent.
func sent(r func() raw) func(string, *Client) crm.Adapter {
	return func(base string, a *Client) crm.Adapter {
		r := r()
		r.base, r.client, r.judge = base, cmp.Or(r.client, onceOnly()), cautious
		return wrong{Client: a, create: r.create}
	}
}

func creatingFlaws() []flaw {
	keyed := Config{Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Hour}}
	return []flaw{
		{name: "retries", fails: []string{"when the reply is lost" + onceAfter, "when the answer is reset midway" + onceAfter},
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
					id, err := a.CreateLead(ctx, op, l)
					if err != nil {
						return a.CreateLead(ctx, op, l)
					}
					return id, nil
				}}
			}},
		{name: "retries what is slow", fails: []string{"when the CRM is slow" + onceAfter},
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
					impatient, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
					defer cancel()
					if id, err := a.CreateLead(impatient, op, l); err == nil {
						return id, nil
					}
					return a.CreateLead(ctx, op, l)
				}}
			}},
		{name: "retries behind the caller's back", fails: []string{"nothing is sent after a call has returned"},
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
					id, err := a.CreateLead(ctx, op, l)
					if err != nil {
						time.AfterFunc(10*time.Millisecond, func() { a.CreateLead(context.Background(), op, l) })
					}
					return id, err
				}}
			}},
		{name: "takes a bare 503 for throttling", only: true, fails: []string{"when a bare 503 comes back" + absentAfter},
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if status == 503 {
					return "", crm.NotApplied(errors.New("throttled"), 0)
				}
				return cautious(status, b, id, err)
			})},
		{name: "takes a lost reply for a failure", only: true, fails: []string{
			"when the reply is lost" + absentAfter, "when the answer is reset midway" + absentAfter,
			"when the answer ends too early" + absentAfter, "when a page of HTML comes back with 201" + absentAfter,
			"when a connection is lost on reuse" + absentAfter, "a hanging CRM is left when the context ends",
			"when a bare 500 comes back" + absentAfter, "when a bare 502 comes back" + absentAfter,
			"when a bare 503 comes back" + absentAfter, "when a bare 504 comes back" + absentAfter}, // their pages are no JSON
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if err != nil {
					return "", crm.NotApplied(errors.New("no answer"), 0)
				}
				return cautious(status, b, id, err)
			})},
		{name: "fails a lead because nobody listened", fails: []string{"a refused connection is not a refused lead"},
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if err != nil {
					return "", crm.Rejected(errors.New("no answer"))
				}
				return cautious(status, b, id, err)
			})},
		{name: "follows redirects", only: true, fails: []string{
			"a redirect is not followed/301", "a redirect is not followed/302", "a redirect is not followed/303",
			"a redirect is not followed/307", "a redirect is not followed/308"},
			wrap: sent(func() raw { return raw{client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}} })},
		{name: "sends a documented key through a client that sends it again", conf: keyed, only: true,
			fails: []string{"when a connection is lost on reuse" + onceAfter},
			wrap: sent(func() raw {
				c := onceOnly()
				c.Transport = &http.Transport{}
				return raw{client: c, header: map[string]string{"Idempotency-Key": "{key}"}}
			})},
		{name: "sends an undocumented key through a default client", fails: []string{
			"an idempotency key is sent only where one is declared", "when a connection is lost on reuse" + onceAfter},
			wrap: sent(func() raw {
				return raw{client: &http.Client{Transport: &http.Transport{}}, header: map[string]string{"X-Idempotency-Key": "{key}"}}
			})},
		{name: "ignores the context", only: true, fails: []string{
			"a hanging CRM is left when the context ends", "an ended context sends nothing"},
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
					return a.CreateLead(context.WithoutCancel(ctx), op, l)
				}}
			}},
		{name: "takes every 2xx for a lead", only: true, fails: []string{
			"a lead that was never made is not reported as made/when an error comes back with 200",
			"a lead that was never made is not reported as made/when an error comes back with 201"},
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if err == nil && status/100 == 2 {
					return cmp.Or(id, "0"), nil
				}
				return cautious(status, b, id, err)
			})},
		{name: "puts a random id into the body", only: true, fails: []string{"one operation always makes the same request"},
			wrap: sent(func() raw { return raw{extra: fmt.Sprintf(`,"request_id":"%d"}`, rand.Uint64())} })},
		{name: "returns errors with their URL", only: true, fails: []string{"no error carries a secret or a person's data"},
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if err != nil {
					return "", err
				}
				return cautious(status, b, id, err)
			})},
		{name: "quotes the answer in its errors", only: true, fails: []string{"no error carries a secret or a person's data"},
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if status/100 != 2 {
					return "", fmt.Errorf("status %d: %s", status, b)
				}
				return cautious(status, b, id, err)
			})},
		{name: "panics at a 500", fails: []string{"when a bare 500 comes back"},
			wrap: judged(func(status int, b []byte, id string, err error) (string, error) {
				if status == 500 {
					panic("no such status")
				}
				return cautious(status, b, id, err)
			})},
		{name: "keeps a call's id in a field", fails: []string{"eight goroutines make one lead each"}, only: true, wrap: sharing},
		{name: "does not send op.ID", fails: []string{"a plain create returns an id and makes one record", ""}, only: true,
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, _ crm.Op, l crm.Lead) (string, error) {
					return a.CreateLead(ctx, crm.Op{ID: "x"}, l)
				}}
			}},
		{name: "returns no id", fails: []string{"a plain create returns an id and makes one record", ""}, only: true,
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
					_, err := a.CreateLead(ctx, op, l)
					return "", err
				}}
			}},
	}
}

// sharing returns the id of whichever call ended last.
func sharing(_ string, a *Client) crm.Adapter {
	var mu sync.Mutex
	var last string
	var running atomic.Int64
	return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
		running.Add(1)
		id, err := a.CreateLead(ctx, op, l)
		mu.Lock()
		last = id
		mu.Unlock()
		running.Add(-1)
		for range 100 {
			if running.Load() == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		return last, err
	}}
}

func describing(change func(*crm.Description)) func(string, *Client) crm.Adapter {
	return func(_ string, a *Client) crm.Adapter {
		return wrong{Client: a, desc: func() crm.Description {
			d := a.Describe()
			change(&d)
			return d
		}}
	}
}

func repeatingFlaws() []flaw {
	unique := Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID}}
	keyed := Config{Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Hour}}
	const repeat = "a repeat after a lost reply is harmless, as declared"
	const atOnce = "two calls at once make one lead, as declared"
	onConflict := func(then func(id string) (string, error)) func(string, *Client) crm.Adapter {
		return judged(func(status int, b []byte, id string, err error) (string, error) {
			if status == http.StatusConflict {
				return then(id)
			}
			return cautious(status, b, id, err)
		})
	}
	var described atomic.Int64
	return []flaw{
		{name: "takes any conflict for a lead made", conf: unique, only: true,
			fails: []string{"a conflict with somebody else's record is not a lead made"},
			wrap:  onConflict(func(id string) (string, error) { return id, nil })},
		{name: "takes a conflict for a refusal", conf: unique, fails: []string{repeat, atOnce},
			wrap: onConflict(func(string) (string, error) { return "", crm.Rejected(errors.New("conflict")) })},
		{name: "can't resolve a conflict", conf: unique, fails: []string{repeat},
			wrap: onConflict(func(string) (string, error) { return "", errors.New("conflict") })},
		{name: "declares what the CRM does not keep", only: true, fails: []string{repeat, atOnce},
			wrap: describing(func(d *crm.Description) { d.Create = crm.Guarantee{Kind: crm.Upsert} })},
		{name: "declares what the CRM does not keep, and makes ids up", fails: []string{repeat, atOnce},
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{
					Client: a, desc: func() crm.Description {
						return crm.Description{Identity: "shop", Create: crm.Guarantee{Kind: crm.UniqueID}}
					},
					create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
						_, err := a.CreateLead(ctx, op, l)
						return op.ID, err
					},
				}
			}},
		{name: "sends op.ID as the key", conf: keyed, only: true, fails: []string{"the key that is sent is op.Key"},
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
					op.Key = op.ID
					return a.CreateLead(ctx, op, l)
				}}
			}},
		{name: "declares something else every time", fails: []string{"the declaration is valid and stays the same"}, only: true,
			wrap: describing(func(d *crm.Description) { d.Identity = fmt.Sprint(described.Add(1)) })},
		{name: "accepts doubled leads", fails: []string{"the declaration is valid and stays the same"},
			wrap: describing(func(d *crm.Description) { d.Create = crm.Guarantee{Kind: crm.AtLeastOnce} })},
	}
}

func otherFlaws() []flaw {
	const finds = "a look-up finds the lead of its operation and no other"
	const fails = "a look-up that fails is an error, not an empty answer"
	finding := func(find func(a *Client, ctx context.Context, op crm.Op) ([]string, error)) func(string, *Client) crm.Adapter {
		return func(_ string, a *Client) crm.Adapter {
			return wrong{Client: a, find: func(ctx context.Context, op crm.Op) ([]string, error) { return find(a, ctx, op) }}
		}
	}
	return []flaw{
		{name: "takes everything that a search returns", fails: []string{
			finds, "a look-up for an unknown operation finds nothing"},
			crm: searchable, wrap: searching},
		{name: "returns only the first lead found", fails: []string{"a look-up finds every lead of its operation"}, only: true,
			wrap: finding(func(a *Client, ctx context.Context, op crm.Op) ([]string, error) {
				ids, err := a.FindLead(ctx, op)
				return ids[:min(1, len(ids))], err
			})},
		{name: "finds nothing when it can't look", fails: []string{
			fails + "/when a bare 500 comes back", fails + "/when a page of HTML comes back with 200",
			fails + "/when the answer is reset midway", fails + "/when an error comes back with 200"},
			wrap: finding(func(a *Client, ctx context.Context, op crm.Op) ([]string, error) {
				ids, _ := a.FindLead(ctx, op)
				return ids, nil
			})},
		{name: "declares that a lagging look-up sees its own writes", conf: Config{LookupLag: time.Second},
			fails: []string{finds}, wrap: describing(func(d *crm.Description) { d.LookupReadsOwnWrites = true })},
		{name: "creates what it does not find", fails: []string{"a look-up for an unknown operation finds nothing"}, only: true,
			wrap: finding(func(a *Client, ctx context.Context, op crm.Op) ([]string, error) {
				ids, err := a.FindLead(ctx, op)
				if err == nil && len(ids) == 0 {
					_, err = a.CreateLead(ctx, op, crm.Lead{})
				}
				return ids, err
			})},
		{name: "looks up without a deadline", fails: []string{"a look-up is left when its context ends"}, only: true,
			wrap: finding(func(a *Client, ctx context.Context, op crm.Op) ([]string, error) {
				return a.FindLead(context.WithoutCancel(ctx), op)
			})},
		{name: "retries notes", fails: []string{"AddNote works, and sends its write once when the reply is lost"}, only: true,
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, note: func(ctx context.Context, op crm.Op, id string, n crm.Note) (string, error) {
					if got, err := a.AddNote(ctx, op, id, n); err == nil {
						return got, nil
					}
					return a.AddNote(ctx, op, id, n)
				}}
			}},
		{name: "is always well", fails: []string{"Check succeeds where the CRM answers, and fails where it does not"}, only: true,
			wrap: func(_ string, a *Client) crm.Adapter {
				return wrong{Client: a, check: func(ctx context.Context) error { a.Check(ctx); return nil }}
			}},
	}
}

// searchable adds a search that returns every lead, as full-text searches over ids do.
func searchable(h http.Handler) http.Handler {
	sim := h.(*Simulator)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/search" {
			h.ServeHTTP(w, r)
			return
		}
		ids := []string{}
		for _, l := range sim.Leads() {
			ids = append(ids, l.ID)
		}
		json.NewEncoder(w).Encode(ids)
	})
}

func searching(base string, a *Client) crm.Adapter {
	return wrong{Client: a, find: func(ctx context.Context, op crm.Op) ([]string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/search?q="+op.ID[:8], nil)
		if err != nil {
			return nil, err
		}
		res, err := onceOnly().Do(req)
		if err != nil {
			return nil, errors.New("search: no answer")
		}
		defer res.Body.Close()
		var ids []string
		if err := json.NewDecoder(res.Body).Decode(&ids); err != nil {
			return nil, errors.New("search: the answer is not JSON")
		}
		return ids, nil
	}}
}
