package crmhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leadonce/leadonce/crm"
	"github.com/leadonce/leadonce/crm/crmhttp"
)

// once_test.go: no request is sent twice, whatever the connection does.

// rawServer answers requests read from bare connections, and counts the whole requests that arrived.
type rawServer struct {
	url      string
	requests atomic.Int32
	conns    atomic.Int32
	open     atomic.Int32
	mu       sync.Mutex
	bodies   []string
}

// serve runs answer for each request; answer returns false to cut the connection off with a reset.
func serve(t *testing.T, answer func(n int32, conn net.Conn) bool) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &rawServer{url: "http://" + l.Addr().String()}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.conns.Add(1)
			s.open.Add(1)
			go s.talk(conn, answer)
		}
	}()
	return s
}

func (s *rawServer) talk(conn net.Conn, answer func(int32, net.Conn) bool) {
	defer s.open.Add(-1)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		if !answer(s.requests.Add(1), conn) {
			conn.(*net.TCPConn).SetLinger(0) // a reset, not an orderly end
			return
		}
	}
}

func (s *rawServer) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

const ok = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

// dropSecond keeps the first connection open, so that a client which reuses it gets its next request cut off.
func dropSecond(t *testing.T) *rawServer {
	return serve(t, func(n int32, conn net.Conn) bool {
		if n == 1 {
			io.WriteString(conn, ok)
			return true
		}
		return false
	})
}

func TestSendsOnce(t *testing.T) {
	t.Run("the server of this test does make Go's own client send twice", func(t *testing.T) {
		s := dropSecond(t)
		own := &http.Client{Transport: &http.Transport{}}
		for range 2 {
			r, _ := http.NewRequest("POST", s.url, strings.NewReader("{}"))
			r.Header.Set("Idempotency-Key", "k")
			if resp, err := own.Do(r); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		if n := s.requests.Load(); n != 3 {
			t.Fatalf("%d requests arrived, want 3: the test proves nothing", n)
		}
	})
	for _, r := range []crmhttp.Request{
		{Method: "POST", Body: []byte(`{"a":1}`)},
		{Method: "POST"},
		{Method: "POST", Body: []byte(`{"a":1}`), IdempotencyKey: "k"},
		{Method: "POST", IdempotencyKey: "k"},
		{Method: "POST", Body: []byte("x"), IdempotencyKey: "k", IdempotencyHeader: "X-Idempotency-Key"},
		{Method: "PATCH", Body: []byte("x")},
		{Method: "PUT"},
		{Method: "DELETE"},
		{Method: "GET"},
	} {
		name := fmt.Sprintf("%s with %d bytes and key %q arrives once when its connection breaks",
			r.Method, len(r.Body), r.IdempotencyKey)
		t.Run(name, func(t *testing.T) {
			s := dropSecond(t)
			c := crmhttp.New(nil)
			r.URL = s.url
			if _, err := c.Do(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			_, err := c.Do(t.Context(), r)
			if o, _ := crm.OutcomeOf(err); err == nil || o != crm.OutcomeUnknown {
				t.Fatalf("a reset after the request: %v (%v), want an unmarked error", err, o)
			}
			if n := s.requests.Load(); n != 2 {
				t.Fatalf("%d requests arrived for 2 calls", n)
			}
			if n := s.conns.Load(); n != 2 {
				t.Fatalf("%d connections for 2 calls: one was used again", n)
			}
		})
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprintf("a %d is not followed, and unknown", status), func(t *testing.T) {
			var hits atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				hits.Add(1)
				http.Redirect(w, r, "/elsewhere/SECRET", status)
			}))
			defer s.Close()
			got, err := crmhttp.New(nil).PostJSON(t.Context(), s.URL, map[string]int{"a": 1}, nil)
			o, _ := crm.OutcomeOf(err)
			if err == nil || o != crm.OutcomeUnknown || got != status || crm.EvidenceOf(err).Status != status {
				t.Fatalf("status %d, %v (%v)", got, err, o)
			}
			if strings.Contains(err.Error(), "SECRET") || !strings.Contains(err.Error(), "redirect") {
				t.Fatalf("the error reads %q", err)
			}
			if hits.Load() != 1 {
				t.Fatalf("%d requests", hits.Load())
			}
		})
	}
	t.Run("HTTP/2 is not spoken, though the server offers it", func(t *testing.T) {
		proto := make(chan string, 1)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { proto <- r.Proto }))
		s.EnableHTTP2 = true
		s.StartTLS()
		defer s.Close()
		c := crmhttp.New(&crmhttp.Options{RootCAs: pool(s)})
		if _, err := c.Do(t.Context(), crmhttp.Request{URL: s.URL}); err != nil {
			t.Fatal(err)
		}
		if p := <-proto; p != "HTTP/1.1" {
			t.Fatalf("spoke %s", p)
		}
	})
}

// A context that ends at any moment: what is marked as not applied must not have arrived.
func TestCancelAtAnyMoment(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	s := serve(t, func(_ int32, conn net.Conn) bool { io.WriteString(conn, ok); return true })
	c := crmhttp.New(nil)
	notApplied := map[string]bool{}
	padding := bytes.Repeat([]byte("x"), 8<<10) // larger than the write buffer
	for i := range 400 {
		id := fmt.Sprintf("id%d;", i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rnd.IntN(400))*time.Microsecond)
		_, err := c.Do(ctx, crmhttp.Request{Method: "POST", URL: s.url, Body: append([]byte(id), padding...)})
		cancel()
		if o, _ := crm.OutcomeOf(err); o == crm.OutcomeNotApplied {
			notApplied[id] = true
		}
	}
	// A request that is still on its way gets the chance to prove us wrong: connections are accepted in order, so once the
	// last one has been served and all are closed, nothing is left to come.
	if _, err := c.Do(t.Context(), crmhttp.Request{Method: "POST", URL: s.url, Body: []byte("last;")}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); s.open.Load() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are still open", s.open.Load())
		}
	}
	arrived := s.got()
	for _, body := range arrived {
		id, _, _ := strings.Cut(body, ";")
		if notApplied[id+";"] {
			t.Fatalf("%s was reported as not applied, and arrived", id)
		}
	}
	t.Logf("%d not applied, %d arrived", len(notApplied), len(arrived))
	if len(notApplied) == 0 || len(arrived) == 1 {
		t.Log("all on one side: this machine's timing shows nothing")
	}
}
