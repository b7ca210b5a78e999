package dedup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// plan.go: from the unplanned events of one ordering key to operations. Pure: no clock, no store, no log.

// policy is what a plan depends on beside the view.
type policy struct {
	decide   func(Enquiry, History) (Decision, error) // nil: the host only submits
	supports func(crm.Kind) bool
	attempts int                       // a failing rule's, before its event is parked
	backoff  func(n int) time.Duration // after n failed attempts
}

// plan decides the due events of view in accept order. failed are those whose rule failed. The plan is empty when nothing
// was due.
//
// ask lists deal keys of the host's own that the view was not read with: then there is no plan yet, and the view has to be
// read again with them.
func plan(view store.KeyView, pol policy, asked ...string) (p store.Plan, failed []store.EventEnd, ask []string) {
	d := newDraft(view, pol)
	d.asked = asked
	for _, ev := range view.Events {
		// Fresh events are decided whatever their due time: that is only a head start for the process that took them in. A
		// later event never overtakes one that has to wait.
		if (ev.Attempts > 0 || ev.State != store.EventPending) && ev.DueAt.After(view.Now) {
			break
		}
		end := d.event(ev)
		if len(d.ask) > 0 {
			continue // only to learn what the later ones will ask for
		}
		d.plan.Events = append(d.plan.Events, end)
		if end.State == store.EventParked || end.State == store.EventPending {
			failed = append(failed, end)
		}
		if end.State == store.EventPending {
			break
		}
	}
	if len(d.ask) > 0 {
		return store.Plan{}, nil, d.ask
	}
	return d.plan, failed, nil
}

// hostKey stands before a deal key that the host chose, so that it never meets the identity of a content.
const (
	hostKey    = "host/"
	maxHostKey = 1000
	maxAsked   = 2 * store.ViewEvents // host keys in one reading: beyond it the rule makes them up
)

// draft is a plan in the making: later events see what earlier ones did.
type draft struct {
	view    store.KeyView
	pol     policy
	plan    store.Plan
	deals   []*store.Deal
	ops     map[string]*store.Operation // creates by id, of old and new deals
	waiting map[string][]store.Operation
	isNew   map[string]bool // deals opened by this plan
	asked   []string        // host keys that the view was read with
	ask     []string        // and those that it lacks
	touched map[string]bool
}

func newDraft(view store.KeyView, pol policy) *draft {
	d := &draft{view: view, pol: pol, ops: map[string]*store.Operation{}, waiting: map[string][]store.Operation{},
		isNew: map[string]bool{}, touched: map[string]bool{}}
	d.plan = store.Plan{Key: view.Key, Version: view.Version}
	for i := range view.Deals {
		d.deals = append(d.deals, &view.Deals[i])
		d.plan.SeenDeals = append(d.plan.SeenDeals, store.Seen{ID: view.Deals[i].ID, Version: view.Deals[i].Version})
	}
	for i, op := range view.Operations {
		d.plan.SeenOps = append(d.plan.SeenOps, store.Seen{ID: op.ID, Version: op.Version})
		if op.DependsOn == "" {
			d.ops[op.ID] = &view.Operations[i]
		} else {
			d.waiting[op.DealID] = append(d.waiting[op.DealID], op)
		}
	}
	return d
}

// event decides one event; what it adds to the draft stays only if it succeeds.
func (d *draft) event(ev store.EventRow) store.EventEnd {
	if d.pol.decide == nil {
		return store.EventEnd{ID: ev.ID, State: store.EventIgnored, Reason: "no rule"}
	}
	var e Enquiry
	if err := json.Unmarshal(ev.Enquiry, &e); err != nil {
		return store.EventEnd{ID: ev.ID, State: store.EventParked, Reason: "its stored enquiry can't be read"}
	}
	if ev.ContentID == "" { // a source that tells no content apart: then each event is one of its own
		ev.ContentID = fmt.Sprintf("event/%d", ev.ID)
	}
	ev.DealKey = cmp.Or(ev.DealKey, ev.ContentID)
	dec, err := d.pol.decide(e, d.history(ev.ContactKey))
	if ig, ok := errors.AsType[*ignored](err); ok {
		return store.EventEnd{ID: ev.ID, State: store.EventIgnored, Reason: ig.reason}
	}
	reason := ""
	if err == nil {
		reason, err = d.apply(ev, e, dec)
	}
	switch {
	case len(d.ask) > 0:
		return store.EventEnd{} // the plan will not be used
	case err != nil && ev.Attempts+1 >= d.pol.attempts:
		return store.EventEnd{ID: ev.ID, State: store.EventParked, Reason: "rule: " + scrub(err)}
	case err != nil:
		return store.EventEnd{ID: ev.ID, State: store.EventPending, Reason: "rule: " + scrub(err), Retry: d.pol.backoff(ev.Attempts + 1)}
	case reason != "":
		return store.EventEnd{ID: ev.ID, State: store.EventIgnored, Reason: reason}
	}
	if ev.ContactKey != "" && e.HasPerson {
		d.plan.Contacts = append(d.plan.Contacts, store.Contact{Key: ev.ContactKey, Tenant: ev.Tenant, Source: ev.Source, UserID: e.Person.ID})
	}
	return store.EventEnd{ID: ev.ID, State: store.EventPlanned}
}

