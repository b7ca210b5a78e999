package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/store/internal/sqlstore"
)

// reader.go: single rows, pages of rows, and the chain event - operation - crm_id. A page is read by the part of the filter
// that selects most; the rest is decided row by row.

// page is how many rows are read at once: a driver reads a result to its end, also where nobody wants the rest.
const page = 256

// Operation returns one operation, or store.ErrNotFound.
func (s *Store) Operation(ctx context.Context, id string) (store.Operation, error) {
	var o store.Operation
	err := s.try(ctx, func(ctx context.Context, _ bool) error {
		return s.single(ctx, func(c *session) (err error) {
			o, err = load(c, id)
			return err
		})
	})
	if err != nil {
		s.setAside(ctx, err)
		return store.Operation{}, fmt.Errorf("postgres: %w", err)
	}
	return o, nil
}

// Operations returns operations that match every given field of f, oldest first.
func (s *Store) Operations(ctx context.Context, f store.OperationFilter) ([]store.Operation, error) {
	limit, err := sqlstore.PageSize(f.Limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: operations: %w", err)
	}
	var list []store.Operation
	var corrupt []error
	err = s.view(ctx, func(c *session) error {
		list, corrupt = nil, nil
		after, err := seqOf(c, f.After)
		a := args{"after": after, "event_id": f.EventID, "deal_id": f.DealID, "contact_key": f.Contact, "crm_id": f.CRMID,
			"page": page}
		for n := page; err == nil && n == page && len(list) < limit; {
			n = 0
			err = each(c, operationsBy(f), a, func(row *sqlstore.Operation, err error) bool {
				n, a["after"] = n+1, row.Seq
				o, err := sqlstore.Decoded(row, err)
				switch {
				case f.Broken:
					list = append(list, store.Operation{ID: row.ID})
				case err != nil:
					corrupt = append(corrupt, err)
				case sqlstore.MatchOperation(f, o):
					list = append(list, o)
				}
				return len(list) < limit
			})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: operations: %w", err)
	}
	s.setAside(ctx, corrupt...)
	return list, errors.Join(unseen(corrupt)...)
}

// unseen leaves out what was set aside before: OperationFilter.Broken lists it.
func unseen(corrupt []error) []error {
	return slices.DeleteFunc(corrupt, func(err error) bool { return errors.Is(err, sqlstore.ErrBroken) })
}

// seqOf returns the place of an operation, 0 for none.
func seqOf(c *session, id string) (seq int64, err error) {
	if id == "" {
		return 0, nil
	}
	found, err := c.get(&seq, `
		select seq from {schema}.leadonce_operations where id = :id`, args{"id": id})
	if err == nil && !found {
		err = fmt.Errorf("filter After: operation %s: %w", id, store.ErrNotFound)
	}
	return seq, err
}

func operationsBy(f store.OperationFilter) string {
	only := func(all ...store.State) bool {
		return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s store.State) bool { return !slices.Contains(all, s) })
	}
	switch {
	case f.Broken:
		return `
			select * from {schema}.leadonce_operation_rows where broken = 1 and seq > :after order by seq limit :page`
	case f.EventID != 0:
		return `
			select * from {schema}.leadonce_operation_rows
			where id in (select operation_id from {schema}.leadonce_links where event_id = :event_id) and seq > :after
			order by seq limit :page`
	case f.DealID != "":
		return `
			select * from {schema}.leadonce_operation_rows where deal_id = :deal_id and deal_id <> '' and seq > :after order by seq limit :page`
	case f.CRMID != "":
		return `
			select * from {schema}.leadonce_operation_rows
			where seq > :after and seq in (
				select seq from {schema}.leadonce_operations where crm_id = :crm_id and crm_id <> ''
				union
				select o.seq
				from {schema}.leadonce_deals d join {schema}.leadonce_operations o on o.deal_id = d.id and o.deal_id <> ''
				where d.crm_id = :crm_id and d.crm_id <> '')
			order by seq limit :page`
	case f.Conflict:
		return `
			select * from {schema}.leadonce_operation_rows where conflict_id <> '' and seq > :after order by seq limit :page`
	case f.Contact != "":
		return `
			select * from {schema}.leadonce_operation_rows
			where contact_key = :contact_key and contact_key <> '' and seq > :after
			order by seq limit :page`
	case only(store.Pending, store.Sending, store.Uncertain, store.NeedsReconciliation, store.Failed):
		return `
			select * from {schema}.leadonce_operation_rows
			where state in ('pending', 'sending', 'uncertain', 'needs_reconciliation', 'failed') and broken = 0 and seq > :after
			order by seq limit :page`
	case only(store.Canceled):
		return `
			select * from {schema}.leadonce_operation_rows where state = 'canceled' and seq > :after order by seq limit :page`
	}
	return `
		select * from {schema}.leadonce_operation_rows where seq > :after order by seq limit :page`
}

