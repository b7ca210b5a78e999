package dedup_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
)

// scenario_rules_test.go: the rules that a scenario names.

// ruleOf finds a rule: "continue within 24h", "until closed, or 720h", "one per message", and before each of these
// "only commands, contacts and data: ".
func ruleOf(s string) (dedup.Rule, error) {
	if rest, ok := strings.CutPrefix(s, "only commands, contacts and data: "); ok {
		r, err := ruleOf(rest)
		return dedup.Only(r, dedup.Command("/order"), dedup.SharedContact, dedup.WebAppData, dedup.Button("")), err
	}
	if d, ok := strings.CutPrefix(s, "continue within "); ok {
		within, err := time.ParseDuration(d)
		return dedup.ContinueWithin(within, scenarioLead), err
	}
	if d, ok := strings.CutPrefix(s, "until closed, or "); ok {
		fallback, err := time.ParseDuration(d)
		return dedup.UntilClosed(fallback, scenarioLead), err
	}
	switch s {
	case "one per message":
		return dedup.OnePerMessage(scenarioLead), nil
	case "what the words say":
		return wordsRule{}, nil
	}
	return nil, fmt.Errorf("rule: %q is not known", s)
}

func scenarioLead(e dedup.Enquiry) (crm.Lead, error) {
	if e.Text == "/start" {
		return crm.Lead{}, dedup.Ignore("pressed start")
	}
	e.Edited = false
	return crm.Lead{Title: e.Summary(), Name: e.Person.Name, Phone: phoneOf(e), Campaign: e.Campaign}, nil
}

func phoneOf(e dedup.Enquiry) string {
	if e.OwnPhone {
		return e.Phone
	}
	return ""
}

// wordsRule is a host's own rule, which does what the words of a message say: each is an effect of its own.
type wordsRule struct{}

func (wordsRule) Kinds() []crm.Kind { return []crm.Kind{crm.KindCreate, crm.KindNote} }

func (wordsRule) Decide(e dedup.Enquiry, h dedup.History) (dedup.Decision, error) {
	if !e.HasPerson || !e.Asks {
		return dedup.Decision{}, dedup.Ignore("nobody asks")
	}
	lead, err := scenarioLead(e)
	if err != nil {
		return dedup.Decision{}, err
	}
	deal := ""
	for _, d := range h.Deals {
		if d.Continuable() {
			deal = d.ID
		}
	}
	var d dedup.Decision
	for _, word := range strings.Fields(e.Text) {
		switch {
		case word == "open":
			d.Effects = append(d.Effects, dedup.Open{Lead: lead})
		case word == "open-a", word == "open-b":
			l := lead
			l.Title += " " + word
			d.Effects = append(d.Effects, dedup.Open{Lead: l, Key: strings.TrimPrefix(word, "open-")})
		case deal == "":
		case word == "note":
			d.Effects = append(d.Effects, dedup.Note{DealID: deal, Text: e.Text})
		case word == "again":
			d.Effects = append(d.Effects, dedup.Note{DealID: deal, Text: "again: " + e.Text})
		case word == "update":
			d.Effects = append(d.Effects, dedup.Update{DealID: deal, Lead: crm.Lead{Campaign: "spring", Phone: "+700"}})
		case word == "talk":
			d.Effects = append(d.Effects, dedup.SetStage{DealID: deal, To: "talking", From: []string{"new"}})
		case word == "close":
			d.Effects = append(d.Effects, dedup.Close{DealID: deal})
		}
	}
	return d, nil
}
