package crmtest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// simulator.go: the simulated CRM as a test sees it: how it is made, what it holds, and what a manager does in it by hand.

// Config says what CRM is simulated. The zero value is a CRM without any guarantee whose look-ups see every write.
type Config struct {
	// Guarantee is what the CRM keeps for a repeated create. IdempotencyKey needs a Window, after which a key is
	// forgotten; an Upsert or UniqueID CRM never forgets, and its Window is only declared.
	Guarantee crm.Guarantee
	// LookupLag makes every look-up by operation id blind to records that are younger.
	LookupLag time.Duration
	// Validate returns why the CRM refuses a lead, or "" to take it. nil takes everything.
	Validate func(crm.Lead) string
	// OnEffect is called each time that something was written, right after it and before the answer leaves: the place
	// to kill a process. It is called without a lock, by the goroutine that serves the request; for a late landing, by
	// the first one that looks at the simulator after it.
	OnEffect func(kind crm.Kind, opID string)
	// Identity names the CRM in Describe; empty means "simulator".
	Identity string
	// Now is the CRM's clock: idempotency windows, late landings and the age of a record. nil means time.Now, which is
	// virtual inside a testing/synctest bubble.
	Now func() time.Time
	// Seed is what chances are drawn from; 0 picks one, which [Simulator.Seed] tells.
	Seed uint64
}

// Record is a lead as the CRM holds it.
type Record struct {
	ID      string // the CRM's own id
	OpID    string // the external id: the operation that made it
	Lead    crm.Lead
	Stage   string // "new" at first
	Notes   []NoteRecord
	Created time.Time
	Updated time.Time // the last write of any kind, zero if there was none after the creation
	Version int64     // grows by one with every write, from 1
}

// NoteRecord is a note at a lead.
type NoteRecord struct {
	ID   string
	OpID string
	Note crm.Note
}

// ContactRecord is a person as the CRM holds it.
type ContactRecord struct {
	ID      string
	OpID    string // the operation that made it
	Contact crm.Contact
}

// Simulator is a CRM in memory: an http.Handler with a small JSON protocol, faults on demand and a count of every effect
// by operation id. All methods may be called by several goroutines at once.
type Simulator struct {
	conf Config

	mu       sync.Mutex
	serial   int
	leads    []*Record
	contacts []*ContactRecord
	keys     map[string]memory
	foreign  map[string]string // operation id → the record of somebody else that is in its way
	landing  []landing
	landed   []landing // applied, OnEffect not called yet
	effects  map[tally]int
	arrived  map[tally]int
	faults   faults
}

// tally is what is counted: the requests, or the effects, of one operation.
type tally struct {
	kind crm.Kind
	op   string
}

