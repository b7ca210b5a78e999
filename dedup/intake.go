package dedup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/leadonce/leadonce/store"
)

// intake.go: deliveries that are fetched instead of posted.

// IntakeOptions are the settings of an Intake. Zero values mean the defaults.
type IntakeOptions struct {
	AcceptTimeout time.Duration // how long the store may take for one event; default 5 s
	HeadStart     time.Duration // how long an event is left to the accepting process; default 2 s, at most 1 min

	// AddAccount says that the source's bot is a further one beside those that the database knows for its tenant, as
	// MiddlewareOptions.AddAccount does.
	AddAccount bool

	// OnDelivery is called after each body that was stored or refused, in the goroutine that did so; several may run at once.
	// Status is what Middleware would have answered: 200, 400 or 503. It must not block.
	OnDelivery func(Delivery)
	Logger     *slog.Logger // default slog.Default(); it never sees a payload
}

// Intake brings deliveries of one source into the store that do not come as HTTP requests: answers of getUpdates, messages of
// a queue. The caller vouches that they are authentic, and tells the sender that a delivery has arrived (an offset, an
// acknowledgement) only after Accept or AcceptAll has returned nil. Its methods may be called by any number of goroutines.
//
// A body that nobody understands is stored in quarantine, like one whose parser panics or that the store would never take: no
// error, since its sender would repeat it until the end. The source's account is checked as Middleware does it; ErrAccountChanged
// means that nothing is stored until the configuration is mended.
//
// Errors are returned and not logged, and never quote a body. All but ErrIncomplete, store.ErrInvalid and ErrAccountChanged
// are worth trying again. The log tells of what was kept in quarantine, of update ids that were used again, and of panics.
type Intake struct {
	entry entry
	from  origin
	o     IntakeOptions
}

// NewIntake returns the Intake of one source. An error names the field and the bound.
func NewIntake(st store.Store, src Source, o *IntakeOptions) (*Intake, error) {
	var v IntakeOptions
	if o != nil {
		v = *o
	}
	switch {
	case st == nil:
		return nil, errors.New("dedup: NewIntake needs a store: open one with sqlite.Open")
	case src == nil:
		return nil, errors.New("dedup: NewIntake needs a source: make one with telegram.NewSource")
	case v.AcceptTimeout < 0:
		return nil, fmt.Errorf("dedup: IntakeOptions.AcceptTimeout is %v, must not be negative", v.AcceptTimeout)
	case v.HeadStart < 0 || v.HeadStart > time.Minute:
		return nil, fmt.Errorf("dedup: IntakeOptions.HeadStart is %v, must be 0 to 1m: nobody else plans the event before", v.HeadStart)
	}
	v.Logger = cmp.Or(v.Logger, slog.Default())
	return &Intake{o: v, from: newOrigin(src, v.Logger), entry: entry{st: st, timeout: cmp.Or(v.AcceptTimeout, 5*time.Second),
		headStart: cmp.Or(v.HeadStart, 2*time.Second), accounts: newAccountCheck(v.AddAccount, false)}}, nil
}

// Accept stores one delivery. nil means that it is durably stored, now or before (Receipt.Duplicate). The end of ctx does not
// interrupt a store call that was begun; that ends after AcceptTimeout, and may then have stored the event all the same.
//
// ErrIncomplete: nothing is left of the body (the source says so), and nothing was stored.
func (in *Intake) Accept(ctx context.Context, body []byte) (store.Receipt, error) {
	e, err := in.parse(body)
	if err != nil {
		return store.Receipt{}, fmt.Errorf("dedup: intake: %w", err)
	}
	r, err := in.store(ctx, e, body)
	if err != nil {
		return store.Receipt{}, fmt.Errorf("dedup: intake: %w", err)
	}
	return r, nil
}

// intakeWidth is how many events one AcceptAll stores at once.
const intakeWidth = 64

