// Package crmtest has a CRM to test against: a [Simulator] that keeps a guarantee, fails on demand, and counts every effect
// by operation id.
//
//	sim := crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID}})
//	sim.Next(1, crmtest.Fault{Kind: crmtest.LoseReply, On: crm.KindCreate})
//	a := sim.Local()                         // an adapter in process, fit for testing/synctest
//	_, err := a.CreateLead(ctx, op, lead)    // the record was made, and the answer was lost
//	id, err := a.CreateLead(ctx, op, lead)   // the same record
//	fmt.Println(id, sim.Created(op.ID))      // lead-1 1
//
// [Simulator.Start] serves the same CRM on loopback, [Simulator.Adapter] talks to it there, and [NewClient] does from another
// process.
package crmtest
