package crmtest_test

import (
	"context"
	"fmt"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
)

// A reply is lost after the CRM acted. What a repeat does then depends on what the CRM keeps.
func ExampleSimulator() {
	ctx := context.Background()
	op := crm.Op{ID: "5e1f", Key: "5e1f", Kind: crm.KindCreate}
	lead := crm.Lead{Name: "Анна", Phone: "+7 999 000-00-00"}
	for _, g := range []crm.Guarantee{{}, {Kind: crm.UniqueID}} {
		sim := crmtest.NewSimulator(crmtest.Config{Guarantee: g})
		sim.Next(1, crmtest.Fault{Kind: crmtest.LoseReply, On: crm.KindCreate})
		a := sim.Local()

		_, err := a.CreateLead(ctx, op, lead)
		outcome, _ := crm.OutcomeOf(err)
		ids, _ := a.FindLead(ctx, op)
		fmt.Println(outcome, ids)

		id, err := a.CreateLead(ctx, op, lead)
		fmt.Println(id, err, sim.Created(op.ID))
	}
	// Output:
	// unknown [lead-1]
	// lead-2 <nil> 2
	// unknown [lead-1]
	// lead-1 <nil> 1
}