// AcceptAll stores what was delivered together. nil means that every body is durably stored, now or before; then a receipt
// stands for each, in their order. With an error the receipts of what was not stored are zero (EventID 0), and the error is
// that of the first such body and gives its number.
//
// Bodies with one ordering key are stored one after the other, in their order, and after the first failure the key's later
// ones are not tried: a later event is never accepted before an earlier one. Different keys are stored side by side (64 at
// most), so that they share commits. What was stored beside a failure does no harm: the sender delivers all of it again, and
// it is found as duplicates. Nothing that comes after a body that is cut short is tried, since nobody knows its key.
//
// When ctx ends nothing more is begun, and what was begun comes to its end as with Accept.
func (in *Intake) AcceptAll(ctx context.Context, bodies [][]byte) ([]store.Receipt, error) {
	b := batch{receipts: make([]store.Receipt, len(bodies)), errs: make([]error, len(bodies))}
	var keys [][]int // bodies of one ordering key, by number
	at := map[string]int{}
	events := make([]store.Event, len(bodies))
	for i, body := range bodies {
		if events[i], b.errs[i] = in.parse(body); b.errs[i] != nil {
			break
		}
		k, known := at[events[i].OrderingKey]
		if !known {
			k = len(keys)
			at[events[i].OrderingKey] = k
			keys = append(keys, nil)
		}
		keys[k] = append(keys[k], i)
	}
	next := make(chan []int, len(keys)) // with room for all: a worker that is gone takes none
	var workers sync.WaitGroup
	for range min(intakeWidth, len(keys)) {
		workers.Go(func() {
			for key := range next {
				for _, i := range key {
					if b.receipts[i], b.errs[i] = in.store(ctx, events[i], bodies[i]); b.errs[i] != nil {
						break
					}
				}
			}
		})
	}
	for _, key := range keys {
		next <- key
	}
	close(next)
	workers.Wait()
	return b.receipts, b.failure()
}

// errWorkerGone is a runtime.Goexit in the store or in OnDelivery.
var errWorkerGone = errors.New("the goroutine that was to store it ended early")

// batch is what became of bodies that were delivered together. A body without receipt and error was not tried, or is not
// known to be stored.
type batch struct {
	receipts []store.Receipt
	errs     []error
}

func (b batch) failure() error {
	stored := 0
	for _, r := range b.receipts {
		if r.EventID != 0 {
			stored++
		}
	}
	for i, err := range b.errs {
		if err != nil {
			return fmt.Errorf("dedup: intake of body %d of %d (%d are stored): %w", i+1, len(b.errs), stored, err)
		}
	}
	if i := slices.IndexFunc(b.receipts, func(r store.Receipt) bool { return r.EventID == 0 }); i >= 0 {
		return fmt.Errorf("dedup: intake of body %d of %d (%d are stored): %w", i+1, len(b.receipts), stored, errWorkerGone)
	}
	return nil
}

// parse tells about a body that is cut short; every other one becomes an event.
func (in *Intake) parse(body []byte) (e store.Event, err error) {
	began := time.Now()
	defer func() {
		if v := recover(); v != nil { // of a Quarantiner
			in.from.panicked("source", v)
			err = errBadSource
		}
		if err != nil {
			in.tell(Delivery{Took: time.Since(began)}, err)
		}
	}()
	if e, err = in.from.parse(body); err != nil {
		err = refuse(http.StatusBadRequest, ErrIncomplete)
	}
	return e, err
}

func (in *Intake) store(ctx context.Context, e store.Event, body []byte) (_ store.Receipt, err error) {
	if err := ctx.Err(); err != nil {
		return store.Receipt{}, fmt.Errorf("update %s was not tried: %w", e.UpdateID, err)
	}
	var x Delivery
	began := time.Now()
	defer func() {
		if v := recover(); v != nil {
			in.from.panicked("source", v)
			err = errBadSource
		}
		x.Took = time.Since(began)
		in.tell(x, err)
	}()
	if err := in.entry.accept(ctx, in.from, e, body, &x); err != nil {
		return store.Receipt{}, fmt.Errorf("update %s: %w", x.UpdateID, err)
	}
	return x.Receipt, nil
}

func (in *Intake) tell(x Delivery, err error) {
	x.outcome(err)
	if x.Status == http.StatusOK {
		in.from.kept(x)
	}
	if in.o.OnDelivery != nil {
		guard(in.o.Logger, func() { in.o.OnDelivery(x) })
	}
}
