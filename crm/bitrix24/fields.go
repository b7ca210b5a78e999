package bitrix24

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/crm"
)

// fields.go: from a crm.Lead to the fields of an item.

// item is what crm.item.* methods take and return. Numbers are json.Number.
type item map[string]any

// fields returns the fields of a new item, and whether custom fields go by their original names (UF_CRM_…).
func (a *Adapter) fields(op crm.Op, l crm.Lead) (f item, original bool, err error) {
	f = item{}
	set := func(name, value string) {
		if value != "" {
			f[name] = value
		}
	}
	set("stageId", a.o.Stage)
	set("sourceId", a.o.Source)
	if a.o.AssignedTo != 0 {
		f["assignedById"] = a.o.AssignedTo
	}
	if a.o.Pipeline != 0 {
		f["categoryId"] = a.o.Pipeline
	}
	if err := merge(f, a.o.Fields); err != nil {
		return nil, false, err
	}
	if err := a.mapLead(f, l); err != nil {
		return nil, false, err
	}
	set("comments", strings.Join(a.comments(l), "\n"))
	if a.o.Entity == Lead {
		if phones := multi(l); len(phones) > 0 {
			f["fm"] = phones
		}
	}
	if err := merge(f, l.Fields); err != nil {
		return nil, false, err
	}
	if original, err = naming(f); err != nil {
		return nil, false, err
	}
	f["originatorId"], f["originId"] = a.o.Originator, op.ID
	return f, original, nil
}

// mapLead sets what a new item and a changed one have in common.
func (a *Adapter) mapLead(f item, l crm.Lead) error {
	for name, value := range map[string]string{"title": l.Title, "utmCampaign": l.Campaign} {
		if value != "" {
			f[name] = value
		}
	}
	if a.o.Entity == Lead && l.Name != "" {
		f["name"] = l.Name
	}
	if l.ContactID != "" {
		id, err := strconv.ParseInt(l.ContactID, 10, 64)
		if err != nil {
			return errors.New("the contact's id is not a number, as Bitrix24's are")
		}
		f["contactId"] = id
	}
	return nil
}

// comments returns the pieces of the comments: a deal has no other place for who is asking.
func (a *Adapter) comments(l crm.Lead) []string {
	var pieces []string
	if a.o.Entity == Deal {
		pieces = append(pieces, l.Name, l.Phone, l.Email)
		if l.Username != "" {
			pieces = append(pieces, "@"+l.Username)
		}
	}
	return slices.DeleteFunc(append(pieces, l.Text), func(s string) bool { return s == "" })
}

// multi returns the multi-fields of a lead ("crm_multifield": TYPE_ID, VALUE_TYPE, VALUE; in crm.item.* in camel case).
func multi(l crm.Lead) []item {
	var fm []item
	for _, m := range []struct{ typeID, valueType, value string }{
		{"PHONE", "WORK", l.Phone}, {"EMAIL", "WORK", l.Email}, {"IM", "TELEGRAM", l.Username},
	} {
		if m.value != "" {
			fm = append(fm, item{"typeId": m.typeID, "valueType": m.valueType, "value": m.value})
		}
	}
	return fm
}

// merge puts the host's own fields over f, under the names that crm.item.* methods use.
func merge(f item, own map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(own)) {
		n := camel(name)
		if n == "originId" || n == "originatorId" {
			return fmt.Errorf("field %s holds the reference that look-ups go by, and is set by the adapter", name)
		}
		f[n] = own[name]
	}
	return nil
}

// camel turns the names of the older methods (UTM_SOURCE, ASSIGNED_BY_ID) into those of crm.item.* (utmSource). Custom
// fields and names that are in camel case already stay as they are.
func camel(name string) string {
	if strings.HasPrefix(name, "UF_") || strings.ToUpper(name) != name {
		return name
	}
	if name == "STATUS_ID" { // of a lead, in the older methods
		return "stageId"
	}
	parts := strings.Split(strings.ToLower(name), "_")
	for i, p := range parts {
		if i > 0 && p != "" {
			parts[i] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// naming reports whether f has custom fields by their original names; one call knows only one way of naming them.
func naming(f item) (original bool, err error) {
	var short bool
	for name := range f {
		original = original || strings.HasPrefix(name, "UF_")
		short = short || strings.HasPrefix(name, "ufCrm")
	}
	if original && short {
		return false, errors.New("custom fields are named both UF_CRM_… and ufCrm…; use one of the two")
	}
	return original, nil
}
