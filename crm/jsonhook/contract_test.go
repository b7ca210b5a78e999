package jsonhook_test

import (
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmtest"
	"github.com/leadonce/leadonce/crm/jsonhook"
)

// contract_test.go: the suite that every adapter passes, against the receiver of example_test.go.

func TestContract(t *testing.T) {
	// Without stages: that a lead in none of From is left alone is the receiver's part here. hook_test.go shows what it is sent.
	all := []crm.Kind{crm.KindNote, crm.KindUpdate}
	for name, o := range map[string]jsonhook.Options{
		"a create and nothing else": {},
		"a unique operation id": {Calls: all, Guarantee: crm.Guarantee{Kind: crm.UniqueID},
			LookupURL: "/find", LookupReadsOwnWrites: true},
		"an idempotency key": {Calls: all, Guarantee: crm.Guarantee{Kind: crm.IdempotencyKey, Window: time.Hour}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newReceiver()
			crmtest.Contract(t, crmtest.Subject{
				CRM:     s,
				Created: s.created,
				Adapter: func(base string) crm.Adapter {
					o.Secret = secret
					if o.LookupURL != "" {
						o.LookupURL = base + "/find"
					}
					a, err := jsonhook.New(base+"/leads", &o)
					if err != nil {
						t.Fatal(err)
					}
					return a
				},
			})
		})
	}
}
