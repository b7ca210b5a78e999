// Package ids derives identities: the same parts give the same id, on every machine and in every version.
package ids

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// UUID returns a version 8 UUID (RFC 9562) made of the SHA-256 of the parts. Each part is preceded by its length, so that
// ("a", "bc") and ("ab", "c") differ.
func UUID(parts ...string) string {
	b := sum(parts)
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	var s [36]byte
	hex.Encode(s[0:8], b[0:4])
	hex.Encode(s[9:13], b[4:6])
	hex.Encode(s[14:18], b[6:8])
	hex.Encode(s[19:23], b[8:10])
	hex.Encode(s[24:36], b[10:16])
	s[8], s[13], s[18], s[23] = '-', '-', '-', '-'
	return string(s[:])
}

// Digest returns 128 bits of the SHA-256 of the parts in hexadecimal.
func Digest(parts ...string) string {
	b := sum(parts)
	return hex.EncodeToString(b[:16])
}

func sum(parts []string) [32]byte {
	h := sha256.New()
	var n [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return [32]byte(h.Sum(nil))
}