// Events returns events that match every given field of f, oldest first. A row that can't be read and was parked for it is
// returned with what can be read of it.
func (s *Store) Events(ctx context.Context, f store.EventFilter) ([]store.EventRow, error) {
	limit, err := sqlstore.PageSize(f.Limit)
	if err != nil {
		return nil, fmt.Errorf("postgres: events: %w", err)
	}
	var list []store.EventRow
	var corrupt []error
	err = s.view(ctx, func(c *session) (err error) {
		list, corrupt = nil, nil
		a := args{"after": f.After, "id": f.ID, "operation_id": f.OperationID, "update_id": f.UpdateID, "page": page}
		for n := page; err == nil && n == page && len(list) < limit; {
			n = 0
			err = each(c, eventsBy(f), a, func(row *sqlstore.Event, err error) bool {
				n, a["after"] = n+1, row.ID
				e, err := decodeEvent(row, err)
				switch {
				case err != nil && row.Broken == 0:
					corrupt = append(corrupt, err)
				case sqlstore.MatchEvent(f, e):
					list = append(list, e)
				}
				return len(list) < limit
			})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: events: %w", err)
	}
	s.setAside(ctx, corrupt...)
	return list, errors.Join(corrupt...)
}

func eventsBy(f store.EventFilter) string {
	only := func(is func(store.EventState) bool) bool {
		return len(f.States) > 0 && !slices.ContainsFunc(f.States, func(s store.EventState) bool { return !is(s) })
	}
	held := func(s store.EventState) bool { return s == store.EventParked || s == store.EventQuarantined }
	switch {
	case f.ID != 0:
		return `
			select * from {schema}.leadonce_events where id = :id and id > :after limit :page`
	case f.OperationID != "":
		return `
			select e.*
			from {schema}.leadonce_links l join {schema}.leadonce_events e on e.id = l.event_id
			where l.operation_id = :operation_id and l.event_id > :after
			order by l.event_id limit :page`
	case f.UpdateID != "":
		return `
			select * from {schema}.leadonce_events where update_id = :update_id and id > :after order by id limit :page`
	case only(store.EventState.Unplanned):
		return `
			select * from {schema}.leadonce_events where ended_at = 0 and id > :after order by id limit :page`
	case only(held):
		return `
			select * from {schema}.leadonce_events where state in ('parked', 'quarantined') and id > :after order by id limit :page`
	}
	return `
		select * from {schema}.leadonce_events where id > :after order by id limit :page`
}

// Trail returns what deviated from the happy path of an operation, oldest first.
func (s *Store) Trail(ctx context.Context, operationID string) ([]store.TrailEntry, error) {
	var list []store.TrailEntry
	var corrupt []error
	err := s.view(ctx, func(c *session) error {
		list, corrupt = nil, nil
		return each(c, `
			select * from {schema}.leadonce_trail where operation_id = :id order by id`, args{"id": operationID},
			func(row *sqlstore.Trail, err error) bool {
				var t store.TrailEntry
				if err != nil {
					err = &store.CorruptError{Table: sqlstore.TrailTable, ID: fmt.Sprint(row.ID), Err: err}
				} else {
					t, err = row.Decode()
				}
				if err != nil {
					corrupt = append(corrupt, err)
				} else {
					list = append(list, t)
				}
				return true
			})
	})
	if err != nil {
		return nil, fmt.Errorf("postgres: trail: %w", err)
	}
	slices.SortStableFunc(list, func(a, b store.TrailEntry) int { return cmp.Compare(a.At.UnixMicro(), b.At.UnixMicro()) })
	return list, errors.Join(corrupt...)
}
