package jsonhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// answer.go: what an answer means. "Certainly not" is believed only where the receiver says so itself.

// answer is what a receiver says. Fields that other software fills in its own way (a proxy's "code": 503) are taken loosely.
type answer struct {
	Applied     *bool `json:"applied"`
	ID          any   `json:"id"`
	OperationID any   `json:"operation_id"`
	Code        any   `json:"code"`
	RetryAfter  any   `json:"retry_after"` // seconds
}

// judge returns the id of what was made, or what the answer says instead. An unmarked error means: unknown.
func (a *adapter) judge(resp *crmhttp.Response, kind crm.Kind, op crm.Op) (string, error) {
	var got answer
	unread := resp.JSON(&got)
	if unread != nil {
		got = answer{}
	}
	id := crmhttp.ID(got.ID)
	of := crmhttp.ID(got.OperationID)
	denied := got.Applied != nil && !*got.Applied
	what := fmt.Errorf("status %d%s", resp.Status, code(got.Code))
	switch {
	case denied && id != "":
		return "", resp.WithEvidence(fmt.Errorf("%w: an id and applied=false contradict each other", what))
	case denied:
		return "", a.refusal(resp, got, what)
	case !resp.OK() && resp.Status != http.StatusConflict:
		return "", resp.WithEvidence(what)
	case of != "" && of != op.ID:
		return "", resp.WithEvidence(fmt.Errorf("%w: the answer is about another operation", what))
	case resp.Status == http.StatusConflict && (id == "" || of == ""):
		return "", resp.WithEvidence(fmt.Errorf("%w: a conflict without id and operation_id proves nothing", what))
	case id != "":
		return id, nil
	case a.o.IDOptional && kind == crm.KindCreate:
		return op.ID, nil
	case a.o.IDOptional, got.Applied != nil && kind != crm.KindCreate:
		return "", nil
	case unread != nil:
		return "", unread
	}
	return "", resp.WithEvidence(fmt.Errorf("%w without an id; answer with one, or set Options.IDOptional", what))
}

// refusal marks an answer that says "applied": false.
func (a *adapter) refusal(resp *crmhttp.Response, got answer, what error) error {
	after := crmhttp.RetryAfter(resp.Header, a.now())
	seconds, later := got.RetryAfter.(json.Number)
	if later {
		if n, err := seconds.Int64(); err == nil && n >= 0 {
			after = min(time.Duration(min(n, int64(crmhttp.MaxRetryAfter/time.Second)))*time.Second, crmhttp.MaxRetryAfter)
		}
	}
	what = resp.WithEvidence(fmt.Errorf("the receiver did not apply it: %w", what))
	switch {
	case later, resp.Status == http.StatusTooManyRequests, resp.Status >= 500:
		return crm.NotApplied(what, after)
	case resp.Status == http.StatusUnauthorized, resp.Status == http.StatusForbidden:
		return crm.Unavailable(what)
	}
	return crm.Rejected(what)
}

// code returns the receiver's code as an error repeats it.
func code(v any) string {
	if s := crmhttp.Code(v); s != "" {
		return ", code " + s
	}
	return ""
}

var errNoLeads = errors.New(`the answer has no "leads"`)
