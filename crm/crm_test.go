package crm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
)

type bare struct{}

func (bare) CreateLead(context.Context, crm.Op, crm.Lead) (string, error) { return "1", nil }

type declared struct {
	bare
	d crm.Description
}

func (a declared) Describe() crm.Description { return a.d }

func TestOutcomeOf(t *testing.T) {
	base := errors.New("x")
	for _, c := range []struct {
		name  string
		err   error
		want  crm.Outcome
		after time.Duration
	}{
		{"an unmarked error is unknown", base, crm.OutcomeUnknown, 0},
		{"a deadline is unknown", context.DeadlineExceeded, crm.OutcomeUnknown, 0},
		{"not applied keeps its wait", fmt.Errorf("wrapped: %w", crm.NotApplied(base, time.Second)), crm.OutcomeNotApplied, time.Second},
		{"a negative wait is none", crm.NotApplied(base, -1), crm.OutcomeNotApplied, 0},
		{"rejected", crm.Rejected(base), crm.OutcomeRejected, 0},
		{"unavailable", crm.Unavailable(base), crm.OutcomeUnavailable, 0},
		{"the outermost mark counts", crm.Rejected(crm.NotApplied(base, 0)), crm.OutcomeRejected, 0},
		{"evidence changes no outcome", crm.WithEvidence(crm.Rejected(base), crm.Evidence{Status: 422}), crm.OutcomeRejected, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, after := crm.OutcomeOf(c.err)
			if got != c.want || after != c.after {
				t.Fatalf("got %v after %v, want %v after %v", got, after, c.want, c.after)
			}
			if c.err != nil && c.err != context.DeadlineExceeded && !errors.Is(c.err, base) {
				t.Fatal("the cause can't be reached any more")
			}
		})
	}
	t.Run("marking nil is nil", func(t *testing.T) {
		if crm.NotApplied(nil, 1) != nil || crm.Rejected(nil) != nil || crm.Unavailable(nil) != nil {
			t.Fatal("a nil error became an error")
		}
	})
	t.Run("evidence is found again", func(t *testing.T) {
		e := crm.Evidence{Status: 503, RequestID: "r1"}
		if got := crm.EvidenceOf(crm.NotApplied(crm.WithEvidence(base, e), 0)); got != e {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestDescribe(t *testing.T) {
	t.Run("an adapter that declares nothing promises nothing for a create", func(t *testing.T) {
		d, err := crm.Describe(bare{})
		if err != nil || d.Create != (crm.Guarantee{}) || d.Note.Kind != crm.AtLeastOnce || d.Note.Window != crm.DefaultWindow || d.Identity != "crm_test.bare" {
			t.Fatalf("%+v %v", d, err)
		}
	})
	for _, c := range []struct {
		name string
		g    crm.Guarantee
		want string
	}{
		{"an idempotency key needs a window", crm.Guarantee{Kind: crm.IdempotencyKey}, "without a Window"},
		{"a create is never at-least-once", crm.Guarantee{Kind: crm.AtLeastOnce}, "never acceptable"},
		{"an unknown guarantee", crm.Guarantee{Kind: "sometimes"}, "unknown guarantee"},
		{"a negative window", crm.Guarantee{Kind: crm.Upsert, Window: -1}, "negative Window"},
	} {
		t.Run(c.name+" is refused", func(t *testing.T) {
			_, err := crm.Describe(declared{d: crm.Description{Identity: "x", Create: c.g}})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
		})
	}
	t.Run("a guarantee without an identity is refused", func(t *testing.T) {
		if _, err := crm.Describe(declared{d: crm.Description{Create: crm.Guarantee{Kind: crm.UniqueID}}}); err == nil || !strings.Contains(err.Error(), "Identity") {
			t.Fatal(err)
		}
	})
	t.Run("an upsert gets the default window", func(t *testing.T) {
		d, err := crm.Describe(declared{d: crm.Description{Identity: "x", Create: crm.Guarantee{Kind: crm.Upsert}}})
		if err != nil || d.Guarantee(crm.KindCreate).Window != crm.DefaultWindow {
			t.Fatalf("%+v %v", d, err)
		}
	})
}

func TestSupports(t *testing.T) {
	if !crm.Supports(bare{}, crm.KindCreate) || crm.Supports(bare{}, crm.KindNote) || crm.Supports(nil, crm.KindCreate) || crm.Supports(bare{}, "other") {
		t.Fatal("wrong")
	}
}
