package telegram_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/leadonce/leadonce/dedup"
	"github.com/leadonce/leadonce/store"
	"github.com/leadonce/leadonce/telegram"
)

// updates_test.go: what our own small updates are taken for, block by block, and identities that must never change.

var update = flag.Bool("update", false, "rewrite the golden file of identities")

const botID = 6001

func source(t testing.TB) *telegram.Source {
	t.Helper()
	s, err := telegram.NewSource(botID, "secret-of-the-test", nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t testing.TB, s *telegram.Source, body []byte) (store.Event, dedup.Enquiry) {
	t.Helper()
	e, err := s.Parse(body)
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	var q dedup.Enquiry
	if err := json.Unmarshal(e.Enquiry, &q); err != nil {
		t.Fatalf("the stored enquiry: %v", err)
	}
	return e, q
}

// sample is one block of testdata/updates.txt.
type sample struct {
	name string
	want []string
	body []byte
}

func samples(t testing.TB) []sample {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "updates.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []sample
	for block := range strings.SplitSeq(string(raw), "\n= ") {
		lines := strings.SplitN(strings.TrimSpace(block), "\n", 3)
		if len(lines) == 3 && !strings.HasPrefix(lines[0], "#") {
			all = append(all, sample{lines[0], strings.Fields(lines[1]), []byte(lines[2])})
		}
	}
	if len(all) < 60 {
		t.Fatalf("only %d samples were read", len(all))
	}
	return all
}

func named(t testing.TB, name string) []byte {
	t.Helper()
	for _, s := range samples(t) {
		if s.name == name {
			return s.body
		}
	}
	t.Fatalf("no sample %q", name)
	return nil
}

// describe says in the words of testdata/updates.txt what an update was taken for.
func describe(e store.Event, q dedup.Enquiry, flags []string) []string {
	out := []string{"none"}
	if q.HasPerson {
		out = []string{"person", q.Person.ID}
	}
	out = append(out, map[bool]string{true: "asks", false: "quiet"}[q.Asks])
	out = append(out, scopeOf(e))
	given := map[string]string{"edited": fmt.Sprint(q.Edited), "group": fmt.Sprint(q.Group != ""), "text": fmt.Sprint(q.Text != ""),
		"data": fmt.Sprint(q.Data != "")}
	for _, name := range []string{"text", "edited", "data", "group"} {
		if given[name] == "true" && slices.Contains(flags, name) {
			out = append(out, name)
		}
	}
	add := func(name, value string) {
		if value != "" {
			out = append(out, name+":"+value)
		}
	}
	add("command", q.Command)
	add("campaign", q.Campaign)
	add("service", q.Service)
	add("location", q.Location)
	add("reply", q.ReplyTo)
	if q.OwnPhone {
		add("ownphone", q.Phone)
	} else {
		add("phone", q.Phone)
	}
	for _, f := range q.Files {
		add("files", f.Kind+"/"+f.ID)
	}
	if q.MovedTo != "" {
		add("movedto", scopeOfKey(e, q.MovedTo))
	}
	if q.MovedFrom != "" {
		add("movedfrom", scopeOfKey(e, q.MovedFrom))
	}
	if e.RepeatKey != "" {
		out = append(out, "repeats")
	}
	return out
}

// scopeOf finds the scope of an event's ordering key.
func scopeOf(e store.Event) string { return scopeOfKey(e, e.OrderingKey) }

// scopeOfKey finds the scope of an ordering key among those that the update can have.
func scopeOfKey(e store.Event, wanted string) string {
	key := func(scope, id string) bool {
		return wanted == dedup.OrderingKey(e.Tenant, e.Source, e.Bot, scope, id)
	}
	if key("event", e.UpdateID) {
		return "event"
	}
	for _, field := range bytes.FieldsFunc(e.Payload, func(r rune) bool { return r != '-' && (r < '0' || r > '9') }) {
		for _, scope := range []string{"user", "chat"} {
			if key(scope, string(field)) {
				return scope + ":" + string(field)
			}
			if key(scope, "guest:"+string(field)) {
				return scope + ":guest:" + string(field)
			}
		}
	}
	return "?"
}

func TestOwnUpdates(t *testing.T) {
	s := source(t)
	for _, c := range samples(t) {
		t.Run(c.name, func(t *testing.T) {
			e, q := parse(t, s, c.body)
			if e.Quarantine != "" {
				t.Fatalf("quarantined: %s", e.Quarantine)
			}
			got := describe(e, q, c.want)
			slices.Sort(got)
			want := slices.Sorted(slices.Values(c.want))
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			sound(t, e, q, c.body)
		})
	}
}

// sound checks what holds of every event.
func sound(t testing.TB, e store.Event, q dedup.Enquiry, body []byte) {
	t.Helper()
	if e.Source != telegram.Name || e.Bot != fmt.Sprint(botID) || e.UpdateID == "" || len(e.Hash) != 64 || e.Kind == "" ||
		e.OrderingKey == "" || e.ContentID == "" || e.DealKey == "" || !bytes.Equal(e.Payload, body) || len(e.Fingerprints) != 1 ||
		e.Fingerprints[0].Version != telegram.FingerprintVersion || e.Fingerprints[0].Sum == "" {
		t.Errorf("a field is missing: %+v", e)
	}
	if q.ContentID != e.ContentID || q.ContentRev != e.ContentRev || q.DealKey != e.DealKey || q.Kind != e.Kind || q.Bot != e.Bot {
		t.Errorf("the enquiry tells other identities than the event")
	}
	if (e.ContactKey != "") != q.HasPerson || (q.Person.ID != "") != q.HasPerson || (q.Asks && !q.HasPerson) {
		t.Errorf("contact key %q, person %q, has person %v, asks %v", e.ContactKey, q.Person.ID, q.HasPerson, q.Asks)
	}
	if e.ContactKey != dedup.ContactKey(e.Tenant, e.Source, q.Person.ID) {
		t.Errorf("the contact key is not the person's")
	}
	if e.RepeatKey != "" && (e.Kind != "callback_query" || !q.HasPerson) {
		t.Errorf("%s has the repeat key %q", e.Kind, e.RepeatKey)
	}
	if moved := q.MovedTo + q.MovedFrom; moved != "" && (q.Asks || q.Service == "" || len(moved) != len(e.OrderingKey) ||
		moved == e.OrderingKey || e.OrderingKey != dedup.OrderingKey(e.Tenant, e.Source, e.Bot, "chat", q.ChatID)) {
		t.Errorf("moved to %q, from %q", q.MovedTo, q.MovedFrom)
	}
	for _, f := range q.Files {
		if strings.Contains(f.ID, "://") {
			t.Errorf("a file became a URL")
		}
	}
}

func TestIdentitiesNeverChange(t *testing.T) {
	var b strings.Builder
	b.WriteString("# name | content id | revision | deal key | fingerprint | ordering key | contact key\n")
	s := source(t)
	for _, c := range samples(t) {
		e, _ := parse(t, s, c.body)
		fmt.Fprintln(&b, strings.Join([]string{c.name, e.ContentID, e.ContentRev, e.DealKey,
			fmt.Sprintf("v%d:%s", e.Fingerprints[0].Version, e.Fingerprints[0].Sum), e.OrderingKey, e.ContactKey}, " | "))
	}
	file := filepath.Join("testdata", "identities.golden")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.ReplaceAll(string(want), "\r\n", "\n"), b.String()); d != "" {
		t.Errorf("operation ids are made of these values: a change opens a second deal for what is stored already, so a "+
			"change of the fingerprint is a new version beside the old one. (-want +got)\n%s", d)
	}
}

