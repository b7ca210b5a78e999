package dedup_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
)

// desk_test.go: absence on a person's word, while the CRM may still act.

// inDoubt has one operation whose answer was lost a quarter of a minute ago, and no Processor that runs.
func inDoubt(t *testing.T, f func(b *bed, p *dedup.Processor, v dedup.Verdict)) {
	virtual(t, none, func(b *bed) {
		b.accept(event(7, 1, "please call me"))
		lost := adapterFunc(func(context.Context, crm.Op, crm.Lead) (string, error) { return "", errors.New("lost") })
		p := b.processorOn(b.st, lost, dedup.OnePerMessage(lead), func(o *dedup.Options) { o.QuietPeriod = 5 * time.Minute })
		b.runFor(p, 3*time.Second)
		op := b.only(store.NeedsReconciliation)
		time.Sleep(time.Until(op.LastSentAt.Add(15 * time.Second)))
		f(b, p, dedup.Verdict{OperationID: op.ID, Seen: op.Version, By: "olga"})
	})
}

func TestAbsentTooEarly(t *testing.T) {
	t.Run("is refused within the Processor's quiet period, with its end and nothing changed", func(t *testing.T) {
		inDoubt(t, func(b *bed, p *dedup.Processor, v dedup.Verdict) {
			_, err := p.Absent(b.ctx, v)
			early, ok := errors.AsType[*dedup.EarlyError](err)
			if !ok || !errors.Is(err, dedup.ErrTooEarly) || early.Sent != 15*time.Second || time.Until(early.Until) != 285*time.Second ||
				!strings.Contains(err.Error(), "of 15s ago: look again after "+early.Until.UTC().Format("15:04:05")) {
				t.Fatal(err)
			}
			if op := b.only(store.NeedsReconciliation); op.Version != v.Seen {
				t.Fatal("it has moved")
			}
			time.Sleep(285*time.Second - time.Nanosecond)
			if _, err := p.Absent(b.ctx, v); !errors.Is(err, dedup.ErrTooEarly) {
				t.Fatalf("a moment before its end: %v", err)
			}
			time.Sleep(time.Nanosecond)
			if _, err := p.Absent(b.ctx, v); err != nil {
				t.Fatal(err)
			}
			b.only(store.Pending)
		})
	})
	t.Run("a Desk of its own takes the default, two minutes", func(t *testing.T) {
		inDoubt(t, func(b *bed, _ *dedup.Processor, v dedup.Verdict) {
			d := dedup.NewDesk(b.st)
			time.Sleep(105*time.Second - time.Nanosecond)
			if _, err := d.Absent(b.ctx, v); !errors.Is(err, dedup.ErrTooEarly) {
				t.Fatal(err)
			}
			time.Sleep(time.Nanosecond)
			if _, err := d.Absent(b.ctx, v); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("Force is for who knows better, and the same verdict again changes nothing, forced or not", func(t *testing.T) {
		inDoubt(t, func(b *bed, p *dedup.Processor, v dedup.Verdict) {
			v.Force = true
			op, err := p.Absent(b.ctx, v)
			if err != nil {
				t.Fatal(err)
			}
			for _, v.Force = range []bool{true, false} {
				if again, err := p.Absent(b.ctx, v); err != nil || again.Version != op.Version {
					t.Fatalf("version %d, want %d: %v", again.Version, op.Version, err)
				}
			}
			b.only(store.Pending)
		})
	})
	t.Run("the other verdicts do not wait", func(t *testing.T) {
		inDoubt(t, func(b *bed, p *dedup.Processor, v dedup.Verdict) {
			if _, err := p.Cancel(b.ctx, v); err != nil {
				t.Fatal(err)
			}
		})
	})
}
