package bitrix24

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// stage.go: where an item stands, and how it is moved.

// SetStage moves the item to s.To, unless it is there already or in none of s.From. Between the reading and the writing a
// manager can still move it: Bitrix24 offers nothing against that.
func (a *Adapter) SetStage(ctx context.Context, _ crm.Op, leadID string, s crm.Stage) error {
	if s.To == "" {
		return crm.Rejected(errors.New("bitrix24: the stage to move to is empty"))
	}
	id, current, err := a.read(ctx, leadID)
	if err != nil {
		return err
	}
	at, err := stageOf(current)
	if err != nil {
		return err
	}
	if at == s.To || len(s.From) > 0 && !slices.Contains(s.From, at) {
		return nil
	}
	return a.update(ctx, params{EntityTypeID: a.o.Entity, ID: id, Fields: item{"stageId": s.To}})
}

// ReadStage reads the item's stageId with crm.item.get. At is its updatedTime, and Version the same in milliseconds; Closed
// means that the stage's group is "successful" or "unsuccessful". See the package's doc for what the two times are worth.
func (a *Adapter) ReadStage(ctx context.Context, _ crm.Op, leadID string) (crm.StageState, error) {
	_, current, err := a.read(ctx, leadID)
	if err != nil {
		return crm.StageState{}, err
	}
	stage, err := stageOf(current)
	if err != nil {
		return crm.StageState{}, err
	}
	over, err := closed(current)
	if err != nil {
		return crm.StageState{}, err
	}
	at, err := time.Parse(time.RFC3339, crmhttp.ID(current["updatedTime"]))
	if err != nil || at.UnixMilli() <= 0 { // err quotes what it could not read
		return crm.StageState{}, undocumented("no time of its last change")
	}
	return crm.StageState{Stage: stage, Version: at.UnixMilli(), At: at.UTC(), Closed: over}, nil
}

func stageOf(it item) (string, error) {
	stage := crmhttp.ID(it["stageId"])
	if stage == "" {
		return "", undocumented("no stage")
	}
	return stage, nil
}

// closed goes by the group of the stage, because every pipeline has stages of its own, and a portal may add some: CONVERTED
// and JUNK are only the names of a lead's last ones that come with Bitrix24. A deal also says it itself.
func closed(it item) (bool, error) {
	switch crmhttp.ID(it["stageSemanticId"]) {
	case "P":
		return false, nil
	case "S", "F":
		return true, nil
	}
	switch crmhttp.ID(it["closed"]) { // of a deal only
	case "N":
		return false, nil
	case "Y":
		return true, nil
	}
	return false, undocumented("no group of its stage")
}

// undocumented is an item that lacks what its documentation lists. It was only read: nothing has been changed.
func undocumented(lacks string) error {
	return crm.NotApplied(fmt.Errorf("bitrix24: %s: the item has %s", methodGet, lacks), 0)
}
