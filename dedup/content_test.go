package dedup

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// content_test.go: when several events are one enquiry, at the level of one plan.

// at sets when an event was accepted, before the reading.
func at(ago time.Duration) func(*store.EventRow, *Enquiry) {
	return func(r *store.EventRow, _ *Enquiry) { r.AcceptedAt = t0.Add(-ago) }
}

// item makes an event one of an album: message n of it.
func item(n int, ago time.Duration, files ...string) func(*store.EventRow, *Enquiry) {
	return func(r *store.EventRow, e *Enquiry) {
		r.DealKey, r.AcceptedAt = "album", t0.Add(-ago)
		r.ContentID = fmt.Sprintf("m/%d", n)
		e.Group, e.Message = "album", fmt.Sprint(n)
		for _, f := range files {
			e.Files = append(e.Files, File{Kind: "photo", ID: f})
		}
	}
}

// edit makes an event an edit of message n.
func edit(n int, rev string) func(*store.EventRow, *Enquiry) {
	return func(r *store.EventRow, e *Enquiry) {
		r.ContentID, r.DealKey, r.ContentRev = fmt.Sprintf("m/%d", n), fmt.Sprintf("m/%d", n), rev
		e.Edited, e.EditedAt = true, t0.Add(time.Duration(len(rev))*time.Second)
	}
}

// before is an event that was planned, and what it made.
func before(ev store.EventRow, ops ...string) store.Handled {
	ev.State = store.EventPlanned
	return store.Handled{EventRow: ev, Operations: ops}
}

// dealOf is a deal that message n has opened, with its create in a state.
func dealOf(n int, st store.State) (store.Deal, store.Operation) {
	id := fmt.Sprintf("d%d", n)
	fields, _ := json.Marshal(crm.Lead{Title: "old"})
	return store.Deal{ID: id, OrderingKey: "k", ContactKey: "c7", Key: fmt.Sprintf("m/%d", n), Generation: 1, State: store.DealOpen, Version: 2,
			CreateOp: "o" + id, LastActivity: t0.Add(-time.Hour), OpenedAt: t0.Add(-time.Hour)},
		store.Operation{ID: "o" + id, Kind: "lead.create", DealID: id, State: st, Version: 5, Fields: fields}
}

