package stagehook

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// source.go: the Source itself: from the bytes of a hook to an event.

// The kinds of the events.
const (
	Kind      = "stage"
	KindOther = "other" // ErrOther; the ready rules ignore it, since nobody asks

	kindQuarantined = "quarantined"
)

// ErrOther is what a ParseFunc returns for a body that it understands and that is about no lead of ours: another kind of
// record, a test of the connection. It is stored, and nothing follows.
var ErrOther = errors.New("the hook is about something else")

// Change is what one body says.
type Change struct {
	// EventID is the CRM's own id of this event, the same when it is delivered again; empty where the CRM has none.
	EventID string
	dedup.StageChange
}

// ParseFunc reads the body of an authentic request. Its error may quote the body: it is kept nowhere. It is called by
// several goroutines at once.
type ParseFunc func(body []byte) (Change, error)

// Options are the optional settings of a Source. nil means the defaults.
type Options struct {
	// Tenant is the host's own name for the account: that of the enquiries whose leads the CRM holds. Empty by default.
	Tenant string
}

// Source is the dedup.Source of one CRM's hooks. It never changes and may be used by any number of goroutines.
type Source struct {
	name   string
	tenant string
	auth   Auth
	parse  ParseFunc
}

var (
	_ dedup.Source      = (*Source)(nil)
	_ dedup.Quarantiner = (*Source)(nil)
)

// maxField is the longest id or stage in bytes.
const maxField = 255

// New returns the source of a CRM's hooks. name says whose they are ("bitrix24"): it is stored with every event and is part of
// what makes it unique, so keep it. It has 1 to 64 of the characters a-z, 0-9, _ and -. auth is Token or HMAC. An error names
// what is wrong, never a secret.
func New(name string, auth Auth, parse ParseFunc, o *Options) (*Source, error) {
	if o == nil {
		o = &Options{}
	}
	odd := func(c rune) bool { return c != '_' && c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') }
	switch {
	case name == "" || len(name) > 64 || strings.ContainsFunc(name, odd):
		return nil, fmt.Errorf("stagehook: name is %.80q, must be 1 to 64 of a-z, 0-9, _ and -, such as \"bitrix24\"", name)
	case auth.err != nil:
		return nil, fmt.Errorf("stagehook: %s: auth: %w", name, auth.err)
	case auth.check == nil:
		return nil, fmt.Errorf("stagehook: %s: auth is empty: anybody who finds the URL could move deals; use Token or HMAC", name)
	case parse == nil:
		return nil, fmt.Errorf("stagehook: %s: parse is nil: it has to read a body; JSON and Bitrix24Form are ready", name)
	}
	return &Source{name: name, tenant: o.Tenant, auth: auth, parse: parse}, nil
}

// Authenticate returns nil if the CRM sent the request, else dedup.ErrUnauthentic. A token in a header or in the query is
// decided before the body is read.
func (s *Source) Authenticate(r *http.Request, body func() ([]byte, error)) error {
	return s.auth.check(r, body)
}

// Parse makes an event of a body. The only error is dedup.ErrIncomplete, for a body of nothing but white space.
func (s *Source) Parse(body []byte) (store.Event, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return store.Event{}, fmt.Errorf("stagehook: empty body: %w", dedup.ErrIncomplete)
	}
	c, err := s.parse(body)
	c.At = c.At.UTC()
	switch {
	case errors.Is(err, ErrOther):
		return s.event(body, Change{}, KindOther), nil
	case err != nil:
		return s.Quarantine(body, "the ParseFunc returned an error"), nil // its text may quote the body
	case strings.TrimSpace(c.LeadID) == "":
		return s.Quarantine(body, "no lead is named"), nil
	case !fits(c.EventID) || !fits(c.LeadID) || !fits(c.Stage):
		return s.Quarantine(body, "an id or the stage is longer than "+strconv.Itoa(maxField)+" bytes, or no printable text"), nil
	case c.Version < 0 || c.At.Year() < 1 || c.At.Year() > 9999:
		return s.Quarantine(body, "the version is negative, or the time is none"), nil
	}
	return s.event(body, c, Kind), nil
}

// event is one delivery. Without the CRM's own id it is one of its own, whatever the bytes: see the package's doc.
func (s *Source) event(body []byte, c Change, kind string) store.Event {
	id := c.EventID
	if id == "" {
		id = "r:" + rand.Text()
	}
	e := store.Event{Source: s.name, Tenant: s.tenant, UpdateID: id, Hash: hexSum(body), Kind: kind, LeadRef: c.LeadID,
		Payload: s.auth.redact(body)}
	e.ContentID = "s:" + ids.Digest(s.name, s.tenant, "event", id)
	e.DealKey = e.ContentID
	// The change, not the bytes: a repeat may say when it was sent, or which attempt it is.
	e.Fingerprints = []store.Fingerprint{{Version: 1, Sum: ids.Digest("v1", kind, c.LeadID, c.Stage,
		strconv.FormatInt(c.Version, 10), c.At.Format(time.RFC3339Nano), strconv.FormatBool(c.Closed))}}
	q := dedup.Enquiry{At: c.At, Stage: &c.StageChange}
	if e.OrderingKey = dedup.OrderingKey(s.tenant, s.name, "", "lead", c.LeadID); kind == KindOther {
		e.OrderingKey, q.Stage = dedup.OrderingKey(s.tenant, s.name, "", "event", id), nil
	}
	return withEnquiry(e, q)
}

// Quarantine returns the event for an authentic body that can't be understood. Its UpdateID is "sha256:" and the digest of
// the bytes. why must not quote the body.
func (s *Source) Quarantine(body []byte, why string) store.Event {
	sum := hexSum(body)
	id := "sha256:" + sum
	return withEnquiry(store.Event{Source: s.name, Tenant: s.tenant, UpdateID: id, Hash: sum, Kind: kindQuarantined,
		Fingerprints: []store.Fingerprint{{Version: 1, Sum: sum}}, OrderingKey: dedup.OrderingKey(s.tenant, s.name, "", "event", id),
		ContentID: id, DealKey: id, Payload: s.auth.redact(body), Quarantine: why}, dedup.Enquiry{})
}

func withEnquiry(e store.Event, q dedup.Enquiry) store.Event {
	q.Source, q.Tenant, q.Kind, q.ContentID, q.DealKey = e.Source, e.Tenant, e.Kind, e.ContentID, e.DealKey
	raw, err := json.Marshal(q)
	if err != nil { // strings, numbers, and a time within what JSON can say
		panic("stagehook: enquiry can't be written as JSON: " + err.Error())
	}
	e.Enquiry = raw
	return e
}

// fits keeps out what a database refuses or a log line is broken by.
func fits(s string) bool {
	return len(s) <= maxField && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
