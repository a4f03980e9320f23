package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/store"
)

// Register makes a URL scheme known to Open. Packages of stores call it when they are
// imported.
func Register(scheme string, open store.Opener) { store.Register(scheme, open) }

// Open opens the store that a URL names, such as "redis://127.0.0.1:6379", and returns a
// client that closes it. The package of the store must be imported.
//
// Errors: ErrInvalid for a malformed URL, an unknown scheme or a bad option; those of the
// store. None shows a password.
func Open(ctx context.Context, url string, opts ...Option) (*Client, error) {
	const op = "open"
	if ctx == nil {
		return nil, fail(op, "", errNilContext)
	}
	bounded, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	s, err := store.Open(bounded, url)
	switch {
	case err == nil:
	case permanent(err):
		return nil, fail(op, "", err)
	case ctx.Err() != nil:
		return nil, fail(op, "", unavailable("", err), context.Cause(ctx))
	default:
		return nil, fail(op, "", unavailable("", err))
	}
	c := New(s, opts...)
	c.owned = true
	if c.bad != nil {
		c.Close()
		return nil, fail(op, "", c.bad)
	}
	return c, nil
}
