// Package storetest is the suite that any implementation of the contract in package store is run against, and a decorator
// that makes calls of a store fail. What a backend promises is tested here and nowhere else; a backend's own tests are about
// its files, its settings and its SQL.
//
// A backend runs the suite by opening one fresh store a check:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Subject {
//			path := filepath.Join(t.TempDir(), "leads.db")
//			clock := newClock()
//			st := open(t, path, clock) // closed by t.Cleanup
//			return storetest.Subject{
//				Backend: st,
//				Advance: clock.Advance,
//				Second:  func() storetest.Backend { return open(t, path, clock) },
//				Reopen:  func() storetest.Backend { st.Close(); return open(t, path, clock) },
//				Corrupt: func(table, id string) error { … },
//				Erase:   func(operationID string) error { … },
//			}
//		})
//	}
//
// Each check is named as a sentence and filed under one concern (accept, submit, plan, claim, advance, …), so that one of
// them is run by its name: go test -run 'TestStore/claim/every_operation_has_one_owner'.
//
// [Fail] wraps a store so that its n-th call fails, before or after its effect. A sweep over n = 0, 1, 2, … until a run
// meets no failure proves that a caller survives the loss of any single call.
package storetest
