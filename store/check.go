package store

import (
	"cmp"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of requests, the same for every store, so that a program can change its store.
const (
	MaxName    = 512       // bytes in a name, including the prefix
	MaxText    = 1024      // bytes in an owner or meta text
	MaxLimit   = 1_000_000 // permits of one name
	MaxHolders = 16        // holders listed in a refusal
	MaxToken   = 1<<53 - 1 // exact in Lua, in JSON and in a float64

	MaxTime = 10 * 365 * 24 * time.Hour // longest TTL and Keep; sums of such times do not overflow
)

// Check returns an error that matches ErrInvalid if req is malformed, or ErrUnsupported if a
// store with these capabilities cannot serve it. The error says what is allowed instead. The core
// calls Check before it calls the store, and stores may rely on that.
func (c *Capabilities) Check(req *Request) error {
	err := cmp.Or(CheckName(req.Name), c.CheckTTL(req.TTL), CheckText("owner", req.Owner), CheckText("meta", req.Meta))
	if err != nil {
		return err
	}
	if req.Floor < 0 || req.Floor > MaxToken {
		return fmt.Errorf("%w: token floor %d: want a number from 0 to 2^53-1", ErrInvalid, req.Floor)
	}
	switch req.Mode {
	case Exclusive:
		return nil
	case Shared:
		return c.need(FeatureShared)
	case Permits:
		if req.Limit < 1 || req.Limit > MaxLimit {
			return fmt.Errorf("%w: limit %d: want a number of permits from 1 to %d", ErrInvalid, req.Limit, MaxLimit)
		}
		if req.Weight < 1 || req.Weight > req.Limit {
			return fmt.Errorf("%w: %d permits of a limit of %d: want from 1 to %[3]d", ErrInvalid, req.Weight, req.Limit)
		}
		return c.need(FeaturePermits)
	}
	return fmt.Errorf("%w: mode %d: want exclusive, shared or permits", ErrInvalid, req.Mode)
}

// CheckTTL returns an error that matches ErrInvalid if the store does not support ttl.
func (c *Capabilities) CheckTTL(ttl time.Duration) error {
	if ttl < c.MinTTL || ttl <= 0 {
		return fmt.Errorf("%w: TTL %v: the minimum of the %s store is %v", ErrInvalid, ttl, c.Store, c.MinTTL)
	}
	most := time.Duration(MaxTime)
	if c.MaxTTL > 0 {
		most = min(most, c.MaxTTL)
	}
	if ttl > most {
		return fmt.Errorf("%w: TTL %v: the maximum of the %s store is %v; a lease renews itself, so a short TTL is enough for long work", ErrInvalid, ttl, c.Store, most)
	}
	return nil
}

// CheckTime returns an ErrInvalid unless d is above zero and at most MaxTime. What is its name.
func CheckTime(what string, d time.Duration) error {
	if d <= 0 || d > MaxTime {
		return fmt.Errorf("%w: %s(%v): want a time above zero and at most %v", ErrInvalid, what, d, MaxTime)
	}
	return nil
}

// CheckKeep returns an ErrInvalid unless keep is zero, or Done or Cooling for a time above zero.
func CheckKeep(keep Keep) error {
	switch {
	case keep == Keep{}:
		return nil
	case keep.State != Done && keep.State != Cooling:
		return fmt.Errorf("%w: keep state %d: want done or cooling, or the zero Keep to leave nothing", ErrInvalid, keep.State)
	case keep.For <= 0:
		return fmt.Errorf("%w: keep as %s for %v: want a time above 0", ErrInvalid, keep.State, keep.For)
	}
	return nil
}

// CheckDone returns an ErrInvalid if keep is Done and the grant is not exclusive.
func CheckDone(keep Keep, held Mode) error {
	if keep.State != Done || held == Exclusive {
		return nil
	}
	return fmt.Errorf("%w: keep as done: the grant is %s; only an exclusive grant can be kept as done", ErrInvalid, held)
}

// CheckRenewal returns an ErrInvalid if r changes the mode other than from Exclusive to Shared.
func CheckRenewal(r *Renewal, held Mode) error {
	if r.Mode == held || r.Mode == Shared && held == Exclusive {
		return nil
	}
	return fmt.Errorf("%w: renew %q: held in %s mode, requested %s: a grant keeps its mode, or is downgraded from exclusive to shared",
		ErrInvalid, r.Name, held, r.Mode)
}

// NoTokens returns the ErrInvalid of a request whose floor leaves no tokens above it.
func NoTokens(floor int64) error {
	return fmt.Errorf("%w: token floor %d: no tokens are left above it, they end at 2^53-1; check where this floor comes from", ErrInvalid, floor)
}

// UnknownFormat returns the error of a call that found a record which it cannot read. The text says where
// the record is. The error matches ErrInvalid. A store must neither grant a name that has such a record
// nor change or remove the record: a newer program may hold the name.
func UnknownFormat(where string) error {
	return fmt.Errorf("%w: %s: unknown record format: a newer version of Holdfast or another program wrote it; update this program", ErrInvalid, where)
}

func (c *Capabilities) need(f Features) error {
	if c.Features.Has(f) {
		return nil
	}
	return fmt.Errorf("%w: the %s store has no %s", ErrUnsupported, c.Store, f)
}

// CheckName returns an ErrInvalid unless name is 1 to MaxName bytes of UTF-8 without control
// characters.
func CheckName(name string) error {
	if name == "" {
		return fmt.Errorf(`%w: empty name: name the thing to lock, such as "order:42"`, ErrInvalid)
	}
	if len(name) > MaxName {
		return fmt.Errorf("%w: name %.40q… of %d bytes: want at most %d, including the prefix; hash the long part", ErrInvalid, name, len(name), MaxName)
	}
	return checkChars("name", name)
}

// CheckText returns an error that matches ErrInvalid unless text is at most MaxText bytes of
// UTF-8 without control characters. What is the name of the text in the error.
func CheckText(what, text string) error {
	if len(text) > MaxText {
		return fmt.Errorf("%w: %s %.40q… of %d bytes: want at most %d", ErrInvalid, what, text, len(text), MaxText)
	}
	return checkChars(what, text)
}

func checkChars(what, text string) error {
	i := 0
	for i < len(text) && ' ' <= text[i] && text[i] < 0x7f {
		i++
	}
	if i == len(text) { // nearly always; this check runs on every call
		return nil
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%w: %s %.40q: not UTF-8; encode binary data, for example in hexadecimal", ErrInvalid, what, text)
	}
	for _, r := range text {
		if unicode.IsControl(r) {
			return fmt.Errorf("%w: %s %.40q: contains the control character %U; remove it", ErrInvalid, what, text, r)
		}
	}
	return nil
}
