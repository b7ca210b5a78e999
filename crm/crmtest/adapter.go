package crmtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// adapter.go: the adapter for the simulated CRM. It offers every optional call of package crm, and marks an error only
// where the protocol documents that nothing was done.

// Client is the adapter. Its methods may be called by several goroutines at once.
type Client struct {
	base      string
	desc      crm.Description
	transport *http.Transport
	sim       *Simulator // whose Refuse it sees; nil if the CRM is another process's
}

var _ interface {
	crm.Adapter
	crm.Noter
	crm.Updater
	crm.Stager
	crm.StageReader
	crm.Contacter
	crm.Finder
	crm.Checker
	crm.Describer
} = (*Client)(nil)

// NewClient returns an adapter for a simulator that another process serves under baseURL. d is what that simulator's
// Describe returns.
func NewClient(baseURL string, d crm.Description) *Client {
	return newClient(baseURL, d, nil, nil)
}

// Adapter returns an adapter that talks to this simulator over HTTP, wherever it is served under baseURL.
func (s *Simulator) Adapter(baseURL string) *Client {
	return newClient(baseURL, s.Describe(), s, nil)
}

// Local returns an adapter that talks to this simulator through pipes in memory: the same HTTP, client and server as
// over the network, but no sockets, so that it works inside a testing/synctest bubble.
func (s *Simulator) Local() *Client {
	return newClient("http://simulator", s.Describe(), s, s.dialPipe)
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

func newClient(base string, d crm.Description, s *Simulator, dial dialFunc) *Client {
	t := &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(true) // no connection is used twice and HTTP/2 is off: nothing is sent again behind our back
	return &Client{base: base, desc: d, sim: s, transport: t}
}

// Describe declares what the simulator was configured with.
func (c *Client) Describe() crm.Description { return c.desc }

// CreateLead makes a lead. Under UniqueID a conflict counts as made only if the record found carries op.ID.
func (c *Client) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	ans, err := c.send(ctx, crm.KindCreate, op, http.MethodPost, "/leads", request{OpID: op.ID, Lead: &l})
	if err == nil {
		return ans.ID, nil
	}
	if ans.Code == codeDuplicate && c.desc.Create.Kind == crm.UniqueID {
		found, err := c.send(ctx, Read, crm.Op{}, http.MethodGet, "/leads/"+url.PathEscape(ans.ID), request{})
		switch {
		case err != nil: // whatever this says is about the reading, not about the lead
			return "", fmt.Errorf("crmtest: create lead: conflict, and the record can't be read: %v", err)
		case found.OpID != op.ID:
			return "", errors.New("crmtest: create lead: the external id is taken by a record of somebody else")
		}
		return found.ID, nil
	}
	return "", fmt.Errorf("crmtest: create lead: %w", err)
}

// FindLead returns every lead that carries op.ID.
func (c *Client) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	ans, err := c.send(ctx, Find, op, http.MethodGet, "/leads?op_id="+url.QueryEscape(op.ID), request{})
	if err == nil && ans.IDs == nil {
		err = errors.New("the answer has no ids")
	}
	if err != nil {
		return nil, fmt.Errorf("crmtest: find lead: %w", err)
	}
	return ans.IDs, nil
}

// AddNote adds a note; the CRM's text is n.Text with n.Ref beside it.
func (c *Client) AddNote(ctx context.Context, op crm.Op, leadID string, n crm.Note) (string, error) {
	ans, err := c.send(ctx, crm.KindNote, op, http.MethodPost, leadPath(leadID)+"/notes", request{OpID: op.ID, Note: &n})
	if err != nil {
		return "", fmt.Errorf("crmtest: add note: %w", err)
	}
	return ans.ID, nil
}

// UpdateLead sets the fields that are not zero in u.
func (c *Client) UpdateLead(ctx context.Context, op crm.Op, leadID string, u crm.Lead) error {
	_, err := c.send(ctx, crm.KindUpdate, op, http.MethodPatch, leadPath(leadID), request{OpID: op.ID, Lead: &u})
	if err != nil {
		return fmt.Errorf("crmtest: update lead: %w", err)
	}
	return nil
}

