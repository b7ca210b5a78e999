package crm

import (
	"fmt"
	"time"
)

// guarantee.go: what a CRM documents about a repeated call.

// GuaranteeKind says why a repeat of the same operation is harmless.
type GuaranteeKind string

// The guarantees. Declare one only from the CRM's own documentation, never from trying it out.
const (
	// None: a repeat may make a second record. The zero value.
	None GuaranteeKind = ""
	// IdempotencyKey: the CRM answers a repeat that carries the same key from memory, for as long as Window.
	IdempotencyKey GuaranteeKind = "idempotency_key"
	// Upsert: the call creates or overwrites the one record with this external id, atomically.
	Upsert GuaranteeKind = "upsert"
	// UniqueID: the CRM refuses a second record with this external id; the adapter takes the refusal as "created" only if
	// the record that it then reads carries op.ID.
	UniqueID GuaranteeKind = "unique_id"
	// AtLeastOnce: a repeat may be seen twice, and that is accepted. Not allowed for creating a lead. It is what notes,
	// updates, stages and contacts have unless something better is declared.
	AtLeastOnce GuaranteeKind = "at_least_once"
)

// DefaultWindow is the Window of a Guarantee that leaves it zero, for every kind but IdempotencyKey, which has to name
// the CRM's own.
const DefaultWindow = 24 * time.Hour

// Guarantee is what holds for one kind of operation.
type Guarantee struct {
	Kind GuaranteeKind
	// Window is how long after the first attempt a repeat is harmless. It is always finite, since managers delete and
	// merge records; 0 means DefaultWindow, except for IdempotencyKey, where the CRM's documentation gives it.
	Window time.Duration
}

// Description is what an adapter declares.
type Description struct {
	// Identity names the vendor and the account, without a secret: "bitrix24 portal.example". It is stored with every
	// attempt: an operation that began under another identity or guarantee is not repeated by itself. Empty means the Go
	// type of the adapter, and is allowed only where nothing else is declared.
	Identity string
	// Create is the guarantee of CreateLead, the others that of the calls they are named after.
	Create, Update, Note, Stage, Contact Guarantee
	// LookupReadsOwnWrites declares that FindLead sees every record from the moment that its creation was answered. A
	// search index does not qualify. See dedup.Options for what else it takes before an empty look-up is trusted.
	LookupReadsOwnWrites bool
}

// Describer is implemented by adapters that declare more than nothing. Describe returns the same every time.
type Describer interface {
	Describe() Description
}

// Describe returns the description of a, completed: the identity is never empty, windows are never zero where a kind is
// declared, and the calls besides CreateLead are at least AtLeastOnce. The error names the guarantee that can't be meant.
func Describe(a Adapter) (Description, error) {
	var d Description
	if x, ok := a.(Describer); ok {
		d = x.Describe()
	}
	if d.Identity == "" {
		if d != (Description{}) {
			return d, fmt.Errorf("crm: %T declares a guarantee or a look-up that reads its own writes, and no Identity: without one a "+
				"change of the account would not be noticed, and a promise of one account taken for another's", a)
		}
		d.Identity = fmt.Sprintf("%T", a)
	}
	for _, k := range []Kind{KindCreate, KindUpdate, KindNote, KindStage, KindContact} {
		g := *d.of(k)
		switch g.Kind {
		case None:
			if k != KindCreate {
				g.Kind = AtLeastOnce
			}
		case AtLeastOnce:
			if k == KindCreate {
				return d, fmt.Errorf("crm: %s declares %q for %s: a second lead is never acceptable; leave the guarantee empty", d.Identity, g.Kind, k)
			}
		case IdempotencyKey:
			if g.Window <= 0 {
				return d, fmt.Errorf("crm: %s declares %q for %s without a Window: take it from the CRM's documentation", d.Identity, g.Kind, k)
			}
		case Upsert, UniqueID:
		default:
			return d, fmt.Errorf("crm: %s declares the unknown guarantee %q for %s", d.Identity, g.Kind, k)
		}
		if g.Window < 0 {
			return d, fmt.Errorf("crm: %s declares a negative Window for %s", d.Identity, k)
		}
		if g.Kind != None && g.Window == 0 {
			g.Window = DefaultWindow
		}
		*d.of(k) = g
	}
	return d, nil
}

// Guarantee returns what d declares for operations of kind k; the zero value for a kind that it does not know.
func (d Description) Guarantee(k Kind) Guarantee {
	switch g := d.of(k); {
	case g != nil:
		return *g
	case k == KindRead || k == KindFile: // a reading changes nothing, and a file that comes twice is seen to be the same
		return Guarantee{AtLeastOnce, DefaultWindow}
	}
	return Guarantee{}
}

func (d *Description) of(k Kind) *Guarantee {
	switch k {
	case KindCreate:
		return &d.Create
	case KindUpdate, KindLink:
		return &d.Update
	case KindNote:
		return &d.Note
	case KindStage:
		return &d.Stage
	case KindContact:
		return &d.Contact
	}
	return nil
}
