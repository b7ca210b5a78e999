package crmtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
	"github.com/leadonce/leadonce/crm/crmtest"
)

// shop_test.go: a contract as a user writes it, with an adapter over crmhttp and the smallest stand-in for a CRM.

// shop is a CRM without any guarantee: POST /leads, GET /leads?ext_id=.
type shop struct {
	mu    sync.Mutex
	leads []map[string]string
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		ids := []string{}
		for i, l := range s.leads {
			if l["ext_id"] == r.URL.Query().Get("ext_id") {
				ids = append(ids, fmt.Sprint(i+1))
			}
		}
		json.NewEncoder(w).Encode(map[string]any{"ids": ids})
		return
	}
	var lead map[string]string
	if json.NewDecoder(r.Body).Decode(&lead) != nil || lead["phone"] == "" {
		w.WriteHeader(http.StatusUnprocessableEntity)
		json.NewEncoder(w).Encode(map[string]string{"error": "a phone is needed"})
		return
	}
	s.leads = append(s.leads, lead)
	w.WriteHeader(http.StatusCreated)
	json.NewEncoder(w).Encode(map[string]string{"id": fmt.Sprint(len(s.leads))})
}

func (s *shop) created(opID string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.leads {
		if l["ext_id"] == opID {
			n++
		}
	}
	return n
}

type shopAdapter struct {
	base string
	http *crmhttp.Client
}

func (a shopAdapter) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	in := map[string]string{"name": l.Name, "phone": l.Phone, "text": l.Text, "ext_id": op.ID}
	var out struct{ ID string }
	status, err := a.http.PostJSON(ctx, a.base+"/leads", in, &out)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusUnprocessableEntity: // the shop's manual: checked before anything is written
		return "", crm.Rejected(fmt.Errorf("create lead: status %d", status))
	case status != http.StatusCreated:
		return "", fmt.Errorf("create lead: status %d", status)
	}
	return out.ID, nil
}

func (a shopAdapter) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	var out struct{ IDs []string }
	_, err := a.http.GetJSON(ctx, a.base+"/leads?ext_id="+url.QueryEscape(op.ID), &out)
	return out.IDs, err
}

func TestShopAdapter(t *testing.T) {
	s := &shop{}
	crmtest.Contract(t, crmtest.Subject{
		CRM:     s,
		Adapter: func(base string) crm.Adapter { return shopAdapter{base, crmhttp.New(nil)} },
		Created: s.created,
	})
}
