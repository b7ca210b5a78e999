package dedup

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/internal/ids"
	"github.com/leadonce/leadonce/store"
)

// effect.go: from what a rule wants to operations. Each effect is an operation of its own: one that fails, or is in doubt,
// holds only what depends on it.

// hostKey stands before a deal key that the host chose, so that it never meets the identity of a content.
const (
	hostKey    = "host/"
	maxHostKey = 1000
	maxAsked   = 2 * store.ViewEvents // host keys in one reading: beyond it the rule makes them up
)

// apply checks all effects before it adds the first, so that an event is planned whole or not at all. A non-empty reason
// means that there was nothing to do.
func (d *draft) apply(ev store.EventRow, e Enquiry, dec Decision) (reason string, err error) {
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
	if x, ok := eff.(Open); ok {
		return d.open(ev, e, x, i)
	}
	named, ok := eff.(interface{ dealID() string })
	if !ok {
		return nil, "", fmt.Errorf("unknown effect %T", eff)
	}
	deal, err := d.target(ev, named.dealID())
	if err != nil {
		return nil, "", err
	}
	switch x := eff.(type) {
	case Note:
		do, reason, err = d.note(ev, deal, x.Text, i)
		return d.withFiles(ev, e, deal, do), reason, err
	case Update:
		if !d.pol.supports(crm.KindUpdate) {
			return d.note(ev, deal, x.note(), i)
		}
		return d.operation(ev, deal, crm.KindUpdate, x.Lead, i)
	case SetStage:
		if x.To == "" || len(x.From) == 0 {
			return nil, "", fmt.Errorf("SetStage of deal %s has to name To, and in From the stages that may be left: "+
				"without them it could undo what a manager decided", deal.ID)
		}
		return d.operation(ev, deal, crm.KindStage, crm.Stage{To: x.To, From: x.From}, i)
	case Close:
		return func() { d.moveStage(deal, deal.Stage, deal.StageVersion, deal.StageAt, store.DealClosed) }, "", nil
	}
	return nil, "", fmt.Errorf("unknown effect %T", eff)
}

// continuable is DealView.Continuable of a stored deal.
func (d *draft) continuable(x *store.Deal) bool {
	return DealView{Open: x.State == store.DealOpen, Create: d.createState(x)}.Continuable()
}

// target finds the deal that an effect names; only the contact's own, and only one that may be continued.
func (d *draft) target(ev store.EventRow, dealID string) (*store.Deal, error) {
	for _, x := range d.deals {
		if x.ID != dealID || x.ContactKey != ev.ContactKey {
			continue
		}
		if !d.continuable(x) {
			return nil, fmt.Errorf("deal %s can't be continued: %s, create %s", dealID, x.State, d.createState(x))
		}
		return x, nil
	}
	return nil, fmt.Errorf("deal %s is none of this contact's history", dealID)
}

// open opens a deal, or finds what to do with the one that this content or key has opened before.
func (d *draft) open(ev store.EventRow, e Enquiry, x Open, i int) (do func(), reason string, err error) {
	fields, err := d.leadFields(ev, e, x.Lead)
	if err != nil {
		return nil, "", err
	}
	key, host := d.dealKey(ev, x), x.Key != ""
	if host {
		switch {
		case !utf8.ValidString(key) || strings.ContainsRune(key, 0) || len(x.Key)+len(hostKey) > maxHostKey:
			return nil, "", fmt.Errorf("Open.Key must be valid UTF-8 without NUL, of at most %d bytes", maxHostKey)
		case !slices.Contains(d.asked, key) && len(d.asked) >= maxAsked:
			return nil, "", errors.New("Open.Key is another one at every try: it must be made of the event alone")
		case !d.known(key):
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
		return func() { d.newDeal(ev, e, x.Lead, key, host, gen, fields) }, "", nil
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
		return func() { d.replace(ev, create, fields) }, "", nil
	case own && !host && ev.ContentRev == "":
		return nil, "the same content has opened a deal already", nil
	case !d.pol.supports(crm.KindNote):
		return nil, "its deal is open, and the adapter has no notes", nil
	}
	do, reason, err = d.note(ev, last, e.Summary(), i)
	return d.withFiles(ev, e, last, do), reason, err
}

// dealKey is the key of the deal that an event opens.
func (d *draft) dealKey(ev store.EventRow, x Open) string {
	key := ev.DealKey
	if x.Key != "" {
		key = hostKey + x.Key
	}
	if d.pol.shadow {
		key = shadowMark + key
	}
	return key
}

// leadFields is what is stored of a lead: with the CRM's id of the person, where it is known by now.
func (d *draft) leadFields(ev store.EventRow, e Enquiry, l crm.Lead) ([]byte, error) {
	if l.ContactID == "" && d.links(ev, e) {
		l.ContactID = d.contactID(ev)
	}
	fields, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("lead: %w", err)
	}
	return fields, nil
}

