package store

import "fmt"

// Mode is the way in which a name is held.
type Mode uint8

const (
	Exclusive Mode = iota + 1 // alone: one of one
	Shared                    // together with other shared holders
	Permits                   // some of a limited number of permits
)

// String returns "exclusive", "shared" or "permits".
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Permits:
		return "permits"
	}
	return "unknown"
}

// MarshalText makes a Mode readable in JSON.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// Usage sums up how a name is in use, to decide about one more request. It is the one
// place where the modes are compared: an exclusive grant excludes all others, shared ones
// go together, permits go together up to their limit.
type Usage struct {
	holders int
	mode    Mode // of the holders; Permits or Shared if there are several
	weight  int
	limit   int
}

// Add counts one holder.
func (u *Usage) Add(mode Mode, weight, limit int) {
	u.holders++
	u.mode = mode
	u.weight += weight
	u.limit = max(u.limit, limit)
}

// Admits reports whether a request fits beside the holders counted so far.
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

// Mixes returns an ErrInvalid that names both sides if two uses of one name can never go
// together: permits of different limits, or permits and a read/write lock's shared mode.
// An exclusive request mixes with everything: it takes all there is.
func Mixes(name string, mode Mode, limit int, other Mode, otherLimit int) error {
	if mode == Exclusive || other == Exclusive || mode == other && limit == otherLimit {
		return nil
	}
	return fmt.Errorf("%w: %q: asked for %s, but it is in use for %s: every user of a name must give the same limit",
		ErrInvalid, name, describe(mode, limit), describe(other, otherLimit))
}

func describe(mode Mode, limit int) string {
	if mode == Permits {
		return fmt.Sprintf("permits of a limit of %d", limit)
	}
	return "shared access"
}

// SameClaim returns an ErrInvalid if a request under an identity differs from its first. To say
// yes to another mode would be to grant what was never checked.
func SameClaim(req *Request, mode Mode, weight, limit int) error {
	if req.Mode == mode && (mode != Permits || req.Weight == weight && req.Limit == limit) {
		return nil
	}
	return fmt.Errorf("%w: %q: asked for %s under the identity of a request for %s: give a new grant a new identity",
		ErrInvalid, req.Name, describeClaim(req.Mode, req.Weight, req.Limit), describeClaim(mode, weight, limit))
}

func describeClaim(mode Mode, weight, limit int) string {
	if mode == Permits {
		return fmt.Sprintf("%d of %d permits", weight, limit)
	}
	return mode.String() + " access"
}