func TestContent(t *testing.T) {
	full := func(e Enquiry) (crm.Lead, error) {
		l, err := titled(e)
		for _, f := range e.Files {
			l.Text += f.ID
		}
		return l, err
	}
	day, single := ContinueWithin(24*time.Hour, full), OnePerMessage(full)
	v := func(evs ...store.EventRow) store.KeyView {
		return store.KeyView{Key: "k", Version: 4, Now: t0, Events: evs}
	}
	with := func(v store.KeyView, n int, st store.State, h ...store.Handled) store.KeyView {
		d, o := dealOf(n, st)
		v.Deals, v.Operations, v.Handled = append(v.Deals, d), append(v.Operations, o), h
		return v
	}
	press := func(id int64, ago time.Duration) store.EventRow {
		return event(id, "buy", func(r *store.EventRow, _ *Enquiry) { r.RepeatKey, r.AcceptedAt = "press", t0.Add(-ago) })
	}
	doubted := func(v store.KeyView) store.KeyView {
		v.Operations[0].Doubt = true
		return v
	}
	for _, c := range []struct {
		name string
		v    store.KeyView
		rule Rule
		want string
	}{
		{"an album waits for its other items", v(event(1, "a", item(1, time.Second))), day,
			"event 1 gathering an album: its other items may follow (1s)"},
		{"it waits anew for each, and holds what comes after", v(event(1, "a", item(1, 3*time.Second)), event(2, "hi", at(time.Second)), event(3, "", item(2, time.Second/2))), day,
			"event 1 gathering an album: its other items may follow (1.5s)"},
		{"while it waits nothing is written", v(event(1, "a", item(1, time.Second), func(r *store.EventRow, _ *Enquiry) {
			r.State, r.DueAt = store.EventGathering, t0.Add(time.Second)
		}), event(2, "", item(2, 0))), day, ""},
		{"but not for ever", v(event(1, "a", item(1, 9500*time.Millisecond)), event(3, "", item(2, time.Second/2))), day,
			"event 1 gathering an album: its other items may follow (500ms)"},
		{"its items are one enquiry, in the order of their numbers", v(event(1, "", item(3, 5*time.Second, "C")), event(20, "late", at(4*time.Second)), event(3, "b", item(1, 4*time.Second, "A")), event(4, "", item(2, 3*time.Second, "B"))), day,
			"event 1 planned\nevent 3 planned\nevent 4 planned\nevent 20 planned\nlead.create {\"title\":\"b\",\"text\":\"ABC\"}\nnote.add NOTE blocked\nlinks 4"},
		{"an item that came twice is gathered once", v(event(1, "a", item(1, 5*time.Second, "A")), event(3, "a", item(1, 4*time.Second, "A"))), day,
			"event 1 planned\nevent 3 planned\nlead.create {\"title\":\"a\",\"text\":\"A\"}\nlinks 2"},
		{"a late item is a note of its album", func() store.KeyView {
			x := with(v(event(9, "c", item(3, 3*time.Second))), 1, store.Done)
			x.Deals[0].Key = "album"
			return x
		}(), single, "event 9 planned\nnote.add NOTE\nlinks 1"},
		{"another person's items are another album", v(event(1, "a", item(1, 5*time.Second)), event(2, "b", item(2, 5*time.Second), func(r *store.EventRow, _ *Enquiry) { r.ContactKey, r.DealKey = "c8", "album8" })), single,
			"event 1 planned\nevent 2 planned\nlead.create {\"title\":\"a\"}\nlead.create {\"title\":\"b\"}\nlinks 2"},

		{"an edit before sending replaces the text", with(v(event(9, "new", edit(1, "x"))), 1, store.Pending, before(event(1, "old"), "od1")), day,
			"event 9 planned\nedit {\"title\":\"new\"}\nlinks 1"},
		{"the last of several edits stands", with(v(event(9, "new", edit(1, "x")), event(10, "newer", edit(1, "xx"))), 1, store.Pending, before(event(1, "old"), "od1")), day,
			"event 9 planned\nevent 10 planned\nedit {\"title\":\"newer\"}\nlinks 2"},
		{"an edit that was overtaken by a later one adds nothing", with(v(event(9, "new", edit(1, "x"))), 1, store.Pending, before(event(1, "old"), "od1"), before(event(8, "newer", edit(1, "xx")), "od1")), day,
			"event 9 ignored a later edit of it was handled already"},
		{"an edit of what failed replaces its fields", with(v(event(9, "new", edit(1, "x"))), 1, store.Failed, before(event(1, "old"), "od1")), day,
			"event 9 planned\nedit {\"title\":\"new\"}\nlinks 1"},
		{"what may be in the CRM is not edited but noted", doubted(with(v(event(9, "new", edit(1, "x"))), 1, store.Pending, before(event(1, "old"), "od1"))), day,
			"event 9 planned\nnote.add NOTE blocked\nlinks 1"},
		{"an edit after sending is a note", with(v(event(9, "new", edit(1, "x"))), 1, store.Done, before(event(1, "old"), "od1")), single,
			"event 9 planned\nnote.add NOTE\nlinks 1"},
		{"an edit of a canceled deal adds nothing", with(v(event(9, "new", edit(1, "x"))), 1, store.Canceled, before(event(1, "old"), "od1")), day,
			"event 9 ignored its deal was canceled"},
		{"an edit of what belongs to a closed deal adds nothing", func() store.KeyView {
			x := with(v(event(9, "new", edit(1, "x"))), 1, store.Done, before(event(1, "old"), "od1"))
			x.Deals[0].State = store.DealClosed
			return x
		}(), day, "event 9 ignored its deal is closed"},
		{"an edit into what the rule would ignore is a note, also before sending", with(v(event(9, "/stop", edit(1, "x"))), 1, store.Pending, before(event(1, "old"), "od1")), day,
			"event 9 planned\nnote.add NOTE blocked\nlinks 1"},
		{"an edit that asks nothing adds nothing", with(v(event(9, "old", edit(1, "x"), func(_ *store.EventRow, e *Enquiry) { e.Asks = false })), 1, store.Done, before(event(1, "old"), "od1")), day,
			"event 9 ignored it changes nothing that was asked"},
		{"a late item is a note even where the rule would not take it alone", func() store.KeyView {
			x := with(v(event(9, "c", item(3, 3*time.Second))), 1, store.Done)
			x.Deals[0].Key = "album"
			return x
		}(), Only(single, Command("/order")), "event 9 planned\nnote.add NOTE\nlinks 1"},
		{"an edit in the same plan changes what is not stored yet", v(event(1, "old"), event(9, "new", edit(1, "x"))), day,
			"event 1 planned\nevent 9 planned\nlead.create {\"title\":\"new\"}\nlinks 2"},
		{"an edit of one item keeps the others", with(v(event(9, "new", edit(2, "x"))), 1, store.Pending,
			before(event(1, "a", item(1, time.Hour, "A")), "od1"), before(event(2, "old", item(2, time.Hour, "B")), "od1")), day,
			"event 9 planned\nedit {\"title\":\"a\\nnew\",\"text\":\"A\"}\nlinks 1"},
		{"an edit whose original was never seen is the message", v(event(9, "new", edit(1, "x"))), day,
			"event 9 planned\nlead.create {\"title\":\"new\"}\nlinks 1"},
		{"the original that comes after its edit adds nothing", v(event(9, "new", edit(1, "x")), event(10, "old", func(r *store.EventRow, _ *Enquiry) { r.ContentID, r.DealKey = "m/1", "m/1" })), day,
			"event 9 planned\nevent 10 ignored a later edit of it was handled already\nlead.create {\"title\":\"new\"}\nlinks 1"},

		{"the same button again is the same press", v(press(1, 3*time.Second), press(2, time.Second)), single,
			"event 1 planned\nevent 2 ignored the same button, pressed again\nlead.create {\"title\":\"buy\"}\nlinks 1"},
		{"after the window it is another one", v(press(1, 70*time.Second), press(2, time.Second)), single,
			"event 1 planned\nevent 2 planned\nlead.create {\"title\":\"buy\"}\nlead.create {\"title\":\"buy\"}\nlinks 2"},
		{"the same message under another update id adds nothing, even where it was a note", with(v(event(9, "hi", func(r *store.EventRow, _ *Enquiry) { r.ContentID, r.DealKey = "m/3", "m/3" })), 1, store.Done, before(event(3, "hi"), "n1")), single,
			"event 9 ignored the same content was handled already"},
		{"what was ignored before is asked about again", with(v(event(9, "hi", func(r *store.EventRow, _ *Enquiry) { r.ContentID, r.DealKey = "m/3", "m/3" })), 1, store.Done,
			func() store.Handled { h := before(event(3, "hi")); h.State = store.EventIgnored; return h }()), single,
			"event 9 planned\nlead.create {\"title\":\"hi\"}\nlinks 1"},

		{"one's own phone updates the lead", with(v(event(9, "", func(_ *store.EventRow, e *Enquiry) { e.Phone, e.OwnPhone = "+7", true })), 1, store.Done), day,
			"event 9 planned\nlead.update {\"phone\":\"+7\"}\nlinks 1"},
		{"somebody else's phone is a note", with(v(event(9, "", func(_ *store.EventRow, e *Enquiry) { e.Phone = "+7" })), 1, store.Done), day,
			"event 9 planned\nnote.add NOTE\nlinks 1"},
		{"a group that goes on under another id takes its deals along", v(event(1, "", func(_ *store.EventRow, e *Enquiry) { e.MovedTo = "k2" }), event(2, "hi")), day,
			"event 1 ignored a group goes on under another id: its deals stay\nmerge k → k2"},
		{"also where only the new id tells of it, before what waits", v(event(1, "a", item(1, time.Second)), event(3, "", func(_ *store.EventRow, e *Enquiry) { e.MovedFrom = "k0" })), day,
			"event 3 ignored a group goes on under another id: its deals stay\nmerge k0 → k"},
		{"what comes under a key that was merged goes on", func() store.KeyView { x := v(event(1, "a")); x.MovedTo = "k2"; return x }(), day,
			"event 1 pending → k2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policyOf(c.rule)
			p.quiet, p.gather = 2*time.Second, 10*time.Second
			got, _, _ := plan(c.v, p)
			if s := plansay(got); s != c.want {
				t.Fatalf("got\n%s\nwant\n%s", s, c.want)
			}
		})
	}
}