// links reports whether deals of this event are tied to a contact in the CRM.
func (d *draft) links(ev store.EventRow, e Enquiry) bool {
	return ev.ContactKey != "" && e.HasPerson && d.pol.supports(crm.KindContact)
}

func (d *draft) contactID(ev store.EventRow) string {
	for _, c := range d.view.Contacts {
		if c.Key == ev.ContactKey && (d.pol.shadow || !strings.HasPrefix(c.CRMID, shadowMark)) {
			return c.CRMID
		}
	}
	return ""
}

func (d *draft) newDeal(ev store.EventRow, e Enquiry, l crm.Lead, key string, host bool, gen int, fields []byte) {
	id := dealID(ev.OrderingKey, key, gen)
	deal := &store.Deal{ID: id, Tenant: ev.Tenant, OrderingKey: ev.OrderingKey, ContactKey: ev.ContactKey, Key: key, HostKey: host,
		Generation: gen, State: store.DealOpen, CreateOp: ids.UUID(string(d.kind(crm.KindCreate)), id), OpenedAt: d.view.Now, LastActivity: d.view.Now}
	d.plan.Deals = append(d.plan.Deals, *deal)
	d.deals = append(d.deals, deal)
	d.isNew[id] = true
	d.add(ev, deal, crm.KindCreate, fields, deal.CreateOp)
	if l.ContactID == "" && d.links(ev, e) && d.contactID(ev) == "" {
		d.ensureContact(ev, e, deal)
	}
	d.addFiles(ev, e, deal)
	d.moveWaiting(ev, deal)
}

// moveWaiting lets what waits for a create that failed go on in the next deal, as operations of their own.
func (d *draft) moveWaiting(ev store.EventRow, deal *store.Deal) {
	if d.pol.shadow { // what was to be sent before stays where it is
		return
	}
	for _, old := range d.deals {
		if old.ContactKey != ev.ContactKey || ev.ContactKey == "" || d.createState(old) != store.Failed {
			continue
		}
		for _, w := range d.waiting[old.ID] {
			next := ids.UUID("moved", deal.ID, w.ID)
			// An edit of this plan goes into the successor: what is dropped is not edited any more.
			d.plan.Edits = slices.DeleteFunc(d.plan.Edits, func(x store.Edit) bool { return x.OperationID == w.ID })
			d.plan.Drops = append(d.plan.Drops, store.Ended{OperationID: w.ID, Version: w.Version, Reason: "moved to " + next})
			d.add(ev, deal, crm.Kind(w.Kind), d.ops[w.ID].Fields, next)
			d.ops[w.ID].State = store.Canceled
		}
		delete(d.waiting, old.ID)
	}
}

// ensureContact makes the person known to the CRM, once, beside the deal: the deal goes ahead and is tied to it afterwards.
func (d *draft) ensureContact(ev store.EventRow, e Enquiry, deal *store.Deal) {
	kind := d.kind(crm.KindContact)
	c := crm.Contact{ExternalID: e.Person.ID, Name: e.Person.Name, Username: e.Person.Username}
	if e.OwnPhone {
		c.Phone = e.Phone
	}
	fields, _ := json.Marshal(c)
	d.put(ev, store.Operation{ID: ids.UUID(string(kind), ev.ContactKey), Tenant: ev.Tenant, Kind: string(kind), OrderingKey: ev.OrderingKey,
		ContactKey: ev.ContactKey, State: store.Pending, Fields: fields})
	if d.pol.supports(crm.KindLink) {
		d.add(ev, deal, crm.KindLink, []byte("{}"), contentOp(d.kind(crm.KindLink), deal, store.EventRow{}, 0))
	}
}

