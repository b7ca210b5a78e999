package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
)

// form.go: the bot's own handler, as it would be without this library, but for one call: Submit.

// form keeps what a user wrote, and when the button under the form is pressed it makes a lead of that.
type form struct {
	leads *dedup.Processor

	mu      sync.Mutex
	answers map[int64]map[int64]string // by chat, then by message
	stored  []string                   // operation ids that Submit returned, press by press
}

// ServeHTTP gets each update when it is stored already: whatever it answers, and even if it panics, no lead is lost. It may
// get one twice (MiddlewareOptions.ForwardDuplicates), so it keeps an answer under its message, and twice is once.
func (f *form) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var u struct {
		Message struct {
			ID   int64 `json:"message_id"`
			Chat struct{ ID int64 }
			Text string
		}
		Callback struct {
			From struct {
				ID   int64
				Name string `json:"first_name"`
			}
			Message struct {
				ID   int64 `json:"message_id"`
				Chat struct{ ID int64 }
			}
			Data string
		} `json:"callback_query"`
	}
	if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := u.Message; m.Text != "" {
		if f.answers[m.Chat.ID] == nil {
			f.answers[m.Chat.ID] = map[int64]string{}
		}
		f.answers[m.Chat.ID][m.ID] = m.Text
	}
	c := u.Callback
	answers := f.answers[c.Message.Chat.ID]
	if c.Data != "form:send" || len(answers) < 3 {
		return
	}
	order := slices.Sorted(maps.Keys(answers))
	lead := crm.Lead{Title: "Form", Name: answers[order[0]], Phone: answers[order[1]], Text: answers[order[2]]}
	// The form's own message names the enquiry, so every press under it is the same one. An update_id would not do: each
	// press has its own.
	key := fmt.Sprintf("form/%d/%d", c.Message.Chat.ID, c.Message.ID)
	person := dedup.Person{ID: fmt.Sprint(c.From.ID), Name: c.From.Name}
	op, err := f.leads.Submit(r.Context(), key, person, lead)
	// Without an error the bot may tell its user "we'll call you back": it is on disk.
	f.stored = append(f.stored, cmp.Or(op.ID, fmt.Sprint("error: ", err)))
}

// presses returns what Submit returned so far.
func (f *form) presses() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stored)
}
