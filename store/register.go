package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// An Opener opens the store of a URL. It rejects unknown parameters, and no error has the password.
type Opener func(ctx context.Context, u *URL) (Store, error)

var registry = struct {
	sync.Mutex
	openers map[string]Opener
}{openers: make(map[string]Opener)}

// Register makes a URL scheme known to [Open]. Store packages call it from an init function. It
// panics if the scheme is malformed or already registered.
func Register(scheme string, open Opener) {
	registry.Lock()
	defer registry.Unlock()
	if !validScheme(scheme) || scheme != strings.ToLower(scheme) || open == nil {
		panic(fmt.Sprintf("holdfast: Register(%q): want a lower-case scheme and an opener", scheme))
	}
	if registry.openers[scheme] != nil {
		panic(fmt.Sprintf("holdfast: Register(%q): the scheme is already registered", scheme))
	}
	registry.openers[scheme] = open
}

// Schemes returns the registered URL schemes in sorted order.
func Schemes() []string {
	registry.Lock()
	defer registry.Unlock()
	return slices.Sorted(maps.Keys(registry.openers))
}

// Open opens the store that a URL identifies. It returns an error that matches ErrInvalid if the
// URL is malformed or its scheme is not registered.
func Open(ctx context.Context, rawURL string) (Store, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	registry.Lock()
	open := registry.openers[u.Scheme]
	registry.Unlock()
	if open == nil {
		// Show only the scheme: in user:password@tcp(host)/db, a Go driver's URL, the rest is the path.
		return nil, fmt.Errorf("%w: store URL: %s", ErrInvalid, unknownScheme(u.Scheme))
	}
	return open(ctx, u)
}

// packages has the schemes of the packages, for the error of a program that does not import one.
var packages = map[string][]string{
	"memstore":    {"memory"},
	"sqlitestore": {"sqlite"},
	"mysqlstore":  {"mysql"},
	"redisstore":  {"redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "quorum+redis", "quorum+rediss"},
	"etcdstore":   {"etcd", "etcds"},
	"pgstore":     {"postgres", "postgresql"},
	"zkstore":     {"zk", "zks"},
}

func unknownScheme(scheme string) string {
	for name, schemes := range packages {
		if slices.Contains(schemes, scheme) {
			return fmt.Sprintf(`the package for scheme %q is not imported; add import _ "github.com/holdfast-lock/holdfast/%s"`, scheme, name)
		}
	}
	known := "no store package is imported"
	if schemes := Schemes(); len(schemes) > 0 {
		known = "registered schemes: " + strings.Join(schemes, ", ")
	}
	return fmt.Sprintf("unknown scheme %q; %s", scheme, known)
}
