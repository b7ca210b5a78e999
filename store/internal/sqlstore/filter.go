package sqlstore

import (
	"fmt"
	"slices"

	"github.com/leadonce/leadonce/store"
)

// filter.go: which rows a filter wants. The engine reads by the most selective part; these decide on the rest.

// PageSize is how many rows a filter asks for. The error wraps store.ErrInvalid.
func PageSize(limit int) (int, error) {
	switch {
	case limit < 0 || limit > 1000:
		return 0, fmt.Errorf("%w: Limit is %d, must be within 0 and 1000", store.ErrInvalid, limit)
	case limit == 0:
		return 100, nil
	}
	return limit, nil
}

// MatchOperation reports whether o is wanted. EventID and After are the statement's.
func MatchOperation(f store.OperationFilter, o store.Operation) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, o.State)) &&
		(f.Tenant == nil || o.Tenant == Clean(*f.Tenant)) &&
		(f.Kind == "" || o.Kind == f.Kind) &&
		(f.CRMID == "" || o.CRMID == Clean(f.CRMID) || o.LeadID == Clean(f.CRMID)) &&
		(f.DealID == "" || o.DealID == f.DealID) &&
		(f.Contact == "" || o.ContactKey == Clean(f.Contact)) &&
		(!f.Conflict || o.ConflictID != "")
}

// MatchEvent reports whether e is wanted. OperationID and After are the statement's.
func MatchEvent(f store.EventFilter, e store.EventRow) bool {
	return (f.ID == 0 || e.ID == f.ID) &&
		(len(f.States) == 0 || slices.Contains(f.States, e.State)) &&
		(f.Tenant == nil || e.Tenant == Clean(*f.Tenant)) &&
		(f.Bot == "" || e.Bot == Clean(f.Bot)) &&
		(f.UpdateID == "" || e.UpdateID == Clean(f.UpdateID))
}
