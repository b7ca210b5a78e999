package main

import (
	"encoding/json"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// views.go: rows as -json prints them. Names are added, never changed: scripts read them.

type opView struct {
	ID         string          `json:"id"`
	Version    int64           `json:"version"`
	Tenant     string          `json:"tenant,omitempty"`
	Kind       string          `json:"kind"`
	State      store.State     `json:"state"`
	Doubt      bool            `json:"doubt,omitempty"`
	Blocked    bool            `json:"blocked,omitempty"`
	AgeSeconds int64           `json:"age_seconds"`
	CRMID      string          `json:"crm_id,omitempty"`
	ConflictID string          `json:"conflict_id,omitempty"`
	LeadID     string          `json:"lead_id,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Attempts   int             `json:"attempts"`
	DealID     string          `json:"deal_id,omitempty"`
	DependsOn  string          `json:"depends_on,omitempty"`
	Adapter    string          `json:"adapter,omitempty"`
	Guarantee  string          `json:"guarantee,omitempty"`
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at,omitzero"`
	LastSentAt time.Time       `json:"last_sent_at,omitzero"`
	DueAt      time.Time       `json:"due_at,omitzero"`
	Fields     json.RawMessage `json:"fields,omitempty"`
}

func newOpView(op store.Operation, now time.Time, fields bool) opView {
	v := opView{ID: op.ID, Version: op.Version, Tenant: op.Tenant, Kind: op.Kind, State: op.State, Doubt: op.Doubt,
		Blocked: op.Blocked, AgeSeconds: int64(now.Sub(op.CreatedAt).Seconds()), CRMID: op.CRMID, ConflictID: op.ConflictID, LeadID: op.LeadID,
		Reason: op.Reason, Attempts: op.Attempts, DealID: op.DealID, DependsOn: op.DependsOn, Adapter: op.Adapter,
		Guarantee: op.Guarantee, CreatedAt: op.CreatedAt, UpdatedAt: op.UpdatedAt, LastSentAt: op.LastSentAt, DueAt: op.DueAt}
	if fields && json.Valid(op.Fields) {
		v.Fields = op.Fields
	}
	return v
}

type eventView struct {
	ID         int64            `json:"event"`
	UpdateID   string           `json:"update_id"`
	Epoch      int              `json:"epoch,omitempty"`
	Bot        string           `json:"bot"`
	Tenant     string           `json:"tenant,omitempty"`
	Kind       string           `json:"kind"`
	State      store.EventState `json:"state"`
	Reason     string           `json:"reason,omitempty"`
	AgeSeconds int64            `json:"age_seconds"`
	AcceptedAt time.Time        `json:"accepted_at"`
}

func newEventView(e store.EventRow, now time.Time) eventView {
	return eventView{ID: e.ID, UpdateID: e.UpdateID, Epoch: e.Epoch, Bot: e.Bot, Tenant: e.Tenant, Kind: e.Kind, State: e.State,
		Reason: e.Reason, AgeSeconds: int64(now.Sub(e.AcceptedAt).Seconds()), AcceptedAt: e.AcceptedAt}
}

type shadowView struct {
	At          time.Time   `json:"at"`
	OperationID string      `json:"operation_id"`
	Kind        string      `json:"kind"`
	Tenant      string      `json:"tenant,omitempty"`
	DealID      string      `json:"deal_id"`
	LeadID      string      `json:"lead_id,omitempty"`
	Summary     string      `json:"summary,omitempty"`
	State       store.State `json:"state"`
}

func newShadowView(e dedup.ShadowEntry) shadowView {
	return shadowView{At: e.At, OperationID: e.OperationID, Kind: string(e.Kind), Tenant: e.Tenant, DealID: e.DealID,
		LeadID: e.LeadID, Summary: e.Summary, State: e.State}
}

type trailView struct {
	At        time.Time     `json:"at"`
	On        store.Trigger `json:"on"`
	From      store.State   `json:"from"`
	To        store.State   `json:"to"`
	Attempt   int           `json:"attempt,omitempty"`
	TookMS    int64         `json:"took_ms,omitempty"`
	Status    int           `json:"status,omitempty"`
	RequestID string        `json:"request_id,omitempty"`
	CRMID     string        `json:"crm_id,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	By        string        `json:"by,omitempty"`
	Why       string        `json:"why,omitempty"`
	Seen      int64         `json:"seen,omitempty"`
}

func newTrailView(t store.TrailEntry) trailView {
	return trailView{At: t.At, On: t.On, From: t.From, To: t.To, Attempt: t.Attempt, TookMS: t.Took.Milliseconds(),
		Status: t.Status, RequestID: t.RequestID, CRMID: t.CRMID, Reason: t.Reason, By: t.By, Why: t.Why, Seen: t.Seen}
}

type opPage struct {
	opView
	Events []eventView `json:"updates"`
	Trail  []trailView `json:"trail"`
}
