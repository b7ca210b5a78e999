package telegram

import (
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// account.go: whose updates these are.

var _ dedup.AccountSource = (*Source)(nil)

// Account names the bot and the tenant that every event from here carries.
func (s *Source) Account() store.Account {
	return store.Account{Source: Name, Tenant: s.tenant, Bot: s.bot}
}
