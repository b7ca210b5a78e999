package crmtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// contract_test.go: a right adapter passes the contract, and each wrong one fails where it is wrong.

// watcher runs a contract and writes down what failed, without failing the test around it.
type watcher struct {
	name string
	book *book
}

type book struct {
	mu     sync.Mutex
	failed map[string][]string
	logs   []string
	ran    map[string]bool
}

func watch(s Subject) *book {
	b := &book{failed: map[string][]string{}, ran: map[string]bool{}}
	watcher{"", b}.run("", func(r runner) { contract(r, s) })
	return b
}

func (w watcher) Helper() {}
func (w watcher) Errorf(format string, args ...any) {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	w.book.failed[w.name] = append(w.book.failed[w.name], fmt.Sprintf(format, args...))
}
func (w watcher) Logf(format string, args ...any) {
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	w.book.logs = append(w.book.logs, w.name+": "+fmt.Sprintf(format, args...))
}
func (w watcher) Fatalf(format string, args ...any) { w.Errorf(format, args...); runtime.Goexit() }
func (w watcher) Skipf(format string, args ...any)  { w.Logf(format, args...); runtime.Goexit() }
func (w watcher) run(name string, f func(runner)) bool {
	child := watcher{strings.TrimPrefix(w.name+"/"+name, "/"), w.book}
	w.book.mu.Lock()
	w.book.ran[child.name] = true
	w.book.mu.Unlock()
	done := make(chan bool)
	go func() { defer close(done); f(child) }()
	<-done
	w.book.mu.Lock()
	defer w.book.mu.Unlock()
	for failed := range w.book.failed {
		if failed == child.name || strings.HasPrefix(failed, child.name+"/") {
			return false
		}
	}
	return true
}

var guarantees = map[string]crm.Guarantee{
	"none": {}, "an idempotency key": {Kind: crm.IdempotencyKey, Window: time.Hour},
	"an upsert": {Kind: crm.Upsert}, "a unique id": {Kind: crm.UniqueID},
}

// subject is the simulator with its own adapter, which wrap may make wrong.
func subject(c Config, wrap func(base string, a *Client) crm.Adapter) Subject {
	sim := NewSimulator(c)
	return Subject{
		CRM: sim, Created: sim.Created,
		Adapter: func(base string) crm.Adapter {
			a := NewClient(base, sim.Describe())
			if wrap == nil {
				return a
			}
			return wrap(base, a)
		},
		Foreign: sim.Foreign,
	}
}

func TestContractPassesARightAdapter(t *testing.T) {
	for name, g := range guarantees {
		t.Run("under "+name, func(t *testing.T) { Contract(t, subject(Config{Guarantee: g}, nil)) })
	}
	t.Run("with one method and nothing declared", func(t *testing.T) {
		Contract(t, subject(Config{}, func(_ string, a *Client) crm.Adapter { return Minimal(a) }))
	})
	t.Run("that moves leads and can't read where they stand", func(t *testing.T) {
		Contract(t, subject(Config{}, func(_ string, a *Client) crm.Adapter { return Without(a, crm.KindRead) }))
	})
	t.Run("that reads where leads stand and can't move them", func(t *testing.T) {
		Contract(t, subject(Config{}, func(_ string, a *Client) crm.Adapter { return Without(a, crm.KindStage) }))
	})
	t.Run("whose look-up lags and says so", func(t *testing.T) {
		Contract(t, subject(Config{LookupLag: 100 * time.Millisecond}, nil))
	})
	t.Run("that reads something after it has created", func(t *testing.T) {
		Contract(t, subject(Config{}, func(_ string, a *Client) crm.Adapter {
			return wrong{Client: a, create: func(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
				id, err := a.CreateLead(ctx, op, l)
				if err == nil && a.Check(ctx) != nil {
					err = errors.New("made, and not confirmed")
				}
				return id, err
			}}
		}))
	})
	t.Run("that uses one address for everything", func(t *testing.T) {
		s := subject(Config{}, func(base string, _ *Client) crm.Adapter { return rpc{base: base} })
		s.CRM = rpcServer(s.CRM)
		Contract(t, s)
	})
}

