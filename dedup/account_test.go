package dedup_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/sqlite"
	"github.com/leadonce/leadonce/telegram"
)

// account_test.go: a mistyped bot or tenant is noticed before it makes other operations of everything.

func openStore(t *testing.T) *sqlite.Store {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "leads.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	return st
}

func botOf(t *testing.T, tenant string, bot int64) dedup.Source {
	t.Helper()
	s, err := telegram.NewSource(bot, doorSecret, &telegram.Options{Tenant: tenant})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func known(t *testing.T, st *sqlite.Store) int {
	t.Helper()
	list, err := st.Accounts(t.Context(), telegram.Name)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestCheckAccounts(t *testing.T) {
	type start []dedup.Source
	one, two, moved, tenant2 := botOf(t, "acme", 1), botOf(t, "acme", 2), botOf(t, "emca", 1), botOf(t, "other", 3)
	for name, c := range map[string]struct {
		before, now start
		refused     []string // parts of the text; nil: it is let in
		known       int
	}{
		"the first account is remembered":                           {nil, start{one}, nil, 1},
		"the same account is let in":                                {start{one}, start{one}, nil, 1},
		"several at once are remembered":                            {nil, start{one, two}, nil, 2},
		"the same bot under another tenant is refused":              {start{one}, start{moved}, []string{`A typo: put tenant "acme" back`, `"emca"`, "bot 1", "AddAccount once"}, 1},
		"that is so beside a known one too":                         {start{one, two}, start{two, moved}, []string{`"acme"`, `"emca"`}, 2},
		"one bot under two tenants is refused at once":              {nil, start{one, moved}, []string{`"acme"`, `"emca"`}, 0},
		"another bot alone is refused":                              {start{one}, start{two}, []string{"bot 1", "bot 2", "A typo", "back", "A second bot", "AddAccount once, or set AddAccount: true"}, 1},
		"another bot beside the known one is a further one":         {start{one}, start{one, two}, nil, 2},
		"one of several known bots alone is let in":                 {start{one, two}, start{two}, nil, 2},
		"a bot of a tenant that nothing is known of is let in":      {start{one}, start{tenant2}, nil, 2},
		"where one is refused none is remembered":                   {start{one}, start{tenant2, two}, []string{"bot 2"}, 1},
		"a tenant's known bot does not vouch for another's new one": {start{one, tenant2}, start{tenant2, two}, []string{"bot 2"}, 2},
		"a source that does not tell is left out":                   {nil, start{mute{one}}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			st := openStore(t)
			if err := dedup.CheckAccounts(t.Context(), st, c.before...); err != nil {
				t.Fatal(err)
			}
			err := dedup.CheckAccounts(t.Context(), st, c.now...)
			if (err != nil) != (c.refused != nil) || (err != nil && !errors.Is(err, dedup.ErrAccountChanged)) {
				t.Fatalf("%v, want refused %v", err, c.refused != nil)
			}
			for _, part := range c.refused {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want %q in it", err, part)
				}
			}
			if n := known(t, st); n != c.known {
				t.Errorf("%d accounts are remembered, want %d", n, c.known)
			}
		})
	}
	t.Run("an added account is let in, in place of the old one or beside it", func(t *testing.T) {
		st := openStore(t)
		err := errors.Join(dedup.CheckAccounts(t.Context(), st, one), dedup.AddAccount(t.Context(), st, two),
			dedup.AddAccount(t.Context(), st, moved), dedup.AddAccount(t.Context(), st, moved))
		for _, src := range []dedup.Source{one, two, moved} {
			err = errors.Join(err, dedup.CheckAccounts(t.Context(), st, src))
		}
		if err != nil || known(t, st) != 3 {
			t.Errorf("%v, %d known", err, known(t, st))
		}
	})
	t.Run("a name that the store has to change is known again", func(t *testing.T) {
		st, odd := openStore(t), botOf(t, "a\x00\xff", 1)
		if err := errors.Join(dedup.CheckAccounts(t.Context(), st, odd), dedup.CheckAccounts(t.Context(), st, odd)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a source that does not tell can't be added, and a store that can't remember refuses nobody", func(t *testing.T) {
		if err := dedup.AddAccount(t.Context(), openStore(t), mute{one}); err == nil {
			t.Error("added")
		}
		if err := dedup.CheckAccounts(t.Context(), &acceptOnly{}, one); err != nil {
			t.Error(err)
		}
		if err := dedup.AddAccount(t.Context(), &acceptOnly{}, one); err == nil {
			t.Error("added")
		}
	})
	t.Run("a store that fails is no changed account", func(t *testing.T) {
		st := &remembering{fail: errors.New("down")}
		err := dedup.CheckAccounts(t.Context(), st, one)
		if !errors.Is(err, st.fail) || errors.Is(err, dedup.ErrAccountChanged) {
			t.Error(err)
		}
	})
}

// mute is a source that is no AccountSource.
type mute struct{ dedup.Source }

// remembering is a door that also remembers accounts.
type remembering struct {
	acceptOnly
	list  []store.Account
	fail  error
	hang  bool
	asked int
}

func (s *remembering) Accounts(ctx context.Context, _ string) ([]store.Account, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return append([]store.Account(nil), s.list...), s.fail
}

func (s *remembering) AddAccount(_ context.Context, a store.Account) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, a)
	return nil
}

