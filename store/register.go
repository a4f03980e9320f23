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
		return nil, fmt.Errorf("%w: store URL %s: %s", ErrInvalid, u, unknownScheme(u.Scheme))
	}
	return open(ctx, u)
}

// packages names the package of each scheme of this project, for the error of a program that
// has not imported it.
var packages = map[string]string{
	"memory":         "memstore",
	"sqlite":         "sqlstore",
	"redis":          "redisstore",
	"rediss":         "redisstore",
	"redis+sentinel": "redisstore",
	"redis+cluster":  "redisstore",
	"etcd":           "etcdstore",
	"etcds":          "etcdstore",
	"zk":             "zkstore",
}

func unknownScheme(scheme string) string {
	if name := packages[scheme]; name != "" {
		return fmt.Sprintf(`the package of the scheme %q is not imported; add import _ "github.com/holdfast-lock/holdfast/%s"`, scheme, name)
	}
	known := "no package of a store is imported"
	if schemes := Schemes(); len(schemes) > 0 {
		known = "known are " + strings.Join(schemes, ", ")
	}
	return fmt.Sprintf("unknown scheme %q; %s", scheme, known)
}
