package dedup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// shadow.go: what a Processor in shadow mode would have done.

// ShadowEntry is one effect that would have reached the CRM.
type ShadowEntry struct {
	At          time.Time // when it was decided, by the store's clock
	OperationID string    // of the shadow; the real operation has another
	Kind        crm.Kind
	Tenant      string
	DealID      string
	LeadID      string // the lead that it would have been added to; empty where a shadow would have made that one too
	Summary     string // the title of a lead, the text of a note: for people, not for logs
	State       store.State
}

// ShadowReport lists what Processors in shadow mode have decided since a time (zero: ever), oldest first. What they ignored
// stands with the events (store.Reader.Events, by state and reason).
func ShadowReport(ctx context.Context, r store.Reader, since time.Time) ([]ShadowEntry, error) {
	var all []ShadowEntry
	for _, kind := range kinds {
		f := store.OperationFilter{Kind: shadowMark + string(kind), Limit: 1000}
		for {
			ops, err := r.Operations(ctx, f)
			if err != nil && !store.OnlyCorrupt(err) {
				return nil, fmt.Errorf("dedup: shadow report: %w", err)
			}
			for _, op := range ops {
				f.After = op.ID
				if !op.CreatedAt.Before(since) {
					all = append(all, shadowEntry(op, kind))
				}
			}
			if len(ops) < f.Limit {
				break
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ShadowEntry) int { return a.At.Compare(b.At) })
	return all, nil
}

// asDecided gives a submission in shadow mode identities of its own: the real one can still be made later.
func (p *Processor) asDecided(sub store.Submission) store.Submission {
	if !p.opt.Shadow {
		return sub
	}
	kind := shadowMark + sub.Operation.Kind
	sub.Deal.Key, sub.Deal.ID = shadowMark+sub.Deal.Key, ids.UUID("deal", shadowMark, sub.Deal.ID)
	sub.Deal.CreateOp = ids.UUID(kind, sub.Deal.ID)
	sub.Operation.Kind, sub.Operation.ID, sub.Operation.DealID = kind, sub.Deal.CreateOp, sub.Deal.ID
	return sub
}

func shadowEntry(op store.Operation, kind crm.Kind) ShadowEntry {
	e := ShadowEntry{At: op.CreatedAt, OperationID: op.ID, Kind: kind, Tenant: op.Tenant, DealID: op.DealID, State: op.State}
	if !strings.HasPrefix(op.LeadID, shadowMark) {
		e.LeadID = op.LeadID
	}
	var said struct{ Title, Text, Phone, Name, To string }
	_ = json.Unmarshal(op.Fields, &said) // best effort: the database is the truth
	for _, s := range []string{said.Title, said.Text, said.To, said.Phone, said.Name} {
		if s != "" {
			e.Summary = s
			break
		}
	}
	return e
}
