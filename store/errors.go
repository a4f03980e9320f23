package store

import "errors"

// Errors with a meaning in the contract. A store may wrap them. Any other error of a
// call means that its outcome is unknown: the server may or may not have acted.
var (
	// ErrInvalid is bad input: asking again with the same words fails again.
	ErrInvalid = errors.New("invalid")

	// ErrNotHeld means that no grant of that identity exists: it was never granted, was
	// released, was broken, or expired.
	ErrNotHeld = errors.New("not held")

	// ErrUnsupported means that the store cannot do what was asked.
	ErrUnsupported = errors.New("not supported by this store")

	// ErrClosed means that the store or the client was closed.
	ErrClosed = errors.New("closed")
)
