package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// intake_test.go: deliveries that are fetched: all of them or an error, and in order where order matters.

// pump is an Intake with everything that a test looks at.
type pump struct {
	*dedup.Intake
	st   *acceptOnly
	log  *doorLog
	mu   sync.Mutex
	told []dedup.Delivery
}

func openIntake(t *testing.T, src dedup.Source) *pump {
	t.Helper()
	if src == nil {
		src = botOf(t, "", 6001)
	}
	p := &pump{st: &acceptOnly{}, log: &doorLog{}}
	in, err := dedup.NewIntake(p.st, src, &dedup.IntakeOptions{Logger: slog.New(slog.NewTextHandler(p.log, nil)),
		OnDelivery: func(x dedup.Delivery) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.told = append(p.told, x)
		}})
	if err != nil {
		t.Fatal(err)
	}
	p.Intake = in
	return p
}

// quiet checks that neither an error nor the log quotes a body.
func (p *pump) quiet(t *testing.T, err error) {
	t.Helper()
	for _, word := range []string{"payload text", "Payload Name", "panic value"} {
		if strings.Contains(fmt.Sprint(err), word) || strings.Contains(p.log.text(), word) {
			t.Errorf("%q is quoted: %v %s", word, err, p.log.text())
		}
	}
}

// said is update id of a person's private chat.
func said(person, id int) []byte {
	return []byte(strings.NewReplacer(`"id":7`, fmt.Sprintf(`"id":%d`, person)).Replace(updateBody(id)))
}

