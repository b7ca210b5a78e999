package crmhttp

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"
)

// client.go: the client, and a transport that has no way to send twice.

// Defaults of Options.
const (
	DefaultTimeout = 30 * time.Second
	DefaultMaxBody = 1 << 20 // bytes
)

const (
	connectTimeout = 10 * time.Second
	maxHeaderBytes = 256 << 10
	userAgent      = "leadonce/1 (+https://github.com/leadonce/leadonce)" // Bitrix24 asks for "name/version"
)

// Options adjust a Client. The zero value of each field means its default.
type Options struct {
	// Timeout is how long one call may take in all, connection and answer included; the context's deadline counts if it
	// is earlier. Zero or less means DefaultTimeout.
	Timeout time.Duration
	// MaxBody is the largest answer that is read, in bytes. Zero or less means DefaultMaxBody. A larger answer is an error
	// whose outcome is unknown.
	MaxBody int64
	// Header is sent with every request, for example Authorization. A Request's own header wins. Like there, an
	// Idempotency-Key in it makes every call fail before anything is sent.
	Header http.Header
	// RequestIDHeader is the answer's header with the vendor's id of the request, where it has a name of its own. The
	// common ones (X-Request-Id and the like) are known.
	RequestIDHeader string
	// RootCAs are the authorities that the server's certificate is checked against; nil means the system's. There is no
	// way to switch the check off.
	RootCAs *x509.CertPool
	// Proxy chooses the proxy for a request; nil means http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
}

// Client sends requests. It may be used by several goroutines at once, holds no connections between calls, and needs no
// closing.
type Client struct {
	timeout   time.Duration
	maxBody   int64
	header    http.Header
	requestID []string // header names, the most telling first
	transport *http.Transport
}

// New returns a Client; o may be nil. What an option can get wrong is said by the calls, before anything is sent.
func New(o *Options) *Client {
	if o == nil {
		o = &Options{}
	}
	c := &Client{
		timeout:   o.Timeout,
		maxBody:   o.MaxBody,
		header:    o.Header.Clone(),
		requestID: requestIDHeaders,
		transport: newTransport(o),
	}
	if c.timeout <= 0 {
		c.timeout = DefaultTimeout
	}
	if c.maxBody <= 0 {
		c.maxBody = DefaultMaxBody
	}
	if o.RequestIDHeader != "" {
		c.requestID = append([]string{o.RequestIDHeader}, requestIDHeaders...)
	}
	return c
}

func newTransport(o *Options) *http.Transport {
	proxy := o.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	var http1 http.Protocols
	http1.SetHTTP1(true)
	return &http.Transport{
		Proxy:               proxy,
		DialContext:         (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout: connectTimeout,
		TLSClientConfig: &tls.Config{
			RootCAs:            o.RootCAs,
			MinVersion:         tls.VersionTLS12,
			ClientSessionCache: tls.NewLRUClientSessionCache(0),
		},
		// Every silent resend of the transport needs a connection that was used before: there is none.
		DisableKeepAlives: true,
		// HTTP/2 resends after GOAWAY and REFUSED_STREAM.
		Protocols: &http1,
		// A compressed answer that is cut short is harder to tell, and the size limit would count the wrong bytes.
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}
