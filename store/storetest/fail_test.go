package storetest

import (
	"errors"
	"testing"

	"github.com/leadonce/leadonce/store"
)

func TestFail(t *testing.T) {
	ctx := t.Context()
	rows := func(st Backend) int {
		t.Helper()
		list, err := st.Events(ctx, store.EventFilter{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}

	t.Run("a call that fails before its effect did nothing, and says unavailable", func(t *testing.T) {
		st := openSQLite(t).Backend
		r, err := Fail(st, 0, Before).Accept(ctx, eventOf("k:1", 1))
		if !errors.Is(err, ErrInjected) || !errors.Is(err, store.ErrUnavailable) || r != (store.Receipt{}) || rows(st) != 0 {
			t.Fatalf("%+v, %v, %d rows", r, err, rows(st))
		}
	})
	t.Run("a call that fails after its effect did it, and its answer is lost", func(t *testing.T) {
		st := openSQLite(t).Backend
		r, err := Fail(st, 0, After).Accept(ctx, eventOf("k:1", 1))
		if !errors.Is(err, ErrInjected) || errors.Is(err, store.ErrUnavailable) || r != (store.Receipt{}) || rows(st) != 1 {
			t.Fatalf("%+v, %v, %d rows", r, err, rows(st))
		}
	})
	t.Run("only the n-th call fails, and calls are counted by method", func(t *testing.T) {
		f := Fail(openSQLite(t).Backend, 2, Before)
		for n := range 5 {
			_, err := f.Accept(ctx, eventOf("k:1", n))
			if (err != nil) != (n == 2) {
				t.Fatalf("call %d: %v", n, err)
			}
		}
		if _, err := f.Stats(ctx); err != nil {
			t.Fatal(err)
		}
		if f.Calls() != 6 || f.Calls("Accept") != 5 || f.Calls("Stats", "Claim") != 1 || f.Failed() != "Accept" {
			t.Fatalf("%d calls, %d of Accept, failed %q", f.Calls(), f.Calls("Accept"), f.Failed())
		}
	})
	t.Run("a call is counted among those of the methods named", func(t *testing.T) {
		f := Fail(openSQLite(t).Backend, 1, Before, "Submit", "RetryEvent")
		if _, err := f.Accept(ctx, eventOf("k:1", 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Submit(ctx, submissionOf(1)); err != nil {
			t.Fatal(err)
		}
		if err := f.RetryEvent(ctx, 1, "ann", "why"); !errors.Is(err, ErrInjected) || f.Failed() != "RetryEvent" {
			t.Fatalf("%v, failed %q", err, f.Failed())
		}
	})
	t.Run("an error of the store itself goes first", func(t *testing.T) {
		f := Fail(openSQLite(t).Backend, 0, After)
		if _, err := f.Operation(ctx, opID(1)); !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
	})
	t.Run("a negative n only counts", func(t *testing.T) {
		f := Fail(openSQLite(t).Backend, -1, Before)
		f.Subscribe(func(store.Hint) {})()
		for n := range 3 {
			if _, err := f.Accept(ctx, eventOf("k:1", n)); err != nil {
				t.Fatal(err)
			}
		}
		if f.Calls() != 3 || f.Failed() != "" {
			t.Fatalf("%d calls, failed %q", f.Calls(), f.Failed())
		}
	})
	t.Run("what the store under it is not, it says", func(t *testing.T) {
		f := Fail(struct{ Backend }{openSQLite(t).Backend}, -1, Before)
		if _, err := f.Accounts(ctx, "telegram"); !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		if err := f.AddAccount(ctx, store.Account{Source: "telegram"}); !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
	})
	t.Run("it passes every method on", func(t *testing.T) {
		s := openSQLite(t)
		s.Backend = Fail(s.Backend, -1, Before)
		for _, c := range [][2]string{{"durable", "everything acknowledged is found again"}, {"reader",
			"the chain holds from every end"},
			{"reader", "a parked event is retried by a person"}, {"attention",
				"an expired lease needs attention, a running one does not"}, {"accounts", "an account is remembered, once"}} {
			s := openSQLite(t)
			s.Backend = Fail(s.Backend, -1, Before)
			if r := try(t, find(t, c[0], c[1]), s); r.Failed() || r.Skipped() {
				t.Fatalf("%s/%s: %q", c[0], c[1], r.said)
			}
		}
	})
}