func (d *draft) history(contact string) History {
	h := History{Now: d.view.Now}
	for _, x := range d.deals {
		if contact == "" || x.ContactKey != contact {
			continue
		}
		h.Deals = append(h.Deals, DealView{ID: x.ID, Key: x.Key, Open: x.State == store.DealOpen, Create: d.createState(x),
			CRMID: x.CRMID, OpenedAt: x.OpenedAt, LastActivity: x.LastActivity})
	}
	return h
}

// createState is the state of a deal's create; a create that can't be seen counts as canceled: nothing is added to it.
func (d *draft) createState(x *store.Deal) store.State {
	if op := d.ops[x.CreateOp]; op != nil {
		return op.State
	}
	return store.Canceled
}

// apply checks all effects before it adds the first, so that an event is planned whole or not at all. A non-empty reason
// means that there was nothing to do. The host's values are marshaled here: a panic of theirs is the rule's error.
func (d *draft) apply(ev store.EventRow, e Enquiry, dec Decision) (reason string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its decision can't be read: panic of %T", r)
		}
	}()
	if len(dec.Effects) == 0 {
		if dec.Reason == "" {
			return "the rule wants nothing", nil
		}
		return dec.Reason, nil
	}
	var do []func()
	opens := map[string]bool{}
	for i, eff := range dec.Effects {
		if x, ok := eff.(Open); ok {
			if opens[x.Key] {
				return "", fmt.Errorf("it opens two deals under one key: give each Open a Key of its own")
			}
			opens[x.Key] = true
		}
		f, why, err := d.effect(ev, e, eff, i)
		if err != nil {
			return "", err
		}
		if f != nil {
			do = append(do, f)
		} else {
			reason = why
		}
	}
	for _, f := range do {
		f()
	}
	if len(do) > 0 {
		return "", nil
	}
	return reason, nil
}

// effect returns what to do for one effect, or why nothing is to be done.
func (d *draft) effect(ev store.EventRow, e Enquiry, eff Effect, i int) (do func(), reason string, err error) {
	switch x := eff.(type) {
	case Open:
		return d.open(ev, e, x, i)
	case Note:
		deal, err := d.target(ev, x.DealID)
		if err != nil {
			return nil, "", err
		}
		return d.note(ev, deal, x.Text, i)
	case Update:
		deal, err := d.target(ev, x.DealID)
		if err != nil {
			return nil, "", err
		}
		fields, err := json.Marshal(x.Lead)
		if err != nil {
			return nil, "", fmt.Errorf("update of deal %s: %w", deal.ID, err)
		}
		return func() { d.add(ev, deal, crm.KindUpdate, fields, contentOp(crm.KindUpdate, deal, ev, i)) }, "", nil
	}
	return nil, "", fmt.Errorf("unknown effect %T", eff)
}

// target finds the deal that an effect names; only the contact's own, and only one that may be continued.
func (d *draft) target(ev store.EventRow, dealID string) (*store.Deal, error) {
	for _, x := range d.deals {
		if x.ID != dealID || x.ContactKey != ev.ContactKey {
			continue
		}
		if st := d.createState(x); x.State != store.DealOpen || st == store.Failed || st == store.Canceled {
			return nil, fmt.Errorf("deal %s can't be continued: %s, create %s", dealID, x.State, st)
		}
		return x, nil
	}
	return nil, fmt.Errorf("deal %s is none of this contact's history", dealID)
}

// open opens a deal, or finds what to do with the one that this content or key has opened before.
func (d *draft) open(ev store.EventRow, e Enquiry, x Open, i int) (do func(), reason string, err error) {
	fields, err := json.Marshal(x.Lead)
	if err != nil {
		return nil, "", fmt.Errorf("lead: %w", err)
	}
	key, host := ev.DealKey, false
	if x.Key != "" {
		key, host = hostKey+x.Key, true
		switch {
		case !utf8.ValidString(key) || strings.ContainsRune(key, 0) || len(key) > maxHostKey:
			return nil, "", fmt.Errorf("Open.Key must be valid UTF-8 without NUL, of at most %d bytes", maxHostKey)
		case !slices.Contains(d.asked, key) && len(d.asked) >= maxAsked:
			return nil, "", errors.New("Open.Key is another one at every try: it must be made of the event alone")
		case !slices.Contains(d.asked, key):
			if !slices.Contains(d.ask, key) {
				d.ask = append(d.ask, key)
			}
			return nil, "", nil
		}
	}
	var last *store.Deal
	for _, y := range d.deals {
		if y.Key == key && (last == nil || y.Generation > last.Generation) {
			last = y
		}
	}
	if last == nil || (host && last.State == store.DealClosed) {
		gen := 1
		if last != nil {
			gen = last.Generation + 1
		}
		return func() { d.newDeal(ev, key, host, gen, fields) }, "", nil
	}
	if last.ContactKey != ev.ContactKey {
		return nil, "", fmt.Errorf("the deal key belongs to another person's deal %s: put the person into Open.Key", last.ID)
	}
	own := ev.DealKey == ev.ContentID // else an item of an album
	create := d.ops[last.CreateOp]
	switch st := d.createState(last); {
	case last.State != store.DealOpen:
		return nil, "its deal is closed", nil
	case st == store.Canceled:
		return nil, "its deal was canceled", nil
	case st == store.Failed && (own || host):
		return func() { d.edit(ev, create, fields) }, "", nil
	case own && !host && ev.ContentRev == "":
		return nil, "the same content has opened a deal already", nil
	case !d.pol.supports(crm.KindNote):
		return nil, "its deal is open, and the adapter has no notes", nil
	}
	return d.note(ev, last, e.Summary(), i)
}

