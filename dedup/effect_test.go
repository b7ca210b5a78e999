package dedup

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// effect_test.go: what a decision becomes, and what a CRM's hook does, at the level of one plan.

type ruleFunc func(e Enquiry, h History) (Decision, error)

func (f ruleFunc) Decide(e Enquiry, h History) (Decision, error) { return f(e, h) }
func (f ruleFunc) Kinds() []crm.Kind                             { return nil }

func all(crm.Kind) bool { return true }

func without(kinds ...crm.Kind) func(crm.Kind) bool {
	return func(k crm.Kind) bool {
		for _, x := range kinds {
			if x == k {
				return false
			}
		}
		return true
	}
}

func TestEffects(t *testing.T) {
	single := OnePerMessage(titled)
	base := func(evs ...store.EventRow) store.KeyView {
		return store.KeyView{Key: "k", Version: 4, Now: t0, Events: evs}
	}
	done := func(v store.KeyView) store.KeyView {
		d, o := dealOf(1, store.Done)
		d.CRMID = "77"
		v.Deals, v.Operations = append(v.Deals, d), append(v.Operations, o)
		return v
	}
	failed := func(v store.KeyView) store.KeyView {
		d, o := dealOf(1, store.Failed)
		v.Deals, v.Operations = append(v.Deals, d), append(v.Operations, o)
		return v
	}
	does := func(effects ...Effect) Rule {
		return ruleFunc(func(Enquiry, History) (Decision, error) { return Decision{Effects: effects}, nil })
	}
	photo := func(_ *store.EventRow, e *Enquiry) { e.Files = []File{{Kind: "photo", ID: "F1"}} }
	for _, c := range []struct {
		name     string
		v        store.KeyView
		rule     Rule
		supports func(crm.Kind) bool
		want     string
	}{
		{"a deal goes ahead without its contact, which is linked later", base(event(1, "hi")), single, all,
			`event 1 planned
lead.create {"title":"hi"}
contact.ensure {"external_id":"7","name":"Ann"}
contact.link {} blocked
links 3`},
		{"the contact is made once for two deals", base(event(1, "a"), event(2, "b")), single, all,
			`event 1 planned
event 2 planned
lead.create {"title":"a"}
contact.ensure {"external_id":"7","name":"Ann"}
contact.link {} blocked
lead.create {"title":"b"}
contact.link {} blocked
links 6`},
		{"a contact that is known is in the lead", func() store.KeyView {
			v := base(event(1, "hi"))
			v.Contacts = []store.Contact{{Key: "c7", CRMID: "500"}}
			return v
		}(), single, all, "event 1 planned\nlead.create {\"title\":\"hi\",\"contact_id\":\"500\"}\nlinks 1"},
		{"a CRM that can't update gets no link", base(event(1, "hi")), single, without(crm.KindLink),
			"event 1 planned\nlead.create {\"title\":\"hi\"}\ncontact.ensure {\"external_id\":\"7\",\"name\":\"Ann\"}\nlinks 2"},
		{"a file is an operation of its own, without a URL", base(event(1, "hi", photo)), single, without(crm.KindContact),
			"event 1 planned\nlead.create {\"title\":\"hi\"}\nfile.add {\"source\":\"telegram\",\"bot\":\"1\",\"kind\":\"photo\",\"id\":\"F1\"} blocked\nlinks 2"},
		{"an update is a note where the CRM can't", done(base(event(9, "x"))), does(Update{DealID: "d1", Lead: crm.Lead{Phone: "+7"}}), without(crm.KindUpdate),
			"event 9 planned\nnote.add NOTE\nlinks 1"},
		{"several effects are operations of their own", done(base(event(9, "x"))),
			does(Note{"d1", "a"}, Note{"d1", "b"}, SetStage{"d1", "CALL", []string{"NEW"}}, Open{Lead: crm.Lead{Title: "t"}}), without(crm.KindContact),
			"event 9 planned\nnote.add NOTE\nnote.add NOTE\nstage.set {\"to\":\"CALL\",\"from\":[\"NEW\"]}\nlead.create {\"title\":\"t\"}\nlinks 4"},
		{"a stage is not set without saying what it may leave", done(base(event(9, "x"))), does(SetStage{DealID: "d1", To: "CALL"}), all,
			"event 9 pending rule: SetStage of deal d1 has to name To, and in From the stages that may be left: without them it could undo what a manager decided"},
		{"nothing is added to a deal whose create failed, whatever the rule says", failed(base(event(9, "x"))), does(Note{"d1", "a"}), all,
			"event 9 pending rule: deal d1 can't be continued: open, create failed"},
		{"a deal is closed by the host", done(base(event(9, "x"))), does(Close{"d1"}), all, "event 9 planned\nstage  v0 closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policyOf(c.rule)
			p.supports = c.supports
			got, _, _ := plan(c.v, p)
			if s := plansay(got); s != c.want {
				t.Fatalf("got\n%s\nwant\n%s", s, c.want)
			}
		})
	}
}

