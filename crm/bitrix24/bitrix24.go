package bitrix24

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// bitrix24.go: the options, and the webhook's URL.

// Entity is what an enquiry becomes: Bitrix24's entityTypeId.
type Entity int

// The entities.
const (
	Lead Entity = 1 // the default
	Deal Entity = 2
)

// String returns the name that Bitrix24 uses in ENTITY_TYPE.
func (e Entity) String() string {
	switch e {
	case Lead:
		return "lead"
	case Deal:
		return "deal"
	}
	return fmt.Sprintf("entity %d", int(e))
}

// DefaultOriginator is the originatorId of what this adapter makes.
const DefaultOriginator = "leadonce"

// Options adjust the adapter. What is zero is not sent, and Bitrix24's own default holds.
type Options struct {
	// Entity is Lead (the default) or Deal.
	Entity Entity
	// AssignedTo is the id of the user who is responsible; 0 means the webhook's own.
	AssignedTo int64
	// Pipeline is the id of a deal's pipeline (categoryId); 0 means the general one.
	Pipeline int64
	// Stage is the stageId that an item starts in, for example "NEW", or "C9:NEW" in pipeline 9.
	Stage string
	// Source is the sourceId, for example "WEB".
	Source string
	// Originator is the originatorId; empty means DefaultOriginator. Look-ups find only what carries the same one, so
	// change it only while nothing waits.
	Originator string
	// Fields are sent with every new item, by Bitrix24's names, unless the lead has a field of the same name.
	Fields map[string]any
	// HTTP sends the requests; nil means crmhttp.New(nil).
	HTTP *crmhttp.Client
	// Logger gets a warning when Bitrix24 has ignored a field; nil means slog.Default(). It gets ids and field names,
	// never a value.
	Logger *slog.Logger
}

// Adapter talks to one Bitrix24. Its methods may be called by several goroutines at once.
type Adapter struct {
	o    Options
	base string // the webhook's URL with a slash at its end: a secret
	host string
	http *crmhttp.Client
	log  *slog.Logger
	now  func() time.Time
}

// New returns the adapter for an incoming webhook, whose URL reads https://portal.example/rest/1/code/; o may be nil.
// Plain http is taken only for this machine itself, for tests. No error repeats the URL.
func New(webhookURL string, o *Options) (*Adapter, error) {
	a := &Adapter{now: time.Now, log: slog.Default()}
	if o != nil {
		a.o = *o
		a.o.Fields = maps.Clone(o.Fields)
	}
	if err := a.webhook(webhookURL); err != nil {
		return nil, err
	}
	if a.o.Entity == 0 {
		a.o.Entity = Lead
	}
	if a.o.Originator == "" {
		a.o.Originator = DefaultOriginator
	}
	switch {
	case a.o.Entity != Lead && a.o.Entity != Deal:
		return nil, fmt.Errorf("bitrix24: Entity is %d, and must be Lead (1) or Deal (2)", a.o.Entity)
	case a.o.Pipeline != 0 && a.o.Entity != Deal:
		return nil, errors.New("bitrix24: Pipeline is set, and only a Deal has one")
	case a.o.Pipeline < 0:
		return nil, fmt.Errorf("bitrix24: Pipeline is %d, and can't be negative", a.o.Pipeline)
	case a.o.AssignedTo < 0:
		return nil, fmt.Errorf("bitrix24: AssignedTo is %d, and can't be negative", a.o.AssignedTo)
	}
	if _, _, err := a.fields(crm.Op{}, crm.Lead{}); err != nil {
		return nil, fmt.Errorf("bitrix24: Fields: %w", err)
	}
	if a.http = a.o.HTTP; a.http == nil {
		a.http = crmhttp.New(nil)
	}
	if a.o.Logger != nil {
		a.log = a.o.Logger
	}
	return a, nil
}

// webhookPath is the end of the path: the id of a user, and the code.
var webhookPath = regexp.MustCompile(`/rest/[0-9]+/[A-Za-z0-9]+/?$`)

func (a *Adapter) webhook(s string) error {
	u, err := url.Parse(s) // its error repeats the URL
	switch {
	case err != nil || u.Host == "":
		return errors.New("bitrix24: webhookURL is not an absolute URL")
	case u.Scheme != "https" && (u.Scheme != "http" || !loopback(u.Hostname())):
		return errors.New("bitrix24: webhookURL has to begin with https://")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || !webhookPath.MatchString(u.Path):
		return errors.New("bitrix24: webhookURL has to end with /rest/{user}/{code}/, without a method, a query or a password")
	}
	a.base, a.host = u.Scheme+"://"+u.Host+strings.TrimSuffix(u.EscapedPath(), "/")+"/", u.Host
	return nil
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Describe declares no guarantee: Bitrix24 documents none.
func (a *Adapter) Describe() crm.Description {
	return crm.Description{Identity: "bitrix24 " + a.host}
}

// The calls that this adapter offers.
var (
	_ crm.Adapter     = (*Adapter)(nil)
	_ crm.Finder      = (*Adapter)(nil)
	_ crm.Noter       = (*Adapter)(nil)
	_ crm.Updater     = (*Adapter)(nil)
	_ crm.Stager      = (*Adapter)(nil)
	_ crm.StageReader = (*Adapter)(nil)
	_ crm.Checker     = (*Adapter)(nil)
	_ crm.Describer   = (*Adapter)(nil)
)
