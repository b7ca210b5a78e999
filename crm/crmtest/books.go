package crmtest

import (
	"bytes"
	"net/http"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// books.go: what a request does to the CRM, under each guarantee. Everything here runs with the simulator locked.

// call is a request, understood.
type call struct {
	kind crm.Kind
	key  string // the Idempotency-Key header
	lead string // the lead's id in the path
	in   request
	raw  []byte
}

// memory is what an idempotency key stands for: the request that it came with, and the answer, a refusal included.
type memory struct {
	raw []byte
	ans answer
	at  time.Time
}

// landing is an effect that is still on its way after its answer was lost.
type landing struct {
	call call
	due  time.Time
}

// land applies what has become due, at its own time and under the same rules as any other request.
func (s *Simulator) land() {
	now := s.conf.Now()
	for len(s.landing) > 0 && !s.landing[0].due.After(now) {
		l := s.landing[0]
		s.landing = s.landing[1:]
		if _, wrote := s.apply(l.call, l.due, ""); wrote {
			s.landed = append(s.landed, l)
		}
	}
}

func (s *Simulator) landLater(c call, d time.Duration) {
	l := landing{c, s.conf.Now().Add(d)}
	i, _ := slices.BinarySearchFunc(s.landing, l, func(a, b landing) int {
		if a.due.After(b.due) {
			return 1
		}
		return -1 // the one that came first stays first
	})
	s.landing = slices.Insert(s.landing, i, l)
}

// apply executes a call and reports whether it wrote anything. A refusal, where given, is the CRM's answer to a create
// or any other write that it finds invalid.
func (s *Simulator) apply(c call, now time.Time, refusal string) (answer, bool) {
	switch {
	case c.kind == crm.KindCreate:
		return s.create(c, now, refusal)
	case refusal != "" && c.writes():
		return refused(http.StatusUnprocessableEntity, codeInvalid, refusal), false
	case c.kind == Find:
		return s.find(c, now, s.conf.LookupLag), false
	case c.kind == Check:
		return ok(http.StatusOK, reply{}), false
	case c.kind == crm.KindContact:
		return s.ensure(c)
	}
	r := s.lead(c.lead)
	if r == nil {
		return refused(http.StatusNotFound, codeNoLead, "no such lead"), false
	}
	switch c.kind {
	case crm.KindNote:
		n := NoteRecord{s.next("note"), c.in.OpID, *c.in.Note}
		r.Notes = append(r.Notes, n)
		return s.wrote(c, r, now, ok(http.StatusCreated, reply{ID: n.ID}))
	case crm.KindUpdate:
		merge(&r.Lead, *c.in.Lead)
		return s.wrote(c, r, now, ok(http.StatusOK, reply{ID: r.ID}))
	case crm.KindStage:
		r.Stage = c.in.Stage.To
		return s.wrote(c, r, now, ok(http.StatusOK, reply{ID: r.ID}))
	}
	return ok(http.StatusOK, reply{
		ID: r.ID, OpID: r.OpID, Stage: r.Stage, Version: r.Version, At: r.changed(), Closed: r.closed(),
	}), false
}

// changed is when a record was written last.
func (r *Record) changed() time.Time {
	if r.Updated.IsZero() {
		return r.Created
	}
	return r.Updated
}

func (r *Record) closed() bool { return r.Stage == "won" || r.Stage == "lost" }

func (s *Simulator) wrote(c call, r *Record, now time.Time, a answer) (answer, bool) {
	r.touch(now)
	s.effects[tally{c.kind, c.in.OpID}]++
	return a, true
}

func (s *Simulator) create(c call, now time.Time, refusal string) (answer, bool) {
	if refusal == "" && s.conf.Validate != nil {
		refusal = s.conf.Validate(*c.in.Lead)
	}
	switch s.conf.Guarantee.Kind {
	case crm.IdempotencyKey:
		if m, known := s.keys[c.key]; known && now.Sub(m.at) < s.conf.Guarantee.Window {
			if !bytes.Equal(m.raw, c.raw) {
				return refused(http.StatusUnprocessableEntity, codeKeyReused, "this key came with another body"), false
			}
			return m.ans.replayed(), false
		}
		a, wrote := s.insert(c, now, refusal)
		s.keys[c.key] = memory{c.raw, a, now}
		return a, wrote
	case crm.Upsert:
		if r := s.byOp(c.in.OpID); r != nil && refusal == "" {
			r.Lead = *c.in.Lead
			r.touch(now)
			return ok(http.StatusOK, reply{ID: r.ID}), true
		}
	case crm.UniqueID:
		r := s.lead(s.foreign[c.in.OpID])
		if r == nil {
			r = s.byOp(c.in.OpID)
		}
		if r != nil {
			a := refused(http.StatusConflict, codeDuplicate, "this external id is taken")
			a.reply.ID = r.ID
			return a, false
		}
	}
	return s.insert(c, now, refusal)
}

func (s *Simulator) insert(c call, now time.Time, refusal string) (answer, bool) {
	if refusal != "" {
		return refused(http.StatusUnprocessableEntity, codeInvalid, refusal), false
	}
	r := &Record{ID: s.next("lead"), OpID: c.in.OpID, Lead: *c.in.Lead, Stage: "new", Created: now, Version: 1}
	s.leads = append(s.leads, r)
	s.effects[tally{crm.KindCreate, r.OpID}]++
	return ok(http.StatusCreated, reply{ID: r.ID}), true
}

func (s *Simulator) byOp(op string) *Record {
	for _, r := range s.leads {
		if r.OpID == op {
			return r
		}
	}
	return nil
}

func (s *Simulator) find(c call, now time.Time, lag time.Duration) answer {
	ids := []string{}
	for _, r := range s.leads {
		if r.OpID == c.in.OpID && now.Sub(r.Created) >= lag {
			ids = append(ids, r.ID)
		}
	}
	return ok(http.StatusOK, reply{IDs: ids})
}

func (s *Simulator) ensure(c call) (answer, bool) {
	for _, p := range s.contacts {
		if p.Contact.ExternalID == c.in.Contact.ExternalID {
			return ok(http.StatusOK, reply{ID: p.ID}), false
		}
	}
	p := &ContactRecord{s.next("contact"), c.in.OpID, *c.in.Contact}
	s.contacts = append(s.contacts, p)
	s.effects[tally{crm.KindContact, c.in.OpID}]++
	return ok(http.StatusCreated, reply{ID: p.ID}), true
}

// merge sets what is not zero in u.
func merge(l *crm.Lead, u crm.Lead) {
	for _, f := range []struct {
		to *string
		v  string
	}{
		{&l.Title, u.Title}, {&l.Name, u.Name}, {&l.Phone, u.Phone}, {&l.Email, u.Email}, {&l.Username, u.Username},
		{&l.Text, u.Text}, {&l.Campaign, u.Campaign}, {&l.ContactID, u.ContactID},
	} {
		if f.v != "" {
			*f.to = f.v
		}
	}
	fields := make(map[string]any, len(l.Fields)+len(u.Fields))
	for _, m := range []map[string]any{l.Fields, u.Fields} {
		for k, v := range m {
			fields[k] = v
		}
	}
	if len(fields) > 0 {
		l.Fields = fields
	}
}