func TestMiddlewareChecksTheAccount(t *testing.T) {
	one, two := store.Account{Source: telegram.Name, Bot: "6001"}, store.Account{Source: telegram.Name, Bot: "6002"}
	open := func(t *testing.T, st *remembering, o dedup.MiddlewareOptions) *entrance {
		d := openDoor(t, nil, nil, o)
		o.Logger = slog.New(slog.NewTextHandler(d.log, nil))
		src := botOf(t, "", 6001)
		d.h = dedup.Middleware(st, src, &o)(nil)
		return d
	}
	t.Run("the first delivery makes the account known, and the check is over", func(t *testing.T) {
		st := &remembering{}
		d := open(t, st, dedup.MiddlewareOptions{})
		for i := range 5 {
			if w := d.post(updateBody(i + 1)); w.Code != http.StatusOK {
				t.Fatal(w.Code)
			}
		}
		if st.asked != 1 || len(st.list) != 1 || st.list[0] != one || len(st.stored()) != 5 {
			t.Errorf("asked %d times, known %v, %d stored", st.asked, st.list, len(st.stored()))
		}
	})
	t.Run("a changed account is answered 503, told each minute, and mended without a restart", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := &remembering{list: []store.Account{two}}
			d := open(t, st, dedup.MiddlewareOptions{})
			for range 130 {
				if w := d.post(updateBody(1)); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
					t.Fatal(w.Code)
				}
				time.Sleep(time.Second)
			}
			if n := strings.Count(d.log.text(), "level=ERROR"); n != 3 || len(st.stored()) != 0 {
				t.Errorf("%d lines in two minutes, want 3; %d stored: %s", n, len(st.stored()), d.log.text())
			}
			for _, part := range []string{"6001", "6002", "AddAccount"} {
				if !strings.Contains(d.log.text(), part) {
					t.Errorf("%q is not in the log: %s", part, d.log.text())
				}
			}
			d.silent(t)
			_ = st.AddAccount(t.Context(), one)
			if w := d.post(updateBody(1)); w.Code != http.StatusOK || len(st.stored()) != 1 {
				t.Errorf("%d after it was mended", w.Code)
			}
		})
	})
	t.Run("AddAccount lets a further bot in, and no other tenant", func(t *testing.T) {
		st := &remembering{list: []store.Account{two}}
		if w := open(t, st, dedup.MiddlewareOptions{AddAccount: true}).post(updateBody(1)); w.Code != http.StatusOK || len(st.list) != 2 {
			t.Errorf("%d, known %v", w.Code, st.list)
		}
		st = &remembering{list: []store.Account{{Source: telegram.Name, Tenant: "acme", Bot: "6001"}}}
		if w := open(t, st, dedup.MiddlewareOptions{AddAccount: true}).post(updateBody(1)); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d under another tenant", w.Code)
		}
	})
	t.Run("a check that fails or hangs is 503 within the accept timeout, and made again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			st := &remembering{fail: errors.New("down")}
			d := open(t, st, dedup.MiddlewareOptions{})
			if w := d.post(updateBody(1)); w.Code != http.StatusServiceUnavailable {
				t.Error(w.Code)
			}
			st.fail, st.hang = nil, true
			began := time.Now()
			codes := make(chan int)
			for i := range 3 {
				go func() { codes <- d.post(updateBody(i + 1)).Code }()
			}
			for range 3 {
				if code := <-codes; code != http.StatusServiceUnavailable {
					t.Error(code)
				}
			}
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("refused after %v", took)
			}
			st.hang = false
			if w := d.post(updateBody(1)); w.Code != http.StatusOK {
				t.Error(w.Code)
			}
		})
	})
	t.Run("nobody without the secret makes it ask", func(t *testing.T) {
		st := &remembering{}
		d := open(t, st, dedup.MiddlewareOptions{})
		r := delivery(strings.NewReader(updateBody(1)))
		r.Header.Set(telegram.SecretHeader, "wrong")
		if w := d.send(r); w.Code != http.StatusUnauthorized || st.asked != 0 {
			t.Errorf("%d, asked %d times", w.Code, st.asked)
		}
	})
}
