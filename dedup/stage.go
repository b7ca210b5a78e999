package dedup

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/store"
)

// stage.go: what a CRM's hook does to a deal. A late one never moves a stage back, a hint makes the stage be read, one about a
// lead that is not stored yet waits for it.

// stage decides a hook's event. It came in under its lead's own ordering key, and goes on under that of the deal.
func (d *draft) stage(ev store.EventRow, e Enquiry) store.EventEnd {
	c := *e.Stage
	end := store.EventEnd{ID: ev.ID, State: store.EventPlanned}
	own := OrderingKey(ev.Tenant, ev.Source, "", "lead", c.LeadID)
	deals := d.leads(ev.Tenant, c.LeadID)
	age := d.view.Now.Sub(ev.AcceptedAt)
	home := d.view.Homes[c.LeadID]
	switch {
	case len(deals) > 0:
	case age >= d.pol.wait && (home == "" || age >= 2*d.pol.wait):
		end.State, end.Reason = store.EventIgnored, "not ours: no lead with this id"
		return end
	case home != "" && home != d.view.Key:
		end.State, end.MoveTo = store.EventPending, home
		return end
	case d.view.Key != own: // its deal was here a moment ago; here it would hold a person's messages
		end.State, end.MoveTo, end.Retry = store.EventPending, own, waitStep(age)
		return end
	default:
		end.State, end.Reason, end.Retry = store.EventWaiting, "no lead with this id yet", waitStep(age)
		return end
	}
	applied, stale := false, false
	for _, x := range deals {
		switch {
		case c.Stage == "" && !d.pol.supports(crm.KindRead):
			end.State, end.Reason = store.EventIgnored, "the hook names no stage, and the adapter has no "+crm.MethodFor(crm.KindRead)
			return end
		case c.Stage == "":
			d.read(ev, x)
			applied = true
		case d.sameTime(c, x) && ev.Source != readSource && d.pol.supports(crm.KindRead):
			d.read(ev, x) // a CRM that counts in seconds: only it knows which of the two stands
			applied = true
		case d.newer(c, x), d.sameTime(c, x) && ev.Source == readSource:
			d.moveStage(x, c.Stage, c.Version, c.At, closedOr(x, c.Closed))
			applied = true
		default:
			stale = true
		}
	}
	if stale && !applied {
		end.State, end.Reason = store.EventStale, "a later stage is known"
	}
	return end
}

// leads are the deals of this key with an id in the CRM.
func (d *draft) leads(tenant, id string) (list []*store.Deal) {
	for _, x := range d.deals {
		if x.CRMID == id && x.Tenant == tenant {
			list = append(list, x)
		}
	}
	return list
}

// waitStep is how long an event waits that has waited so long.
func waitStep(age time.Duration) time.Duration { return min(max(age/4, time.Second), time.Minute) }

// newer reports whether a change may be applied to a deal: by the CRM's version, without one by the host's table of
// transitions, without that by the CRM's time. What nothing speaks for is late.
func (d *draft) newer(c StageChange, x *store.Deal) bool {
	same := c.Version == x.StageVersion // a CRM that counts in seconds gives two changes one version
	switch {
	case c.Version != 0 && x.StageVersion != 0 && !same:
		return c.Version > x.StageVersion
	case x.Stage == "":
		return true
	case c.Stage == x.Stage && same && c.Version != 0:
		return false
	case d.pol.transitions != nil && (c.Version == 0 || same):
		return slices.Contains(d.pol.transitions[x.Stage], c.Stage)
	case !c.At.IsZero() && !x.StageAt.IsZero():
		return c.At.After(x.StageAt)
	}
	return c.Version != 0 && !same // a version where there was none
}

// sameTime reports whether nothing but an equal time speaks about the order of two stages.
func (d *draft) sameTime(c StageChange, x *store.Deal) bool {
	return c.Version == x.StageVersion && d.pol.transitions == nil && x.Stage != "" && c.Stage != x.Stage && !c.At.IsZero() && c.At.Equal(x.StageAt)
}

// closedOr says what a stage makes of a deal: a lead that was opened again in the CRM is continued again, unless the host's
// key may have opened the next deal meanwhile.
func closedOr(x *store.Deal, closed bool) store.DealState {
	switch {
	case closed:
		return store.DealClosed
	case x.HostKey:
		return x.State
	}
	return store.DealOpen
}

// moveStage moves a deal; of several moves in one plan the last stands.
func (d *draft) moveStage(x *store.Deal, stage string, version int64, at time.Time, st store.DealState) {
	m := store.StageMove{DealID: x.ID, Version: x.Version, Stage: stage, StageVersion: version, StageAt: at, State: st}
	x.Stage, x.StageVersion, x.StageAt, x.State = stage, version, at, st
	for i := range d.plan.Deals { // opened by this very plan
		if d.plan.Deals[i].ID == x.ID {
			d.plan.Deals[i] = *x
			return
		}
	}
	for i := range d.plan.Stages {
		if d.plan.Stages[i].DealID == x.ID {
			d.plan.Stages[i] = m
			return
		}
	}
	d.plan.Stages = append(d.plan.Stages, m)
}

// read makes the stage be read. Hints are merged as long as the reading has not begun: one that has may have seen the state
// before the change.
func (d *draft) read(ev store.EventRow, x *store.Deal) {
	for _, op := range d.ops {
		if op.DealID == x.ID && op.Kind == string(d.kind(crm.KindRead)) && op.State == store.Pending {
			d.link(ev, op.ID)
			return
		}
	}
	d.add(ev, x, crm.KindRead, []byte("{}"), contentOp(d.kind(crm.KindRead), x, ev, 0))
}

// stageEvent is what a reading found, as an event: it is decided like a hook's.
func stageEvent(op store.Operation, st crm.StageState, began time.Time) store.Event {
	// Of two readings under one version (a CRM that counts in seconds) the one that was begun later has seen more: that is
	// our clock. The CRM's time of change is a version where it has no other.
	if st.Version == 0 && !st.At.IsZero() {
		st.Version = st.At.UnixMilli()
	}
	id := "read/" + op.ID + "/" + strconv.FormatInt(op.Fence, 10)
	e := Enquiry{Source: readSource, Tenant: op.Tenant, Kind: "stage", ContentID: id, DealKey: id,
		Stage: &StageChange{LeadID: op.LeadID, Stage: st.Stage, Version: st.Version, At: began, Closed: st.Closed}}
	body, _ := json.Marshal(e)
	return store.Event{Source: readSource, Tenant: op.Tenant, UpdateID: id, Hash: id, Kind: e.Kind, ContentID: id, DealKey: id,
		OrderingKey: OrderingKey(op.Tenant, readSource, "", "lead", op.LeadID), LeadRef: op.LeadID, Payload: body, Enquiry: body}
}

// readSource is the source of stages that were read.
const readSource = "crm"
