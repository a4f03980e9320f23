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
	s, err := store.Open(ctx, url)
	if err != nil {
		return nil, fail("open", "", err)
	}
	c := New(s, opts...)
	c.owned = true
	if c.bad != nil {
		c.Close()
		return nil, fail("open", "", c.bad)
	}
	return c, nil
}
