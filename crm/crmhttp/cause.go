package crmhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
)

// cause.go: why an exchange broke off, in words that hold neither the URL nor what the server wrote.

// cause returns the part of err that is safe to print. Errors of net/http quote malformed answers, and those of a proxy
// its address: of them only a kind that is known to be harmless goes through.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	for _, known := range []error{io.ErrUnexpectedEOF, io.EOF, http.ErrSchemeMismatch, net.ErrClosed} {
		if errors.Is(err, known) {
			return known
		}
	}
	if e, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return e
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return e
	}
	if e, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return e
	}
	if e, ok := errors.AsType[tls.AlertError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && harmless(e.Err) {
		if e.Op == "read" || e.Op == "write" {
			return e.Err // without this side's port, which is another one each time
		}
		return e
	}
	if e, ok := errors.AsType[syscall.Errno](err); ok {
		return e
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return errTimeout
	}
	return errBroken
}

// harmless reports whether the innermost error is one of the operating system's or a timeout.
func harmless(err error) bool {
	_, errno := errors.AsType[syscall.Errno](err)
	e, ok := errors.AsType[net.Error](err)
	return errno || ok && e.Timeout()
}

var (
	errTimeout = errors.New("a timeout while connecting")
	errBroken  = errors.New("what came was not HTTP, or the connection could not be used")
)
