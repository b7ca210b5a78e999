package postgres

import (
	"context"
	"fmt"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// account.go: whose events the store holds.

// Accounts lists the accounts of a source.
func (s *Store) Accounts(ctx context.Context, source string) ([]store.Account, error) {
	var list []store.Account
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.single(ctx, func(c *session) error {
			list = nil
			rows, err := all[sqlstore.Account](c, `
				select source, tenant, bot from {schema}.leadonce_accounts where source = :source order by tenant, bot`,
				args{"source": source})
			for _, r := range rows {
				list = append(list, r.Decode())
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: accounts of %s: %w", source, err)
	}
	return list, nil
}

// AddAccount remembers an account; again changes nothing.
func (s *Store) AddAccount(ctx context.Context, a store.Account) error {
	row, err := sqlstore.NewAccount(a)
	if err == nil {
		err = s.try(ctx, func(ctx context.Context, _ bool) error {
			return s.single(ctx, func(c *session) error {
				_, err := c.exec(`
					insert into {schema}.leadonce_accounts (source, tenant, bot) values (:source, :tenant, :bot)
					on conflict (source, tenant, bot) do nothing`, row)
				return err
			})
		})
	}
	if err != nil {
		return fmt.Errorf("postgres: add account: %w", err)
	}
	return nil
}
