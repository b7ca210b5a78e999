package bitrix24

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// lead.go: making an item, finding it again, and asking whether the portal answers.

// params are the parameters of crm.item.* methods.
type params struct {
	EntityTypeID Entity   `json:"entityTypeId"`
	ID           int64    `json:"id,omitempty"`
	Fields       item     `json:"fields,omitempty"`
	Original     string   `json:"useOriginalUfNames,omitempty"`
	Filter       item     `json:"filter,omitempty"`
	Select       []string `json:"select,omitempty"`
}

type one struct {
	Item item `json:"item"`
}

func yes(b bool) string {
	if b {
		return "Y"
	}
	return ""
}

// CreateLead makes a lead or deal with crm.item.add and returns its id. Its errors are marked as the package's doc says.
func (a *Adapter) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	f, original, err := a.fields(op, l)
	if err != nil {
		return "", crm.Rejected(fmt.Errorf("bitrix24: %s: %w", methodAdd, err))
	}
	var got one
	if err := a.call(ctx, methodAdd, params{EntityTypeID: a.o.Entity, Fields: f, Original: yes(original)}, &got); err != nil {
		return "", err
	}
	id := crmhttp.ID(got.Item["id"])
	if n, err := strconv.ParseInt(id, 10, 64); err != nil || n <= 0 {
		return "", fmt.Errorf("bitrix24: %s: the item that came back has no id", methodAdd)
	}
	a.compare(ctx, op, id, f, got.Item)
	return id, nil
}

// compare warns of what Bitrix24 ignored. The item exists, so this is no error.
func (a *Adapter) compare(ctx context.Context, op crm.Op, id string, sent, got item) {
	log := a.log.With("crm", "bitrix24 "+a.host, "operation_id", op.ID, "crm_id", id)
	if crmhttp.ID(got["originId"]) != op.ID || crmhttp.ID(got["originatorId"]) != a.o.Originator {
		log.WarnContext(ctx, "the new item does not carry its reference: look-ups will not find it")
	}
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		if _, ok := got[name]; !ok && name != "fm" { // fm is no field of the item, and may be left out
			log.WarnContext(ctx, "the new item lacks a field that was sent; is its name right?", "field", name)
		}
	}
}

// FindLead returns the ids of the items that carry op.ID as originId, by crm.item.list with an exact filter. Items that the
// webhook's user may not read are not found.
func (a *Adapter) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	var got struct {
		Items []item `json:"items"`
	}
	err := a.call(ctx, methodList, params{
		EntityTypeID: a.o.Entity,
		Filter:       item{"=originatorId": a.o.Originator, "=originId": op.ID},
		Select:       []string{"id", "originatorId", "originId"},
	}, &got)
	if err != nil {
		return nil, err
	}
	if got.Items == nil {
		return nil, fmt.Errorf("bitrix24: %s: the result has no items", methodList)
	}
	var ids []string
	for _, it := range got.Items {
		// MySQL compares without case, and a filter that was not understood would list everything.
		if crmhttp.ID(it["originId"]) != op.ID || crmhttp.ID(it["originatorId"]) != a.o.Originator {
			continue
		}
		id := crmhttp.ID(it["id"])
		if id == "" {
			return nil, fmt.Errorf("bitrix24: %s: an item has no id", methodList)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Check looks for an operation that does not exist. It fails where the webhook is refused, lacks the scope crm, or may not
// filter by the reference.
func (a *Adapter) Check(ctx context.Context) error {
	_, err := a.FindLead(ctx, crm.Op{ID: "00000000-0000-0000-0000-000000000000"})
	return err
}

// read fetches an item. Nothing has been changed when it fails, so its caller's operation was not applied.
func (a *Adapter) read(ctx context.Context, leadID string) (id int64, it item, err error) {
	id, err = strconv.ParseInt(leadID, 10, 64)
	if err != nil || id <= 0 {
		return 0, nil, crm.Rejected(errors.New("bitrix24: the lead's id is not a number, as Bitrix24's are"))
	}
	var got one
	if err := a.call(ctx, methodGet, params{EntityTypeID: a.o.Entity, ID: id}, &got); err != nil {
		if o, _ := crm.OutcomeOf(err); o == crm.OutcomeUnknown {
			err = crm.NotApplied(err, 0)
		}
		return 0, nil, err
	}
	if crmhttp.ID(got.Item["id"]) != strconv.FormatInt(id, 10) {
		return 0, nil, crm.NotApplied(fmt.Errorf("bitrix24: %s: another item came back", methodGet), 0)
	}
	return id, got.Item, nil
}
