package crmtest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// flaws_stage_test.go: adapters that move leads, or read where they stand, as they should not.

func stageFlaws() []flaw {
	const alone = "SetStage leaves a lead alone that is in none of From"
	const reads = "ReadStage reads what SetStage set"
	const only = "ReadStage only reads"
	const failed = "a reading that fails is an error, not a stage"
	type wrapping func(string, *Client) crm.Adapter
	setting := func(set func(a *Client, ctx context.Context, op crm.Op, id string, s crm.Stage) error) wrapping {
		return func(_ string, a *Client) crm.Adapter {
			return wrong{Client: a, stage: func(ctx context.Context, op crm.Op, id string, s crm.Stage) error {
				return set(a, ctx, op, id, s)
			}}
		}
	}
	reading := func(mend func(crm.StageState, error) (crm.StageState, error)) wrapping {
		return func(_ string, a *Client) crm.Adapter {
			return wrong{Client: a, read: func(ctx context.Context, op crm.Op, id string) (crm.StageState, error) {
				return mend(a.ReadStage(ctx, op, id))
			}}
		}
	}
	var countdown atomic.Int64
	return []flaw{
		{name: "moves a lead from anywhere", only: true, fails: []string{alone},
			wrap: setting(func(a *Client, ctx context.Context, op crm.Op, id string, s crm.Stage) error {
				s.From = nil
				return a.SetStage(ctx, op, id, s)
			})},
		{name: "moves a lead from anywhere, and can't read", only: true, fails: []string{alone},
			wrap: func(_ string, a *Client) crm.Adapter {
				return struct {
					crm.Adapter
					crm.Stager
				}{a, wrong{Client: a, stage: func(ctx context.Context, op crm.Op, id string, s crm.Stage) error {
					s.From = nil
					return a.SetStage(ctx, op, id, s)
				}}}
			}},
		{name: "complains about a manager's decision", only: true, fails: []string{alone},
			wrap: setting(func(a *Client, ctx context.Context, op crm.Op, id string, s crm.Stage) error {
				if slices.Contains(s.From, elsewhere) {
					return crm.Rejected(errors.New("set stage: the lead is elsewhere"))
				}
				return a.SetStage(ctx, op, id, s)
			})},
		{name: "never moves from a given stage", only: true, fails: []string{reads},
			wrap: setting(func(a *Client, ctx context.Context, op crm.Op, id string, s crm.Stage) error {
				if len(s.From) > 0 {
					return nil
				}
				return a.SetStage(ctx, op, id, s)
			})},
		{name: "reads from memory", fails: []string{reads},
			wrap: reading(func(s crm.StageState, err error) (crm.StageState, error) {
				if err == nil {
					s.Stage = "new"
				}
				return s, err
			})},
		{name: "gives versions that shrink", only: true, fails: []string{reads, only},
			wrap: reading(func(s crm.StageState, err error) (crm.StageState, error) {
				if err == nil {
					s.Version = countdown.Add(-1)
				}
				return s, err
			})},
		{name: "gives the time of the reading", only: true, fails: []string{only},
			wrap: reading(func(s crm.StageState, err error) (crm.StageState, error) {
				if err == nil {
					s.At = time.Now()
				}
				return s, err
			})},
		{name: "takes a failed reading for no stage", fails: []string{failed + "/when a bare 502 comes back",
			failed + "/when a page of HTML comes back with 200", "the stage of a lead that does not exist is an error"},
			wrap: reading(func(s crm.StageState, err error) (crm.StageState, error) { return s, nil })},
	}
}
