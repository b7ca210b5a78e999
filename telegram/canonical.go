package telegram

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// canonical.go: one form of JSON for all spellings of it: fields sorted, no space, numbers and escapes alike. Written in one
// pass, since it is done for every update.

// appendCanonical appends the canonical form of raw, which is valid JSON. Of a field that comes twice the last one counts,
// as everywhere here.
func appendCanonical(dst, raw []byte) []byte {
	c := canon{in: raw}
	return c.value(dst)
}

// canon reads valid JSON.
type canon struct {
	in []byte
	at int
}

// next skips space and returns the byte that follows.
func (c *canon) next() byte {
	for c.in[c.at] <= ' ' {
		c.at++
	}
	return c.in[c.at]
}

func (c *canon) value(dst []byte) []byte {
	switch b := c.next(); b {
	case '{':
		return c.object(dst)
	case '[':
		return c.array(dst)
	case '"':
		return appendString(dst, c.literal(b))
	case 't', 'f', 'n':
		return append(dst, c.literal(b)...)
	default:
		return appendNumber(dst, c.literal(b))
	}
}

// literal returns a string with its quotes, a number or a word as it is written.
func (c *canon) literal(first byte) []byte {
	start := c.at
	c.at++
	if first == '"' {
		for c.in[c.at] != '"' {
			if c.in[c.at] == '\\' {
				c.at++
			}
			c.at++
		}
		c.at++
		return c.in[start:c.at]
	}
	for c.at < len(c.in) && c.in[c.at] > ' ' && c.in[c.at] != ',' && c.in[c.at] != ']' && c.in[c.at] != '}' {
		c.at++
	}
	return c.in[start:c.at]
}

func (c *canon) array(dst []byte) []byte {
	dst = append(dst, '[')
	for c.at++; c.next() != ']'; {
		if c.in[c.at] == ',' {
			c.at++
			dst = append(dst, ',')
		}
		dst = c.value(dst)
	}
	c.at++
	return append(dst, ']')
}

// field is where a field of an object stands in the output: its name, and the whole of it.
type field struct{ from, colon, to int }

func (c *canon) object(dst []byte) []byte {
	var fields []field
	start := len(dst)
	sorted := true
	for c.at++; c.next() != '}'; {
		if c.in[c.at] == ',' {
			c.at++
		}
		f := field{from: len(dst)}
		dst = appendString(dst, c.literal(c.next()))
		f.colon = len(dst)
		c.next()
		c.at++ // the colon
		dst = c.value(append(dst, ':'))
		f.to = len(dst)
		if n := len(fields); n > 0 {
			last := fields[n-1]
			sorted = sorted && bytes.Compare(dst[last.from:last.colon], dst[f.from:f.colon]) < 0
		}
		fields = append(fields, f)
	}
	c.at++
	if len(fields) == 0 {
		return append(dst, "{}"...)
	}
	// The fields stand in a row now, without braces and commas: they are put in order in a copy.
	row := bytes.Clone(dst[start:])
	name := func(f field) []byte { return row[f.from-start : f.colon-start] }
	if !sorted {
		slices.SortStableFunc(fields, func(a, b field) int { return bytes.Compare(name(a), name(b)) })
	}
	dst = dst[:start]
	for i, f := range fields {
		if i+1 < len(fields) && bytes.Equal(name(f), name(fields[i+1])) {
			continue
		}
		if len(dst) == start {
			dst = append(dst, '{')
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, row[f.from-start:f.to-start]...)
	}
	return append(dst, '}')
}

// appendString writes a string as encoding/json does, without asking it where nothing is to be escaped.
func appendString(dst, quoted []byte) []byte {
	for _, b := range quoted[1 : len(quoted)-1] {
		if b < ' ' || b > '~' || b == '\\' || b == '<' || b == '>' || b == '&' {
			var s string
			if json.Unmarshal(quoted, &s) == nil {
				if out, err := json.Marshal(s); err == nil {
					return append(dst, out...)
				}
			}
			break
		}
	}
	return append(dst, quoted...)
}

// appendNumber gives every number one spelling. Whole ones keep all their digits.
func appendNumber(dst, n []byte) []byte {
	if !bytes.ContainsAny(n, ".eE") {
		if string(n) == "-0" {
			return append(dst, '0')
		}
		return append(dst, n...)
	}
	f, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return append(dst, n...) // beyond every type: as it is written
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
