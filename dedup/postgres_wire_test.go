package dedup_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// postgres_wire_test.go: a proxy between the store and its server that understands just so much of the protocol that it can
// cut the connection at the commit: before the server hears of it, when the server has done it and nobody was told, or
// right after the answer.

type moment int

const (
	beforeCommit moment = iota
	duringCommit        // committed, and the answer never arrives
	afterCommit
	moments
)

func (m moment) String() string {
	return [...]string{"before the commit", "during the commit", "after the commit"}[m]
}

// what commits: a transaction, or an accept, which is one statement that commits by itself.
const (
	theCommit = "commit"
	theAccept = "accept"
)

// wire cuts every n-th commit of each sort, each time at the next moment.
type wire struct {
	t      *testing.T
	server string
	l      net.Listener

	mu    sync.Mutex
	every int // 0: nothing is cut
	count map[string]int
	cuts  map[string][moments]int
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// startWire returns the proxy and the DSN through it.
func startWire(t *testing.T, dsn string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, server: u.Host, count: map[string]int{}, cuts: map[string][moments]int{}, conns: map[net.Conn]bool{}}
	if w.l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.all.Go(func() {
		for {
			c, err := w.l.Accept()
			if err != nil {
				return
			}
			w.all.Go(func() { w.serve(c) })
		}
	})
	t.Cleanup(func() {
		w.l.Close()
		w.mu.Lock()
		for c := range w.conns {
			c.Close()
		}
		w.mu.Unlock()
		w.all.Wait()
	})
	u.Host = w.l.Addr().String()
	return w, u.String()
}

func (w *wire) cut(every int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.every = every
}

// next says whether this commit is cut, and when.
func (w *wire) next(what string) (m moment, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if what == "" || w.every == 0 {
		return 0, false
	}
	w.count[what]++
	if w.count[what]%w.every != 0 {
		return 0, false
	}
	c := w.cuts[what]
	m = moment(w.count[what] / w.every % int(moments))
	c[m]++
	w.cuts[what] = c
	return m, true
}

func (w *wire) serve(client net.Conn) {
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		client.Close()
		return
	}
	w.mu.Lock()
	w.conns[client], w.conns[server] = true, true
	w.mu.Unlock()
	c := &wireConn{w: w, client: client, server: server, texts: map[string]string{}, armed: make(chan moment, 1)}
	var both sync.WaitGroup
	both.Go(func() { c.forward() })
	both.Go(func() { c.back() })
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, client)
	delete(w.conns, server)
}

// wireConn is one connection. The driver asks only when the answer before is complete, so that one armed cut is enough.
type wireConn struct {
	w              *wire
	client, server net.Conn
	texts          map[string]string // prepared statements by name
	armed          chan moment       // the answer that is coming is cut
}

func (c *wireConn) close() {
	c.client.Close()
	c.server.Close()
}

var errCut = errors.New("cut")

// forward passes the driver's messages on, a request at a time.
func (c *wireConn) forward() {
	defer c.close()
	first, err := message(c.client, false)
	if err != nil {
		return
	}
	if _, err := c.server.Write(first); err != nil {
		return
	}
	var request []byte
	what := ""
	for {
		m, err := message(c.client, true)
		if err != nil {
			return
		}
		request = append(request, m...)
		switch body := m[5:]; m[0] {
		case 'Q':
			if strings.HasPrefix(text(body), "COMMIT") {
				what = theCommit
			}
		case 'P':
			name := text(body)
			c.texts[name] = text(body[len(name)+1:])
		case 'B':
			portal := text(body)
			q := c.texts[text(body[len(portal)+1:])]
			if strings.Contains(q, "insert into") && strings.Contains(q, "leadonce_events") {
				what = theAccept
			}
		}
		if m[0] != 'Q' && m[0] != 'S' && m[0] != 'X' && m[0] != 'p' {
			continue
		}
		if at, cut := c.w.next(what); cut && at == beforeCommit {
			return
		} else if cut {
			c.armed <- at
		}
		if _, err := c.server.Write(request); err != nil {
			return
		}
		request, what = nil, ""
	}
}

// back passes the server's messages on, until the answer that is cut.
func (c *wireConn) back() {
	defer c.close()
	for {
		m, err := message(c.server, true)
		if err != nil {
			return
		}
		select {
		case at := <-c.armed:
			for m[0] != 'Z' { // ready: what was asked for is done
				if at == afterCommit {
					c.client.Write(m)
				}
				if m, err = message(c.server, true); err != nil {
					return
				}
			}
			if at == afterCommit {
				c.client.Write(m)
			}
			return
		default:
		}
		if _, err := c.client.Write(m); err != nil {
			return
		}
	}
}

// message reads one message: a type, but for the first of a connection, and a length that counts itself.
func message(r io.Reader, typed bool) ([]byte, error) {
	n := 4
	if typed {
		n = 5
	}
	head := make([]byte, n)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[n-4:])
	if size < 4 || size > 1<<26 {
		return nil, errCut
	}
	m := append(head, make([]byte, size-4)...)
	_, err := io.ReadFull(r, m[n:])
	return m, err
}

// text is a string of the protocol, up to its zero.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
