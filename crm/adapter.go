package crm

import "context"

// adapter.go: the calls that an adapter offers. Only CreateLead is required; dedup finds the others by type assertion, so
// a wrapper around an adapter has to pass on each optional method that it wants to keep.

// Kind names what an operation does. It is stored with the operation.
type Kind string

// The kinds of operations.
const (
	KindCreate  Kind = "lead.create"
	KindUpdate  Kind = "lead.update"
	KindNote    Kind = "note.add"
	KindStage   Kind = "stage.set"
	KindContact Kind = "contact.ensure"
	KindLink    Kind = "contact.link" // the contact's id, added to a lead that was created before it was known
	KindRead    Kind = "stage.read"   // where a lead stands now
	KindFile    Kind = "file.add"     // a file, through the host's own hook: dedup.Options.AddFile
)

// Op identifies one operation. It is the same at every attempt, so an adapter that builds its request from Op and the
// fields alone sends the same request every time (crmtest checks that).
type Op struct {
	// ID is the operation_id: a UUID derived from the enquiry, stored before the first attempt, never changed. Put it
	// into the CRM's external-id field: it is what a look-up searches for.
	ID string
	// Key is what to send as idempotency key where the CRM documents one. It is ID until the fields of a certainly
	// unapplied operation are edited; each edit makes a new Key, since a CRM replays a stored refusal under the old one.
	Key string
	// Kind says which call this is.
	Kind Kind
	// Tenant is the host's own name for the account that the enquiry belongs to; empty in a single-tenant bot.
	Tenant string
}

// Adapter creates leads in a CRM. The methods of an adapter are called by several goroutines at once.
//
// The context of every call carries the deadline of the call (20 s by default). A call that outlives its deadline is
// abandoned and counts as unknown; what it returns later is still taken as evidence.
type Adapter interface {
	// CreateLead makes one lead (or deal, or contact with a request: what the CRM calls an enquiry) and returns its id in
	// the CRM. It sends at most one creating request and never retries by itself. An empty id without an error counts as
	// unknown.
	CreateLead(ctx context.Context, op Op, l Lead) (id string, err error)
}

// Noter adds a note (comment, activity) to a lead. leadID is what CreateLead returned. The id of the note may be empty
// where the CRM gives none.
//
// Notes are at-least-once unless the adapter declares more: after a lost answer the same note is sent again, and carries
// its reference ([Note.Ref]) so that a person can tell a doubled one.
type Noter interface {
	AddNote(ctx context.Context, op Op, leadID string, n Note) (id string, err error)
}

// Updater changes fields of a lead that exists, for example the phone that came with the second message. Fields that are
// zero in u are left as they are in the CRM.
type Updater interface {
	UpdateLead(ctx context.Context, op Op, leadID string, u Lead) error
}

// Stager moves a lead to another stage. The adapter reads the current stage first and does nothing, without an error, if
// it is none of s.From (when given): a manager's decision is not undone.
type Stager interface {
	SetStage(ctx context.Context, op Op, leadID string, s Stage) error
}

// StageReader reads where a lead stands now. With it a hook that says only that something has changed (Bitrix24's) is enough,
// and a repeated SetStage looks first.
type StageReader interface {
	ReadStage(ctx context.Context, op Op, leadID string) (StageState, error)
}

// Contacter finds or makes the CRM's contact for a person and returns its id.
type Contacter interface {
	EnsureContact(ctx context.Context, op Op, c Contact) (id string, err error)
}

// Finder looks up the leads that carry op.ID. It returns every one that carries exactly this operation id and no other:
// a search that matches loosely is filtered by the adapter. No lead and no error means "none was found", which is not yet
// "none exists": see [Description.LookupReadsOwnWrites].
type Finder interface {
	FindLead(ctx context.Context, op Op) (ids []string, err error)
}

// Checker makes one cheap read-only request that tells whether the CRM answers and accepts the credentials. While an
// adapter is paused, dedup probes with it instead of with somebody's enquiry.
type Checker interface {
	Check(ctx context.Context) error
}

// Supports reports whether the adapter offers the call that operations of kind k need.
func Supports(a Adapter, k Kind) bool {
	var ok bool
	switch k {
	case KindCreate:
		ok = a != nil
	case KindUpdate:
		_, ok = a.(Updater)
	case KindNote:
		_, ok = a.(Noter)
	case KindStage:
		_, ok = a.(Stager)
	case KindContact:
		_, ok = a.(Contacter)
	case KindLink:
		if _, ok = a.(Contacter); ok {
			_, ok = a.(Updater)
		}
	case KindRead:
		_, ok = a.(StageReader)
	}
	return ok
}

// MethodFor names the method that operations of kind k need, for messages to the adapter's author.
func MethodFor(k Kind) string {
	switch k {
	case KindCreate:
		return "CreateLead (crm.Adapter)"
	case KindUpdate:
		return "UpdateLead (crm.Updater)"
	case KindNote:
		return "AddNote (crm.Noter)"
	case KindStage:
		return "SetStage (crm.Stager)"
	case KindContact:
		return "EnsureContact (crm.Contacter)"
	case KindLink:
		return "EnsureContact and UpdateLead (crm.Contacter, crm.Updater)"
	case KindRead:
		return "ReadStage (crm.StageReader)"
	}
	return "method for " + string(k)
}
