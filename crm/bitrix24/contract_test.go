package bitrix24_test

import (
	"testing"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/bitrix24"
	"github.com/leadonce/leadonce/crm/crmtest"
)

// contract_test.go: the suite that every adapter passes, against the portal of fake_test.go.

func TestContract(t *testing.T) {
	for _, entity := range []bitrix24.Entity{bitrix24.Lead, bitrix24.Deal} {
		t.Run(entity.String(), func(t *testing.T) {
			p := &portal{}
			crmtest.Contract(t, crmtest.Subject{
				CRM:     p,
				Created: p.created,
				Adapter: func(base string) crm.Adapter {
					a, err := bitrix24.New(base+hookPath, &bitrix24.Options{Entity: entity})
					if err != nil {
						t.Fatal(err)
					}
					return a
				},
				Lead: lead,
			})
		})
	}
}