func TestSameContent(t *testing.T) {
	s := source(t)
	get := func(name string) store.Event {
		e, _ := parse(t, s, named(t, name))
		return e
	}
	first, again, edit, edit2 := get("a text in a private chat"), get("the same text under another update_id"), get("its edit"),
		get("a second edit within the same second")
	t.Run("one message under two update_ids is one content", func(t *testing.T) {
		if first.ContentID != again.ContentID || first.DealKey != again.DealKey || first.UpdateID == again.UpdateID {
			t.Error("different")
		}
	})
	t.Run("an edit is another revision of the same content, and so is a second one within the same second", func(t *testing.T) {
		if edit.ContentID != first.ContentID || edit.DealKey != first.DealKey || edit2.ContentID != first.ContentID {
			t.Error("another content")
		}
		if first.ContentRev != "" || edit.ContentRev == "" || edit.ContentRev == edit2.ContentRev {
			t.Errorf("revisions %q, %q, %q", first.ContentRev, edit.ContentRev, edit2.ContentRev)
		}
	})
	t.Run("the items of an album share their deal key only", func(t *testing.T) {
		a, b := get("an album, first item"), get("an album, second item with the caption")
		if a.DealKey != b.DealKey || a.ContentID == b.ContentID || a.DealKey == a.ContentID {
			t.Error("wrong")
		}
	})
	t.Run("a business chat counts its messages by itself", func(t *testing.T) {
		in := func(kind, conn string) string {
			e, _ := parse(t, s, fmt.Appendf(nil, `{"update_id":1,%q:{"message_id":11,%s"from":{"id":5},"chat":{"id":5,"type":"private"},"date":9}}`, kind, conn))
			return e.ContentID
		}
		plain, one, two := in("message", ""), in("business_message", `"business_connection_id":"1",`), in("business_message", `"business_connection_id":"2",`)
		if plain == one || one == two || plain == two {
			t.Error("two contents were taken for one")
		}
	})
	t.Run("another bot's message with the same numbers is another content", func(t *testing.T) {
		o, err := telegram.NewSource(botID+1, "secret-of-the-test", nil)
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := parse(t, o, named(t, "a text in a private chat")); e.ContentID == first.ContentID || e.OrderingKey == first.OrderingKey {
			t.Error("the same")
		}
	})
	t.Run("a tenant separates contacts and ordering keys", func(t *testing.T) {
		o, err := telegram.NewSource(botID, "secret-of-the-test", &telegram.Options{Tenant: "omsk"})
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := parse(t, o, named(t, "a text in a private chat")); e.Tenant != "omsk" || e.ContactKey == first.ContactKey || e.OrderingKey == first.OrderingKey {
			t.Error("the same")
		}
	})
}

func TestFingerprint(t *testing.T) {
	s := source(t)
	print := func(body []byte) string {
		e, _ := parse(t, s, body)
		return e.Fingerprints[0].Sum
	}
	for _, c := range samples(t) {
		t.Run("re-encoded by a proxy: "+c.name, func(t *testing.T) {
			d := json.NewDecoder(bytes.NewReader(c.body))
			d.UseNumber()
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			other, err := json.MarshalIndent(v, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Equal(other, c.body) {
				t.Fatal("the encoding is the same: nothing was tested")
			}
			if print(other) != print(c.body) {
				t.Error("another fingerprint")
			}
		})
	}
	t.Run("no two of the samples share one, but for the same message under two update_ids", func(t *testing.T) {
		seen := map[string]string{}
		for _, c := range samples(t) {
			p := print(c.body)
			if other, ok := seen[p]; ok && c.name != "the same text under another update_id" {
				t.Errorf("%q and %q", other, c.name)
			}
			seen[p] = c.name
		}
	})
}

func BenchmarkParse(b *testing.B) {
	s := source(b)
	body := named(b, "a text in a private chat")
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := s.Parse(body); err != nil {
			b.Fatal(err)
		}
	}
}