// withFiles adds an enquiry's files to what is done, if that is something.
func (d *draft) withFiles(ev store.EventRow, e Enquiry, deal *store.Deal, do func()) func() {
	if do == nil {
		return nil
	}
	return func() {
		do()
		d.addFiles(ev, e, deal)
	}
}

// addFiles gives every file to the host's hook, each as an operation of its own.
func (d *draft) addFiles(ev store.EventRow, e Enquiry, deal *store.Deal) {
	if !d.pol.supports(crm.KindFile) {
		return
	}
	for _, f := range e.Files {
		fields, _ := json.Marshal(crm.File{Source: e.Source, Bot: e.Bot, Kind: f.Kind, ID: f.ID, Name: f.Name, MIME: f.MIME, Size: f.Size})
		d.add(ev, deal, crm.KindFile, fields, ids.UUID(string(d.kind(crm.KindFile)), deal.ID, f.ID))
	}
}

func (d *draft) note(ev store.EventRow, deal *store.Deal, text string, i int) (do func(), reason string, err error) {
	id := contentOp(d.kind(crm.KindNote), deal, ev, i)
	fields, err := json.Marshal(crm.Note{Text: text, Ref: id[:8]})
	if err != nil {
		return nil, "", fmt.Errorf("note for deal %s: %w", deal.ID, err)
	}
	return func() { d.add(ev, deal, crm.KindNote, fields, id) }, "", nil
}

// operation returns what adds an operation of a deal with these fields.
func (d *draft) operation(ev store.EventRow, deal *store.Deal, kind crm.Kind, v any, i int) (do func(), reason string, err error) {
	fields, err := json.Marshal(v)
	if err != nil {
		return nil, "", fmt.Errorf("%s of deal %s: %w", kind, deal.ID, err)
	}
	return func() { d.add(ev, deal, kind, fields, contentOp(d.kind(kind), deal, ev, i)) }, "", nil
}

// kind is what an operation of kind k is stored as. A reading is a reading in shadow mode too.
func (d *draft) kind(k crm.Kind) crm.Kind {
	if d.pol.shadow && k != crm.KindRead && !strings.HasPrefix(string(k), shadowMark) {
		return shadowMark + k
	}
	return k
}

// add appends an operation of a deal, and what goes with it.
func (d *draft) add(ev store.EventRow, deal *store.Deal, kind crm.Kind, fields []byte, id string) {
	op := store.Operation{ID: id, Tenant: ev.Tenant, Kind: string(d.kind(kind)), OrderingKey: ev.OrderingKey, ContactKey: ev.ContactKey,
		DealID: deal.ID, State: store.Pending, Fields: fields}
	if id != deal.CreateOp {
		op.DependsOn = deal.CreateOp
		op.Blocked = d.createState(deal) != store.Done
	}
	d.put(ev, op)
	if kind == crm.KindRead { // the CRM's own doing is no activity of the person
		return
	}
	if !d.isNew[deal.ID] && !d.touched[deal.ID] {
		d.touched[deal.ID] = true
		d.plan.Touches = append(d.plan.Touches, store.Touch{DealID: deal.ID, Version: deal.Version})
	}
	deal.LastActivity = d.view.Now
}

// put appends an operation; one that this plan has already stays as it is.
func (d *draft) put(ev store.EventRow, op store.Operation) {
	d.link(ev, op.ID)
	if d.isNew[op.ID] {
		return
	}
	d.isNew[op.ID] = true
	d.plan.Operations = append(d.plan.Operations, op)
	if d.ops[op.ID] == nil {
		d.ops[op.ID] = &op
	}
}
