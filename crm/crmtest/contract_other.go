package crmtest

import (
	"cmp"
	"context"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/leadonce/leadonce/crm"
)

// contract_other.go: the optional calls. They work, and none sends its write twice.

// What the calls write, in ASCII, so that it is recognised in JSON and in a form alike.
const (
	noteText   = "contract-note: is delivery included?"
	otherPhone = "+79995559876" // not the lead's own: an adapter may see that there is nothing to change
	person     = "ContractPerson"
)

// write is an optional call, made for a lead that exists.
type write struct {
	name string
	kind crm.Kind
	mark string // what the writing request carries, and one that only reads does not
	call func(ctx context.Context, op crm.Op, leadID string) (string, error)
}

func (h *harness) writes(a crm.Adapter) (all []write) {
	add := func(name string, k crm.Kind, mark string, call func(context.Context, crm.Op, string) (string, error)) {
		all = append(all, write{name, k, mark, call})
	}
	if n, is := a.(crm.Noter); is {
		add("AddNote", crm.KindNote, "contract-note", func(ctx context.Context, op crm.Op, id string) (string, error) {
			return n.AddNote(ctx, op, id, crm.Note{Text: noteText, Ref: "#" + op.ID[len(op.ID)-4:]})
		})
	}
	if u, is := a.(crm.Updater); is {
		add("UpdateLead", crm.KindUpdate, "5559876", func(ctx context.Context, op crm.Op, id string) (string, error) {
			return "", u.UpdateLead(ctx, op, id, crm.Lead{Phone: otherPhone})
		})
	}
	if s, is := a.(crm.Stager); is {
		to := h.subject.Stage
		add("SetStage", crm.KindStage, to.To, func(ctx context.Context, op crm.Op, id string) (string, error) {
			return "", s.SetStage(ctx, op, id, to)
		})
	}
	if c, is := a.(crm.Contacter); is {
		add("EnsureContact", crm.KindContact, person, func(ctx context.Context, op crm.Op, _ string) (string, error) {
			return c.EnsureContact(ctx, op, crm.Contact{ExternalID: op.ID, Name: person, Phone: otherPhone})
		})
	}
	return all
}

func (h *harness) others(t scope) {
	for _, w := range h.writes(h.adapter()) {
		t.sub(w.name+" works, and sends its write once when the reply is lost", func(t scope) { h.write(t, w) })
	}
	if c, is := h.adapter().(crm.Checker); is {
		check := func(ctx context.Context) (string, error) { return "", c.Check(ctx) }
		t.sub("Check succeeds where the CRM answers, and fails where it does not", func(t scope) {
			ctx, cancel := context.WithTimeout(context.Background(), callTime)
			defer cancel()
			if r := h.call(t, ctx, "", nil, check); r.err != nil || len(r.sent) == 0 {
				t.Errorf("Check returned %v after %d requests: make one cheap request that needs the credentials", r.err, len(r.sent))
			}
			for _, m := range []*mishap{losing(true), bare(502, true), html(200, true)} {
				if r := h.call(t, ctx, "", always(m), check); r.err == nil {
					t.Errorf("Check succeeded although %s: the adapter would leave its pause too early", m.name)
				}
			}
		})
	}
}

// write makes the call once as it should be, and once with the answer lost to the request that writes.
func (h *harness) write(t scope, w write) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*callTime)
	defer cancel()
	id, op := h.newLead(t), h.op(w.kind)
	plain := h.call(t, ctx, op.ID, nil, func(ctx context.Context) (string, error) { return w.call(ctx, op, id) })
	if plain.err != nil || len(plain.sent) == 0 {
		t.Fatalf("%s sent %d requests and returned %v", w.name, len(plain.sent), plain.err)
	}
	if w.kind == crm.KindContact && plain.id == "" {
		t.Errorf("EnsureContact returned no id: the lead could not be tied to the person")
	}
	writing := cmp.Or(w.writing(plain.sent), plain.sent[len(plain.sent)-1])
	same := func(x *exchange, leadID string) bool {
		return x.method == writing.method && withoutID(blank(x.path), leadID) == withoutID(blank(writing.path), id) &&
			w.marks(x) == w.marks(writing)
	}
	want := 0
	for _, x := range plain.sent {
		if same(x, id) {
			want++
		}
	}
	next, op := h.newLead(t), h.op(w.kind)
	var n atomic.Int64
	r := h.call(t, ctx, op.ID, func(x *exchange) *mishap {
		if same(x, next) && n.Add(1) == int64(want) {
			return losing(true)
		}
		return nil
	}, func(ctx context.Context) (string, error) { return w.call(ctx, op, next) })
	if n := n.Load(); n != int64(want) {
		t.Errorf("%s sent its request %d times when the reply was lost, and %d times when it was not: do not retry",
			w.name, n, want)
	}
	if o, _ := crm.OutcomeOf(r.err); r.err == nil || o != crm.OutcomeUnknown {
		t.Errorf("%s returned %v (%s) when the reply was lost: return the error unmarked", w.name, r.err, o)
	}
}

// writing returns the last request that carries what is written, or nil.
func (w write) writing(sent []*exchange) (last *exchange) {
	for _, x := range sent {
		if w.marks(x) {
			last = x
		}
	}
	return last
}

func (w write) marks(x *exchange) bool {
	content := x.query + " " + string(x.body)
	if plain, err := url.QueryUnescape(content); err == nil {
		content += " " + plain
	}
	return strings.Contains(content, w.mark)
}

// withoutID takes a lead's id out of a path, but not out of the middle of a word: an id may be as short as "1".
func withoutID(path, id string) string {
	if id == "" {
		return path
	}
	whole := regexp.MustCompile(`(^|[^0-9A-Za-z])` + regexp.QuoteMeta(id) + `($|[^0-9A-Za-z])`)
	return whole.ReplaceAllString(path, "${1}{lead}${2}")
}
