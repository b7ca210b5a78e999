package jsonhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// hook.go: the options, and the one request that every call makes.

// SignatureHeader carries the signature of a request.
const SignatureHeader = "Leadonce-Signature"

const minSecret = 16 // bytes

// Options adjust the adapter. The zero value creates leads, declares nothing, and signs nothing.
type Options struct {
	// Calls are the operations that the receiver takes besides lead.create: crm.KindNote, crm.KindUpdate, crm.KindStage.
	// The adapter offers these and no others.
	Calls []crm.Kind
	// Guarantee is what the receiver keeps for a repeated lead.create. Declare only what it is built for.
	Guarantee crm.Guarantee
	// LookupURL answers GET ?operation_id=… with {"leads": [{"id": "42", "operation_id": "…"}]}, an empty list if there
	// are none. With it the adapter offers look-ups, and a health check that is a look-up of the zero UUID. With a Secret
	// the signature covers the operation id. Empty: no look-ups.
	LookupURL string
	// LookupReadsOwnWrites declares that a look-up sees a lead from the moment that its creation was answered: it reads
	// the table that the create writes to, not a replica or an index.
	LookupReadsOwnWrites bool
	// IDOptional takes any 2xx without an id as done; a lead then has its operation id for an id. It is for receivers that
	// can't answer with one, and weaker: see the package's doc.
	IDOptional bool
	// Secret signs each request; 16 bytes at least, empty for none.
	Secret string
	// Header is sent with every request, for example Authorization.
	Header http.Header
	// HTTP sends the requests; nil means crmhttp.New(nil).
	HTTP *crmhttp.Client
}

// adapter has what every hook offers: CreateLead and Describe.
type adapter struct {
	url      string
	identity string
	o        Options
	http     *crmhttp.Client
	now      func() time.Time
}

// New returns the adapter for a receiver under hookURL, an http or https URL; o may be nil. What it offers besides
// CreateLead follows from o.Calls and o.LookupURL. Its methods may be called by several goroutines at once.
//
// Its identity is the host and a short hash of the path, since a hook's path is often its secret: moving the receiver to
// another URL means another identity.
func New(hookURL string, o *Options) (crm.Adapter, error) {
	a := &adapter{url: hookURL, now: time.Now}
	if o != nil {
		a.o = *o
		a.o.Calls, a.o.Header = slices.Clone(o.Calls), o.Header.Clone()
	}
	u, err := parse("hookURL", hookURL)
	if err != nil {
		return nil, err
	}
	if err := a.o.validate(); err != nil {
		return nil, err
	}
	path := sha256.Sum256([]byte(u.EscapedPath()))
	a.identity = "jsonhook " + u.Host + " " + hex.EncodeToString(path[:4])
	if _, err := crm.Describe(a); err != nil {
		return nil, fmt.Errorf("jsonhook: Guarantee: %w", err)
	}
	if a.http = a.o.HTTP; a.http == nil {
		a.http = crmhttp.New(nil)
	}
	return a.offer(), nil
}

func (o *Options) validate() error {
	for _, k := range o.Calls {
		if k != crm.KindNote && k != crm.KindUpdate && k != crm.KindStage {
			return fmt.Errorf("jsonhook: Calls: %q is none of %s, %s, %s", k, crm.KindNote, crm.KindUpdate, crm.KindStage)
		}
	}
	if o.LookupURL != "" {
		if _, err := parse("LookupURL", o.LookupURL); err != nil {
			return err
		}
	}
	if o.LookupReadsOwnWrites && o.LookupURL == "" {
		return errors.New("jsonhook: LookupReadsOwnWrites is set without a LookupURL")
	}
	if o.Secret != "" && len(o.Secret) < minSecret {
		return fmt.Errorf("jsonhook: Secret has %d bytes, and needs %d or more", len(o.Secret), minSecret)
	}
	if err := crmhttp.CheckHeader(o.Header); err != nil {
		return fmt.Errorf("jsonhook: Header: %w", err)
	}
	return nil
}

func parse(field, s string) (*url.URL, error) {
	u, err := url.Parse(s) // its error repeats the URL, which may hold a secret
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("jsonhook: %s is not an absolute http or https URL", field)
	}
	return u, nil
}

// Describe declares what the options say.
func (a *adapter) Describe() crm.Description {
	return crm.Description{Identity: a.identity, Create: a.o.Guarantee, LookupReadsOwnWrites: a.o.LookupReadsOwnWrites}
}

// envelope is the body of every POST.
type envelope struct {
	V           int        `json:"v"`
	Kind        crm.Kind   `json:"kind"`
	OperationID string     `json:"operation_id"`
	Key         string     `json:"key"`
	Tenant      string     `json:"tenant,omitempty"`
	LeadID      string     `json:"lead_id,omitempty"`
	Lead        *crm.Lead  `json:"lead,omitempty"`
	Note        *crm.Note  `json:"note,omitempty"`
	Stage       *crm.Stage `json:"stage,omitempty"`
}

// CreateLead posts a lead.create and returns the id that the receiver gave it.
func (a *adapter) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	return a.post(ctx, op, envelope{Kind: crm.KindCreate, Lead: &l})
}

// post sends e for op and returns the id in the answer; only a create is sure to have one.
func (a *adapter) post(ctx context.Context, op crm.Op, e envelope) (string, error) {
	e.V, e.OperationID, e.Key, e.Tenant = 1, op.ID, op.Key, op.Tenant
	body, err := json.Marshal(e)
	if err != nil { // its text may quote a field's value
		return "", crm.Rejected(fmt.Errorf("jsonhook: %s: a field can't be written as JSON", e.Kind))
	}
	r := crmhttp.Request{
		Method: http.MethodPost, URL: a.url, Header: a.header(body),
		ContentType: "application/json", Body: body,
	}
	if e.Kind == crm.KindCreate && a.o.Guarantee.Kind == crm.IdempotencyKey {
		r.IdempotencyKey = op.Key
	}
	resp, err := a.http.Do(ctx, r)
	if err != nil {
		return "", fmt.Errorf("jsonhook: %s: %w", e.Kind, err)
	}
	id, err := a.judge(resp, e.Kind, op)
	if err != nil {
		return "", fmt.Errorf("jsonhook: %s: %w", e.Kind, err)
	}
	return id, nil
}

// header returns the headers of a request whose signature covers signed.
func (a *adapter) header(signed []byte) http.Header {
	h := http.Header{"Accept": {"application/json"}}
	for name, values := range a.o.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	if a.o.Secret != "" {
		h.Set(SignatureHeader, Sign(a.o.Secret, signed))
	}
	return h
}

// Sign returns the value of SignatureHeader: of a POST signed is the body, of a look-up the operation id.
func Sign(secret string, signed []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(signed)
	return "v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Verify reports whether signature is that of signed under secret, in constant time. An empty secret verifies nothing.
func Verify(secret, signature string, signed []byte) bool {
	return secret != "" && hmac.Equal([]byte(signature), []byte(Sign(secret, signed)))
}
