package dedup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// content.go: when several events are one enquiry: an album, an edit, a button pressed again, one message under two update
// ids, a group that goes on under another id.

// unit takes the first event with all that belongs to it. end is not nil where that has to wait, or can't be read.
func (d *draft) unit(events []store.EventRow) (u unit, end *store.EventEnd) {
	ev := events[0]
	e, err := readEnquiry(&ev)
	if err != nil {
		u.events = []store.EventRow{ev}
		return u, &store.EventEnd{ID: ev.ID, State: store.EventParked, Reason: "its stored enquiry can't be read"}
	}
	u = unit{events: []store.EventRow{ev}, what: ev, enquiry: e}
	if e.Group == "" || ev.ContentRev != "" || d.pol.decide == nil {
		return u, nil
	}
	items := []Enquiry{e}
	for _, ev := range events[1:] {
		item, err := readEnquiry(&ev)
		if err != nil || item.Group != e.Group || ev.ContactKey != u.ev().ContactKey || ev.ContentRev != "" {
			continue
		}
		u.events, items = append(u.events, ev), append(items, item)
	}
	first, last := u.ev().AcceptedAt, u.events[len(u.events)-1].AcceptedAt
	until := last.Add(d.pol.quiet)
	if most := first.Add(d.pol.gather); most.Before(until) {
		until = most
	}
	if ev.Attempts == 0 && until.After(d.view.Now) {
		return u, &store.EventEnd{ID: ev.ID, State: store.EventGathering, Reason: "an album: its other items may follow",
			Retry: until.Sub(d.view.Now)}
	}
	d.dropTwins(&u, &items)
	u.enquiry = merged(items)
	return u, nil
}

// dropTwins leaves out of an album what came twice, unless all of it did. The events end with the others.
func (d *draft) dropTwins(u *unit, items *[]Enquiry) {
	seen := map[string]bool{}
	var keep []Enquiry
	for i, ev := range u.events {
		if !seen[ev.ContentID] && len(d.handledContent(ev)) == 0 {
			if keep = append(keep, (*items)[i]); len(keep) == 1 {
				u.what = ev
			}
		}
		seen[ev.ContentID] = true
	}
	if len(keep) > 0 {
		*items = keep
	}
}

// albumsDeal is the deal that the first items of an album have opened, where a late one can be added to it: the rule took the
// album then.
func (d *draft) albumsDeal(u unit) *store.Deal {
	ev := u.ev()
	if u.enquiry.Group == "" || !u.enquiry.HasPerson || !d.pol.supports(crm.KindNote) {
		return nil
	}
	for _, x := range d.deals {
		if x.Key == d.dealKey(ev, Open{}) && x.ContactKey == ev.ContactKey && d.continuable(x) {
			return x
		}
	}
	return nil
}

// merged makes one enquiry of the items of an album: in the order in which they were sent, whatever the order of arrival.
func merged(items []Enquiry) Enquiry {
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b Enquiry) int {
		x, err := strconv.ParseInt(a.Message, 10, 64)
		y, err2 := strconv.ParseInt(b.Message, 10, 64)
		if err != nil || err2 != nil {
			return 0
		}
		return cmp.Compare(x, y)
	})
	all := items[0]
	var texts []string
	all.Files = nil
	for _, e := range items {
		if e.Text != "" && !slices.Contains(texts, e.Text) {
			texts = append(texts, e.Text)
		}
		all.Files = append(all.Files, e.Files...)
		all.Phone, all.OwnPhone = cmp.Or(all.Phone, e.Phone), all.OwnPhone || (e.OwnPhone && all.Phone == "")
		all.Location, all.Command = cmp.Or(all.Location, e.Location), cmp.Or(all.Command, e.Command)
		all.Asks, all.Edited = all.Asks || e.Asks, all.Edited || e.Edited
	}
	all.Text = strings.Join(texts, "\n")
	return all
}

