package crmtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leadonce/leadonce/crm"
)

// handler.go: the simulator's protocol over HTTP.
//
//	POST  /leads              {op_id, lead}      201 {id}; 200 where an upsert overwrote; 409 {id} where the id is taken
//	GET   /leads?op_id=                          200 {ids}
//	GET   /leads/{id}                            200 {id, op_id, stage, version, at, closed}
//	GET   /leads/{id}/stage?op_id=               the same, on behalf of an operation
//	PATCH /leads/{id}         {op_id, lead}      200 {id}
//	PUT   /leads/{id}/stage   {op_id, stage}     200 {id}
//	POST  /leads/{id}/notes   {op_id, note}      201 {id}
//	POST  /contacts           {op_id, contact}   201 {id}; 200 where the person is known
//	GET   /check                                 200 {}
//
// A documented refusal has a code: 401 token_refused, 404 no_lead, 409 duplicate, 422 invalid, 422 key_reused, 429 or 503
// throttled. The header Idempotency-Key is read under an IdempotencyKey guarantee only.

const (
	codeInvalid   = "invalid"
	codeNoLead    = "no_lead"
	codeDuplicate = "duplicate"
	codeKeyReused = "key_reused"
	codeThrottled = "throttled"
	codeToken     = "token_refused"
)

const bodyLimit = 1 << 20

type request struct {
	OpID    string       `json:"op_id"`
	Lead    *crm.Lead    `json:"lead,omitempty"`
	Note    *crm.Note    `json:"note,omitempty"`
	Stage   *crm.Stage   `json:"stage,omitempty"`
	Contact *crm.Contact `json:"contact,omitempty"`
}

type reply struct {
	ID      string    `json:"id,omitempty"`
	IDs     []string  `json:"ids,omitzero"`
	OpID    string    `json:"op_id,omitempty"`
	Stage   string    `json:"stage,omitempty"`
	Version int64     `json:"version,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Closed  bool      `json:"closed,omitempty"`
	Code    string    `json:"code,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// answer is what goes back; page, where set, replaces the JSON.
type answer struct {
	status int
	reply  reply
	page   string
	header [2]string
}

func ok(status int, r reply) answer { return answer{status: status, reply: r} }

func refused(status int, code, text string) answer {
	return answer{status: status, reply: reply{Code: code, Error: text}}
}

func (a answer) replayed() answer {
	a.header = [2]string{"Idempotency-Replayed", "true"}
	return a
}

func (a answer) bytes() (contentType string, body []byte) {
	if a.page != "" {
		return "text/html", []byte(a.page)
	}
	body, err := json.Marshal(a.reply)
	if err != nil {
		panic(err) // nothing in it that JSON can't say
	}
	return "application/json", body
}

func (a answer) write(w http.ResponseWriter) {
	contentType, body := a.bytes()
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if a.header[0] != "" {
		w.Header().Set(a.header[0], a.header[1])
	}
	w.WriteHeader(a.status)
	w.Write(body)
}

// ServeHTTP answers one request, or lets happen to it what was asked for.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := understand(r)
	if err != nil {
		refused(http.StatusBadRequest, codeInvalid, err.Error()).write(w)
		return
	}
	var f Fault
	s.do(func() { f = s.meet(c.tally(), false) })
	switch f.Kind {
	case Refuse, Drop:
		drop()
	case Throttle:
		a := refused(orStatus(f.Status, http.StatusTooManyRequests), codeThrottled, "too many requests")
		a.header = [2]string{"Retry-After", strconv.Itoa(int((f.Delay + time.Second - 1) / time.Second))}
		a.write(w)
		return
	case TokenRefused:
		refused(http.StatusUnauthorized, codeToken, "the token is not accepted").write(w)
		return
	case Late:
		if c.writes() {
			s.do(func() { s.landLater(c, f.Delay) })
		}
		drop()
	}
	var a answer
	if f.Applied || f.acts() {
		a = s.execute(c, f)
	}
	s.respond(w, r, f, a)
}

// acts reports whether the CRM acts before this fault, or without one.
func (f Fault) acts() bool {
	switch f.Kind {
	case "", LoseReply, ResetMidBody, Slow, Stale, Reject:
		return true
	}
	return false
}