func TestStage(t *testing.T) {
	own := OrderingKey("", "hook", "", "lead", "77")
	hook := func(id int64, c StageChange, change ...func(*store.EventRow, *Enquiry)) store.EventRow {
		c.LeadID = "77"
		return event(id, "", append([]func(*store.EventRow, *Enquiry){func(r *store.EventRow, e *Enquiry) {
			r.ContactKey, r.LeadRef, r.Source, r.AcceptedAt = "", "77", "hook", t0
			*e = Enquiry{Source: "hook", Kind: "stage", Stage: &c}
		}}, change...)...)
	}
	view := func(stage string, version int64, evs ...store.EventRow) store.KeyView {
		d, o := dealOf(1, store.Done)
		d.CRMID, d.Stage, d.StageVersion = "77", stage, version
		return store.KeyView{Key: "k", Version: 4, Now: t0, Events: evs, Deals: []store.Deal{d}, Operations: []store.Operation{o}}
	}
	lost := func(key string, evs ...store.EventRow) store.KeyView {
		return store.KeyView{Key: key, Version: 4, Now: t0, Events: evs}
	}
	homed := func(v store.KeyView) store.KeyView {
		v.Homes = map[string]string{"77": "k7"}
		return v
	}
	timed := func(v store.KeyView, at time.Time) store.KeyView {
		v.Deals[0].StageAt = at
		return v
	}
	ago := func(d time.Duration) func(*store.EventRow, *Enquiry) {
		return func(r *store.EventRow, _ *Enquiry) { r.AcceptedAt = t0.Add(-d) }
	}
	table := map[string][]string{"NEW": {"CALL"}, "CALL": {"WON"}}
	for _, c := range []struct {
		name  string
		v     store.KeyView
		table map[string][]string
		want  string
	}{
		{"a newer version moves the deal", view("NEW", 3, hook(1, StageChange{Stage: "CALL", Version: 4})), nil, "event 1 planned\nstage CALL v4 open"},
		{"an older one is stale", view("CALL", 4, hook(1, StageChange{Stage: "NEW", Version: 3})), nil, "event 1 stale a later stage is known"},
		{"so is the same one", view("CALL", 4, hook(1, StageChange{Stage: "CALL", Version: 4})), nil, "event 1 stale a later stage is known"},
		{"an older version is not let in by the table", view("NEW", 4, hook(1, StageChange{Stage: "CALL", Version: 3})), table, "event 1 stale a later stage is known"},
		{"the later of two in one plan stands", view("NEW", 1, hook(1, StageChange{Stage: "WON", Version: 9, Closed: true}), hook(2, StageChange{Stage: "CALL", Version: 5})), nil,
			"event 1 planned\nevent 2 stale a later stage is known\nstage WON v9 closed"},
		{"one version for two stages is left to the time", timed(view("CALL", 4, hook(1, StageChange{Stage: "WON", Version: 4, At: t0})), t0.Add(-1)), nil, "event 1 planned\nstage WON v4 open"},
		{"and to the table, where there is one", timed(view("WON", 4, hook(1, StageChange{Stage: "CALL", Version: 4, At: t0})), t0.Add(-1)), table, "event 1 stale a later stage is known"},
		{"without a version the table decides", view("NEW", 0, hook(1, StageChange{Stage: "CALL"})), table, "event 1 planned\nstage CALL v0 open"},
		{"and refuses what it does not have", view("WON", 0, hook(1, StageChange{Stage: "NEW"})), table, "event 1 stale a later stage is known"},
		{"without a table the CRM's time decides", timed(view("NEW", 0, hook(1, StageChange{Stage: "CALL", At: t0})), t0.Add(-1)), nil, "event 1 planned\nstage CALL v0 open"},
		{"an earlier time is stale", timed(view("NEW", 0, hook(1, StageChange{Stage: "CALL", At: t0.Add(-1)})), t0), nil, "event 1 stale a later stage is known"},
		{"without anything only the first is taken", view("NEW", 0, hook(1, StageChange{Stage: "CALL"})), nil, "event 1 stale a later stage is known"},
		{"the first is taken", view("", 0, hook(1, StageChange{Stage: "CALL"})), nil, "event 1 planned\nstage CALL v0 open"},
		{"a hint makes the stage be read, and hints are merged", view("NEW", 0, hook(1, StageChange{}), hook(2, StageChange{})), nil,
			"event 1 planned\nevent 2 planned\nstage.read {}\nlinks 2"},
		{"a hint is not merged with a reading that has begun", func() store.KeyView {
			v := view("NEW", 0, hook(1, StageChange{}))
			v.Operations = append(v.Operations, store.Operation{ID: "r", Kind: "stage.read", DealID: "d1", DependsOn: "od1", State: store.Sending, Attempts: 1})
			return v
		}(), nil, "event 1 planned\nstage.read {}\nlinks 1"},
		{"a hook for a lead that is not stored yet waits", lost(own, hook(1, StageChange{Stage: "CALL"}, ago(20*time.Second)), hook(2, StageChange{Stage: "WON"})), nil,
			"event 1 waiting no lead with this id yet (5s)"},
		{"and is not ours after its time", lost(own, hook(1, StageChange{Stage: "CALL"}, ago(time.Hour))), nil, "event 1 ignored not ours: no lead with this id"},
		{"one whose deal is elsewhere goes there", homed(lost(own, hook(1, StageChange{Stage: "CALL"}))), nil, "event 1 pending → k7"},
		{"one whose deal has left does not hold a person's messages", lost("k", hook(1, StageChange{Stage: "CALL"}), event(2, "hi")), nil,
			"event 1 pending → " + own + "\nevent 2 planned\nlead.create {\"title\":\"hi\"}\nlinks 1"},
		{"another tenant's lead with the same id is not touched", lost(own, hook(1, StageChange{Stage: "CALL"}, func(r *store.EventRow, _ *Enquiry) { r.Tenant = "b" })), nil,
			"event 1 pending → " + OrderingKey("b", "hook", "", "lead", "77")},
		{"nor where it stands under the same key", view("NEW", 3, hook(1, StageChange{Stage: "CALL", Version: 4}, func(r *store.EventRow, _ *Enquiry) { r.Tenant = "b" })), nil,
			"event 1 pending → " + OrderingKey("b", "hook", "", "lead", "77")},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policyOf(OnePerMessage(titled))
			p.transitions = c.table
			got, _, _ := plan(c.v, p)
			if s := plansay(got); s != c.want {
				t.Fatalf("got\n%s\nwant\n%s", s, c.want)
			}
		})
	}
	t.Run("a CRM whose stage can't be read says so", func(t *testing.T) {
		p := policyOf(nil)
		p.supports = without(crm.KindRead)
		got, _, _ := plan(view("NEW", 0, hook(1, StageChange{})), p)
		if s := plansay(got); !strings.Contains(s, "ignored the hook names no stage") {
			t.Fatal(s)
		}
	})
}