// NewSimulator returns an empty CRM. It panics on a Config that can't be meant, naming the field.
func NewSimulator(c Config) *Simulator {
	switch g := c.Guarantee; {
	case g.Kind == crm.AtLeastOnce:
		panic("crmtest: Config.Guarantee: a create is never at-least-once; leave it empty")
	case g.Kind == crm.IdempotencyKey && g.Window <= 0:
		panic("crmtest: Config.Guarantee: an idempotency key needs a Window above 0")
	case !slices.Contains([]crm.GuaranteeKind{crm.None, crm.IdempotencyKey, crm.Upsert, crm.UniqueID}, g.Kind):
		panic(fmt.Sprintf("crmtest: Config.Guarantee: unknown kind %q", g.Kind))
	case c.LookupLag < 0:
		panic("crmtest: Config.LookupLag is negative")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Identity == "" {
		c.Identity = "simulator"
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	return &Simulator{
		conf: c, keys: map[string]memory{}, foreign: map[string]string{}, effects: map[tally]int{}, arrived: map[tally]int{},
	}
}

// Seed is what the chances of [Simulator.Sometimes] are drawn from. Print it where a test fails.
func (s *Simulator) Seed() uint64 { return s.conf.Seed }

// Describe is what an adapter for this CRM declares.
func (s *Simulator) Describe() crm.Description {
	return crm.Description{
		Identity: s.conf.Identity, Create: s.conf.Guarantee, LookupReadsOwnWrites: s.conf.LookupLag == 0,
		Contact: crm.Guarantee{Kind: crm.Upsert}, // found by the person's id at the source, made only if missing
	}
}

// Created counts the leads that were ever made for an operation, deleted ones included.
func (s *Simulator) Created(opID string) int { return s.Effects(crm.KindCreate, opID) }

// Effects counts what an operation has written: for KindCreate records that were made (overwriting one is not counted),
// for KindContact contacts that were made, for the others every write.
func (s *Simulator) Effects(kind crm.Kind, opID string) (n int) {
	s.do(func() { n = s.effects[tally{kind, opID}] })
	return n
}

// Requests counts the requests of an operation that arrived, whatever became of them. The kind may also be [Find],
// [Read] or [Check]; Read and Check belong to no operation, so their opID is empty.
// A ReadStage is one of crm.KindRead and its operation; where SetStage looks at the present stage, that is a Read.
func (s *Simulator) Requests(kind crm.Kind, opID string) (n int) {
	s.do(func() { n = s.arrived[tally{kind, opID}] })
	return n
}

// Leads returns copies of the records in the order of their creation.
func (s *Simulator) Leads() (all []Record) {
	s.do(func() {
		for _, r := range s.leads {
			all = append(all, r.copy())
		}
	})
	return all
}

// Lead returns a copy of one record.
func (s *Simulator) Lead(id string) (found Record, ok bool) {
	s.do(func() {
		if r := s.lead(id); r != nil {
			found, ok = r.copy(), true
		}
	})
	return found, ok
}

// Contacts returns copies of the persons in the order of their creation.
func (s *Simulator) Contacts() (all []ContactRecord) {
	s.do(func() {
		for _, c := range s.contacts {
			all = append(all, *c)
		}
	})
	return all
}

// Plant adds a record that somebody entered by hand, or that another integration made, and returns its id. It is not
// counted as an effect. An empty r.ID gets one; an empty r.Created is now, an empty r.Version 1, an empty r.Stage "new".
func (s *Simulator) Plant(r Record) (id string) {
	s.do(func() {
		r := r.copy()
		if r.ID == "" {
			r.ID = s.next("lead")
		}
		if r.Created.IsZero() {
			r.Created = s.conf.Now()
		}
		r.Version, r.Stage = cmp.Or(r.Version, 1), cmp.Or(r.Stage, "new")
		s.leads = append(s.leads, &r)
		id = r.ID
	})
	return id
}

// Foreign plants a record of somebody else that is in the way of op: under UniqueID, creating op meets a conflict with it,
// and the record does not carry op.ID.
func (s *Simulator) Foreign(op crm.Op) {
	id := s.Plant(Record{OpID: "somebody else's", Lead: crm.Lead{Name: "somebody else"}})
	s.do(func() { s.foreign[op.ID] = id })
}

// Edit changes a record as a manager would, and reports whether it is there. Its Version grows unless change has set it.
func (s *Simulator) Edit(id string, change func(*Record)) (ok bool) {
	s.do(func() {
		if r := s.lead(id); r != nil {
			seen := r.Version
			change(r)
			if ok = true; r.Version == seen {
				r.touch(s.conf.Now())
			} else {
				r.Updated = s.conf.Now()
			}
		}
	})
	return ok
}

// Move puts a record into another stage as a manager would, and reports whether it is there. Leads in "won" and "lost" are
// closed.
func (s *Simulator) Move(id, stage string) (ok bool) {
	return s.Edit(id, func(r *Record) { r.Stage = stage })
}

// Delete removes a record as a manager would, and reports whether it was there. [Simulator.Created] still counts it.
func (s *Simulator) Delete(id string) (ok bool) {
	s.do(func() {
		n := len(s.leads)
		s.leads = slices.DeleteFunc(s.leads, func(r *Record) bool { return r.ID == id })
		ok = len(s.leads) < n
	})
	return ok
}

// do runs f on the books as they are now, late landings included, and tells OnEffect about those afterwards.
func (s *Simulator) do(f func()) {
	s.mu.Lock()
	s.land()
	f()
	landed := s.landed
	s.landed = nil
	s.mu.Unlock()
	for _, l := range landed {
		s.tell(l.call)
	}
}

func (s *Simulator) tell(c call) {
	if s.conf.OnEffect != nil {
		s.conf.OnEffect(c.kind, c.in.OpID)
	}
}

func (s *Simulator) lead(id string) *Record {
	for _, r := range s.leads {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (s *Simulator) next(prefix string) string {
	s.serial++
	return fmt.Sprintf("%s-%d", prefix, s.serial)
}

// touch marks a write.
func (r *Record) touch(now time.Time) {
	r.Updated = now
	r.Version++
}

func (r *Record) copy() Record {
	c := *r
	c.Notes = slices.Clone(r.Notes)
	return c
}
