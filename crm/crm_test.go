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

type linking struct{ bare }

func (linking) UpdateLead(context.Context, crm.Op, string, crm.Lead) error { return nil }

type full struct{ linking }

func (full) EnsureContact(context.Context, crm.Op, crm.Contact) (string, error) { return "2", nil }
func (full) ReadStage(context.Context, crm.Op, string) (crm.StageState, error) {
	return crm.StageState{}, nil
}

func TestTheKindsThatSeveralCallsMake(t *testing.T) {
	t.Run("a contact can be linked where there are contacts and updates, both", func(t *testing.T) {
		type contacts struct {
			bare
			crm.Contacter
		}
		for _, c := range []struct {
			a    crm.Adapter
			want bool
		}{{bare{}, false}, {linking{}, false}, {contacts{bare{}, full{}}, false}, {full{}, true}} {
			if crm.Supports(c.a, crm.KindLink) != c.want {
				t.Errorf("%T: want %v", c.a, c.want)
			}
		}
	})
	t.Run("a stage can be read by a StageReader, and a file is nobody's call", func(t *testing.T) {
		if crm.Supports(linking{}, crm.KindRead) || !crm.Supports(full{}, crm.KindRead) || crm.Supports(full{}, crm.KindFile) {
			t.Error("wrong")
		}
	})
	t.Run("a link is as safe as an update, a reading and a file may always be repeated", func(t *testing.T) {
		update := crm.Guarantee{Kind: crm.Upsert, Window: time.Hour}
		d, err := crm.Describe(declared{d: crm.Description{Identity: "x", Update: update}})
		if err != nil || d.Guarantee(crm.KindLink) != update {
			t.Errorf("a link: %+v %v", d.Guarantee(crm.KindLink), err)
		}
		for _, k := range []crm.Kind{crm.KindRead, crm.KindFile} {
			if g := d.Guarantee(k); g.Kind != crm.AtLeastOnce || g.Window != crm.DefaultWindow {
				t.Errorf("%s: %+v", k, g)
			}
		}
		if d.Guarantee("other") != (crm.Guarantee{}) {
			t.Error("an unknown kind has a guarantee")
		}
	})
	t.Run("the method that is missing is named", func(t *testing.T) {
		for k, want := range map[crm.Kind]string{crm.KindRead: "ReadStage", crm.KindLink: "UpdateLead"} {
			if got := crm.MethodFor(k); !strings.Contains(got, want) {
				t.Errorf("%s: %q", k, got)
			}
		}
	})
}

func TestSupports(t *testing.T) {
	if !crm.Supports(bare{}, crm.KindCreate) || crm.Supports(bare{}, crm.KindNote) || crm.Supports(nil, crm.KindCreate) || crm.Supports(bare{}, "other") {
		t.Fatal("wrong")
	}
}
