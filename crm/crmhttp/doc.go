// Package crmhttp sends a request to a CRM at most once and says what is certain about it.
//
// It owns the transport. It does not retry, follow redirects, limit rates or judge statuses: whether a 422 means "refused"
// is written in the CRM's manual, and so it is the adapter that says so. A method of an adapter reads
//
//	var out struct{ ID string }
//	status, err := m.http.PostJSON(ctx, "https://crm.example/leads", in, &out)
//	switch {
//	case err != nil:
//		return "", err // marked where that is certain; otherwise unknown, and that is right
//	case status == http.StatusUnprocessableEntity: // the CRM's manual: validated before anything is written
//		return "", crm.Rejected(errors.New("create lead: the CRM refused the fields"))
//	case status != http.StatusCreated:
//		return "", fmt.Errorf("create lead: status %d", status) // unknown
//	}
//	return out.ID, nil
//
// # What is certain
//
// A request certainly did not reach the CRM if its headers were never written: a URL that makes no sense, a name that
// does not resolve, a refused connection, a failed TLS handshake, a context that ended before there was a connection.
// Such errors are marked [crm.NotApplied]. From the moment that the headers were written nothing is certain any more: a
// timeout, a reset, an answer cut short or too large, an unreadable body after a 2xx. Those errors are not marked.
//
// A redirect is an error too, and an unmarked one: it is never followed (307 and 308 would send the body a second time,
// 301 to 303 would turn the POST into a GET), and whether the server acted before it answered is not known. It means that
// the configured address is the wrong one.
//
// # Why at most once
//
// Go's http.Transport sends a request again by itself when a reused connection turns out to be dead and the request has
// no body, a body that can be rewound, or an Idempotency-Key header (go1.26, net/http/transport.go, shouldRetryRequest).
// All of that needs a reused connection. The transport here has none: keep-alive is off, HTTP/2 is off, and bodies can't
// be rewound. A connection of its own for each request costs a handshake (shortened by a TLS session cache), which a CRM
// that allows a few calls a second does not notice; in return, a server that closes idle connections can't turn an
// enquiry into "perhaps sent".
//
// An Idempotency-Key header that a CRM does not document promises what nobody keeps. It is sent only where the adapter
// declares it, through [Request.IdempotencyKey]; in a header map it is refused.
//
// # Secrets
//
// No error names more of the URL than scheme and host: a path can be a secret (Bitrix24's is). Nor does one repeat what
// the server wrote.
package crmhttp
