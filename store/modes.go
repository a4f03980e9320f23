package store

import "fmt"

// Mode is how a name is held.
type Mode uint8

const (
	Exclusive Mode = iota + 1 // by one holder alone
	Shared                    // by any number of shared holders
	Permits                   // by holders of a limited number of permits
)

// String returns "exclusive", "shared" or "permits".
func (m Mode) String() string { return word(m-Exclusive, "unknown", "exclusive", "shared", "permits") }

// word returns the word of a value, or other if it has none.
func word[T ~uint8](value T, other string, words ...string) string {
	if int(value) < len(words) {
		return words[value]
	}
	return other
}

// MarshalText implements encoding.TextMarshaler with the result of String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Usage sums up the holders of a name, to decide about one more request: an exclusive grant excludes
// all others, shared grants coexist, and permits coexist up to their limit. Stores that decide in Go
// use it. Stores whose server decides, in Lua or SQL, have the same comparison there.
type Usage struct {
	holders int
	mode    Mode // mode of all holders; Permits or Shared if there are several
	weight  int
	limit   int
}

// Add adds one holder.
func (u *Usage) Add(mode Mode, weight, limit int) {
	u.holders++
	u.mode = mode
	u.weight += weight
	u.limit = max(u.limit, limit)
}

// Admits reports whether a request can be granted beside the holders added so far.
func (u *Usage) Admits(mode Mode, weight, limit int) bool {
	switch {
	case u.holders == 0:
		return true
	case u.mode != mode || mode == Exclusive:
		return false
	case mode == Shared:
		return true
	}
	return u.weight+weight <= limit
}

// Mixes returns an error that matches ErrInvalid if two uses of one name can never be combined:
// permits with different limits, or permits and shared mode. The error names both uses. An
// exclusive request can be combined with every use, because it takes the whole name.
func Mixes(name string, mode Mode, limit int, other Mode, otherLimit int) error {
	if mode == Exclusive || other == Exclusive || mode == other && limit == otherLimit {
		return nil
	}
	return fmt.Errorf("%w: %q: requested %s, but the name is in use for %s: all users of a name must use the same limit",
		ErrInvalid, name, describe(mode, limit), describe(other, otherLimit))
}

func describe(mode Mode, limit int) string {
	if mode == Permits {
		return fmt.Sprintf("permits with a limit of %d", limit)
	}
	return "shared access"
}

// SameClaim returns an ErrInvalid if a repeated request differs in mode, weight or limit from the
// first one under its identity. It would otherwise be granted without a check.
func SameClaim(req *Request, mode Mode, weight, limit int) error {
	if req.Mode == mode && (mode != Permits || req.Weight == weight && req.Limit == limit) {
		return nil
	}
	return fmt.Errorf("%w: %q: requested %s under the identity of a request for %s: use a new identity for a new grant",
		ErrInvalid, req.Name, describeClaim(req.Mode, req.Weight, req.Limit), describeClaim(mode, weight, limit))
}

func describeClaim(mode Mode, weight, limit int) string {
	if mode == Permits {
		return fmt.Sprintf("%d of %d permits", weight, limit)
	}
	return mode.String() + " access"
}