// bomb is a host's value that can't be written.
type bomb struct{}

func (bomb) MarshalJSON() ([]byte, error) { panic("s3cr3t-token") }

func TestAnEditWhoseLeadPanicsIsTheRulesError(t *testing.T) {
	d, o := dealOf(1, store.Pending)
	v := store.KeyView{Key: "k", Version: 4, Now: t0, Events: []store.EventRow{event(9, "new", edit(1, "x"))}, Deals: []store.Deal{d},
		Operations: []store.Operation{o}, Handled: []store.Handled{before(event(1, "old"), "od1")}}
	rule := OnePerMessage(func(Enquiry) (crm.Lead, error) { return crm.Lead{Fields: map[string]any{"x": bomb{}}}, nil })
	got, failed, _ := plan(v, policyOf(rule))
	if s := plansay(got); s != "event 9 pending rule: its decision can't be read: panic of string" || len(failed) != 1 {
		t.Fatal(s)
	}
}

// A note that waits behind a failed create is edited, and moved to the next deal, by one plan, in either order.
func TestEditedAndMoved(t *testing.T) {
	for _, c := range []struct {
		name string
		evs  []store.EventRow
		want string
	}{
		{"edited and then moved", []store.EventRow{event(8, "new", edit(3, "x")), event(9, "hi")}, "new"},
		{"moved and then edited", []store.EventRow{event(9, "hi"), event(10, "new", edit(3, "x"))}, "✎ new"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, o := dealOf(1, store.Failed)
			fields, _ := json.Marshal(crm.Note{Text: "old", Ref: "r"})
			note := store.Operation{ID: "n3", Kind: "note.add", DealID: "d1", DependsOn: o.ID, Blocked: true, State: store.Pending, Version: 2, Fields: fields}
			v := store.KeyView{Key: "k", Version: 4, Now: t0, Events: c.evs, Deals: []store.Deal{d}, Operations: []store.Operation{o, note},
				Handled: []store.Handled{before(event(3, "old"), "n3")}}
			got, _, _ := plan(v, policyOf(ContinueWithin(24*time.Hour, titled)))
			if len(got.Edits) != 0 || len(got.Drops) != 1 || got.Drops[0].OperationID != "n3" {
				t.Fatalf("%d edits, drops %+v: what is dropped is not edited", len(got.Edits), got.Drops)
			}
			var texts []string
			for _, op := range got.Operations {
				var n crm.Note
				if op.Kind == "note.add" && json.Unmarshal(op.Fields, &n) == nil {
					texts = append(texts, n.Text)
				}
			}
			if !strings.Contains(strings.Join(texts, "; "), c.want) {
				t.Fatalf("notes %q, want %q among them", texts, c.want)
			}
		})
	}
}

