package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// options.go: every setting of a Processor with its default, and what they demand of each other.

// Options are the settings of a Processor. Zero values mean the defaults.
type Options struct {
	Workers     int           // calls to CRMs at the same time, of all tenants together; default 8
	CallTimeout time.Duration // how long one call may take; default 20 s
	Lease       time.Duration // how long a claimed operation is ours; default 60 s, more than CallTimeout + 10 s
	QuietPeriod time.Duration // how long the CRM may still act on a request that was given up; default 2 min
	BackoffMin  time.Duration // first wait after a failure; default 1 s
	BackoffMax  time.Duration // longest wait; default 5 min
	Poll        time.Duration // how often the store is asked for due work that no hint told of; default 1 s

	RuleTimeout  time.Duration // how long a rule may think about one event; default 5 s
	RuleAttempts int           // how often a failing rule is tried before its event is parked; default 5
	HookTimeout  time.Duration // how long OnDone and NeedsPerson may take; default 10 s
	DrainTimeout time.Duration // how long Run waits for running calls once its context has ended; default CallTimeout + 10 s

	GatherQuiet  time.Duration // an album is complete once no item of it came for so long; default 2 s
	GatherMax    time.Duration // how long an album is waited for in all; default 10 s
	RepeatWindow time.Duration // a button pressed again within it is the same press; default 3 min
	StageWait    time.Duration // how long a CRM's hook waits for its lead to be stored; default 1 h

	// Transitions says which stages may follow which, by their names in the CRM, for hooks that carry no version. Without it
	// the time in the hook decides, and a hook without version and time is taken only as the first.
	Transitions map[string][]string

	// Shadow decides and records everything and sends nothing: see ShadowReport. A Processor that is started without it later
	// knows the shadow's deals for what they are: they are not continued, and nothing of them is sent.
	Shadow bool

	// Contacts makes each person a contact in the CRM (crm.Contacter), once, and ties leads to it: a lead that is sent before
	// the contact is known gets it afterwards, where the adapter has updates. Leads that are submitted have no such contact.
	Contacts bool

	// AddFile takes over a file that a person attached: download it with your own token, and add it to the lead. Without it
	// files are only named in texts. Each file is an operation of its own, which comes after its lead, again after an unknown
	// outcome; errors are marked as an adapter's (crm.NotApplied, crm.Rejected).
	AddFile func(ctx context.Context, f FileJob) error

	// TrustEmptyLookup lets a look-up that finds nothing prove that an operation is not in the CRM, so that it is sent again
	// without a person. It takes effect only where the adapter declares no guarantee, says that its look-up reads its own
	// writes, every call since doubt began came back to its own worker, and the quiet period has passed since. Default
	// false: a person decides.
	TrustEmptyLookup bool

	// OnDone is called after an operation has become done; NeedsPerson when one is failed, can't be reconciled by itself,
	// or has a conflict, and when an event is parked. Both are called after the commit, concurrently, and not at all if the
	// process dies in between (nor do they hear of what a person decides): the database is the truth, a hook is a message.
	OnDone      func(ctx context.Context, o Outcome)
	NeedsPerson func(ctx context.Context, o Outcome)

	Observer Observer
	Logger   *slog.Logger // default slog.Default(); it never sees a payload, a token or an error's text from a CRM
	Owner    string       // names this process in leases, before a random part; default empty
}

// FileJob is a file for Options.AddFile.
type FileJob struct {
	Op     crm.Op // the same at every attempt; an id to recognise a repeat by
	LeadID string
	File   crm.File
}

// leaseMargin is what stays of a lease when the longest call begun under it is abandoned.
const leaseMargin = 5 * time.Second

// defaultQuiet is the quiet period of a Desk without a Processor too.
const defaultQuiet = 2 * time.Minute

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.Workers = cmp.Or(d.Workers, 8)
	d.CallTimeout = cmp.Or(d.CallTimeout, 20*time.Second)
	d.Lease = cmp.Or(d.Lease, 60*time.Second)
	d.QuietPeriod = cmp.Or(d.QuietPeriod, defaultQuiet)
	d.BackoffMin = cmp.Or(d.BackoffMin, time.Second)
	d.BackoffMax = cmp.Or(d.BackoffMax, 5*time.Minute)
	d.Poll = cmp.Or(d.Poll, time.Second)
	d.RuleTimeout = cmp.Or(d.RuleTimeout, 5*time.Second)
	d.RuleAttempts = cmp.Or(d.RuleAttempts, 5)
	d.HookTimeout = cmp.Or(d.HookTimeout, 10*time.Second)
	d.DrainTimeout = cmp.Or(d.DrainTimeout, d.CallTimeout+10*time.Second)
	d.GatherQuiet = cmp.Or(d.GatherQuiet, 2*time.Second)
	d.GatherMax = cmp.Or(d.GatherMax, 10*time.Second)
	d.RepeatWindow = cmp.Or(d.RepeatWindow, 3*time.Minute)
	d.StageWait = cmp.Or(d.StageWait, time.Hour)
	d.Logger = cmp.Or(d.Logger, slog.Default())
	return d
}

