package sqlstore

import (
	"fmt"

	"github.com/leadonce/leadonce/store"
)

// account.go: the row of a receiving account.

// Account is a row of leadonce_accounts.
type Account struct {
	Source string `db:"source"`
	Tenant string `db:"tenant"`
	Bot    string `db:"bot"`
}

// NewAccount returns the row of a. The error wraps store.ErrInvalid.
func NewAccount(a store.Account) (*Account, error) {
	if a.Source == "" {
		return nil, fmt.Errorf("%w: Account.Source is empty", store.ErrInvalid)
	}
	return &Account{Source: a.Source, Tenant: a.Tenant, Bot: a.Bot}, nil
}

// Decode returns the account.
func (r *Account) Decode() store.Account {
	return store.Account{Source: r.Source, Tenant: r.Tenant, Bot: r.Bot}
}
