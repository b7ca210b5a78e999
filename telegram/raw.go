package telegram

import (
	"encoding/json"
	"strconv"
)

// raw.go: reading JSON field by field. A field of a wrong type counts as missing and costs no other field; names are
// compared exactly, which encoding/json does not do with structs.

// object is a JSON object whose values are not looked into yet. nil is an object without fields.
type object map[string]json.RawMessage

// asObject returns nil for what is no object.
func asObject(raw []byte) object {
	var o object
	if json.Unmarshal(raw, &o) != nil {
		return nil
	}
	return o
}

func (o object) object(name string) object {
	raw := o[name]
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return asObject(raw)
}

func (o object) list(name string) []json.RawMessage {
	raw := o[name]
	if len(raw) == 0 || raw[0] != '[' {
		return nil
	}
	var l []json.RawMessage
	if json.Unmarshal(raw, &l) != nil {
		return nil
	}
	return l
}

// text returns a string, or a number as it is written: Telegram's own samples have an id as a number where a string is
// documented.
func (o object) text(name string) string {
	raw := o[name]
	if len(raw) == 0 {
		return ""
	}
	if raw[0] == '-' || (raw[0] >= '0' && raw[0] <= '9') {
		return string(raw)
	}
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// number returns a whole number, also one in quotes. What is fractional or does not fit into 64 bits is missing.
func (o object) number(name string) (n int64, ok bool) {
	n, err := strconv.ParseInt(o.text(name), 10, 64)
	return n, err == nil
}

// id is number with 0 for a missing one; no user, chat or message has the id 0.
func (o object) id(name string) int64 {
	n, _ := o.number(name)
	return n
}

func (o object) flag(name string) bool {
	raw := string(o[name])
	return raw == "true" || raw == `"true"`
}

// has reports whether the field is there and says something: not null and not false.
func (o object) has(name string) bool {
	raw, ok := o[name]
	return ok && string(raw) != "null" && string(raw) != "false"
}
