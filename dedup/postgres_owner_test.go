package dedup_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"github.com/leadonce/leadonce/store"
)

// postgres_owner_test.go: no operation has two owners at a time: by what the processes of a fleet have told, and by what
// the CRM has met.

// oneOwnerEach checks what the processes have seen: a lease is begun once; and when the next one of an operation begins, the
// call under the one before is over, or its process was killed.
func (f *fleet) oneOwnerEach() {
	f.mu.Lock()
	defer f.mu.Unlock()
	type lease struct {
		life, begun       int
		owner             string
		began, call, back int64
		done              int64
	}
	ops := map[string]map[int64]*lease{}
	for _, n := range f.journal {
		if n.What == "ready" {
			continue
		}
		if ops[n.Op] == nil {
			ops[n.Op] = map[int64]*lease{}
		}
		l := ops[n.Op][n.Fence]
		if l == nil {
			l = &lease{life: -1}
			ops[n.Op][n.Fence] = l
		}
		switch n.What {
		case "began":
			if l.begun++; l.begun > 1 {
				f.t.Errorf("operation %s, fence %d: begun by %s and by %s", n.Op, n.Fence, l.owner, n.Owner)
			}
			l.life, l.owner, l.began = n.life, n.Owner, n.At
		case "call":
			l.call = n.At
		case "back":
			l.back = n.At
		case "moved":
			if n.State == store.Done {
				l.done = n.At
			}
		}
	}
	repeated := 0
	for id, leases := range ops {
		for fence, a := range leases {
			for later, b := range leases {
				if later <= fence || b.begun == 0 || a.begun == 0 {
					continue
				}
				repeated++
				killed := f.lives[a.life].killedAt
				switch {
				case a.done != 0 && b.began > a.done:
					f.t.Errorf("operation %s was begun (fence %d) when it was done (fence %d)", id, later, fence)
				case a.call == 0 || (a.back != 0 && a.back <= b.began) || (killed != 0 && killed <= b.began):
				default:
					f.t.Errorf("operation %s was begun by %s (fence %d) while %s (fence %d) was calling",
						id, b.owner, later, a.owner, fence)
				}
			}
		}
	}
	f.t.Logf("%d processes in all, %d operations, %d begun again", len(f.lives), len(ops), repeated)
}

// overlaps watches the CRM for two requests of one operation at the same time.
type overlaps struct {
	http.Handler
	mu    sync.Mutex
	under map[string]int
	met   []string
}

func (o *overlaps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil { // its client was killed
		return
	}
	var in struct {
		OpID string `json:"op_id"`
	}
	json.Unmarshal(body, &in)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if in.OpID != "" {
		o.mu.Lock()
		if o.under[in.OpID]++; o.under[in.OpID] > 1 {
			o.met = append(o.met, in.OpID)
		}
		o.mu.Unlock()
		defer func() {
			o.mu.Lock()
			o.under[in.OpID]--
			o.mu.Unlock()
		}()
	}
	o.Handler.ServeHTTP(w, r)
}