// SetStage moves a lead, unless it is in none of st.From.
func (c *Client) SetStage(ctx context.Context, op crm.Op, leadID string, st crm.Stage) error {
	if len(st.From) > 0 {
		is, err := c.send(ctx, Read, crm.Op{}, http.MethodGet, leadPath(leadID), request{})
		if err != nil {
			return fmt.Errorf("crmtest: set stage: read the present one: %w", err)
		}
		if !slices.Contains(st.From, is.Stage) {
			return nil
		}
	}
	_, err := c.send(ctx, crm.KindStage, op, http.MethodPut, leadPath(leadID)+"/stage", request{OpID: op.ID, Stage: &st})
	if err != nil {
		return fmt.Errorf("crmtest: set stage: %w", err)
	}
	return nil
}

// ReadStage tells where a lead stands. Leads in "won" and "lost" are closed.
func (c *Client) ReadStage(ctx context.Context, op crm.Op, leadID string) (crm.StageState, error) {
	is, err := c.send(ctx, crm.KindRead, op, http.MethodGet, leadPath(leadID)+"/stage?op_id="+url.QueryEscape(op.ID), request{})
	if err == nil && is.Stage == "" {
		err = errors.New("the answer has no stage")
	}
	if err != nil {
		return crm.StageState{}, fmt.Errorf("crmtest: read stage: %w", err)
	}
	return crm.StageState{Stage: is.Stage, Version: is.Version, At: is.At, Closed: is.Closed}, nil
}

// EnsureContact finds the person by p.ExternalID, or adds it.
func (c *Client) EnsureContact(ctx context.Context, op crm.Op, p crm.Contact) (string, error) {
	ans, err := c.send(ctx, crm.KindContact, op, http.MethodPost, "/contacts", request{OpID: op.ID, Contact: &p})
	if err != nil {
		return "", fmt.Errorf("crmtest: ensure contact: %w", err)
	}
	return ans.ID, nil
}

// Check asks whether the CRM answers and takes the token.
func (c *Client) Check(ctx context.Context) error {
	if _, err := c.send(ctx, Check, crm.Op{}, http.MethodGet, "/check", request{}); err != nil {
		return fmt.Errorf("crmtest: check: %w", err)
	}
	return nil
}

func leadPath(id string) string { return "/leads/" + url.PathEscape(id) }

// send makes one request. The reply is filled in as far as it could be read, an error or not.
func (c *Client) send(ctx context.Context, k crm.Kind, op crm.Op, method, path string, in request) (ans reply, err error) {
	if c.sim != nil && c.sim.refuses(tally{k, op.ID}) {
		return ans, crm.NotApplied(&net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}, 0)
	}
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return ans, crm.NotApplied(errors.New("the base URL is not valid"), 0)
	}
	if method != http.MethodGet {
		b, err := json.Marshal(in)
		if err != nil {
			return ans, crm.Rejected(errors.New("the fields can't be written as JSON"))
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b)) // no GetBody: the body exists once
	}
	r.Header.Set("Content-Type", "application/json")
	if k == crm.KindCreate && c.desc.Create.Kind == crm.IdempotencyKey {
		r.Header.Set("Idempotency-Key", cmp.Or(op.Key, op.ID))
	}
	res, err := c.transport.RoundTrip(r)
	if err != nil {
		if !sent.Load() {
			return ans, crm.NotApplied(err, 0)
		}
		return ans, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, bodyLimit))
	if err == nil {
		err = json.Unmarshal(raw, &ans)
	}
	if err != nil {
		return ans, evidence(res, errors.New("the answer can't be read"))
	}
	return ans, evidence(res, judge(res, ans))
}

// judge marks what the protocol documents.
func judge(res *http.Response, ans reply) error {
	err := fmt.Errorf("status %d %s", res.StatusCode, ans.Code)
	switch ans.Code {
	case "":
		if ans.Error == "" && res.StatusCode/100 == 2 {
			return nil
		}
	case codeThrottled:
		after, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		return crm.NotApplied(err, time.Duration(after)*time.Second)
	case codeToken:
		return crm.Unavailable(err)
	case codeInvalid, codeNoLead:
		return crm.Rejected(err)
	}
	return err
}

func evidence(res *http.Response, err error) error {
	return crm.WithEvidence(err, crm.Evidence{Status: res.StatusCode})
}

// refuses reports whether this request meets a refused connection.
func (s *Simulator) refuses(t tally) (yes bool) {
	s.do(func() { yes = s.meet(t, true).Kind == Refuse })
	return yes
}
