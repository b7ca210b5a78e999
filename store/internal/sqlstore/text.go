package sqlstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// text.go: how strings, times and truths are stored.

// Clean returns s as every engine can store it: NUL bytes and invalid UTF-8 become U+FFFD. It is applied to whatever is
// bound to a statement, so what is looked up is changed like what was stored, and a strange byte never loses an event.
func Clean(s string) string {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c == 0 || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// Micros returns t as it is stored: microseconds since 1970, 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// Time is the opposite of Micros, in UTC.
func Time(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Trim returns t as it will be read back.
func Trim(t time.Time) time.Time { return Time(Micros(t)) }

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// check collects what is wrong with a row. It names columns, never contents.
type check struct{ wrong []string }

func (c *check) that(ok bool, column string) {
	if !ok {
		c.wrong = append(c.wrong, column)
	}
}

func (c *check) bit(n int64, column string) bool {
	c.that(n == 0 || n == 1, column)
	return n == 1
}

func (c *check) err() error {
	if len(c.wrong) == 0 {
		return nil
	}
	return fmt.Errorf("unreadable: %s", strings.Join(c.wrong, ", "))
}

// blob returns nil for an empty one: engines differ in whether they keep the difference.
func blob(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// JSONTexts returns strings as a JSON array.
func JSONTexts(list []string) string {
	b := []byte{'['}
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendJSON(b, s)
	}
	return string(append(b, ']'))
}

// AppendJSON appends a string as JSON, cleaned.
func AppendJSON(b []byte, s string) []byte {
	s = Clean(s)
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' {
			q, _ := json.Marshal(s) // a string can be marshaled
			return append(b, q...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
