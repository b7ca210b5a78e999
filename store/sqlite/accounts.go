package sqlite

import (
	"context"
	"fmt"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// accounts.go: whose events the store holds.

// Accounts lists the accounts of a source.
func (s *Store) Accounts(ctx context.Context, source string) ([]store.Account, error) {
	var list []store.Account
	var bad error
	err := s.read.view(ctx, func(c *conn) error {
		return each(c, `
			select * from leadonce_accounts where source = :source`, args{"source": source},
			func(row *sqlstore.Account, err error) bool {
				list, bad = append(list, row.Decode()), err
				return err == nil
			})
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return nil, fmt.Errorf("sqlite: accounts: %w", err)
	}
	return list, nil
}

// AddAccount remembers an account; again changes nothing.
func (s *Store) AddAccount(ctx context.Context, a store.Account) error {
	row, err := sqlstore.NewAccount(a)
	if err == nil {
		err = s.writer.do(ctx, false, func(c *conn) error {
			_, err := c.exec(`
				insert into leadonce_accounts (source, tenant, bot) values (:source, :tenant, :bot)
				on conflict (source, tenant, bot) do nothing`, row)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("sqlite: add account: %w", err)
	}
	return nil
}
