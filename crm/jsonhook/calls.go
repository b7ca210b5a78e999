package jsonhook

import (
	"context"
	"fmt"
	"slices"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// calls.go: the optional calls. What an adapter offers is told by its methods, so each combination is a type of its own.

type notes struct{ a *adapter }

// AddNote posts a note.add.
func (n notes) AddNote(ctx context.Context, op crm.Op, leadID string, note crm.Note) (string, error) {
	return n.a.post(ctx, op, envelope{Kind: crm.KindNote, LeadID: leadID, Note: &note})
}

type updates struct{ a *adapter }

// UpdateLead posts a lead.update.
func (u updates) UpdateLead(ctx context.Context, op crm.Op, leadID string, l crm.Lead) error {
	_, err := u.a.post(ctx, op, envelope{Kind: crm.KindUpdate, LeadID: leadID, Lead: &l})
	return err
}

type stages struct{ a *adapter }

// SetStage posts a stage.set. To leave the lead alone in a stage that is none of s.From is the receiver's part.
func (s stages) SetStage(ctx context.Context, op crm.Op, leadID string, st crm.Stage) error {
	_, err := s.a.post(ctx, op, envelope{Kind: crm.KindStage, LeadID: leadID, Stage: &st})
	return err
}

type finds struct{ a *adapter }

// FindLead asks LookupURL. Leads with another operation id are left out.
func (f finds) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	u, err := parse("LookupURL", f.a.o.LookupURL)
	if err != nil {
		return nil, crm.NotApplied(err, 0)
	}
	query := u.Query()
	query.Set("operation_id", op.ID)
	u.RawQuery = query.Encode()
	resp, err := f.a.http.Do(ctx, crmhttp.Request{URL: u.String(), Header: f.a.header([]byte(op.ID))})
	if err != nil {
		return nil, fmt.Errorf("jsonhook: look-up: %w", err)
	}
	if !resp.OK() {
		return nil, resp.WithEvidence(fmt.Errorf("jsonhook: look-up: status %d", resp.Status))
	}
	var got struct {
		Leads []struct {
			ID          any `json:"id"`
			OperationID any `json:"operation_id"`
		} `json:"leads"`
	}
	if err := resp.JSON(&got); err != nil {
		return nil, fmt.Errorf("jsonhook: look-up: %w", err)
	}
	if got.Leads == nil { // a page that happens to be JSON is not "none"
		return nil, resp.WithEvidence(fmt.Errorf("jsonhook: look-up: %w", errNoLeads))
	}
	var ids []string
	for _, l := range got.Leads {
		if id := crmhttp.ID(l.ID); id != "" && crmhttp.ID(l.OperationID) == op.ID && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Check looks up an operation that does not exist.
func (f finds) Check(ctx context.Context) error {
	_, err := f.FindLead(ctx, crm.Op{ID: "00000000-0000-0000-0000-000000000000"})
	return err
}

// offer returns a with the calls that its options switch on, and no others.
func (a *adapter) offer() crm.Adapter {
	has := func(k crm.Kind) bool { return slices.Contains(a.o.Calls, k) }
	n, u, s, f := notes{a}, updates{a}, stages{a}, finds{a}
	switch [4]bool{has(crm.KindNote), has(crm.KindUpdate), has(crm.KindStage), a.o.LookupURL != ""} {
	case [4]bool{true, false, false, false}:
		return struct {
			*adapter
			notes
		}{a, n}
	case [4]bool{false, true, false, false}:
		return struct {
			*adapter
			updates
		}{a, u}
	case [4]bool{true, true, false, false}:
		return struct {
			*adapter
			notes
			updates
		}{a, n, u}
	case [4]bool{false, false, true, false}:
		return struct {
			*adapter
			stages
		}{a, s}
	case [4]bool{true, false, true, false}:
		return struct {
			*adapter
			notes
			stages
		}{a, n, s}
	case [4]bool{false, true, true, false}:
		return struct {
			*adapter
			updates
			stages
		}{a, u, s}
	case [4]bool{true, true, true, false}:
		return struct {
			*adapter
			notes
			updates
			stages
		}{a, n, u, s}
	case [4]bool{false, false, false, true}:
		return struct {
			*adapter
			finds
		}{a, f}
	case [4]bool{true, false, false, true}:
		return struct {
			*adapter
			notes
			finds
		}{a, n, f}
	case [4]bool{false, true, false, true}:
		return struct {
			*adapter
			updates
			finds
		}{a, u, f}
	case [4]bool{true, true, false, true}:
		return struct {
			*adapter
			notes
			updates
			finds
		}{a, n, u, f}
	case [4]bool{false, false, true, true}:
		return struct {
			*adapter
			stages
			finds
		}{a, s, f}
	case [4]bool{true, false, true, true}:
		return struct {
			*adapter
			notes
			stages
			finds
		}{a, n, s, f}
	case [4]bool{false, true, true, true}:
		return struct {
			*adapter
			updates
			stages
			finds
		}{a, u, s, f}
	case [4]bool{true, true, true, true}:
		return struct {
			*adapter
			notes
			updates
			stages
			finds
		}{a, n, u, s, f}
	}
	return a
}
