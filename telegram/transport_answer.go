package telegram

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// transport_answer.go: what getUpdates answered, whole or not at all.

// answer is what is known of an answer's body.
type answer struct {
	ok      bool // ok:true, whatever the status: libraries go by that alone
	updates [][]byte
}

// ids returns the first and the last update's; numbered is false if one of them has none.
func (a answer) ids() (first, last int64, numbered bool) {
	if len(a.updates) == 0 {
		return 0, 0, false
	}
	first, ok1 := updateID(a.updates[0])
	last, ok2 := updateID(a.updates[len(a.updates)-1])
	return first, last, ok1 && ok2
}

// updateID is false where the offset that follows would be negative: that one forgets what nobody has fetched.
func updateID(update []byte) (int64, bool) {
	id, ok := asObject(update).number("update_id")
	return id, ok && id >= 0 && id < math.MaxInt64
}

// errAnswer stands for causes that would quote the answer.
var errAnswer = errors.New("the answer is not one of the Bot API, or was cut short; nothing of it is confirmed")

// readAnswer reads and closes resp's body, and gives resp one with the same content. What is not understood is passed on only
// if no library can find updates in it, whatever the status: a gateway's page about an error is the library's to deal with.
func readAnswer(resp *http.Response, limit int64) (answer, error) {
	defer resp.Body.Close()
	if resp.StatusCode >= 300 && resp.StatusCode <= 399 {
		return answer{}, errRedirect
	}
	raw, err := readBody(resp, limit)
	if err != nil {
		return answer{}, err
	}
	a, err := decodeAnswer(raw)
	if err != nil && (resp.StatusCode < 400 || bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))) {
		return answer{}, err
	}
	resp.Body, resp.ContentLength, resp.TransferEncoding = io.NopCloser(bytes.NewReader(raw)), int64(len(raw)), nil
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	resp.Header.Set("Content-Length", strconv.Itoa(len(raw)))
	return a, nil
}

// readBody undoes gzip where the base has not done so; then the header goes.
func readBody(resp *http.Response, limit int64) ([]byte, error) {
	body := io.Reader(resp.Body)
	switch e := strings.ToLower(resp.Header.Get("Content-Encoding")); e {
	case "", "identity":
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, errAnswer
		}
		resp.Header.Del("Content-Encoding")
		resp.Uncompressed, body = true, z
	default:
		return nil, errors.New("the answer has a Content-Encoding that nobody asked for: take the proxy's compression off")
	}
	raw, err := io.ReadAll(io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer broke off after %d bytes: %w", len(raw), err)
	case int64(len(raw)) > limit:
		return nil, fmt.Errorf("the answer is longer than %d bytes (TransportOptions.MaxAnswer): ask for fewer (limit)", limit)
	}
	return raw, nil
}

// decodeAnswer takes apart what says ok:true. Each update keeps its bytes: a webhook delivers the same ones.
func decodeAnswer(raw []byte) (answer, error) {
	o := asObject(raw)
	for name := range o { // encoding/json, and so most libraries, take these names in any case
		if name != "ok" && name != "result" && (strings.EqualFold(name, "ok") || strings.EqualFold(name, "result")) {
			return answer{}, errAnswer
		}
	}
	switch {
	case string(o["ok"]) == "false":
		return answer{}, nil
	case !o.flag("ok"):
		return answer{}, errAnswer
	}
	var list []json.RawMessage
	if err := json.Unmarshal(o["result"], &list); err != nil || list == nil {
		return answer{}, errAnswer
	}
	a := answer{ok: true, updates: make([][]byte, len(list))}
	for i, u := range list {
		a.updates[i] = u
	}
	return a, nil
}
