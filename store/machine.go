package store

// machine.go: the states of an operation, and the triggers that move them. The table is the whole truth; Next reads it.

// State is where an operation stands.
type State string

// The states. "Certainly not in the CRM" and "may be in the CRM" are the difference that everything else serves.
const (
	Pending             State = "pending"              // certainly not in the CRM; sent when due
	Sending             State = "sending"              // the intent is committed; from here a crash looks like a lost reply
	Uncertain           State = "uncertain"            // may be in the CRM; settles by itself: a repeat is harmless now
	NeedsReconciliation State = "needs_reconciliation" // may be in the CRM; a look-up or a person must settle it
	Done                State = "done"                 // in the CRM; crm_id stored
	Failed              State = "failed"               // certainly not in the CRM; refused as it is: a person must decide
	Canceled            State = "canceled"             // we send nothing more; says nothing about the CRM
)

// States lists every state in the order of an operation's life.
func States() []State {
	return []State{Pending, Sending, Uncertain, NeedsReconciliation, Done, Failed, Canceled}
}

// Trigger is what happened to an operation.
type Trigger string

// The triggers. Doubt means that some earlier attempt may have been applied.
const (
	Begin            Trigger = "begin"             // a worker takes it and will send
	Repeat           Trigger = "repeat"            // a worker takes it and will send again: harmless
	Confirmed        Trigger = "confirmed"         // it is in the CRM, with this id; evidence, taken in every state
	NotApplied       Trigger = "not_applied"       // this attempt certainly did nothing
	Rejected         Trigger = "rejected"          // this attempt certainly did nothing, nor will the next
	Lost             Trigger = "lost"              // this attempt may have been applied
	LostRepeatable   Trigger = "lost_repeatable"   // the same, and a repeat is harmless
	WindowClosed     Trigger = "window_closed"     // a repeat is harmless no longer
	GuaranteeChanged Trigger = "guarantee_changed" // the adapter is another one now, or promises something else
	Absent           Trigger = "absent"            // proven not to be in the CRM
	Inconclusive     Trigger = "inconclusive"      // a look-up settled nothing
	Drop             Trigger = "drop"              // unsupported, moved, or its create was canceled
	Cancel           Trigger = "cancel"            // a person: send nothing more
	Reopen           Trigger = "reopen"            // a person: try again
	Restored         Trigger = "restored"          // a person: the database came back from a backup
	Correct          Trigger = "correct"           // a person: the stored id was mistyped
	Acknowledge      Trigger = "acknowledge"       // a person: the conflict has been seen to
)

// Triggers lists every trigger.
func Triggers() []Trigger {
	return []Trigger{Begin, Repeat, Confirmed, NotApplied, Rejected, Lost, LostRepeatable, WindowClosed, GuaranteeChanged,
		Absent, Inconclusive, Drop, Cancel, Reopen, Restored, Correct, Acknowledge}
}

// Personal reports whether only a person pulls the trigger. Confirmed and Absent are pulled by both.
func (t Trigger) Personal() bool {
	switch t {
	case Cancel, Reopen, Restored, Correct, Acknowledge:
		return true
	}
	return false
}

// when says for which doubt a transition holds, and what becomes of it.
type when string

const (
	always  when = ""        // whatever the doubt
	clean   when = "clean"   // only without doubt
	doubted when = "doubted" // only with doubt
	sets    when = "sets"    // as the effect: doubt begins
	clears  when = "clears"  // as the effect: doubt ends
	keeps   when = ""        // as the effect: doubt stays as it is
)

// transition is a row of the table.
type transition struct {
	on     Trigger
	from   State
	if_    when
	to     State
	effect when
}

// table is the state machine. A (state, doubt, trigger) without a row is refused with a *MoveError.
var table = []transition{
	{Begin, Pending, clean, Sending, keeps},
	{Repeat, Uncertain, always, Sending, keeps},

	{Confirmed, Pending, always, Done, clears},
	{Confirmed, Sending, always, Done, clears},
	{Confirmed, Uncertain, always, Done, clears},
	{Confirmed, NeedsReconciliation, always, Done, clears},
	{Confirmed, Done, always, Done, clears},
	{Confirmed, Failed, always, Done, clears},
	{Confirmed, Canceled, always, Done, clears},

	{NotApplied, Sending, clean, Pending, keeps},
	{NotApplied, Sending, doubted, Uncertain, keeps}, // says nothing about the earlier attempt
	{Rejected, Sending, clean, Failed, keeps},
	{Rejected, Sending, doubted, NeedsReconciliation, keeps},
	{Lost, Sending, always, NeedsReconciliation, sets},
	{LostRepeatable, Sending, always, Uncertain, sets},

	{WindowClosed, Uncertain, always, NeedsReconciliation, keeps},
	{GuaranteeChanged, Uncertain, always, NeedsReconciliation, keeps},
	{Absent, NeedsReconciliation, always, Pending, clears},
	{Inconclusive, NeedsReconciliation, always, NeedsReconciliation, keeps},
	{Drop, Pending, always, Canceled, keeps},

	{Cancel, Pending, always, Canceled, keeps},
	{Cancel, Failed, always, Canceled, keeps},
	{Cancel, Uncertain, always, Canceled, keeps},
	{Cancel, NeedsReconciliation, always, Canceled, keeps},
	{Reopen, Failed, clean, Pending, keeps},
	{Reopen, Canceled, clean, Pending, keeps},
	{Reopen, Failed, doubted, NeedsReconciliation, keeps},
	{Reopen, Canceled, doubted, NeedsReconciliation, keeps},

	// What the backup does not know may have happened since, to everything but what it knows to be done.
	{Restored, Pending, always, NeedsReconciliation, sets},
	{Restored, Sending, always, NeedsReconciliation, sets},
	{Restored, Uncertain, always, NeedsReconciliation, sets},
	{Restored, NeedsReconciliation, always, NeedsReconciliation, sets},
	{Restored, Failed, always, NeedsReconciliation, sets},
	{Restored, Canceled, always, Canceled, sets},

	{Correct, Done, always, Done, keeps},
	{Acknowledge, Done, always, Done, keeps},
}

// Next returns where an operation stands after a trigger, and whether doubt remains. It is pure and knows no guarantee: the
// caller chose between Lost and LostRepeatable. The error is a *MoveError, and then state and doubt are unchanged.
func Next(s State, doubt bool, on Trigger) (State, bool, error) {
	doubt = doubt || s == Uncertain || s == NeedsReconciliation
	for _, t := range table {
		if t.on != on || t.from != s || (t.if_ == clean && doubt) || (t.if_ == doubted && !doubt) {
			continue
		}
		return t.to, t.effect == sets || (doubt && t.effect != clears), nil
	}
	return s, doubt, &MoveError{From: s, Doubt: doubt, On: on}
}
