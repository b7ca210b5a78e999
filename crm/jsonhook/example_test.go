package jsonhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/jsonhook"
)

// example_test.go: a receiver to start from. It makes one lead for one operation, however often it is asked.

const secret = "change me, 16 bytes or more"

// receiver keeps leads in a map. In SQL, byOp is a unique index on operation_id, and create is one transaction: insert …
// on conflict (operation_id) do nothing, then select the id.
type receiver struct {
	mu   sync.Mutex
	byOp map[string]string // operation_id → lead id
	made map[string]int    // operation_id → how many leads were made: never more than one
}

func newReceiver() *receiver { return &receiver{byOp: map[string]string{}, made: map[string]int{}} }

// create returns the lead of an operation, and makes it if there is none.
func (s *receiver) create(operationID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.byOp[operationID]
	if !ok {
		id = strconv.Itoa(len(s.byOp) + 1)
		s.byOp[operationID] = id
		s.made[operationID]++
	}
	return id
}

func (s *receiver) created(operationID string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[operationID]
}

func (s *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.find(w, r)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		return // cut short: no answer is the honest one
	}
	if !jsonhook.Verify(secret, r.Header.Get(jsonhook.SignatureHeader), body) {
		answer(w, http.StatusUnauthorized, map[string]any{"applied": false, "code": "signature"})
		return
	}
	var in struct {
		V           int      `json:"v"`
		Kind        crm.Kind `json:"kind"`
		OperationID string   `json:"operation_id"`
		Lead        crm.Lead `json:"lead"`
	}
	if err := json.Unmarshal(body, &in); err != nil || in.V != 1 || in.OperationID == "" {
		answer(w, http.StatusBadRequest, map[string]any{"applied": false, "code": "envelope"})
		return
	}
	switch in.Kind {
	case crm.KindCreate:
		id := s.create(in.OperationID)
		answer(w, http.StatusOK, map[string]any{"id": id, "operation_id": in.OperationID})
	case crm.KindNote, crm.KindUpdate, crm.KindStage: // write them to where your leads are
		answer(w, http.StatusOK, map[string]any{"applied": true})
	default:
		answer(w, http.StatusUnprocessableEntity, map[string]any{"applied": false, "code": "kind"})
	}
}

func (s *receiver) find(w http.ResponseWriter, r *http.Request) {
	operationID := r.URL.Query().Get("operation_id")
	if !jsonhook.Verify(secret, r.Header.Get(jsonhook.SignatureHeader), []byte(operationID)) {
		answer(w, http.StatusUnauthorized, map[string]any{"code": "signature"})
		return
	}
	leads := []map[string]string{}
	s.mu.Lock()
	if id, ok := s.byOp[operationID]; ok {
		leads = append(leads, map[string]string{"id": id, "operation_id": operationID})
	}
	s.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{"leads": leads})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(body)
}

func Example() {
	server := httptest.NewServer(newReceiver())
	defer server.Close()
	hook, err := jsonhook.New(server.URL, &jsonhook.Options{
		Secret:               secret,
		Calls:                []crm.Kind{crm.KindNote},
		Guarantee:            crm.Guarantee{Kind: crm.UniqueID},
		LookupURL:            server.URL,
		LookupReadsOwnWrites: true,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	op := crm.Op{ID: "0d7c6f0e-5a0e-5d0c-9d3a-0a8f6f0d7c11", Key: "0d7c6f0e-5a0e-5d0c-9d3a-0a8f6f0d7c11"}
	for range 2 { // the answer of the first was lost, say
		id, err := hook.CreateLead(context.Background(), op, crm.Lead{Name: "Anna", Phone: "+7 900 000-00-00"})
		fmt.Println(id, err)
	}
	found, err := hook.(crm.Finder).FindLead(context.Background(), op)
	fmt.Println(found, err)
	// Output:
	// 1 <nil>
	// 1 <nil>
	// [1] <nil>
}
