package store

import (
	"fmt"
	"strings"
	"time"
)

// Features is a set of optional abilities of a store. A program can require them with
// holdfast.Require. A call that needs a feature that the store lacks fails before anything is
// sent.
type Features uint32

const (
	// FeatureShared is shared mode, and the downgrade of a grant from exclusive to shared mode.
	FeatureShared Features = 1 << iota
	// FeaturePermits is permits mode.
	FeaturePermits
	// FeatureQueue means that waiters of all clients are served in order of arrival.
	FeatureQueue
	// FeatureKeep is the ability to keep a name closed after its release.
	FeatureKeep
	// FeatureList is List and Break.
	FeatureList
	// FeatureProcesses is exclusion between processes of one host.
	FeatureProcesses
	// FeatureHosts is exclusion between hosts.
	FeatureHosts
	// FeatureDurable means that grants and the order of tokens survive a restart of the
	// server, provided that its data is kept.
	FeatureDurable
	// FeatureFailover means that exclusion and the order of tokens survive the loss of
	// any one server together with its data.
	FeatureFailover
	// FeaturePush means that the store wakes waiters (see Store.Wait), in any order. A store with
	// FeatureQueue does so too and need not declare it.
	FeaturePush
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

	// MinTTL is the shortest TTL that the store supports.
	MinTTL time.Duration
	// MaxTTL is the longest TTL that the store supports; 0 means MaxTime.
	MaxTTL time.Duration
	// Heartbeat is how long a waiter that stopped asking may keep its place in the queue.
	Heartbeat time.Duration
	// Instant means that no call except Wait ever blocks. The core then sets no timeouts.
	Instant bool
	// Timeout, if not 0, bounds every call except Wait while the server does not answer at all.
	// The core then sets no timeout of its own.
	Timeout time.Duration
}
