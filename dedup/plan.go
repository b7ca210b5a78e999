package dedup

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// plan.go: from the unplanned events of one ordering key to operations. Pure: no clock, no store, no log. What makes several
// events one enquiry is in content.go, what the effects of a rule become in effect.go, what a CRM's hook does in stage.go.

// policy is what a plan depends on beside the view.
type policy struct {
	decide      func(Enquiry, History) (Decision, error) // nil: the host only submits
	supports    func(crm.Kind) bool
	attempts    int                       // a failing rule's, before its event is parked
	backoff     func(n int) time.Duration // after n failed attempts
	quiet       time.Duration             // Options.GatherQuiet
	gather      time.Duration             // Options.GatherMax
	repeat      time.Duration             // Options.RepeatWindow
	wait        time.Duration             // Options.StageWait
	transitions map[string][]string       // Options.Transitions
	shadow      bool                      // Options.Shadow
}

// plan decides the due events of view in accept order. failed are those whose rule failed. The plan is empty when nothing
// was due.
//
// ask lists deal keys of the host's own that the view was not read with: then there is no plan yet, and the view has to be
// read again with them.
func plan(view store.KeyView, pol policy, asked ...string) (p store.Plan, failed []store.EventEnd, ask []string) {
	d := newDraft(view, pol)
	d.asked = asked
	if view.MovedTo != "" {
		return d.moveAll(), nil, nil
	}
	if end, ok := d.mergeFirst(); ok {
		d.plan.Events = append(d.plan.Events, end)
		return d.plan, nil, nil
	}
	taken := map[int64]bool{} // items of an album that were decided with its first
	for i, ev := range view.Events {
		if taken[ev.ID] {
			continue
		}
		// Fresh events are decided whatever their due time: that is only a head start for the process that took them in. A
		// later event never overtakes one that has to wait.
		if (ev.Attempts > 0 || ev.State != store.EventPending) && ev.DueAt.After(view.Now) {
			break
		}
		u, end := d.unit(view.Events[i:])
		for _, ev := range u.events {
			taken[ev.ID] = true
		}
		var ends []store.EventEnd
		if end == nil {
			ends = d.decideUnit(u)
		} else {
			ends = []store.EventEnd{*end}
		}
		if len(d.ask) > 0 {
			continue // only to learn what the later ones will ask for
		}
		d.plan.Events = append(d.plan.Events, ends...)
		hold := false
		for _, end := range ends {
			ruleFailed := end.State == store.EventParked || (end.State == store.EventPending && end.MoveTo == "")
			if ruleFailed {
				failed = append(failed, end)
			}
			hold = hold || (end.State.Unplanned() && end.MoveTo == "")
		}
		if hold {
			break
		}
	}
	if len(d.ask) > 0 {
		return store.Plan{}, nil, d.ask
	}
	return d.plan, failed, nil
}

// draft is a plan in the making: later events see what earlier ones did.
type draft struct {
	view    store.KeyView
	pol     policy
	plan    store.Plan
	deals   []*store.Deal
	ops     map[string]*store.Operation // every operation that is known, old and new, by id
	waiting map[string][]store.Operation
	isNew   map[string]bool // deals opened and operations made by this plan
	handled []store.Handled // what ended before, and what this plan has decided
	asked   []string        // host keys that the view was read with
	ask     []string        // and those that it lacks
	touched map[string]bool
}

// shadowMark stands before the keys of deals and the kinds of operations that a Processor in shadow mode makes.
const shadowMark = "shadow:"

func newDraft(view store.KeyView, pol policy) *draft {
	d := &draft{view: view, pol: pol, ops: map[string]*store.Operation{}, waiting: map[string][]store.Operation{},
		isNew: map[string]bool{}, touched: map[string]bool{}, handled: view.Handled}
	d.plan = store.Plan{Key: view.Key, Version: view.Version}
	for i := range view.Deals {
		x := &view.Deals[i]
		d.plan.SeenDeals = append(d.plan.SeenDeals, store.Seen{ID: x.ID, Version: x.Version})
		if pol.shadow || !strings.HasPrefix(x.Key, shadowMark) { // what a shadow did is nothing that can be continued
			d.deals = append(d.deals, x)
		}
	}
	for i, op := range view.Operations {
		d.plan.SeenOps = append(d.plan.SeenOps, store.Seen{ID: op.ID, Version: op.Version})
		d.ops[op.ID] = &view.Operations[i]
		if op.DependsOn != "" && op.Blocked && op.State == store.Pending {
			d.waiting[op.DealID] = append(d.waiting[op.DealID], op)
		}
	}
	return d
}

// moveAll sends the events on to the ordering key that theirs was merged into.
func (d *draft) moveAll() store.Plan {
	for _, ev := range d.view.Events {
		end := store.EventEnd{ID: ev.ID, State: store.EventPending, MoveTo: d.view.MovedTo}
		if e, err := readEnquiry(&ev); err == nil && e.Stage != nil {
			// A deal that stayed behind (store.Merge) is decided here: the other key would send its hook back at once.
			if len(d.leads(ev.Tenant, e.Stage.LeadID)) > 0 {
				end = d.stage(ev, e)
			} else {
				end.Retry = waitStep(d.view.Now.Sub(ev.AcceptedAt))
			}
		}
		d.plan.Events = append(d.plan.Events, end)
	}
	return d.plan
}

// unit is what is decided as one: an event, or the items of an album. enquiry is all of it.
type unit struct {
	events  []store.EventRow // at least one, in accept order
	what    store.EventRow   // the first that is new: what is made of the unit has its identity
	enquiry Enquiry
}

