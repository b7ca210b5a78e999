package storetest

import (
	"bytes"
	"errors"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/store"
)

// submit.go: a lead that the host makes itself. Its id names one operation for ever.

func submitChecks() []check {
	return []check{
		{"a submission is a pending operation, due at once", submitStores},
		{"the same submission again is the operation as it stands", submitTwice},
		{"the same submission in 32 concurrent calls is one operation", submitConcurrent},
		{"the id again with another lead is ErrKeyReused beside the first operation", submitReused},
		{"a submission without a contact is stored", submitWithoutContact},
		{"a submission that can't be stored is refused with the field's name", submitInvalid},
		{"odd bytes in the fields come back as they went in", submitOddBytes},
	}
}

// wantNamed checks that an error names a field.
func (b *bench) wantNamed(err error, field string) {
	b.Helper()
	plain := strings.NewReplacer("_", "", " ", "", ".", "")
	if !strings.Contains(strings.ToLower(plain.Replace(err.Error())), strings.ToLower(plain.Replace(field))) {
		b.Fatalf("the error does not name %s: %v", field, err)
	}
}

// wantOperations checks how many operations are stored.
func (b *bench) wantOperations(n int) []store.Operation {
	b.Helper()
	ops := b.ops(store.OperationFilter{Limit: 1000})
	if len(ops) != n {
		b.Fatalf("there are %d operations, want %d: %v", len(ops), n, ids(ops))
	}
	return ops
}

func submitStores(b *bench) {
	s := submissionOf(1)
	o := b.submit(1)
	want := s.Operation
	if o.ID != want.ID || o.Tenant != want.Tenant || o.Kind != want.Kind || o.OrderingKey != want.OrderingKey ||
		o.ContactKey != want.ContactKey || o.DealID != want.DealID || !bytes.Equal(o.Fields, want.Fields) {
		b.Errorf("stored %+v", o)
	}
	if o.State != store.Pending || o.Doubt || o.Blocked || o.Attempts != 0 || o.Fence != 0 || o.Revision != 0 ||
		o.CreatedAt.IsZero() || !o.EndedAt.IsZero() {
		b.Errorf("it stands as %+v", o)
	}
	if d := cmp.Diff(o, b.op(o.ID)); d != "" {
		b.Errorf("returned and read differ: %s", d)
	}
	if t := b.trail(o.ID); len(t) != 0 {
		b.Errorf("an ordinary submission left a trail: %+v", t)
	}
	b.take(o.ID)
}

func submitTwice(b *bench) {
	first := b.submit(1)
	if d := cmp.Diff(first, b.submit(1)); d != "" {
		b.Fatalf("the same submission again: %s", d)
	}
	sent := b.take(opID(1))
	if d := cmp.Diff(sent, b.submit(1)); d != "" {
		b.Fatalf("again while it is sent: %s", d)
	}
	done := b.advance(reportOf(sent, store.Confirmed))
	if d := cmp.Diff(done, b.submit(1)); d != "" {
		b.Fatalf("again when it is done: %s", d)
	}
	if got := b.claim(claimOf("a", 5)); len(got) != 0 {
		b.Fatalf("a repeated submission is sent again: %v", ids(got))
	}
	b.wantOperations(1)
}

func submitConcurrent(b *bench) {
	handles := []Backend{b.st}
	if b.Second != nil {
		handles = append(handles, b.Second())
	}
	var wg sync.WaitGroup
	errs := make([]error, 32)
	ops := make([]store.Operation, 32)
	for i := range errs {
		wg.Go(func() { ops[i], errs[i] = handles[i%len(handles)].Submit(b.ctx, submissionOf(1)) })
	}
	wg.Wait()
	for i, err := range errs {
		b.must(err)
		if ops[i].ID != opID(1) || ops[i].State != store.Pending {
			b.Fatalf("call %d got %+v", i, ops[i])
		}
	}
	b.wantOperations(1)
}

func submitReused(b *bench) {
	first := b.submit(1)
	s := submissionOf(1)
	s.Operation.Fields = []byte(`{"title":"another lead"}`)
	o, err := b.st.Submit(b.ctx, s)
	b.wantErr(err, store.ErrKeyReused, "another lead under a used key")
	if d := cmp.Diff(first, o); d != "" {
		b.Fatalf("the first operation does not stand: %s", d)
	}
	if d := cmp.Diff(first, b.op(first.ID)); d != "" {
		b.Fatalf("the first operation changed: %s", d)
	}
	b.wantOperations(1)
}

func submitWithoutContact(b *bench) {
	s := submissionOf(1)
	s.Contact, s.Deal.ContactKey, s.Operation.ContactKey = store.Contact{}, "", ""
	o, err := b.st.Submit(b.ctx, s)
	b.must(err)
	b.take(o.ID)
}

func submitInvalid(b *bench) {
	for field, f := range map[string]func(*store.Submission){
		"Operation.ID":   func(s *store.Submission) { s.Operation.ID = "" },
		"Operation.Kind": func(s *store.Submission) { s.Operation.Kind = "" },
		"Deal.ID":        func(s *store.Submission) { s.Deal.ID, s.Operation.DealID = "", "" },
	} {
		s := submissionOf(1)
		f(&s)
		_, err := b.st.Submit(b.ctx, s)
		b.wantErr(err, store.ErrInvalid, "submit without "+field)
		b.wantNamed(err, field[strings.Index(field, ".")+1:])
	}
	b.wantOperations(0)
	if _, err := b.st.Operation(b.ctx, opID(1)); !errors.Is(err, store.ErrNotFound) {
		b.Fatalf("an operation that was refused: %v", err)
	}
}

func submitOddBytes(b *bench) {
	for i, fields := range []string{`{"text":"a\u0000b"}`, "{\"text\":\"\xff\xfe\"}", `{"text":"'; drop table x; --"}`} {
		s := submissionOf(i)
		s.Operation.Fields = []byte(fields)
		_, err := b.st.Submit(b.ctx, s)
		b.must(err)
		if got := b.op(opID(i)); string(got.Fields) != fields {
			b.Fatalf("%q came back as %q", fields, got.Fields)
		}
	}
}