// wrong is an adapter with one method, or two, replaced.
type wrong struct {
	*Client
	create func(ctx context.Context, op crm.Op, l crm.Lead) (string, error)
	find   func(ctx context.Context, op crm.Op) ([]string, error)
	note   func(ctx context.Context, op crm.Op, id string, n crm.Note) (string, error)
	desc   func() crm.Description
	check  func(ctx context.Context) error
	stage  func(ctx context.Context, op crm.Op, id string, s crm.Stage) error
	read   func(ctx context.Context, op crm.Op, id string) (crm.StageState, error)
}

func (w wrong) SetStage(ctx context.Context, op crm.Op, id string, s crm.Stage) error {
	if w.stage == nil {
		return w.Client.SetStage(ctx, op, id, s)
	}
	return w.stage(ctx, op, id, s)
}

func (w wrong) ReadStage(ctx context.Context, op crm.Op, id string) (crm.StageState, error) {
	if w.read == nil {
		return w.Client.ReadStage(ctx, op, id)
	}
	return w.read(ctx, op, id)
}

func (w wrong) Check(ctx context.Context) error {
	if w.check == nil {
		return w.Client.Check(ctx)
	}
	return w.check(ctx)
}

func (w wrong) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	if w.create == nil {
		return w.Client.CreateLead(ctx, op, l)
	}
	return w.create(ctx, op, l)
}

func (w wrong) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	if w.find == nil {
		return w.Client.FindLead(ctx, op)
	}
	return w.find(ctx, op)
}

func (w wrong) AddNote(ctx context.Context, op crm.Op, id string, n crm.Note) (string, error) {
	if w.note == nil {
		return w.Client.AddNote(ctx, op, id, n)
	}
	return w.note(ctx, op, id, n)
}

func (w wrong) Describe() crm.Description {
	if w.desc == nil {
		return w.Client.Describe()
	}
	return w.desc()
}

// raw sends a create the way many people would, and lets each wrong adapter judge the answer.
type raw struct {
	client *http.Client
	base   string
	header map[string]string
	extra  string // appended to the body's op_id field as a second field
	judge  func(status int, body []byte, id string, err error) (string, error)
}