// repeated says why a unit is nothing new; empty if it is.
func (d *draft) repeated(u unit) string {
	ev, e := u.ev(), u.enquiry
	for _, h := range d.handled {
		if h.State != store.EventPlanned || h.ID == ev.ID {
			continue
		}
		if ev.RepeatKey != "" && h.RepeatKey == ev.RepeatKey && h.ContactKey == ev.ContactKey &&
			ev.AcceptedAt.Sub(h.AcceptedAt).Abs() < d.pol.repeat {
			return "the same button, pressed again"
		}
	}
	for _, ev := range u.events[1:] { // an album is new if it has something new
		if len(d.handledContent(ev)) == 0 {
			return ""
		}
	}
	for _, h := range d.handledContent(ev) {
		switch {
		case h.ContentRev == ev.ContentRev:
			return "the same content was handled already"
		case ev.ContentRev == "":
			return "a later edit of it was handled already"
		case editedAt(h.EventRow).After(e.EditedAt) && h.ContentRev != "" && !e.EditedAt.IsZero():
			return "a later edit of it was handled already"
		}
	}
	return ""
}

func editedAt(ev store.EventRow) time.Time {
	e, _ := readEnquiry(&ev)
	return e.EditedAt
}

// handledContent returns what was planned of an event's content before.
func (d *draft) handledContent(ev store.EventRow) (list []store.Handled) {
	for _, h := range d.handled {
		if h.State == store.EventPlanned && h.ContentID == ev.ContentID && h.ContactKey == ev.ContactKey && h.ID != ev.ID {
			list = append(list, h)
		}
	}
	return list
}

// revise decides an edit of something that was planned: what certainly is not in the CRM gets the new text; else it is a note.
func (d *draft) revise(u unit, before []store.Handled) (reason string, err error) {
	ev := u.ev()
	op := d.madeBy(before)
	if op == nil {
		return d.fresh(u)
	}
	deal := d.deal(op.DealID)
	switch {
	case deal == nil:
		return "its deal is none that can be continued", nil
	case deal.State != store.DealOpen:
		return "its deal is closed", nil
	case d.createState(deal) == store.Canceled:
		return "its deal was canceled", nil
	case op.State == store.Canceled && d.createState(deal) == store.Failed:
		return d.fresh(u) // its note was moved on to the next deal
	}
	if !u.enquiry.Asks || !u.enquiry.HasPerson {
		return "it changes nothing that was asked", nil // the steps of a live location come as edits
	}
	if (op.State == store.Pending || op.State == store.Failed) && !op.Doubt && d.seenWhole(op) {
		e := d.withRevision(op, ev, u.enquiry)
		fields, ok, err := d.revisedFields(op, deal, ev, e)
		if err != nil {
			return "", err
		}
		if ok {
			d.replace(ev, op, fields)
			return "", nil
		}
	}
	if !d.pol.supports(crm.KindNote) {
		return "it is in the CRM already, and the adapter has no notes", nil
	}
	f, reason, err := d.note(ev, deal, u.enquiry.Summary(), 0)
	if f != nil {
		f()
	}
	return reason, err
}

// madeBy returns what earlier events of a content made of it: the create, else the latest note.
func (d *draft) madeBy(before []store.Handled) (found *store.Operation) {
	for _, h := range before {
		for _, id := range h.Operations {
			op := d.ops[id]
			if op == nil || op.DealID == "" {
				continue
			}
			if x := d.deal(op.DealID); x != nil && x.CreateOp == op.ID {
				return op
			}
			if found == nil || (op.Kind == string(d.kind(crm.KindNote)) && op.State != store.Canceled) {
				found = op
			}
		}
	}
	return found
}

// seenWhole reports whether the view has all that was made into op: it is cut at store.ViewHandled.
func (d *draft) seenWhole(op *store.Operation) bool {
	n := 0
	for _, h := range d.handled {
		if slices.Contains(h.Operations, op.ID) {
			n++
		}
	}
	return n < store.ViewHandled
}

