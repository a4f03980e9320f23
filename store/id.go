package store

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
)

// ID is the identity of one grant, from its first request to its release. It is
// unique across processes and never used for a second grant. The zero ID is invalid.
//
// It is an array so that it costs no allocation and can be a map key.
type ID [16]byte

// NewID returns an ID of 128 random bits.
func NewID() ID {
	var id ID
	rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	return id
}

// ParseID reads what String wrote. The error is an ErrInvalid.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 2*len(id) {
		return ID{}, fmt.Errorf("%w: id %.40q: want %d hexadecimal digits, as a listing shows them", ErrInvalid, s, 2*len(id))
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

// MarshalText makes an ID readable in JSON.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// AppendText appends what String returns.
func (id ID) AppendText(b []byte) ([]byte, error) { return hex.AppendEncode(b, id[:]), nil }

// UnmarshalText is the reverse of MarshalText.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}
