package bitrix24

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// change.go: what is added to an item that exists. Bitrix24 has no version guard ("crm.item.update"): an item is read first,
// and only what is missing is written, so that a repeat finds nothing left to do.

// AddNote adds a comment to the item's timeline. A note's Ref is its last line.
func (a *Adapter) AddNote(ctx context.Context, _ crm.Op, leadID string, n crm.Note) (string, error) {
	id, err := strconv.ParseInt(leadID, 10, 64)
	if err != nil || id <= 0 {
		return "", crm.Rejected(errors.New("bitrix24: the lead's id is not a number, as Bitrix24's are"))
	}
	text := n.Text
	if n.Ref != "" {
		text += "\n(" + n.Ref + ")"
	}
	var comment any
	err = a.call(ctx, methodComment, map[string]any{
		"fields": map[string]any{"ENTITY_ID": id, "ENTITY_TYPE": a.o.Entity.String(), "COMMENT": text},
	}, &comment)
	if err != nil {
		return "", err
	}
	if crmhttp.ID(comment) == "" {
		return "", fmt.Errorf("bitrix24: %s: no id came back", methodComment)
	}
	return crmhttp.ID(comment), nil
}

// UpdateLead changes the fields that are not zero in u. A phone, mail address or Telegram name is added to those that the
// lead has; text (in a deal those, too) is added to the comments, unless it stands there already.
func (a *Adapter) UpdateLead(ctx context.Context, _ crm.Op, leadID string, u crm.Lead) error {
	f := item{}
	if err := errors.Join(a.mapLead(f, u), merge(f, u.Fields)); err != nil {
		return crm.Rejected(fmt.Errorf("bitrix24: %s: %w", methodUpdate, err))
	}
	original, err := naming(f)
	if err != nil {
		return crm.Rejected(fmt.Errorf("bitrix24: %s: %w", methodUpdate, err))
	}
	id, current, err := a.read(ctx, leadID)
	if err != nil {
		return err
	}
	if a.o.Entity == Lead {
		if fm := missing(current, multi(u)); len(fm) > 0 {
			f["fm"] = fm
		}
	}
	text := crmhttp.ID(current["comments"])
	_, own := f["comments"] // the host's Fields win
	for _, piece := range a.comments(u) {
		if !own && !strings.Contains(text, piece) {
			text = strings.TrimPrefix(text+"\n"+piece, "\n")
			f["comments"] = text
		}
	}
	if len(f) == 0 {
		return nil
	}
	return a.update(ctx, params{EntityTypeID: a.o.Entity, ID: id, Fields: f, Original: yes(original)})
}

// missing returns the multi-fields that the item does not have, under the keys that add a value (n0, n1, …).
func missing(current item, want []item) item {
	have, _ := current["fm"].([]any)
	fm := item{}
	for _, w := range want {
		known := slices.ContainsFunc(have, func(h any) bool {
			m, _ := h.(map[string]any)
			return m["typeId"] == w["typeId"] && m["value"] == w["value"]
		})
		if !known {
			fm["n"+strconv.Itoa(len(fm))] = w
		}
	}
	return fm
}

func (a *Adapter) update(ctx context.Context, p params) error {
	var got one
	if err := a.call(ctx, methodUpdate, p, &got); err != nil {
		return err
	}
	if crmhttp.ID(got.Item["id"]) != strconv.FormatInt(p.ID, 10) {
		return fmt.Errorf("bitrix24: %s: another item came back", methodUpdate)
	}
	return nil
}