// withRevision is the whole enquiry behind an operation, with the revision in place of what it revises.
func (d *draft) withRevision(op *store.Operation, ev store.EventRow, e Enquiry) Enquiry {
	latest, order := map[string]Enquiry{}, []string{}
	for _, h := range d.handled {
		if !slices.Contains(h.Operations, op.ID) || h.State != store.EventPlanned {
			continue
		}
		row := h.EventRow
		item, err := readEnquiry(&row)
		if err != nil {
			continue
		}
		if old, ok := latest[row.ContentID]; !ok {
			order = append(order, row.ContentID)
		} else if old.EditedAt.After(item.EditedAt) {
			continue
		}
		latest[row.ContentID] = item
	}
	if _, ok := latest[ev.ContentID]; !ok {
		order = append(order, ev.ContentID)
	}
	latest[ev.ContentID] = e
	var items []Enquiry
	for _, id := range order {
		items = append(items, latest[id])
	}
	return merged(items)
}

// revisedFields decides anew what made op; ok is false where the rule makes something else of it now.
func (d *draft) revisedFields(op *store.Operation, deal *store.Deal, ev store.EventRow, e Enquiry) (fields []byte, ok bool, err error) {
	e.Edited = false // the text is replaced, not added to
	if deal.CreateOp == op.ID {
		dec, err := d.pol.decide(e, d.history(ev.ContactKey, deal.OpenedAt))
		if _, ok := asIgnored(err); ok {
			return nil, false, nil // the rule took the message before: what it says now is not lost
		}
		if err != nil {
			return nil, false, err
		}
		for _, eff := range dec.Effects {
			if x, isOpen := eff.(Open); isOpen && ((x.Key == "" && !deal.HostKey) || d.dealKey(ev, x) == deal.Key) {
				fields, err := d.leadFields(ev, e, x.Lead)
				return fields, err == nil, err
			}
		}
		return nil, false, nil
	}
	var old crm.Note
	if op.Kind != string(d.kind(crm.KindNote)) || json.Unmarshal(op.Fields, &old) != nil {
		return nil, false, nil
	}
	fields, err = json.Marshal(crm.Note{Text: e.Summary(), Ref: old.Ref})
	return fields, err == nil, err
}

// replace gives an operation that was not sent yet other fields; of several edits the last stands.
func (d *draft) replace(ev store.EventRow, op *store.Operation, fields []byte) {
	d.link(ev, op.ID)
	op.Fields = fields
	if d.isNew[op.ID] {
		for i := range d.plan.Operations {
			if d.plan.Operations[i].ID == op.ID {
				d.plan.Operations[i].Fields = fields
			}
		}
		return
	}
	for i := range d.plan.Edits {
		if d.plan.Edits[i].OperationID == op.ID {
			d.plan.Edits[i].Fields = fields
			return
		}
	}
	d.plan.Edits = append(d.plan.Edits, store.Edit{OperationID: op.ID, Version: op.Version, Fields: fields})
}

// mergeFirst finds an event that tells that this ordering key and another one are the same group, and decides it before
// anything else, also before what waits: the events go along, and what follows is decided with the deals of both.
func (d *draft) mergeFirst() (end store.EventEnd, ok bool) {
	for _, ev := range d.view.Events {
		if !bytes.Contains(ev.Enquiry, []byte(`"moved_`)) {
			continue
		}
		e, err := readEnquiry(&ev)
		m := store.Merge{From: d.view.Key, To: e.MovedTo}
		if e.MovedFrom != "" {
			m = store.Merge{From: e.MovedFrom, To: d.view.Key}
		}
		if err != nil || m.To == "" || m.From == m.To {
			continue
		}
		d.plan.Merge = &m
		return store.EventEnd{ID: ev.ID, State: store.EventIgnored, Reason: "a group goes on under another id: its deals stay"}, true
	}
	return end, false
}

func asIgnored(err error) (*ignored, bool) { return errors.AsType[*ignored](err) }
