package bottest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"

	"github.com/leadonce/leadonce/crm"
)

// crm.go: a stand-in for a back end that takes leads by the protocol of crm/jsonhook, and keeps operation_id unique.

// CRM is the receiver of the leads. Its methods may be called by any number of goroutines.
type CRM struct {
	*httptest.Server
	at func(point string)

	mu    sync.Mutex
	ids   map[string]string // operation_id → lead id
	made  map[string]int    // text → leads
	calls map[crm.Kind]int
	lose  int
}

// NewCRM starts a receiver. at, which may be nil, is called with the name of each step, before it goes on.
func NewCRM(at func(point string)) *CRM {
	c := &CRM{at: at, ids: map[string]string{}, made: map[string]int{}, calls: map[crm.Kind]int{}}
	if at == nil {
		c.at = func(string) {}
	}
	c.Server = httptest.NewServer(c)
	return c
}

// Leads tells how many leads have this text.
func (c *CRM) Leads(text string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made[text]
}

// All tells how many leads there are.
func (c *CRM) All() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ids)
}

// Calls tells how many requests of a kind came.
func (c *CRM) Calls(k crm.Kind) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[k]
}

// LoseAnswers lets the next n requests have their effect and no answer.
func (c *CRM) LoseAnswers(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lose = n
}

// ServeHTTP takes one operation.
func (c *CRM) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Kind        crm.Kind `json:"kind"`
		OperationID string   `json:"operation_id"`
		Lead        crm.Lead `json:"lead"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.OperationID == "" {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprint(w, `{"applied": false, "code": "envelope"}`)
		return
	}
	c.mu.Lock()
	c.calls[in.Kind]++
	point := fmt.Sprintf("CRM %s %d", in.Kind, c.calls[in.Kind])
	c.mu.Unlock()

	c.at(point + received)
	answer, lost := c.apply(in.Kind, in.OperationID, in.Lead)
	c.at(point + acted)
	if lost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
	_ = http.NewResponseController(w).Flush()
	c.at(point + answered)
}

func (c *CRM) apply(k crm.Kind, op string, l crm.Lead) (answer map[string]any, lost bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if lost = c.lose > 0; lost {
		c.lose--
	}
	if k != crm.KindCreate {
		return map[string]any{"applied": true}, lost
	}
	if c.ids[op] == "" {
		c.ids[op] = strconv.Itoa(len(c.ids) + 1)
		c.made[l.Text]++
	}
	return map[string]any{"id": c.ids[op], "operation_id": op}, lost
}

// The steps of a request at a stand-in.
const (
	received = " received"
	acted    = " acted on"
	answered = " answered"
)
