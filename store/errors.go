package store

import (
	"errors"
	"fmt"
)

// errors.go: the errors that callers branch on. Everything else that a Store returns means "not known, try again": nothing
// was acknowledged.

// The sentinels.
var (
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrConflict: a plan's compare-and-set lost; read the key again and decide anew.
	ErrConflict = errors.New("the ordering key has moved on since it was read")
	// ErrLeaseLost: the operation is no longer held under this fencing token. The worker stops; a success that it saw is
	// reported as Confirmed all the same.
	ErrLeaseLost = errors.New("lease lost")
	// ErrMoved: the operation has changed since the version that the caller saw. Look again before deciding.
	ErrMoved = errors.New("the operation has moved on since it was looked at")
	// ErrKeyReused: a submission came with a key that was used before, for another lead. The first operation stands.
	ErrKeyReused = errors.New("the key was used before with another lead; the first one stands")
	// ErrUnavailable: the store can't commit just now (full, read-only, locked, unreachable); the text says which and what
	// to do. Nothing was stored.
	ErrUnavailable = errors.New("store unavailable")
	// ErrInvalid: the argument can't be stored; the text names the field.
	ErrInvalid = errors.New("invalid argument")
)

// MoveError is a trigger that the state machine does not allow.
type MoveError struct {
	ID    string // the operation; empty when Next was called by itself
	From  State
	Doubt bool
	On    Trigger
	Note  string // why, when it is not the table that refuses
}

// Error names the operation, the state and the trigger.
func (e *MoveError) Error() string {
	s := fmt.Sprintf("%s is not possible in state %s", e.On, e.From)
	if e.Doubt {
		s += " with doubt"
	}
	if e.ID != "" {
		s = "operation " + e.ID + ": " + s
	}
	if e.Note != "" {
		s += ": " + e.Note
	}
	return s
}

// CorruptError is a row that can't be read. It is set aside (Broken in Stats), and the rows beside it go on.
type CorruptError struct {
	Table string
	ID    string
	Err   error
}

// Error names the row, not its content.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt row in %s, id %s: %v", e.Table, e.ID, e.Err)
}

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// OnlyCorrupt reports whether err is made of nothing but CorruptErrors: the rows that came with it are good, and the broken
// ones have been set aside. It is false for nil.
func OnlyCorrupt(err error) bool {
	switch e := err.(type) {
	case nil:
		return false
	case *CorruptError:
		return true
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if !OnlyCorrupt(inner) {
				return false
			}
		}
		return true
	default:
		return OnlyCorrupt(errors.Unwrap(err))
	}
}
