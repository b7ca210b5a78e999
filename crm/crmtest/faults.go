package crmtest

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// faults.go: what can go wrong between an adapter and the simulated CRM, and which request it happens to.

// FaultKind says what goes wrong.
type FaultKind string

// The faults. Whether the CRM has acted is part of each; where it reads "Applied decides", Fault.Applied does.
const (
	// Refuse: nobody listens, so nothing was sent and nothing done. Only adapters of the same Simulator see a refused
	// connection; for any other client it is a Drop, which leaves it in the dark.
	Refuse FaultKind = "refuse"
	// Drop: the connection is closed after the request was read and before anything was done.
	Drop FaultKind = "drop"
	// LoseReply: the CRM acts, then the connection is closed without an answer.
	LoseReply FaultKind = "lose reply"
	// ResetMidBody: the CRM acts, and the connection is reset in the middle of its answer.
	ResetMidBody FaultKind = "reset mid-body"
	// Late: the connection is closed without an answer, and the CRM acts Delay later.
	Late FaultKind = "late"
	// Slow: the CRM acts, and answers Delay later.
	Slow FaultKind = "slow"
	// Hang: no answer for as long as the client waits. Applied decides.
	Hang FaultKind = "hang"
	// Stale: a look-up does not see records younger than Delay. It happens to look-ups only.
	Stale FaultKind = "stale"
	// ErrorBody: status 200, and a body that says that something went wrong without a code that is documented. Applied
	// decides.
	ErrorBody FaultKind = "error body"
	// Garbage: status 200 and a page of HTML. Applied decides.
	Garbage FaultKind = "garbage"
	// BareStatus: the Status (502 if zero) with a proxy's page and without a code. Applied decides.
	BareStatus FaultKind = "bare status"
	// Throttle: the documented answer to too many requests: Status (429 if zero, or 503), a code, and Retry-After with
	// Delay in whole seconds. Nothing was done.
	Throttle FaultKind = "throttle"
	// TokenRefused: the documented 401. Nothing was done.
	TokenRefused FaultKind = "token refused"
	// Reject: the documented 422 of a write whose fields are not valid. Nothing was done; an idempotency key remembers it.
	Reject FaultKind = "reject"
)

// Calls that are no operations, for Fault.On and [Simulator.Requests].
const (
	Find  crm.Kind = "lead.find" // the look-up by operation id
	Read  crm.Kind = "lead.read" // one lead by its id; ReadStage is crm.KindRead instead
	Check crm.Kind = "check"
)

// Fault is something that goes wrong with one request.
type Fault struct {
	Kind FaultKind
	// On is the call that it happens to, for example crm.KindCreate or [Find]; empty means any.
	On crm.Kind
	// Delay belongs to Late, Slow, Stale and Throttle.
	Delay time.Duration
	// Status belongs to BareStatus and Throttle.
	Status int
	// Applied: the CRM has acted before things went wrong. It belongs to the kinds that name it.
	Applied bool
}

// Chance is a fault that happens with probability P, between 0 and 1.
type Chance struct {
	Fault
	P float64
}

// faults decides what happens to a request: first what is queued, then what always happens, then a draw.
type faults struct {
	queue  []Fault
	always []Fault
	chance []Chance
}

// Next lets f happen to the next n requests that it concerns. Faults queued earlier come first.
func (s *Simulator) Next(n int, f Fault) {
	f.check()
	s.do(func() { s.faults.queue = append(s.faults.queue, slices.Repeat([]Fault{f}, n)...) })
}

// Always lets the first of fs that concerns a request happen to it, for every request that is not met by a queued
// fault, until it is called again. Without an argument it ends.
func (s *Simulator) Always(fs ...Fault) {
	for _, f := range fs {
		f.check()
	}
	s.do(func() { s.faults.always = slices.Clone(fs) })
}

// Sometimes draws for every request that is met by no other fault: at most one of cs happens. The draw depends on the
// seed, the operation, the call and how many such requests of the operation came before, not on which goroutine is
// faster. Without an argument it ends. It panics if the chances of one call sum up to more than 1.
func (s *Simulator) Sometimes(cs ...Chance) {
	for _, c := range cs {
		c.check()
		var sum float64
		for _, o := range cs {
			if o.P < 0 || o.P > 1 {
				panic(fmt.Sprintf("crmtest: the chance of %q is %v, not between 0 and 1", o.Kind, o.P))
			}
			if o.On == "" || o.On == c.On {
				sum += o.P
			}
		}
		if sum > 1+1e-9 {
			panic(fmt.Sprintf("crmtest: the chances for one request sum up to %v, more than 1", sum))
		}
	}
	s.do(func() { s.faults.chance = slices.Clone(cs) })
}

// Heal removes every fault: queued, permanent and drawn ones. What is landing late still lands.
func (s *Simulator) Heal() { s.do(func() { s.faults = faults{} }) }

func (f Fault) check() {
	switch f.Kind {
	case Refuse, Drop, LoseReply, ResetMidBody, Late, Slow, Hang, Stale, ErrorBody, Garbage, BareStatus, Throttle,
		TokenRefused, Reject:
	default:
		panic(fmt.Sprintf("crmtest: unknown fault %q", f.Kind))
	}
	if f.Delay < 0 {
		panic(fmt.Sprintf("crmtest: fault %q has a negative Delay", f.Kind))
	}
}

func (f Fault) concerns(k crm.Kind) bool {
	switch f.Kind {
	case Stale:
		return k == Find
	case Reject:
		return writes(k) && (f.On == "" || f.On == k)
	}
	return f.On == "" || f.On == k
}

// meet returns the fault of this request, and counts the request and uses up what was queued, unless it only asks
// whether the connection is to be refused and the answer is no.
func (s *Simulator) meet(t tally, onlyRefuse bool) Fault {
	f, queued := s.faults.pick(t, s.conf.Seed, s.arrived[t])
	if onlyRefuse && f.Kind != Refuse {
		return Fault{}
	}
	if queued >= 0 {
		s.faults.queue = slices.Delete(s.faults.queue, queued, queued+1)
	}
	s.arrived[t]++
	return f
}

func (fs *faults) pick(t tally, seed uint64, nth int) (f Fault, queued int) {
	concerns := func(f Fault) bool { return f.concerns(t.kind) }
	if i := slices.IndexFunc(fs.queue, concerns); i >= 0 {
		return fs.queue[i], i
	}
	if i := slices.IndexFunc(fs.always, concerns); i >= 0 {
		return fs.always[i], -1
	}
	if len(fs.chance) > 0 {
		h := fnv.New64a()
		fmt.Fprintf(h, "%s\x00%s\x00%d", t.kind, t.op, nth)
		x := rand.New(rand.NewPCG(seed, h.Sum64())).Float64()
		for _, c := range fs.chance {
			if !concerns(c.Fault) {
				continue
			}
			if x < c.P {
				return c.Fault, -1
			}
			x -= c.P
		}
	}
	return Fault{}, -1
}