func (d *draft) newDeal(ev store.EventRow, key string, host bool, gen int, fields []byte) {
	id := dealID(ev.OrderingKey, key, gen)
	deal := &store.Deal{ID: id, Tenant: ev.Tenant, OrderingKey: ev.OrderingKey, ContactKey: ev.ContactKey, Key: key, HostKey: host,
		Generation: gen, State: store.DealOpen, CreateOp: ids.UUID(string(crm.KindCreate), id), OpenedAt: d.view.Now, LastActivity: d.view.Now}
	d.plan.Deals = append(d.plan.Deals, *deal)
	d.deals = append(d.deals, deal)
	d.isNew[id] = true
	op := d.add(ev, deal, crm.KindCreate, fields, deal.CreateOp)
	d.ops[op.ID] = &op
	// What waits for a create that failed would wait for ever: it goes on in the new deal, as operations of their own.
	for _, old := range d.deals {
		if old.ContactKey != ev.ContactKey || ev.ContactKey == "" || d.createState(old) != store.Failed {
			continue
		}
		for _, w := range d.waiting[old.ID] {
			next := ids.UUID("moved", id, w.ID)
			d.plan.Drops = append(d.plan.Drops, store.Ended{OperationID: w.ID, Version: w.Version, Reason: "moved to " + next})
			d.add(ev, deal, crm.Kind(w.Kind), w.Fields, next)
		}
		delete(d.waiting, old.ID)
	}
}

// edit replaces the fields of a create that is certainly not in the CRM; of several edits the last stands.
func (d *draft) edit(ev store.EventRow, op *store.Operation, fields []byte) {
	d.link(ev, op.ID)
	for i := range d.plan.Edits {
		if d.plan.Edits[i].OperationID == op.ID {
			d.plan.Edits[i].Fields = fields
			return
		}
	}
	d.plan.Edits = append(d.plan.Edits, store.Edit{OperationID: op.ID, Version: op.Version, Fields: fields})
}

func (d *draft) note(ev store.EventRow, deal *store.Deal, text string, i int) (do func(), reason string, err error) {
	id := contentOp(crm.KindNote, deal, ev, i)
	fields, err := json.Marshal(crm.Note{Text: text, Ref: id[:8]})
	if err != nil {
		return nil, "", fmt.Errorf("note for deal %s: %w", deal.ID, err)
	}
	return func() { d.add(ev, deal, crm.KindNote, fields, id) }, "", nil
}

// add appends an operation of a deal, and what goes with it.
func (d *draft) add(ev store.EventRow, deal *store.Deal, kind crm.Kind, fields []byte, id string) store.Operation {
	op := store.Operation{ID: id, Tenant: ev.Tenant, Kind: string(kind), OrderingKey: ev.OrderingKey, ContactKey: ev.ContactKey,
		DealID: deal.ID, State: store.Pending, Fields: fields}
	if kind != crm.KindCreate {
		op.DependsOn = deal.CreateOp
		op.Blocked = d.createState(deal) != store.Done
	}
	d.plan.Operations = append(d.plan.Operations, op)
	d.link(ev, id)
	if !d.isNew[deal.ID] && !d.touched[deal.ID] {
		d.touched[deal.ID] = true
		d.plan.Touches = append(d.plan.Touches, store.Touch{DealID: deal.ID, Version: deal.Version})
	}
	deal.LastActivity = d.view.Now
	return op
}

func (d *draft) link(ev store.EventRow, opID string) {
	d.plan.Links = append(d.plan.Links, store.Link{EventID: ev.ID, OperationID: opID})
}

// dealID and contentOp derive identities: the same decision made again, even from a restored database, is the same row.
func dealID(orderingKey, dealKey string, generation int) string {
	return ids.UUID("deal", orderingKey, dealKey, fmt.Sprint(generation))
}

func contentOp(kind crm.Kind, deal *store.Deal, ev store.EventRow, i int) string {
	return ids.UUID(string(kind), deal.ID, ev.ContentID, ev.ContentRev, fmt.Sprint(i))
}