// grace is how long after its deadline a call may still return and be taken as returned.
func (o Options) grace() time.Duration { return min(o.CallTimeout/4, 5*time.Second) }

func (o Options) validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("dedup: Options."+format, args...))
		}
	}
	refuse(o.Workers < 1 || o.Workers > 1000, "Workers is %d, must be 1 to 1000", o.Workers)
	for _, d := range []struct {
		name   string
		got    time.Duration
		lo, hi time.Duration
	}{
		{"CallTimeout", o.CallTimeout, 10 * time.Millisecond, time.Hour},
		{"Lease", o.Lease, time.Second, 24 * time.Hour},
		{"QuietPeriod", o.QuietPeriod, 10 * time.Millisecond, 24 * time.Hour},
		{"BackoffMin", o.BackoffMin, time.Millisecond, o.BackoffMax},
		{"BackoffMax", o.BackoffMax, time.Millisecond, 24 * time.Hour},
		{"Poll", o.Poll, 10 * time.Millisecond, time.Hour},
		{"RuleTimeout", o.RuleTimeout, time.Millisecond, time.Hour},
		{"HookTimeout", o.HookTimeout, time.Millisecond, time.Hour},
		{"GatherQuiet", o.GatherQuiet, time.Millisecond, o.GatherMax},
		{"GatherMax", o.GatherMax, time.Millisecond, 10 * time.Minute},
		{"RepeatWindow", o.RepeatWindow, time.Millisecond, 24 * time.Hour},
		{"StageWait", o.StageWait, time.Second, 24 * time.Hour},
		{"DrainTimeout", o.DrainTimeout, time.Millisecond, 24 * time.Hour},
	} {
		refuse(d.got < d.lo || d.got > d.hi, "%s is %v, must be %v to %v", d.name, d.got, d.lo, d.hi)
	}
	refuse(o.RuleAttempts < 1 || o.RuleAttempts > 1000, "RuleAttempts is %d, must be 1 to 1000", o.RuleAttempts)
	refuse(o.Lease <= o.CallTimeout+o.grace()+leaseMargin, "Lease is %v, must be more than CallTimeout + %v = %v: a call has to end well inside its lease",
		o.Lease, o.grace()+leaseMargin, o.CallTimeout+o.grace()+leaseMargin)
	return errors.Join(errs...)
}

// fit tells whether the options leave room for what an adapter declares.
func (o Options) fit(d crm.Description) error {
	var errs []error
	for _, k := range kinds {
		if g := d.Guarantee(k); g.Kind != crm.None && g.Window <= o.Lease+o.QuietPeriod {
			errs = append(errs, fmt.Errorf("dedup: Options.Lease + QuietPeriod (%v) leaves no room in the %v window that %s declares for %s: "+
				"shorten them, or declare no guarantee", o.Lease+o.QuietPeriod, g.Window, d.Identity, k))
		}
	}
	return errors.Join(errs...)
}

// validateTrust refuses TrustEmptyLookup where it could never take effect.
func (p *Processor) validateTrust() error {
	if !p.opt.TrustEmptyLookup || slices.ContainsFunc(p.lanes.all, (*lane).trustsEmpty) {
		return nil
	}
	at := slices.IndexFunc(p.lanes.all, func(l *lane) bool { _, finds := l.adapter.(crm.Finder); return finds })
	l := p.lanes.all[max(at, 0)]
	if at < 0 {
		return fmt.Errorf("dedup: Options.TrustEmptyLookup is on, but %s has no look-up (crm.Finder): take the option off, "+
			"or give the adapter a FindLead", l.desc.Identity)
	}
	return fmt.Errorf("dedup: Options.TrustEmptyLookup is on, but %s does not say that its look-up reads its own writes: "+
		"an empty answer proves nothing there", l.desc.Identity)
}
