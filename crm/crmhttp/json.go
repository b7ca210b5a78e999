package crmhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/leadonce/leadonce/crm"
)

// json.go: JSON in and JSON out, for adapters whose CRM speaks nothing else.

// PostJSON sends in as JSON and decodes the answer into out (nil: it is not decoded). The status comes back without being
// judged, beside an error too if there was an answer.
//
// After a 2xx the answer has to decode; if it does not (an HTML page, a body that ends early, an empty one), the error is
// unmarked: the CRM may have acted. After any other status out is filled as far as the answer is JSON that fits, and left
// as it was if it is not: look at the status first. Numbers decoded into an any become json.Number. An in that can't be
// encoded is [crm.Rejected].
func (c *Client) PostJSON(ctx context.Context, url string, in, out any) (status int, err error) {
	return c.SendJSON(ctx, Request{Method: http.MethodPost, URL: url}, in, out)
}

// SendJSON is PostJSON for the rest: another method, headers, an idempotency key. r's Body and ContentType are replaced.
func (c *Client) SendJSON(ctx context.Context, r Request, in, out any) (status int, err error) {
	body, err := json.Marshal(in)
	if err != nil { // its text may quote the value
		return 0, crm.Rejected(fmt.Errorf("crmhttp: a %T can't be written as JSON", in))
	}
	r.Body, r.ContentType, r.Header = body, "application/json", withAccept(r.Header)
	resp, err := c.Do(ctx, r)
	if err != nil {
		return statusOf(resp), err
	}
	return resp.Status, resp.decode(out)
}

// GetJSON fetches url and decodes the answer into out. Unlike PostJSON it returns an error for every status but a 2xx,
// since its caller asks a question, and "nothing found" must not be read out of an answer that did not come. Where a CRM
// says "none" with a 404, look at the status beside the error.
func (c *Client) GetJSON(ctx context.Context, url string, out any) (status int, err error) {
	resp, err := c.Do(ctx, Request{URL: url, Header: withAccept(nil)})
	if err != nil {
		return statusOf(resp), err
	}
	if err := resp.decode(out); err != nil {
		return resp.Status, err
	}
	if !resp.OK() {
		return resp.Status, resp.WithEvidence(fmt.Errorf("crmhttp: GET: status %d", resp.Status))
	}
	return resp.Status, nil
}

// JSON decodes the body, which has to be exactly one JSON value. Numbers decoded into an any become json.Number. The error
// repeats nothing of the body.
func (r *Response) JSON(out any) error {
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.UseNumber()
	if err := d.Decode(out); err != nil {
		return r.WithEvidence(fmt.Errorf("crmhttp: status %d: %s", r.Status, misfit(err)))
	}
	if _, err := d.Token(); err != io.EOF {
		return r.WithEvidence(fmt.Errorf("crmhttp: status %d: the answer goes on after its JSON value", r.Status))
	}
	return nil
}

func (r *Response) decode(out any) error {
	if out == nil || r.Status == http.StatusNoContent {
		return nil
	}
	err := r.JSON(out)
	if !r.OK() {
		return nil
	}
	return err
}

// misfit says what is wrong with an answer without quoting it.
func misfit(err error) string {
	if errors.Is(err, io.EOF) {
		return "the answer is empty where JSON was expected"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the answer's JSON ends too early"
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Sprintf("the answer's JSON does not fit: field %q is not a %s", t.Field, t.Type)
	}
	return "the answer is not JSON that fits"
}

func withAccept(h http.Header) http.Header {
	h = h.Clone()
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Accept") == "" {
		h.Set("Accept", "application/json")
	}
	return h
}

func statusOf(r *Response) int {
	if r == nil {
		return 0
	}
	return r.Status
}
