package sqlstore

import (
	"fmt"
	"time"

	"github.com/leadonce/leadonce/store"
)

// adopt.go: what is stored of a lead that was in the CRM before.

// ValidAdoption checks what is known of the lead. The error wraps store.ErrInvalid.
func ValidAdoption(a store.Adoption, now time.Time) error {
	if a.CRMID == "" {
		return fmt.Errorf("%w: Adoption.CRMID is empty", store.ErrInvalid)
	}
	for _, f := range []struct {
		name string
		age  time.Duration
	}{{"Opened", a.Opened}, {"Idle", a.Idle}} {
		if f.age < 0 {
			return fmt.Errorf("%w: Adoption.%s is negative", store.ErrInvalid, f.name)
		}
		if Micros(now.Add(-f.age)) <= 0 {
			return fmt.Errorf("%w: Adoption.%s is %v, which is before 1970", store.ErrInvalid, f.name, f.age)
		}
	}
	return nil
}

// AdoptDeal returns the row of d, which stands in the CRM as a says; the rest is NewDeal's.
func AdoptDeal(d store.Deal, a store.Adoption, now time.Time) (*Deal, error) {
	r, err := NewDeal(d, now)
	if err != nil {
		return nil, err
	}
	r.CRMID, r.Stage = Clean(a.CRMID), Clean(a.Stage)
	if r.Stage != "" { // so it stands now: what is older is late
		r.StageAt = Micros(now)
	}
	r.OpenedAt, r.LastActivity = Micros(now.Add(-a.Opened)), Micros(now.Add(-a.Idle))
	return r, nil
}

// AdoptOperation returns the operation that would have created the lead, as one that is done: nothing is sent.
func AdoptOperation(o store.Operation, a store.Adoption, now time.Time) (store.Operation, error) {
	n, err := NewOperation(o, false, now)
	if err != nil {
		return o, err
	}
	n.State, n.EndedAt, n.CRMID = store.Done, now, Clean(a.CRMID)
	n.LeadID = n.CRMID
	return n, nil
}
