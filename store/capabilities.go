package store

import (
	"fmt"
	"strings"
	"time"
)

// Features is a set of optional abilities of a store, which holdfast.Require can require. A call
// that needs one that the store lacks fails before anything is sent.
type Features uint32

const (
	FeatureShared    Features = 1 << iota // shared mode, and the downgrade of a grant from exclusive to it
	FeaturePermits                        // permits mode
	FeatureQueue                          // waiters of all clients are served in order of arrival
	FeatureKeep                           // a name can be kept closed after its release
	FeatureList                           // List and Break
	FeatureProcesses                      // exclusion between processes of one host
	FeatureHosts                          // exclusion between hosts
	FeatureDurable                        // grants and token order survive a server restart that keeps its data
	FeatureFailover                       // exclusion and token order survive the loss of a server and its data
	FeaturePush                           // waiters are woken, in any order (see Store.Wait); FeatureQueue implies it
)

var featureNames = [...]string{
	"shared", "permits", "queue", "keep", "list",
	"processes", "hosts", "durable", "failover", "push",
}

// Has reports whether f includes all features of want.
func (f Features) Has(want Features) bool { return f&want == want }

// Wakes reports whether a store with these features wakes waiters.
func (f Features) Wakes() bool { return f&(FeatureQueue|FeaturePush) != 0 }

// String lists the features by name, separated by commas.
func (f Features) String() string {
	var names []string
	for i, name := range featureNames {
		if f.Has(1 << i) {
			names = append(names, name)
			f &^= 1 << i
		}
	}
	if f != 0 {
		names = append(names, fmt.Sprintf("%#x", uint32(f)))
	}
	return strings.Join(names, ",")
}

// Capabilities describes what a store supports.
type Capabilities struct {
	Store    string // human-readable kind of store, such as "memory" or "redis"
	Features Features

	MinTTL    time.Duration // the shortest TTL that the store supports
	MaxTTL    time.Duration // the longest TTL that the store supports; 0 means MaxTime
	Heartbeat time.Duration // how long a waiter that stopped asking may keep its place in the queue
	Instant   bool          // no call except Wait ever blocks; the core then sets no timeouts
	// Timeout, if not 0, bounds every call except Wait while the server does not answer at all.
	// The core then sets no timeout of its own, unless a call has less time than this.
	Timeout time.Duration
}