func TestShadow(t *testing.T) {
	day := ContinueWithin(24*time.Hour, titled)
	shadow := policyOf(day)
	shadow.shadow = true
	v := store.KeyView{Key: "k", Version: 4, Now: t0, Events: []store.EventRow{event(1, "hi"), event(2, "more")}}
	_, _, ask := plan(v, shadow)
	if len(ask) == 0 || !strings.HasPrefix(ask[0], shadowMark) {
		t.Fatalf("a shadow asks for its own deals, not %q", ask)
	}
	got, _, _ := plan(v, shadow, ask...)
	if s := plansay(got); s != "event 1 planned\nevent 2 planned\nshadow:lead.create {\"title\":\"hi\"}\nshadow:note.add {\"text\":\"more\",\"ref\":\""+
		got.Operations[1].ID[:8]+"\"} blocked\nlinks 2" {
		t.Fatal(s)
	}
	t.Run("what a shadow did is not continued afterwards", func(t *testing.T) {
		d, o := got.Deals[0], got.Operations[0]
		d.Version, o.Version, o.State = 1, 1, store.Done
		next := store.KeyView{Key: "k", Version: 5, Now: t0, Events: []store.EventRow{event(3, "again")}, Deals: []store.Deal{d}, Operations: []store.Operation{o}}
		live, _, _ := plan(next, policyOf(day))
		if s := plansay(live); s != "event 3 planned\nlead.create {\"title\":\"again\"}\nlinks 1" {
			t.Fatal(s)
		}
	})
}

