package main

import (
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
)

// rule.go: what an enquiry becomes. This is the file to change.

// newRule adds what a person writes within a day to the first message's lead, where the CRM takes notes; else every message
// is a lead of its own.
func newRule(a crm.Adapter) dedup.Rule {
	if crm.Supports(a, crm.KindNote) {
		return dedup.ContinueWithin(24*time.Hour, newLead)
	}
	return dedup.OnePerMessage(newLead)
}

// newLead has no side effects: it may be called twice for one enquiry.
func newLead(e dedup.Enquiry) (crm.Lead, error) {
	if e.Command == "/start" && e.Campaign == "" {
		return crm.Lead{}, dedup.Ignore("pressed start") // with a campaign somebody followed an advertisement: call them
	}
	return crm.Lead{
		Title:    strings.TrimSpace("Telegram: " + e.Person.Name),
		Name:     e.Person.Name,
		Username: e.Person.Username,
		Phone:    e.Phone,
		Email:    e.Email,
		Text:     leadText(e),
		Campaign: e.Campaign,
	}, nil
}

// leadText says in words what came without any, so that a lead is never blank.
func leadText(e dedup.Enquiry) string {
	parts := []string{e.Text}
	if e.Data != e.Text {
		parts = append(parts, e.Data)
	}
	if e.Location != "" {
		parts = append(parts, "[location] "+e.Location)
	}
	for _, f := range e.Files {
		parts = append(parts, strings.TrimSpace("["+f.Kind+"] "+f.Name))
	}
	return strings.TrimSpace(strings.Join(parts, "\n"))
}
