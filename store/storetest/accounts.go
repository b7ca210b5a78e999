package storetest

import (
	"slices"
	"strings"

	"github.com/leadonce/leadonce/store"
)

// accounts.go: whose events the store holds. A store need not know.

func accountChecks() []check {
	return []check{
		{"an account is remembered, once", accountOnce},
		{"accounts are told apart by source, tenant and bot", accountApart},
		{"accounts of another source are not listed", accountSource},
		{"an account without a source is refused", accountInvalid},
		{"accounts are there after the database was opened again", accountDurable},
	}
}

// accounts returns the store's memory of accounts, or skips the check.
func (b *bench) accounts() store.Accounts {
	b.Helper()
	a, ok := b.st.(store.Accounts)
	if !ok {
		b.Skip("the store is no store.Accounts: it remembers no accounts")
	}
	return a
}

// wantAccounts checks what is remembered of a source.
func (b *bench) wantAccounts(source string, want ...store.Account) {
	b.Helper()
	got, err := b.accounts().Accounts(b.ctx, source)
	b.must(err)
	slices.SortFunc(got, func(x, y store.Account) int {
		return strings.Compare(x.Tenant+"/"+x.Bot, y.Tenant+"/"+y.Bot)
	})
	if !slices.Equal(got, want) {
		b.Fatalf("the accounts of %s are %+v, want %+v", source, got, want)
	}
}

func accountOnce(b *bench) {
	b.wantAccounts("telegram")
	a := store.Account{Source: "telegram", Tenant: "shop", Bot: "7001"}
	for range 2 {
		b.must(b.accounts().AddAccount(b.ctx, a))
	}
	b.wantAccounts("telegram", a)
}

func accountApart(b *bench) {
	list := []store.Account{
		{Source: "telegram", Tenant: "", Bot: ""}, {Source: "telegram", Tenant: "", Bot: "7001"},
		{Source: "telegram", Tenant: "shop", Bot: "7001"}, {Source: "telegram", Tenant: "shop", Bot: "7002"},
	}
	for _, a := range list {
		b.must(b.accounts().AddAccount(b.ctx, a))
	}
	b.wantAccounts("telegram", list...)
}

func accountSource(b *bench) {
	a := store.Account{Source: "other", Tenant: "shop", Bot: "7001"}
	b.must(b.accounts().AddAccount(b.ctx, a))
	b.wantAccounts("telegram")
	b.wantAccounts("other", a)
}

func accountInvalid(b *bench) {
	err := b.accounts().AddAccount(b.ctx, store.Account{Bot: "7001"})
	b.wantErr(err, store.ErrInvalid, "an account without a source")
	b.wantNamed(err, "Source")
}

func accountDurable(b *bench) {
	a := store.Account{Source: "telegram", Tenant: "shop", Bot: "7001"}
	b.must(b.accounts().AddAccount(b.ctx, a))
	b.reopen()
	b.wantAccounts("telegram", a)
}