func (r raw) create(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	b, err := json.Marshal(request{OpID: op.ID, Lead: &l})
	if err != nil {
		return "", err
	}
	if r.extra != "" {
		b = append(b[:len(b)-1], r.extra...)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/leads", bytes.NewReader(b))
	if err != nil {
		return "", err
	}
	for k, v := range r.header {
		req.Header.Set(k, strings.ReplaceAll(v, "{key}", op.Key))
	}
	res, err := r.client.Do(req)
	if err != nil {
		return r.judge(0, nil, "", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	var ans reply
	if err == nil {
		err = json.Unmarshal(body, &ans)
	}
	return r.judge(res.StatusCode, body, ans.ID, err)
}

// cautious is the right judgement, which the wrong ones deviate from.
func cautious(status int, _ []byte, id string, err error) (string, error) {
	switch {
	case err != nil:
		return "", errors.New("create lead: no answer that can be read")
	case status/100 != 2 || id == "":
		return "", fmt.Errorf("create lead: status %d", status)
	}
	return id, nil
}

func onceOnly() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type flaw struct {
	name  string
	conf  Config
	wrap  func(base string, a *Client) crm.Adapter
	fails []string // the subtests that have to fail
	only  bool     // and no other may
	crm   func(http.Handler) http.Handler
}

func TestContractFailsAWrongAdapter(t *testing.T) {
	flaws := slices.Concat(creatingFlaws(), repeatingFlaws(), otherFlaws(), stageFlaws())
	books := make([]*book, len(flaws))
	var all sync.WaitGroup
	room := make(chan bool, 8) // a contract waits more than it works
	for i, f := range flaws {
		room <- true
		all.Go(func() {
			defer func() { <-room }()
			s := subject(f.conf, f.wrap)
			if f.crm != nil {
				s.CRM = f.crm(s.CRM)
			}
			books[i] = watch(s)
		})
	}
	all.Wait()
	for i, f := range flaws {
		t.Run("that "+f.name, func(t *testing.T) {
			b := books[i]
			for _, want := range f.fails {
				if b.failed[want] == nil {
					t.Errorf("%q did not fail", want)
				}
			}
			for got, why := range b.failed {
				if f.only && !slices.Contains(f.fails, got) {
					t.Errorf("%q failed: %v", got, why)
				}
			}
			if t.Failed() {
				t.Logf("failed: %v", b.failed)
			}
		})
	}
}

func TestContractSkips(t *testing.T) {
	s := subject(Config{}, nil)
	s.Skip = map[string]string{
		"eight goroutines make one lead each":                           "one is enough",
		"when the reply is lost/at most one creating request is sent":   "known",
		"this subtest does not exist":                                   "?",
		"a look-up finds the lead of its operation and no other/deeper": "?",
	}
	b := watch(s)
	t.Run("a skipped subtest gives its reason", func(t *testing.T) {
		if !slices.Contains(b.logs, "eight goroutines make one lead each: skipped by the subject: one is enough") ||
			!slices.Contains(b.logs, "when the reply is lost/at most one creating request is sent: skipped by the subject: known") {
			t.Error(b.logs)
		}
	})
	t.Run("a name that is no subtest is an error", func(t *testing.T) {
		if len(b.failed) != 1 || len(b.failed[""]) != 2 {
			t.Error(b.failed)
		}
	})
}

func TestContractNeedsItsParts(t *testing.T) {
	if b := watch(Subject{}); len(b.failed) == 0 {
		t.Fatal("an empty subject passed")
	}
}

// rpc is an adapter that posts creates and look-ups to one address.
type rpc struct{ base string }

func (r rpc) call(ctx context.Context, method string, in, out any) error {
	b, err := json.Marshal(map[string]any{"method": method, "params": in})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.base+"/rpc", io.NopCloser(bytes.NewReader(b)))
	if err != nil {
		return err
	}
	req.ContentLength = int64(len(b))
	res, err := onceOnly().Do(req)
	if err != nil {
		return errors.New("rpc: no answer")
	}
	defer res.Body.Close()
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("rpc: status %d", res.StatusCode)
	}
	if err := json.NewDecoder(res.Body).Decode(out); err != nil {
		return errors.New("rpc: the answer is not JSON")
	}
	return nil
}

func (r rpc) CreateLead(ctx context.Context, op crm.Op, l crm.Lead) (string, error) {
	var seen, out reply // a look-up first, as a careful adapter might
	if err := r.call(ctx, "find", request{OpID: op.ID}, &seen); err != nil {
		return "", crm.NotApplied(err, 0)
	}
	if err := r.call(ctx, "create", request{OpID: op.ID, Lead: &l}, &out); err != nil {
		return "", err
	}
	return out.ID, nil
}

func (r rpc) FindLead(ctx context.Context, op crm.Op) ([]string, error) {
	var out reply
	if err := r.call(ctx, "find", request{OpID: op.ID}, &out); err != nil {
		return nil, err
	}
	if out.IDs == nil {
		return nil, errors.New("rpc: the answer has no ids")
	}
	return out.IDs, nil
}

func rpcServer(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Method string
			Params json.RawMessage
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var p request
		json.Unmarshal(in.Params, &p)
		method, path := http.MethodPost, "/leads"
		if in.Method == "find" {
			method, path = http.MethodGet, "/leads?op_id="+p.OpID
		}
		out, _ := http.NewRequestWithContext(r.Context(), method, path, bytes.NewReader(in.Params))
		if in.Method == "find" {
			out.Body = http.NoBody
		}
		h.ServeHTTP(w, out)
	})
}
