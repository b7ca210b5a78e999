package crm

import (
	"errors"
	"time"
)

// outcome.go: how an adapter says what is certain about a call that went wrong. What it leaves unmarked is unknown.

// Outcome classifies an adapter's error.
type Outcome int

// The outcomes.
const (
	// OutcomeUnknown: the CRM may have acted. Every unmarked error.
	OutcomeUnknown Outcome = iota
	// OutcomeNotApplied: the CRM certainly did not act; the same call may succeed later.
	OutcomeNotApplied
	// OutcomeRejected: the CRM certainly did not act and will not as the operation stands.
	OutcomeRejected
	// OutcomeUnavailable: the CRM certainly did not act, and the operation is not to blame.
	OutcomeUnavailable
)

// String returns the outcome as it is written in logs.
func (o Outcome) String() string {
	switch o {
	case OutcomeNotApplied:
		return "not applied"
	case OutcomeRejected:
		return "rejected"
	case OutcomeUnavailable:
		return "unavailable"
	}
	return "unknown"
}

// Evidence is what an answer leaves in the trail: enough to find the request in the vendor's own log.
type Evidence struct {
	Status    int    // HTTP status; 0 if there was no answer
	RequestID string // the vendor's id of the request
}

type marked struct {
	error
	outcome Outcome
	after   time.Duration
}

func (m *marked) Unwrap() error { return m.error }

type evidenced struct {
	error
	evidence Evidence
}

func (e *evidenced) Unwrap() error { return e.error }

// NotApplied marks err: the CRM certainly did not act (the request never left, or a documented throttling answer). The
// operation is sent again after its back-off, and not before after has passed (0: the back-off alone). NotApplied(nil, d)
// is nil.
func NotApplied(err error, after time.Duration) error {
	if err == nil {
		return nil
	}
	return &marked{err, OutcomeNotApplied, max(after, 0)}
}

// Rejected marks err: the CRM certainly did not act, and the same request will be refused again (validation, an unknown
// pipeline). The operation is failed, and a person decides.
func Rejected(err error) error {
	if err == nil {
		return nil
	}
	return &marked{err, OutcomeRejected, 0}
}

// Unavailable marks err: the CRM certainly did not act and the operation is not to blame (token refused, permission
// missing, documented maintenance). The operation waits, and the adapter pauses. A timeout or a bare 5xx is not
// Unavailable: there the CRM may have acted.
func Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return &marked{err, OutcomeUnavailable, 0}
}

// WithEvidence adds what is known of the answer to err, and leaves its outcome as it is.
func WithEvidence(err error, e Evidence) error {
	if err == nil || e == (Evidence{}) {
		return err
	}
	return &evidenced{err, e}
}

// OutcomeOf returns how err is marked, and for NotApplied the time to wait. The outermost mark counts.
func OutcomeOf(err error) (o Outcome, after time.Duration) {
	if m, ok := errors.AsType[*marked](err); ok {
		return m.outcome, m.after
	}
	return OutcomeUnknown, 0
}

// EvidenceOf returns what err says about the answer.
func EvidenceOf(err error) Evidence {
	if e, ok := errors.AsType[*evidenced](err); ok {
		return e.evidence
	}
	return Evidence{}
}
