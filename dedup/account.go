package dedup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/leadonce/leadonce/store"
)

// account.go: whose events a database holds. Operation ids are derived from the tenant and the bot's id: a slip in either
// gives every enquiry another id, so that a redelivery meets no stored operation and becomes a second lead.

// AccountSource is a Source that can say whose events it takes in. CheckAccounts, Middleware and Intake ask for it.
type AccountSource interface {
	Source
	// Account is the same for every event of the source.
	Account() store.Account
}

// ErrAccountChanged means that the configured tenant or bot is not the one whose events the database holds: a typo, which is
// put back, or a second bot beside the first, which AddAccount (or the option of that name) lets in.
var ErrAccountChanged = errors.New("the account is not the one that this database knows")

// CheckAccounts compares the accounts of sources with those that the database remembers, and remembers them where it knows
// none of the tenant yet. Call it at start, with all the sources of the process, so that a mistake is seen there; Middleware
// checks its own source with the first deliveries all the same.
//
// It returns ErrAccountChanged, and remembers nothing, for a bot that is known under another tenant, and for an unknown bot
// of a tenant whose known ones are all missing from sources; an unknown bot beside a known one is a further one, and is added.
// The text names both accounts and says what to do. Sources that are no AccountSource are left out, and so is everything
// with a store that is no store.Accounts.
func CheckAccounts(ctx context.Context, st store.Store, sources ...Source) error {
	_, err := checkAccounts(ctx, st, false, sources...)
	return err
}

// AddAccount remembers the account of src as one of the database's own, whatever else is known: a further bot that runs in a
// process of its own, a new one in place of an old one, or a tenant that was renamed on purpose.
func AddAccount(ctx context.Context, st store.Store, src Source) error {
	a, ok := src.(AccountSource)
	if !ok {
		return fmt.Errorf("dedup: add account: the source %T does not say whose events it takes in (AccountSource)", src)
	}
	acc, ok := st.(store.Accounts)
	if !ok {
		return fmt.Errorf("dedup: add account: the store %T does not remember any (store.Accounts)", st)
	}
	if err := acc.AddAccount(ctx, a.Account()); err != nil {
		return fmt.Errorf("dedup: add account: %w", err)
	}
	return nil
}

// checkAccounts is CheckAccounts; further lets unknown bots in. It returns the accounts that are right, beside those of sources
// all that the database knows of the same kind of source.
func checkAccounts(ctx context.Context, st store.Store, further bool, sources ...Source) (right []store.Account, err error) {
	acc, ok := st.(store.Accounts)
	if !ok {
		return nil, nil
	}
	var given, add []store.Account
	for _, src := range sources {
		a, ok := src.(AccountSource)
		if !ok {
			continue
		}
		if acc := asStored(a.Account()); !slices.Contains(given, acc) {
			given = append(given, acc)
		}
	}
	known := map[string][]store.Account{}
	var wrong error
	for _, a := range given {
		if _, asked := known[a.Source]; !asked {
			list, err := acc.Accounts(ctx, a.Source)
			if err != nil {
				return nil, fmt.Errorf("dedup: check accounts: %w", err)
			}
			known[a.Source] = list
		}
		list := known[a.Source]
		if slices.Contains(list, a) {
			continue
		}
		if err := changed(a, list, given, further); err != nil {
			wrong = errors.Join(wrong, err)
			continue
		}
		add = append(add, a)
		known[a.Source] = append(slices.Clone(list), a)
	}
	if wrong != nil {
		return nil, wrong
	}
	for _, a := range add {
		if err := acc.AddAccount(ctx, a); err != nil {
			return nil, fmt.Errorf("dedup: check accounts: %w", err)
		}
	}
	for _, list := range known {
		right = append(right, list...)
	}
	return right, nil
}

// asStored is a as a store gives it back.
func asStored(a store.Account) store.Account {
	clean := func(s string) string {
		return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	}
	return store.Account{Source: clean(a.Source), Tenant: clean(a.Tenant), Bot: clean(a.Bot)}
}

// changed tells what is wrong with an account that is not among the known ones; nil if it is a further one.
func changed(a store.Account, known, given []store.Account, further bool) error {
	var old []store.Account
	for _, k := range known {
		if k.Bot == a.Bot {
			return fmt.Errorf("dedup: %w: %s bot %s has tenant %q here, and %q in the database. A typo: put tenant %q back. "+
				"A tenant that was renamed on purpose: call dedup.AddAccount once. Nothing is taken in until then, since under "+
				"another tenant each redelivery becomes a second lead",
				ErrAccountChanged, a.Source, a.Bot, a.Tenant, k.Tenant, k.Tenant)
		}
		if k.Tenant == a.Tenant {
			old = append(old, k)
		}
	}
	if further || len(old) == 0 || slices.ContainsFunc(old, func(k store.Account) bool { return slices.Contains(given, k) }) {
		return nil
	}
	return fmt.Errorf("dedup: %w: %s bot %s is configured, and the database knows bot %s (tenant %q). "+
		"A typo in the bot or the tenant: put it back. "+
		"A second bot beside the first, or a new one in its place: call dedup.AddAccount once, or set AddAccount: true in the "+
		"options. Nothing is taken in until then, since under another id each redelivery becomes a second lead",
		ErrAccountChanged, a.Source, a.Bot, old[0].Bot, a.Tenant)
}

// maxAccounts bounds what a door remembers.
const maxAccounts = 100_000

// accountCheck is the door's: made with an account's first deliveries, and not again once it has succeeded.
type accountCheck struct {
	further bool          // unknown bots are further ones
	all     bool          // one reading of the database settles all that it knows: there are many bots
	busy    chan struct{} // one at a time

	mu    sync.Mutex
	right map[store.Account]bool
}

func newAccountCheck(further, all bool) *accountCheck {
	return &accountCheck{further: further, all: all, busy: make(chan struct{}, 1), right: map[store.Account]bool{}}
}

func (c *accountCheck) done(ctx context.Context, st store.Store, from origin) error {
	if c.passed(from.account) {
		return nil
	}
	select {
	case <-ctx.Done():
		return fmt.Errorf("dedup: check accounts: %w", ctx.Err())
	case c.busy <- struct{}{}:
	}
	defer func() { <-c.busy }()
	if c.passed(from.account) { // by whoever was busy before
		return nil
	}
	right, err := checkAccounts(ctx, st, c.further, from.Source)
	if err != nil {
		return err
	}
	c.remember(from.account, right)
	return nil
}

func (c *accountCheck) passed(a store.Account) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.right[a]
}

func (c *accountCheck) remember(a store.Account, others []store.Account) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.right) >= maxAccounts {
		clear(c.right)
	}
	c.right[a] = true
	if c.all {
		for _, o := range others[:min(len(others), maxAccounts-len(c.right))] {
			c.right[o] = true
		}
	}
}
