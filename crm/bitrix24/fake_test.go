package bitrix24_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// fake_test.go: a stand-in for the Bitrix24 REST API, built from its documentation (apidocs.bitrix24.com: "crm.item.add",
// "crm.item.list", "crm.item.get", "CRM object fields", "crm.item.update", "crm.timeline.comment.add", "Error codes"). It
// was never compared with a running portal: it shows that the adapter keeps to the documentation, and no more.

const hookPath = "/rest/1/S3CRETcode/"

// portal keeps items. Like the original it ignores fields that it does not know.
type portal struct {
	mu       sync.Mutex
	items    []map[string]any
	comments []map[string]any
	calls    []call
	changes  int // each takes a second of the portal's time
	// stringIDs answers with ids as strings, which the original does in places.
	stringIDs bool
	// dropReference loses originId, like a typo in its name would.
	dropReference bool
	// next is the answer to the next call of a method, instead of what would happen; it is used once.
	next map[string]reply
}

type call struct {
	method string
	params map[string]any
}

type reply struct {
	status int
	body   string
	header http.Header
	// after: the method runs all the same.
	after bool
}

var knownFields = []string{"title", "name", "comments", "sourceId", "stageId", "categoryId", "assignedById", "contactId",
	"originatorId", "originId", "utmSource", "utmCampaign", "fm", "ufCrm_1700000000", "UF_CRM_1700000000"}

func (p *portal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	prefix, method, ok := strings.Cut(r.URL.Path, hookPath)
	if !ok || strings.Contains(prefix, "/rest/") {
		respond(w, 401, `{"error":"NO_AUTH_FOUND","error_description":"Wrong authorization data"}`)
		return
	}
	var params map[string]any
	d := json.NewDecoder(r.Body)
	d.UseNumber()
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" || d.Decode(&params) != nil {
		respond(w, 400, `{"error":"100","error_description":"no parameters"}`)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, call{method, params})
	instead, ok := p.next[method]
	delete(p.next, method)
	if ok && !instead.after {
		maps.Copy(w.Header(), instead.header)
		respond(w, instead.status, instead.body)
		return
	}
	result, code := p.run(method, params)
	switch {
	case ok:
		respond(w, instead.status, instead.body)
	case code != "":
		respond(w, 400, `{"error":"`+code+`","error_description":"S3CRET text of a person"}`)
	default:
		body, _ := json.Marshal(map[string]any{"result": result, "time": map[string]any{"operating": 0.1}})
		respond(w, 200, string(body))
	}
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	w.Write([]byte(body))
}

// run is the methods, with p locked.
func (p *portal) run(method string, params map[string]any) (result any, code string) {
	fields, _ := params["fields"].(map[string]any)
	switch method {
	case "crm.item.add":
		it := map[string]any{"id": len(p.items) + 1, "entityTypeId": params["entityTypeId"], "title": nil, "name": nil,
			"stageId": "NEW", "originId": nil, "originatorId": nil, "utmCampaign": nil}
		p.items = append(p.items, it)
		p.assign(it, fields)
		p.touch(it)
		return map[string]any{"item": p.show(it)}, ""
	case "crm.item.list":
		found := []any{}
		filter, _ := params["filter"].(map[string]any)
		for _, it := range p.items {
			if it["entityTypeId"] == params["entityTypeId"] && matches(it, filter) {
				found = append(found, p.show(it))
			}
		}
		return map[string]any{"items": found}, ""
	case "crm.item.get", "crm.item.update":
		it := p.item(params["id"])
		if it == nil {
			return nil, "NOT_FOUND"
		}
		if method == "crm.item.update" {
			p.assign(it, fields)
			p.touch(it)
		}
		return map[string]any{"item": p.show(it)}, ""
	case "crm.timeline.comment.add":
		if p.item(fields["ENTITY_ID"]) == nil {
			return nil, "OWNER_NOT_FOUND"
		}
		p.comments = append(p.comments, fields)
		return len(p.comments), ""
	}
	return nil, "ERROR_METHOD_NOT_FOUND"
}

func (p *portal) item(id any) map[string]any {
	n, _ := id.(json.Number)
	i, err := n.Int64()
	if err != nil || i < 1 || i > int64(len(p.items)) {
		return nil
	}
	return p.items[i-1]
}

func (p *portal) assign(it, fields map[string]any) {
	for name, v := range fields {
		lost := p.dropReference && name == "originId"
		switch fm := v.(type) {
		case map[string]any: // crm.item.update: n0, n1, … add
			had, _ := it[name].([]any)
			for _, k := range slices.Sorted(maps.Keys(fm)) {
				had = append(had, fm[k])
			}
			it[name] = had
		default:
			if slices.Contains(knownFields, name) && !lost {
				it[name] = v
			}
		}
	}
}

// touch sets what follows from a change: the time, and the group of the stage.
func (p *portal) touch(it map[string]any) {
	p.changes++
	it["updatedTime"] = time.Date(2026, 8, 25, 16, 16, 4+p.changes, 0, time.FixedZone("", 3*60*60)).Format(time.RFC3339)
	stage, _ := it["stageId"].(string)
	stage = stage[strings.Index(stage, ":")+1:] // C9:WON is WON in pipeline 9
	group := cmp.Or(map[string]string{"CONVERTED": "S", "WON": "S", "JUNK": "F", "LOSE": "F"}[stage], "P")
	it["stageSemanticId"] = group
	if id, _ := it["entityTypeId"].(json.Number); id == "2" {
		it["closed"] = map[bool]string{true: "N", false: "Y"}[group == "P"]
	}
}

func (p *portal) show(it map[string]any) map[string]any {
	out := maps.Clone(it)
	if p.stringIDs {
		b, _ := json.Marshal(it["id"])
		out["id"] = string(b)
	}
	return out
}

func matches(it, filter map[string]any) bool {
	for name, want := range filter {
		have, _ := it[strings.TrimPrefix(name, "=")].(string)
		if w, _ := want.(string); !strings.EqualFold(have, w) { // the database compares without case
			return false
		}
	}
	return true
}

// created counts the items of an operation.
func (p *portal) created(opID string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range p.items {
		if it["originId"] == opID {
			n++
		}
	}
	return n
}

// last returns the parameters of the last call of method as JSON, and how many there were.
func (p *portal) last(method string) (params string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.method == method {
			b, _ := json.Marshal(c.params)
			params = string(b)
			n++
		}
	}
	return params, n
}