func TestOnly(t *testing.T) {
	r := Only(OnePerMessage(titled), Command("/order"), SharedContact, WebAppData)
	for _, c := range []struct {
		name  string
		e     Enquiry
		taken bool
	}{
		{"a command that is named", Enquiry{Command: "/order"}, true},
		{"another command", Enquiry{Command: "/start"}, false},
		{"a contact", Enquiry{Phone: "+7"}, true},
		{"a command in another case", Enquiry{Command: "/Order"}, true},
		{"web-app data", Enquiry{Data: "{}"}, true},
		{"a pressed button", Enquiry{Data: "help", Text: "help"}, false},
		{"a text", Enquiry{Text: "hi"}, false},
	} {
		c.e.HasPerson, c.e.Asks = true, true
		_, err := r.Decide(c.e, History{})
		if ig := (*ignored)(nil); errors.As(err, &ig) == c.taken {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for _, bad := range []Rule{Only(OnePerMessage(titled)), Only(nil, SharedContact), Only(OnePerMessage(titled), nil), Only(OnePerMessage(nil), SharedContact), UntilClosed(-1, titled)} {
		if bad.(interface{ validate() error }).validate() == nil {
			t.Errorf("%#v is accepted", bad)
		}
	}
}

func TestUntilClosed(t *testing.T) {
	r := UntilClosed(0, titled)
	v := func(state store.DealState, idle time.Duration) store.KeyView {
		d, o := dealOf(1, store.Done)
		d.State, d.LastActivity = state, t0.Add(-idle)
		return store.KeyView{Key: "k", Version: 4, Now: t0, Events: []store.EventRow{event(9, "hi")}, Deals: []store.Deal{d}, Operations: []store.Operation{o}}
	}
	for _, c := range []struct {
		name string
		v    store.KeyView
		want string
	}{
		{"an open deal is continued after weeks", v(store.DealOpen, 29*24*time.Hour), "note.add"},
		{"a closed one is not", v(store.DealClosed, time.Minute), "lead.create"},
		{"nor one that nobody wrote about for longer than the fallback", v(store.DealOpen, 31*24*time.Hour), "lead.create"},
	} {
		got, _, _ := plan(c.v, policyOf(r))
		if len(got.Operations) != 1 || got.Operations[0].Kind != c.want {
			t.Errorf("%s: %s", c.name, plansay(got))
		}
	}
}
