package crmtest

import (
	"fmt"

	"github.com/leadonce/leadonce/crm"
)

// hide.go: adapters for a CRM that can do less. What an adapter offers is found by type assertion, so to hide a call is to
// have another type.

// Minimal returns an adapter with CreateLead and nothing else: no look-up, no notes, no declaration.
func (s *Simulator) Minimal() crm.Adapter { return Minimal(s.Local()) }

// Minimal hides everything but CreateLead of a.
func Minimal(a crm.Adapter) crm.Adapter { return minimal{a} }

type minimal struct{ crm.Adapter }

// core is what every one of them keeps.
type core interface {
	crm.Adapter
	crm.Checker
	crm.Describer
}

// Without hides one call of c and keeps every other: KindUpdate, KindNote, KindStage, KindContact, KindRead, or [Find]. It
// panics on another kind.
func Without(c *Client, k crm.Kind) crm.Adapter {
	switch k {
	case crm.KindUpdate:
		return struct {
			core
			crm.Finder
			crm.Noter
			crm.Stager
			crm.StageReader
			crm.Contacter
		}{c, c, c, c, c, c}
	case crm.KindNote:
		return struct {
			core
			crm.Finder
			crm.Updater
			crm.Stager
			crm.StageReader
			crm.Contacter
		}{c, c, c, c, c, c}
	case crm.KindStage:
		return struct {
			core
			crm.Finder
			crm.Updater
			crm.Noter
			crm.StageReader
			crm.Contacter
		}{c, c, c, c, c, c}
	case crm.KindRead:
		return struct {
			core
			crm.Finder
			crm.Updater
			crm.Noter
			crm.Stager
			crm.Contacter
		}{c, c, c, c, c, c}
	case crm.KindContact:
		return struct {
			core
			crm.Finder
			crm.Updater
			crm.Noter
			crm.Stager
			crm.StageReader
		}{c, c, c, c, c, c}
	case Find:
		return struct {
			core
			crm.Updater
			crm.Noter
			crm.Stager
			crm.StageReader
			crm.Contacter
		}{c, c, c, c, c, c}
	}
	panic(fmt.Sprintf("crmtest: Without(%q): no call of that kind can be hidden", k))
}
