package telegram

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// transport_params.go: what a bot library asks for: a method's name in the path, and parameters in any of four encodings.

// maxParams bounds the body of the three methods that are looked into; the largest has a certificate in it.
const maxParams = 1 << 20

// apiMethod takes /bot<token>/<method>, or /bot<token>/test/<method>, behind any prefix. token is empty without such a one.
func apiMethod(path string) (token, method string) {
	parts := strings.Split(strings.TrimRight(path, "/"), "/")
	method = parts[len(parts)-1]
	parts = parts[:len(parts)-1]
	if n := len(parts); n > 0 && parts[n-1] == "test" {
		parts = parts[:n-1]
	}
	if n := len(parts); n > 0 {
		if t, ok := strings.CutPrefix(parts[n-1], "bot"); ok {
			token = t
		}
	}
	return token, method
}

// params are a request's parameters: the URL's, then the body's. The first of a name counts [S].
type params url.Values

func (p params) get(name string) string { return url.Values(p).Get(name) }

// offset is false for what is no whole number: the server makes of it what it likes. What begins with a minus is negative.
func (p params) offset() (n int64, ok bool) {
	s := strings.TrimSpace(p.get("offset"))
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err == nil || s == "":
		return n, true
	case strings.HasPrefix(s, "-"):
		return -1, true
	}
	return 0, false
}

// truth is what the server takes for true [S].
func truth(s string) bool {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "yes", "1":
		return true
	}
	return false
}

// readParams reads the parameters and returns a request that sends the same bytes. req's own body is used up.
func readParams(req *http.Request) (out *http.Request, p params, err error) {
	out = req.Clone(req.Context())
	var body []byte
	if req.Body != nil {
		defer req.Body.Close()
		if body, err = io.ReadAll(io.LimitReader(req.Body, maxParams+1)); err != nil {
			return nil, nil, fmt.Errorf("the request's own body: %w", err)
		}
		if len(body) > maxParams {
			return nil, nil, fmt.Errorf("more than %d bytes of parameters", maxParams)
		}
		setBody(out, body)
	}
	query, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return nil, nil, errParams
	}
	if err := addBody(query, req.Header.Get("Content-Type"), body); err != nil {
		return nil, nil, err
	}
	return out, params(query), nil
}

var errParams = errors.New("the request's parameters can't be read") // the cause would quote them

func setBody(r *http.Request, body []byte) {
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	if len(body) == 0 {
		r.Body, r.GetBody = http.NoBody, func() (io.ReadCloser, error) { return http.NoBody, nil }
	}
}

// addBody appends the body's parameters. The server decides by what the Content-Type contains, and takes nothing
// from a body of any other type [S].
func addBody(to url.Values, contentType string, body []byte) error {
	kind := strings.ToLower(contentType)
	switch {
	case len(body) == 0:
		return nil
	case strings.Contains(kind, "multipart/form-data"):
		return addMultipart(to, contentType, body)
	case strings.Contains(kind, "application/x-www-form-urlencoded"):
		v, err := url.ParseQuery(string(body))
		if err != nil {
			return errParams
		}
		for name, l := range v {
			to[name] = append(to[name], l...)
		}
	case strings.Contains(kind, "application/json"):
		var o object
		if json.Unmarshal(body, &o) != nil {
			return errParams
		}
		for name, raw := range o {
			s := string(raw) // also true, a list, a number: the server takes JSON's own words for it
			if raw[0] == '"' && json.Unmarshal(raw, &s) != nil {
				return errParams
			}
			to.Add(name, s)
		}
	}
	return nil
}

func addMultipart(to url.Values, contentType string, body []byte) error {
	_, attr, err := mime.ParseMediaType(contentType)
	if err != nil {
		return errParams
	}
	for r := multipart.NewReader(bytes.NewReader(body), attr["boundary"]); ; {
		part, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errParams
		}
		value, err := io.ReadAll(part)
		if err != nil {
			return errParams
		}
		if part.FileName() == "" {
			to.Add(part.FormName(), string(value))
		}
	}
}

// request returns out with another offset; 0 sends none. one asks for a single update. Any method takes its parameters as a form [D, making requests].
func (p params) request(out *http.Request, offset int64, one bool) *http.Request {
	v := url.Values{}
	for name, l := range p {
		if name != "offset" {
			v[name] = l[:1]
		}
	}
	if offset != 0 {
		v.Set("offset", strconv.FormatInt(offset, 10))
	}
	if one {
		v.Set("limit", "1")
	}
	out.Method, out.URL.RawQuery = http.MethodPost, ""
	out.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	out.Header.Del("Content-Length")
	setBody(out, []byte(v.Encode()))
	return out
}