// execute makes the effect and tells OnEffect, before any answer leaves.
func (s *Simulator) execute(c call, f Fault) (a answer) {
	var wrote bool
	s.do(func() {
		now := s.conf.Now()
		switch f.Kind {
		case Stale:
			a = s.find(c, now, max(s.conf.LookupLag, f.Delay))
		case Reject:
			a, wrote = s.apply(c, now, "the fields are not valid")
		default:
			a, wrote = s.apply(c, now, "")
		}
	})
	if wrote {
		s.tell(c)
	}
	return a
}

func (s *Simulator) respond(w http.ResponseWriter, r *http.Request, f Fault, a answer) {
	switch f.Kind {
	case LoseReply:
		drop()
	case ResetMidBody:
		contentType, body := a.bytes()
		cut(w, a.status, contentType, body)
		return
	case Hang:
		<-r.Context().Done()
		drop()
	case Slow:
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
			drop()
		}
	case ErrorBody:
		a = answer{status: http.StatusOK, reply: reply{Error: "something went wrong"}}
	case Garbage:
		a = answer{status: http.StatusOK, page: "<html><body>Please log in</body></html>"}
	case BareStatus:
		status := orStatus(f.Status, http.StatusBadGateway)
		a = answer{status: status, page: fmt.Sprintf("<html><body>%d</body></html>", status)}
	}
	a.write(w)
}

func orStatus(status, otherwise int) int {
	if status == 0 {
		return otherwise
	}
	return status
}

// drop closes the connection without a further byte.
func drop() { panic(http.ErrAbortHandler) }

// cut sends half of a body and resets the connection.
func cut(w http.ResponseWriter, status int, contentType string, body []byte) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		drop()
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", status,
		http.StatusText(status), contentType, max(len(body), 2), body[:len(body)/2])
	if tcp, isTCP := conn.(*net.TCPConn); isTCP {
		tcp.SetLinger(0) // a reset instead of an orderly end
	}
}

func (c call) tally() tally { return tally{c.kind, c.in.OpID} }

func (c call) writes() bool { return writes(c.kind) }

func writes(k crm.Kind) bool { return k != Find && k != Read && k != Check && k != crm.KindRead }

// understand reads a request. What it can't read is answered 400, which no adapter of the simulator ever sees.
func understand(r *http.Request) (call, error) {
	raw, err := io.ReadAll(io.LimitReader(r.Body, bodyLimit+1))
	if err != nil || len(raw) > bodyLimit {
		return call{}, errors.New("the body can't be read or is too large")
	}
	c := call{raw: raw, key: r.Header.Get("Idempotency-Key")}
	if len(raw) > 0 {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&c.in); err != nil {
			return call{}, errors.New("the body is not the JSON of a call")
		}
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(path) > 1 {
		c.lead = path[1]
	}
	has := false
	switch where := fmt.Sprint(r.Method, " ", path[0], " ", len(path)); {
	case where == "POST leads 1":
		c.kind, has = crm.KindCreate, c.in.Lead != nil
	case where == "GET leads 1":
		c.kind, c.in.OpID = Find, r.URL.Query().Get("op_id")
		has = c.in.OpID != ""
	case where == "GET leads 2":
		c.kind, has = Read, true
	case where == "GET leads 3" && path[2] == "stage":
		c.kind, c.in.OpID, has = crm.KindRead, r.URL.Query().Get("op_id"), true
	case where == "PATCH leads 2":
		c.kind, has = crm.KindUpdate, c.in.Lead != nil
	case where == "PUT leads 3" && path[2] == "stage":
		c.kind, has = crm.KindStage, c.in.Stage != nil
	case where == "POST leads 3" && path[2] == "notes":
		c.kind, has = crm.KindNote, c.in.Note != nil
	case where == "POST contacts 1":
		c.kind, has = crm.KindContact, c.in.Contact != nil
	case where == "GET check 1":
		c.kind, has = Check, true
	default:
		return call{}, errors.New("no such call")
	}
	if !has || (c.writes() && c.in.OpID == "") {
		return call{}, errors.New("the call lacks its op_id or its subject")
	}
	return c, nil
}
