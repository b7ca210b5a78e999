package dedup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/leadonce/leadonce/store"
)

// entry.go: from an authentic body to a committed event. The door and Intake have it in common.

var (
	errBadSource  = errors.New("the source failed")
	errStorePanic = errors.New("the store panicked")
)

// entry is where every body comes in, of whatever source.
type entry struct {
	st        store.Store
	timeout   time.Duration // of one Accept
	headStart time.Duration
	accounts  *accountCheck
}

// origin is a source, and whose events it takes in. The zero value is that of a request whose source is not known.
type origin struct {
	Source
	account store.Account // tells it from the others of a process; where the source does not say it, its Source is the Go type
	log     *slog.Logger
}

func newOrigin(src Source, log *slog.Logger) (from origin) {
	from = origin{Source: src, account: store.Account{Source: fmt.Sprintf("%T", src)}, log: log}
	defer func() { _ = recover() }() // the host's code: whether the account is right is asked again
	if s, ok := src.(AccountSource); ok {
		from.account = asStored(s.Account())
	}
	return from
}

// logger names the source.
func (from origin) logger() *slog.Logger {
	if from.Source == nil {
		return from.log
	}
	a := from.account
	return from.log.With("source", strings.TrimSpace(a.Source+" "+a.Bot+" "+a.Tenant))
}

// panicked logs where, not what: the value may quote a payload.
func (from origin) panicked(who string, v any) {
	from.logger().Error("leadonce: a panic at the door was recovered", "in", who,
		"type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
}

// parse never fails but for a body that is cut short: what the source can't make an event of goes into quarantine.
func (from origin) parse(raw []byte) (e store.Event, err error) {
	defer func() {
		if v := recover(); v != nil {
			from.panicked("parser", v)
			e, err = from.quarantine(raw, "the parser panicked"), nil
		}
	}()
	e, err = from.Parse(raw)
	switch {
	case errors.Is(err, ErrIncomplete):
		return e, err
	case err != nil:
		return from.quarantine(raw, "the source returned an error"), nil
	case e.UpdateID == "" || e.OrderingKey == "":
		return from.quarantine(raw, "the source returned an event without id or ordering key"), nil
	}
	return e, nil
}

func (from origin) quarantine(raw []byte, why string) store.Event {
	if q, ok := from.Source.(Quarantiner); ok {
		return q.Quarantine(raw, why)
	}
	sum := sha256.Sum256(raw)
	hash := hex.EncodeToString(sum[:])
	source := fmt.Sprintf("%T", from.Source)
	return store.Event{Source: source, UpdateID: "sha256:" + hash, Hash: hash, Kind: "quarantined",
		Fingerprints: []store.Fingerprint{{Version: 1, Sum: hash}}, OrderingKey: OrderingKey("", source, "", "event", hash),
		ContentID: hash, DealKey: hash, Payload: raw, Enquiry: []byte("{}"), Quarantine: why}
}

// accept commits the event and fills x. It is not interrupted by the end of ctx: what the store is about to commit is then
// known, and not only to the next delivery. An event that the store will never take is put into quarantine, or its sender
// would repeat it for ever.
func (en *entry) accept(ctx context.Context, from origin, e store.Event, raw []byte, x *Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), en.timeout)
	defer cancel()
	e.HeadStart = en.headStart
	receipt, err := en.commit(ctx, from, e)
	if errors.Is(err, store.ErrInvalid) && e.Quarantine == "" {
		e = from.quarantine(raw, "the store refuses one of its fields")
		receipt, err = en.commit(ctx, from, e)
	}
	x.Source, x.Bot, x.UpdateID, x.Kind, x.Quarantined = e.Source, e.Bot, e.UpdateID, e.Kind, e.Quarantine != ""
	if err != nil {
		return refuse(http.StatusServiceUnavailable, err)
	}
	x.Receipt = receipt
	return nil
}

func (en *entry) commit(ctx context.Context, from origin, e store.Event) (_ store.Receipt, err error) {
	defer func() {
		if v := recover(); v != nil {
			from.panicked("store", v)
			err = errStorePanic
		}
	}()
	if err := en.accounts.done(ctx, en.st, from); err != nil {
		return store.Receipt{}, err
	}
	return en.st.Accept(ctx, e)
}

// kept says what is worth knowing of a stored event.
func (from origin) kept(x Delivery) {
	switch {
	case x.Quarantined && !x.Receipt.Duplicate:
		from.logger().Warn("leadonce: an authentic body was not understood and is kept in quarantine", "bot", x.Bot,
			"event", x.Receipt.EventID)
	case x.Receipt.Reused:
		from.logger().Warn("leadonce: the source has used an update id again for something else; both are kept", "bot", x.Bot,
			"update", x.UpdateID, "event", x.Receipt.EventID, "epoch", x.Receipt.Epoch)
	}
}
