package store

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// An ID is the identity of one grant, from its first request to its release. It is unique
// across processes and is never reused for another grant. The zero ID is invalid.
//
// It is an array, so that it needs no allocation and can be a map key.
type ID [16]byte

// NewID returns an ID of 128 random bits.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never returns an error, because crypto/rand ends the program instead
	return id
}

// ParseID parses the result of [ID.String]. Its errors match ErrInvalid.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("%w: id %.40q: want %d hexadecimal digits, as shown in a listing", ErrInvalid, s, 2*len(id))
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("%w: id %q: want hexadecimal digits only", ErrInvalid, s)
	}
	return id, nil
}

// String returns the ID as 32 hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText implements encoding.TextMarshaler with the result of String.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// AppendText implements encoding.TextAppender with the result of String.
func (id ID) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, id[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler; see [ParseID].
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
