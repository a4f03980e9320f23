package store

import "errors"

// Errors of the contract. A store may wrap them. Any other error of a call means that its
// outcome is unknown: the server may or may not have acted.
var (
	// ErrInvalid is returned when the input is bad, or when a record has a format that the store does
	// not know: see UnknownFormat. The same call would fail again.
	ErrInvalid = errors.New("invalid")

	// ErrNotHeld is returned when no grant of that identity exists, or no longer exists.
	ErrNotHeld = errors.New("not held")

	// ErrUnsupported is returned when the store lacks a feature that the call needs.
	ErrUnsupported = errors.New("not supported by this store")

	// ErrClosed is returned when the store or the client was closed.
	ErrClosed = errors.New("closed")
)