// ev is the event that stands for the unit.
func (u unit) ev() store.EventRow { return u.events[0] }

// ends lets all events of a unit end in the same way.
func (u unit) ends(state store.EventState, reason string) (ends []store.EventEnd) {
	for _, ev := range u.events {
		ends = append(ends, store.EventEnd{ID: ev.ID, State: state, Reason: reason})
	}
	return ends
}

// decideUnit decides one unit; what it adds to the draft stays only if it succeeds.
func (d *draft) decideUnit(u unit) []store.EventEnd {
	ev, e := u.ev(), u.enquiry
	switch {
	case e.Stage != nil:
		return []store.EventEnd{d.stage(ev, e)}
	case e.MovedFrom != "" || e.MovedTo != "":
		return u.ends(store.EventIgnored, "a group that has moved already")
	case d.pol.decide == nil:
		return u.ends(store.EventIgnored, "no rule")
	}
	if why := d.repeated(u); why != "" {
		return u.ends(store.EventIgnored, why)
	}
	links := len(d.plan.Links)
	reason, err := d.decideNew(u)
	ig, isIgnored := asIgnored(err)
	switch {
	case len(d.ask) > 0:
		return nil // the plan will not be used
	case isIgnored:
		return u.ends(store.EventIgnored, ig.reason)
	case err != nil && ev.Attempts+1 >= d.pol.attempts:
		return u.ends(store.EventParked, "rule: "+scrub(err))
	case err != nil: // the other items of an album stay behind the first
		return []store.EventEnd{{ID: ev.ID, State: store.EventPending, Reason: "rule: " + scrub(err), Retry: d.pol.backoff(ev.Attempts + 1)}}
	case reason != "":
		return u.ends(store.EventIgnored, reason)
	}
	if ev.ContactKey != "" && e.HasPerson {
		d.plan.Contacts = append(d.plan.Contacts, store.Contact{Key: ev.ContactKey, Tenant: ev.Tenant, Source: ev.Source, UserID: e.Person.ID})
	}
	d.remember(u, d.plan.Links[links:])
	return u.ends(store.EventPlanned, "")
}

// decideNew decides what is no repeat. The host's values are marshaled on the way: a panic of theirs is the rule's error.
func (d *draft) decideNew(u unit) (reason string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its decision can't be read: panic of %T", r)
		}
	}()
	if before := d.handledContent(u.ev()); u.ev().ContentRev != "" && len(before) > 0 {
		return d.revise(u, before)
	}
	return d.fresh(u)
}

// remember keeps what a unit did for the events after it, and ties every one of its events to its operations.
func (d *draft) remember(u unit, made []store.Link) {
	var ops []string
	for _, l := range made {
		ops = append(ops, l.OperationID)
	}
	for _, ev := range u.events {
		if ev.ID != u.what.ID {
			for _, id := range ops {
				d.link(ev, id)
			}
		}
		ev.State = store.EventPlanned
		d.handled = append(d.handled, store.Handled{EventRow: ev, Operations: ops})
	}
}

// fresh asks the rule about something new.
func (d *draft) fresh(u unit) (reason string, err error) {
	ev := u.what
	if d.pol.shadow && !d.known(d.dealKey(ev, Open{})) {
		return "", nil
	}
	if deal := d.albumsDeal(u); deal != nil {
		f, reason, err := d.note(ev, deal, u.enquiry.Summary(), 0)
		if f = d.withFiles(ev, u.enquiry, deal, f); f != nil {
			f()
		}
		return reason, err
	}
	dec, err := d.pol.decide(u.enquiry, d.history(ev.ContactKey, time.Time{}))
	if err != nil {
		return "", err
	}
	return d.apply(ev, u.enquiry, dec)
}

// known reports whether the view was read with a deal key; if not, it will be.
func (d *draft) known(key string) bool {
	for _, k := range d.asked {
		if k == key {
			return true
		}
	}
	for _, k := range d.ask {
		if k == key {
			return false
		}
	}
	d.ask = append(d.ask, key)
	return false
}

// history is what a rule sees of the contact's deals; of those opened before a time, if that is not zero.
func (d *draft) history(contact string, before time.Time) History {
	h := History{Now: d.view.Now}
	for _, x := range d.deals {
		if contact == "" || x.ContactKey != contact || (!before.IsZero() && !x.OpenedAt.Before(before)) {
			continue
		}
		h.Deals = append(h.Deals, DealView{ID: x.ID, Key: strings.TrimPrefix(strings.TrimPrefix(x.Key, shadowMark), hostKey), Open: x.State == store.DealOpen,
			Create: d.createState(x), CRMID: x.CRMID, OpenedAt: x.OpenedAt, LastActivity: x.LastActivity,
			Stage: x.Stage, StageAt: x.StageAt})
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

func (d *draft) deal(id string) *store.Deal {
	for _, x := range d.deals {
		if x.ID == id {
			return x
		}
	}
	return nil
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

// readEnquiry reads the stored form, and fills in the identities of a source that has none: each event is then its own.
func readEnquiry(ev *store.EventRow) (e Enquiry, err error) {
	if err = json.Unmarshal(ev.Enquiry, &e); err != nil {
		return e, err
	}
	if ev.ContentID == "" {
		ev.ContentID = fmt.Sprintf("event/%d", ev.ID)
	}
	if ev.DealKey == "" {
		ev.DealKey = ev.ContentID
	}
	return e, nil
}
