package bitrix24

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// call.go: one REST call, and what its answer proves.

// The methods.
const (
	methodAdd     = "crm.item.add"
	methodList    = "crm.item.list"
	methodGet     = "crm.item.get"
	methodUpdate  = "crm.item.update"
	methodComment = "crm.timeline.comment.add"
)

// answer is what every method answers with. An error is told by the presence of "error", not by the status ("Error codes").
type answer struct {
	Result json.RawMessage  `json:"result"`
	Error  *json.RawMessage `json:"error"`
	Time   struct {
		ResetAt json.Number `json:"operating_reset_at"` // seconds since 1970; not in every answer
	} `json:"time"`
}

// call posts params to method and decodes the result into out. Its errors are marked where the answer is definite.
func (a *Adapter) call(ctx context.Context, method string, params, out any) error {
	body, err := json.Marshal(params)
	if err != nil { // its text may quote a field's value
		return crm.Rejected(fmt.Errorf("bitrix24: %s: a field can't be written as JSON", method))
	}
	resp, err := a.http.Do(ctx, crmhttp.Request{
		Method:      http.MethodPost,
		URL:         a.base + method,
		Header:      http.Header{"Accept": {"application/json"}},
		Body:        body,
		ContentType: "application/json",
	})
	if err != nil {
		return fmt.Errorf("bitrix24: %s: %w", method, err)
	}
	var got answer
	switch err := resp.JSON(&got); {
	case err == nil && got.Error != nil:
		return a.refusal(resp, got, method)
	case !resp.OK():
		return resp.WithEvidence(fmt.Errorf("bitrix24: %s: status %d without an error code", method, resp.Status))
	case err != nil:
		return fmt.Errorf("bitrix24: %s: %w", method, err)
	}
	if err := decode(got.Result, out); err != nil {
		return resp.WithEvidence(fmt.Errorf("bitrix24: %s: status %d: a result that the method does not document",
			method, resp.Status))
	}
	return nil
}

func decode(raw json.RawMessage, out any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return d.Decode(out)
}

// notTheOperation are codes that say something about the webhook, its user or the plan.
var notTheOperation = []string{
	"INVALID_REQUEST", // https required
	"ERROR_METHOD_NOT_FOUND", "insufficient_scope", "CREATE_DYNAMIC_ITEM_RESTRICTED", "UPDATE_DYNAMIC_ITEM_RESTRICTED",
}

// refusal marks an answer with an error. See the package's doc for the table.
func (a *Adapter) refusal(resp *crmhttp.Response, got answer, method string) error {
	var raw any
	_ = decode(*got.Error, &raw) // it was read as JSON before
	code := crmhttp.Code(raw)
	shown := code
	if shown == "" {
		shown = "none"
	}
	err := resp.WithEvidence(fmt.Errorf("bitrix24: %s: status %d, code %s", method, resp.Status, shown))
	switch {
	case resp.Status == http.StatusServiceUnavailable && code == "QUERY_LIMIT_EXCEEDED":
		return resp.Throttled(err, a.now())
	case resp.Status == http.StatusTooManyRequests && code == "OPERATION_TIME_LIMIT":
		return crm.NotApplied(err, a.untilReset(got.Time.ResetAt))
	case resp.Status == http.StatusServiceUnavailable && code == "OVERLOAD_LIMIT":
		return crm.Unavailable(err)
	}
	switch resp.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed:
	case http.StatusNotFound:
		if code != "ERROR_METHOD_NOT_FOUND" {
			return err
		}
	default:
		return err
	}
	creating := method == methodAdd
	switch {
	case creating && code == "": // an error of the method without a code: it may come from after the save
		return err
	case resp.Status == http.StatusUnauthorized, resp.Status == http.StatusForbidden, slices.Contains(notTheOperation, code):
		return crm.Unavailable(err)
	case creating && code == "ACCESS_DENIED": // no right to add anything; in the other methods, none to this one item
		return crm.Unavailable(err)
	}
	return crm.Rejected(err)
}

// resetWithin bounds the wait after OPERATION_TIME_LIMIT: the counter has ten baskets of a minute ("REST API limits").
const (
	resetWithin  = 10 * time.Minute
	resetUnknown = time.Minute // one basket, where the answer does not say
)

func (a *Adapter) untilReset(at json.Number) time.Duration {
	seconds, err := at.Float64()
	if err != nil || seconds <= 0 || seconds > 1e11 {
		return resetUnknown
	}
	return min(max(time.Unix(int64(seconds), 0).Sub(a.now()), time.Second), resetWithin)
}
