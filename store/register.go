package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// An Opener opens the store that a URL names. It refuses parameters it does not know (see
// URL.Only) and shows no password in its errors.
type Opener func(ctx context.Context, u *URL) (Store, error)

var registry struct {
	sync.Mutex
	openers map[string]Opener
}

// Register makes a URL scheme known to Open. Stores call it when they are imported. It
// panics if the scheme is malformed or taken: both are mistakes of a program, not of its
// user.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if !validScheme(scheme) || scheme != strings.ToLower(scheme) || open == nil {
		panic(fmt.Sprintf("holdfast: Register(%q): want a scheme in lower case and an opener", scheme))
	}
	if registry.openers[scheme] != nil {
		panic(fmt.Sprintf("holdfast: Register(%q): the scheme is taken", scheme))
	}
	if registry.openers == nil {
		registry.openers = make(map[string]Opener)
	}
	registry.openers[scheme] = open
}

// Schemes returns the URL schemes that are registered, sorted.
func Schemes() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Open opens the store that a URL names. ErrInvalid: the URL is malformed, or no imported
// package knows its scheme.
func Open(ctx context.Context, rawURL string) (Store, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	registry.Lock()
	open := registry.openers[u.Scheme]
	registry.Unlock()
	if open == nil {
		return nil, fmt.Errorf("%w: store URL %s: no imported package knows the scheme %q (known: %s); import the package of that store, with a blank name if need be",
			ErrInvalid, u, u.Scheme, strings.Join(Schemes(), ", "))
	}
	return open(ctx, u)
}