// plansay writes a plan with what it waits for, edits, links and moves.
func plansay(p store.Plan) string {
	var b []string
	for _, e := range p.Events {
		s := strings.TrimSpace(fmt.Sprintf("event %d %s %s", e.ID, e.State, e.Reason))
		if e.State == store.EventGathering || e.State == store.EventWaiting {
			s += fmt.Sprintf(" (%v)", e.Retry)
		}
		if e.MoveTo != "" {
			s += " → " + e.MoveTo
		}
		b = append(b, s)
	}
	for _, o := range p.Operations {
		fields := string(o.Fields)
		if o.Kind == "note.add" {
			fields = "NOTE"
		}
		b = append(b, strings.TrimSpace(fmt.Sprintf("%s %s %s", o.Kind, fields, map[bool]string{true: "blocked"}[o.Blocked])))
	}
	for _, e := range p.Edits {
		b = append(b, "edit "+string(e.Fields))
	}
	for _, m := range p.Stages {
		b = append(b, strings.TrimSpace(fmt.Sprintf("stage %s v%d %s", m.Stage, m.StageVersion, m.State)))
	}
	if n := len(p.Links); n > 0 {
		b = append(b, fmt.Sprintf("links %d", n))
	}
	if p.Merge != nil {
		b = append(b, "merge "+p.Merge.From+" → "+p.Merge.To)
	}
	return strings.Join(b, "\n")
}
