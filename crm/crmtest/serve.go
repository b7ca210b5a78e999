package crmtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
)

// serve.go: how requests reach a handler: over loopback, or through pipes.

// Server is a handler that is served on a loopback port until it is closed.
type Server struct {
	// URL is where it is served, for example http://127.0.0.1:40123, without a slash at the end.
	URL string

	http *http.Server
	done chan struct{}
}

// Start serves the simulator on a free port of 127.0.0.1. Close the Server when done.
func (s *Simulator) Start() (*Server, error) { return serve(s) }

func serve(h http.Handler) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("crmtest: listen on loopback: %w", err)
	}
	s := &Server{URL: "http://" + l.Addr().String(), http: newHTTPServer(h), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		s.http.Serve(l) // returns when closed
	}()
	return s, nil
}

// Close stops listening and closes every connection, those of hanging requests included. Calling it again does nothing.
func (s *Server) Close() error {
	err := s.http.Close()
	<-s.done
	if err != nil {
		return fmt.Errorf("crmtest: close: %w", err)
	}
	return nil
}

func newHTTPServer(h http.Handler) *http.Server {
	s := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols)}
	s.Protocols.SetHTTP1(true)
	return s
}

// dialPipe connects to the simulator without a socket. The goroutine that serves the other end lives as long as the
// connection.
func (s *Simulator) dialPipe(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	go newHTTPServer(s).Serve(&onePipe{conn: server})
	return client, nil
}

// onePipe is a listener that accepts one connection.
type onePipe struct {
	once sync.Once
	conn net.Conn
}

func (l *onePipe) Accept() (c net.Conn, err error) {
	err = errors.New("no more connections")
	l.once.Do(func() { c, err = l.conn, nil })
	return c, err
}

func (l *onePipe) Close() error   { return nil }
func (l *onePipe) Addr() net.Addr { return l.conn.LocalAddr() }
