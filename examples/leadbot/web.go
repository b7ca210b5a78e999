package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// web.go: what is to be seen from outside, beside /telegram. None of it but /sim/leads shows anybody's data.

// askTime bounds a question to the store.
const askTime = 3 * time.Second

func routes(leads *dedup.Processor, ready *readiness, sim *crmtest.Simulator, log *slog.Logger) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		if err := ready.check(ctx); err != nil {
			log.Error("not ready: the database can't be used", "error", err)
			http.Error(w, "the database can't be used", http.StatusServiceUnavailable)
			return
		}
		io.WriteString(w, "ready\n")
	})
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), askTime)
		defer cancel()
		s, err := leads.Stats(ctx)
		if err != nil {
			log.Error("stats", "error", err)
			http.Error(w, "the database can't be used", http.StatusServiceUnavailable)
			return
		}
		writeJSON(w, newStatsPage(s, leads.Paused("")))
	})
	if sim != nil {
		mux.HandleFunc("GET /sim/leads", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, newSimPage(sim.Leads())) })
	}
	return mux
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = printJSON(w, v) // the client has gone
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

type statsPage struct {
	NeedPerson   int64       `json:"need_person"` // waits for somebody: leadbot ops list
	Settling     int64       `json:"settling"`    // will settle by itself
	Paused       bool        `json:"paused"`      // the CRM does not answer; enquiries are stored and wait
	Blocked      countView   `json:"blocked"`
	Conflicts    countView   `json:"conflicts"`
	Broken       int64       `json:"broken"`
	Reused       int64       `json:"reused_update_ids_24h"`
	Operations   []countView `json:"operations"`
	Events       []countView `json:"events"`
	Recent       []countView `json:"operations_24h"`
	RecentEvents []countView `json:"events_24h"`
}

type countView struct {
	State  string  `json:"state,omitempty"`
	Reason string  `json:"reason,omitempty"`
	N      int64   `json:"n"`
	Errors int64   `json:"errors"`
	Oldest float64 `json:"oldest_seconds"`
}

func newStatsPage(s store.Stats, paused bool) statsPage {
	return statsPage{NeedPerson: s.NeedPerson(), Settling: s.Settling(), Paused: paused, Blocked: newCount(s.Blocked),
		Conflicts: newCount(s.Conflicts), Broken: s.Broken, Reused: s.Reused, Operations: newCounts(s.Operations),
		Events: newCounts(s.Events), Recent: newCounts(s.RecentOperations), RecentEvents: newCounts(s.RecentEvents)}
}

func newCount(c store.Count) countView {
	return countView{State: c.State, Reason: c.Reason, N: c.N, Errors: c.Errors,
		Oldest: c.Oldest.Round(time.Millisecond).Seconds()}
}

func newCounts(cs []store.Count) []countView {
	list := make([]countView, 0, len(cs)) // [], not null
	for _, c := range cs {
		list = append(list, newCount(c))
	}
	return list
}

type simLead struct {
	ID          string   `json:"id"`
	OperationID string   `json:"operation_id"`
	Lead        any      `json:"lead"`
	Notes       []string `json:"notes,omitempty"`
}

func newSimPage(records []crmtest.Record) []simLead {
	list := make([]simLead, 0, len(records))
	for _, r := range records {
		l := simLead{ID: r.ID, OperationID: r.OpID, Lead: r.Lead}
		for _, n := range r.Notes {
			l.Notes = append(l.Notes, n.Note.Text)
		}
		list = append(list, l)
	}
	return list
}