func TestIntake(t *testing.T) {
	t.Run("a delivery is stored, and again it is a duplicate", func(t *testing.T) {
		st := openStore(t)
		in, err := dedup.NewIntake(st, botOf(t, "acme", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err1 := in.Accept(t.Context(), said(1, 1))
		again, err2 := in.Accept(t.Context(), said(1, 1))
		if errors.Join(err1, err2) != nil || first.EventID == 0 || !again.Duplicate || again.EventID != first.EventID {
			t.Errorf("%+v, %+v, %v %v", first, again, err1, err2)
		}
		if known(t, st) != 1 {
			t.Error("its account is not remembered")
		}
	})
	t.Run("it has the head start of the door, and what became of it is told", func(t *testing.T) {
		p := openIntake(t, nil)
		if _, err := p.Accept(t.Context(), said(1, 1)); err != nil {
			t.Fatal(err)
		}
		if e := p.st.stored()[0]; e.HeadStart != 2*time.Second || string(e.Payload) != string(said(1, 1)) {
			t.Errorf("%+v", e)
		}
		if x := p.told[0]; x.Status != 200 || x.UpdateID != "1" || x.Bot != "6001" || x.Receipt.EventID != 1 || p.log.text() != "" {
			t.Errorf("%+v, log %s", x, p.log.text())
		}
	})
	t.Run("a failing store is an error that can be told and tried again", func(t *testing.T) {
		p := openIntake(t, nil)
		p.st.before = func(context.Context, store.Event) error { return store.ErrUnavailable }
		_, err := p.Accept(t.Context(), said(1, 1))
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "update 1") || p.told[0].Status != 503 {
			t.Errorf("%v, %+v", err, p.told)
		}
		p.quiet(t, err)
		p.st.before = nil
		if _, err := p.Accept(t.Context(), said(1, 1)); err != nil {
			t.Error(err)
		}
	})
	t.Run("a store that panics is an error", func(t *testing.T) {
		p := openIntake(t, nil)
		p.st.before = func(context.Context, store.Event) error { panic("panic value") }
		_, err := p.Accept(t.Context(), said(1, 1))
		if err == nil || !strings.Contains(p.log.text(), "panic") {
			t.Errorf("%v, log %s", err, p.log.text())
		}
		p.quiet(t, err)
	})
	t.Run("a store that hangs ends after the accept timeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := openIntake(t, nil)
			p.st.before = func(ctx context.Context, _ store.Event) error { <-ctx.Done(); return ctx.Err() }
			began := time.Now()
			if _, err := p.Accept(t.Context(), said(1, 1)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 5*time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("the end of the context leaves a store call alone, and begins none", func(t *testing.T) {
		p := openIntake(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		p.st.before = func(ctx context.Context, _ store.Event) error { cancel(); return ctx.Err() }
		if _, err := p.Accept(ctx, said(1, 1)); err != nil {
			t.Error(err)
		}
		if _, err := p.Accept(ctx, said(1, 2)); !errors.Is(err, context.Canceled) || len(p.st.stored()) != 1 || len(p.told) != 1 {
			t.Errorf("%v, %d stored", err, len(p.st.stored()))
		}
	})
	t.Run("a body of which nothing is left is ErrIncomplete", func(t *testing.T) {
		p := openIntake(t, nil)
		if _, err := p.Accept(t.Context(), []byte(" ")); !errors.Is(err, dedup.ErrIncomplete) || len(p.st.stored()) != 0 || p.told[0].Status != 400 {
			t.Errorf("%v, %+v", err, p.told)
		}
	})
	t.Run("a changed account is an error, and nothing is stored", func(t *testing.T) {
		st := &remembering{list: []store.Account{{Source: telegram.Name, Bot: "2"}}}
		in, err := dedup.NewIntake(st, botOf(t, "", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Accept(t.Context(), said(1, 1)); !errors.Is(err, dedup.ErrAccountChanged) || len(st.stored()) != 0 {
			t.Error(err)
		}
		in, err = dedup.NewIntake(st, botOf(t, "", 1), &dedup.IntakeOptions{AddAccount: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Accept(t.Context(), said(1, 1)); err != nil || len(st.list) != 2 {
			t.Error(err)
		}
	})
}

func TestIntakeQuarantines(t *testing.T) {
	kept := func(t *testing.T, p *pump) {
		t.Helper()
		r, err := p.Accept(t.Context(), []byte("payload text"))
		e := p.st.stored()
		if err != nil || r.EventID != 1 || len(e) != 1 || e[0].Quarantine == "" || string(e[0].Payload) != "payload text" {
			t.Fatalf("%+v %v, %+v", r, err, e)
		}
		if !strings.Contains(p.log.text(), "quarantine") || !p.told[0].Quarantined {
			t.Errorf("not told: %s", p.log.text())
		}
		p.quiet(t, err)
	}
	t.Run("what nobody understands", func(t *testing.T) { kept(t, openIntake(t, nil)) })
	t.Run("a body whose parser panics", func(t *testing.T) {
		kept(t, openIntake(t, told{parse: func([]byte) (store.Event, error) { panic("panic value") }}))
	})
	t.Run("an event that the store will never take", func(t *testing.T) {
		p := openIntake(t, told{parse: func(b []byte) (store.Event, error) { return store.Event{UpdateID: "1", OrderingKey: "k"}, nil }})
		p.st.before = func(_ context.Context, e store.Event) error {
			if e.Quarantine == "" {
				return store.ErrInvalid
			}
			return nil
		}
		kept(t, p)
	})
	t.Run("but where the source panics at that too there is an error", func(t *testing.T) {
		p := openIntake(t, panicking{told{parse: func([]byte) (store.Event, error) { panic("panic value") }}})
		_, err := p.Accept(t.Context(), []byte("payload text"))
		if err == nil || len(p.st.stored()) != 0 {
			t.Errorf("%v, %d stored", err, len(p.st.stored()))
		}
		p.quiet(t, err)
	})
}

type panicking struct{ told }

func (panicking) Quarantine([]byte, string) store.Event { panic("panic value") }

func TestIntakeOfSeveral(t *testing.T) {
	t.Run("each has its receipt, in their order", func(t *testing.T) {
		p := openIntake(t, nil)
		bodies := [][]byte{said(1, 1), said(2, 2), said(1, 3), said(2, 2), []byte("{")}
		got, err := p.AcceptAll(t.Context(), bodies)
		if err != nil || len(got) != 5 {
			t.Fatalf("%+v %v", got, err)
		}
		for i, r := range got {
			if e := p.st.stored()[r.EventID-1]; string(e.Payload) != string(bodies[i]) || r.Duplicate != (i == 3) {
				t.Errorf("body %d: %+v", i, r)
			}
		}
		if none, err := p.AcceptAll(t.Context(), nil); err != nil || len(none) != 0 {
			t.Errorf("of none: %v %v", none, err)
		}
	})
	t.Run("one key's are stored one after the other, different keys side by side, 64 at most", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := openIntake(t, nil)
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var bodies [][]byte
			for i := range 500 {
				bodies = append(bodies, said(1+rand.New(rand.NewPCG(seed, uint64(i))).IntN(100), i+1))
			}
			var inside, most atomic.Int64
			p.st.before = func(context.Context, store.Event) error {
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(time.Second)
				inside.Add(-1)
				return nil
			}
			if _, err := p.AcceptAll(t.Context(), bodies); err != nil {
				t.Fatal(err)
			}
			if most.Load() != 64 {
				t.Errorf("%d at once", most.Load())
			}
			last := map[string]int{}
			for _, e := range p.st.stored() {
				var id int
				if _, err := fmt.Sscan(e.UpdateID, &id); err != nil || id < last[e.OrderingKey] {
					t.Fatalf("update %s was stored after %d: %v", e.UpdateID, last[e.OrderingKey], err)
				}
				last[e.OrderingKey] = id
			}
		})
	})
	t.Run("after a key's first failure its later ones are not tried, the others are stored, and all is well the next time", func(t *testing.T) {
		p := openIntake(t, nil)
		p.st.before = func(_ context.Context, e store.Event) error {
			if e.UpdateID == "3" {
				return store.ErrUnavailable
			}
			return nil
		}
		bodies := [][]byte{said(1, 1), said(2, 2), said(1, 3), said(2, 4), said(1, 5)}
		got, err := p.AcceptAll(t.Context(), bodies)
		if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "body 3 of 5 (3 are stored)") {
			t.Errorf("%v", err)
		}
		for i, stored := range []bool{true, true, false, true, false} {
			if (got[i].EventID != 0) != stored {
				t.Errorf("body %d: %+v", i, got[i])
			}
		}
		p.quiet(t, err)
		p.st.before = nil
		got, err = p.AcceptAll(t.Context(), bodies)
		if err != nil || len(p.st.stored()) != 5 || !got[0].Duplicate || got[4].Duplicate {
			t.Errorf("%+v %v, %d stored", got, err, len(p.st.stored()))
		}
	})
	t.Run("nothing is tried after a body that is cut short", func(t *testing.T) {
		p := openIntake(t, nil)
		_, err := p.AcceptAll(t.Context(), [][]byte{said(1, 1), nil, said(1, 3)})
		if !errors.Is(err, dedup.ErrIncomplete) || !strings.Contains(err.Error(), "body 2 of 3") || len(p.st.stored()) != 1 {
			t.Errorf("%v, %d stored", err, len(p.st.stored()))
		}
	})
	t.Run("the end of the context begins no more, and what was begun comes to its end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := openIntake(t, nil)
			p.st.before = func(ctx context.Context, _ store.Event) error { time.Sleep(time.Second); return ctx.Err() }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(1500*time.Millisecond, cancel)
			got, err := p.AcceptAll(ctx, [][]byte{said(1, 1), said(1, 2), said(1, 3), said(2, 4)})
			if !errors.Is(err, context.Canceled) || got[0].EventID == 0 || got[1].EventID == 0 || got[2].EventID != 0 || got[3].EventID == 0 {
				t.Errorf("%v, %+v", err, got)
			}
		})
	})
	t.Run("what a goroutine that ended early left undone is not taken for stored", func(t *testing.T) {
		p := openIntake(t, nil)
		p.st.before = func(_ context.Context, e store.Event) error {
			if e.UpdateID == "1" {
				runtime.Goexit()
			}
			return nil
		}
		var bodies [][]byte
		for i := range 200 {
			bodies = append(bodies, said(1+i%2, i+1))
		}
		got, err := p.AcceptAll(t.Context(), bodies)
		if err == nil || !strings.Contains(err.Error(), "body 1 of 200 (100 are stored)") || got[2].EventID != 0 {
			t.Errorf("%v", err)
		}
		p.st.before = func(context.Context, store.Event) error { runtime.Goexit(); return nil }
		bodies = nil
		for i := range 200 {
			bodies = append(bodies, said(1000+i, 1000+i))
		}
		if _, err := p.AcceptAll(t.Context(), bodies); err == nil {
			t.Error("nothing is stored, and no error")
		}
	})
	t.Run("a thousand of them on SQLite are a thousand rows", func(t *testing.T) {
		st := openStore(t)
		in, err := dedup.NewIntake(st, botOf(t, "", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		var bodies [][]byte
		for i := range 1000 {
			bodies = append(bodies, said(1+i%100, i+1))
		}
		got, err := in.AcceptAll(t.Context(), bodies)
		rows, err2 := st.Events(t.Context(), store.EventFilter{Limit: 1000})
		if errors.Join(err, err2) != nil || len(rows) != 1000 {
			t.Fatalf("%d rows, %v %v", len(rows), err, err2)
		}
		for i := 100; i < 1000; i++ {
			if got[i].EventID <= got[i-100].EventID {
				t.Fatalf("body %d is event %d, and the one before it %d", i, got[i].EventID, got[i-100].EventID)
			}
		}
	})
}

func TestIntakeIsBuiltOfSense(t *testing.T) {
	st, src := &acceptOnly{}, botOf(t, "", 1)
	for want, build := range map[string]func() (*dedup.Intake, error){
		"a store":  func() (*dedup.Intake, error) { return dedup.NewIntake(nil, src, nil) },
		"a source": func() (*dedup.Intake, error) { return dedup.NewIntake(st, nil, nil) },
		"AcceptTimeout": func() (*dedup.Intake, error) {
			return dedup.NewIntake(st, src, &dedup.IntakeOptions{AcceptTimeout: -1})
		},
		"HeadStart is -1ns": func() (*dedup.Intake, error) {
			return dedup.NewIntake(st, src, &dedup.IntakeOptions{HeadStart: -1})
		},
		"HeadStart is 1m1s": func() (*dedup.Intake, error) {
			return dedup.NewIntake(st, src, &dedup.IntakeOptions{HeadStart: 61 * time.Second})
		},
	} {
		t.Run("an error names "+want, func(t *testing.T) {
			if _, err := build(); err == nil || !strings.Contains(err.Error(), want) {
				t.Error(err)
			}
		})
	}
}
