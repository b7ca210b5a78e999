// Package crmtest has two things to test with: a [Simulator], a CRM that keeps a guarantee, fails on demand and counts every
// effect by operation id; and [Contract], which proves that an adapter keeps what it declares.
//
// It owns no policy: what follows from an outcome is the business of package dedup. Nothing here is for production.
//
// The simulator is for code that uses an adapter:
//
//	sim := crmtest.NewSimulator(crmtest.Config{Guarantee: crm.Guarantee{Kind: crm.UniqueID}})
//	sim.Next(1, crmtest.Fault{Kind: crmtest.LoseReply, On: crm.KindCreate})
//	a := sim.Local()                        // an adapter, in process, fit for testing/synctest
//	_, err := a.CreateLead(ctx, op, lead)   // the record was made, and the answer was lost
//	id, err := a.CreateLead(ctx, op, lead)  // the same record
//	fmt.Println(id, sim.Created(op.ID))     // lead-1 1
//
// [Simulator.Start] serves the same CRM on loopback, [Simulator.Adapter] talks to it there, and [NewClient] does from
// another process.
//
// The contract is for those who write an adapter. It takes the CRM or a stand-in for it, breaks the connection between the
// two in every way that it knows, and looks at what was sent and what the adapter said:
//
//	func TestMyCRM(t *testing.T) {
//		shop := newFakeShop() // an http.Handler
//		crmtest.Contract(t, crmtest.Subject{
//			CRM:     shop,
//			Adapter: func(base string) crm.Adapter { return myCRM{base, crmhttp.New(nil)} },
//			Created: shop.created, // leads made for an operation id
//		})
//	}
package crmtest
