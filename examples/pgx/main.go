// Command pgx shows leadonce in a host that has its own PostgreSQL pool (github.com/jackc/pgx/v5) and its own tables: an
// order's row and the lead about it are stored in one transaction, so that there is never one without the other.
//
//	go run . postgres://shop@127.0.0.1/shop
//
// What leadonce adds to such a host: openLeads (a store on the host's pool) and one call in place (SubmitTx).
//
// Behind pgbouncer in transaction mode, tell both sides: pgx by default_query_exec_mode=exec in the URL, so that it keeps
// nothing on a connection (simple_protocol works as well), and the store by Options.Pooler.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store/postgres"
)

// main.go: a host's pool, its table, and an order that is a lead.

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pgx postgres://USER@HOST/DATABASE")
		os.Exit(2)
	}
	if err := run(ctx, os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "pgx:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, out io.Writer) error {
	pool, err := pgxpool.New(ctx, dsn) // as the host has it already; its errors hold no password
	if err != nil {
		return err
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()

	sim := crmtest.NewSimulator(crmtest.Config{}) // in place of your CRM
	s, err := openShop(ctx, db, sim.Local(), nil)
	if err != nil {
		return err
	}
	defer s.close()
	working, stop := context.WithCancel(ctx)
	drained := make(chan error, 1)
	go func() { drained <- s.leads.Run(working) }()

	id := fmt.Sprint("order-", time.Now().UnixNano())
	err = s.place(ctx, order{ID: id, Phone: "+1 555 010 0199", Item: "A new clutch"})
	for err == nil && len(sim.Leads()) == 0 && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	if err := errors.Join(err, <-drained); err != nil {
		return err
	}
	for _, l := range sim.Leads() {
		fmt.Fprintf(out, "%s is lead %s in the CRM: %s\n", id, l.ID, l.Lead.Text)
	}
	return ctx.Err()
}

// shop is the host.
type shop struct {
	db    *sql.DB
	leads *dedup.Processor
	close func() error
}

type order struct{ ID, Phone, Item string }

const orders = `create table if not exists orders (id text primary key, item text not null, operation_id text not null)`

// openShop makes the host's table, and lets leadonce use the host's connections. Its tables get a schema of their own; a
// host that migrates by itself leaves Migrate out and runs postgres.Schema("").
func openShop(ctx context.Context, db *sql.DB, adapter crm.Adapter, o *postgres.Options) (*shop, error) {
	if o == nil {
		o = &postgres.Options{Migrate: true}
	}
	if _, err := db.ExecContext(ctx, orders); err != nil {
		return nil, err
	}
	st, err := postgres.New(ctx, db, o)
	if err != nil {
		return nil, err
	}
	leads, err := dedup.NewProcessor(st, adapter, nil, nil) // nil: no rule, this host only submits
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &shop{db: db, leads: leads, close: st.Close}, nil
}

// place stores an order and its lead, both or neither. After nil the lead will be in the CRM, once: whatever dies from here on.
// To place the same order again is harmless.
func (s *shop) place(ctx context.Context, o order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // after Commit it does nothing
	op, err := s.leads.SubmitTx(ctx, tx, o.ID, dedup.Person{ID: o.Phone}, crm.Lead{Title: "Order", Phone: o.Phone, Text: o.Item})
	if err != nil {
		return fmt.Errorf("place: %w", err)
	}
	_, err = tx.ExecContext(ctx, `
		insert into orders (id, item, operation_id) values ($1, $2, $3) on conflict (id) do nothing`, o.ID, o.Item, op.ID)
	if err != nil {
		return fmt.Errorf("place: %w", err)
	}
	return tx.Commit()
}
