package store

import (
	"fmt"
	"strings"
	"time"
)

// Features are abilities that not every store has. They can be asked for with
// holdfast.Require; a call that needs one the store lacks fails before it is sent.
type Features uint32

const (
	// FeatureShared is shared mode, and stepping down to it from exclusive mode.
	FeatureShared Features = 1 << iota
	// FeaturePermits is permits mode.
	FeaturePermits
	// FeatureQueue is service in order of arrival across clients.
	FeatureQueue
	// FeatureKeep is keeping a name closed after its release.
	FeatureKeep
	// FeatureList is List and Break.
	FeatureList
	// FeatureProcesses is exclusion between processes of one host.
	FeatureProcesses
	// FeatureHosts is exclusion between hosts.
	FeatureHosts
	// FeatureDurable means that grants and the order of tokens survive a restart of the
	// server that keeps its data.
	FeatureDurable
	// FeatureFailover means that exclusion and the order of tokens survive the loss of
	// any one server, its data included.
	FeatureFailover
)

var featureNames = [...]string{
	"shared", "permits", "queue", "keep", "list",
	"processes", "hosts", "durable", "failover",
}

// Has reports whether f includes all of want.
func (f Features) Has(want Features) bool { return f&want == want }

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

// Capabilities tells what a store can do.
type Capabilities struct {
	Store    string // a word for people, such as "memory" or "redis"
	Features Features

	// MinTTL is the shortest TTL that the store keeps exactly.
	MinTTL time.Duration
	// MaxTTL is the longest TTL; 0 means MaxTime.
	MaxTTL time.Duration
	// Heartbeat is how long a waiter that stopped asking may keep its place.
	Heartbeat time.Duration
	// Instant means that no call but Wait ever blocks, so that the core may leave out
	// its timeouts.
	Instant bool
	// Timeout, if it is not 0, is how long a call other than Wait takes at most, whatever
	// the server does, so that the core may leave out a timeout of its own.
	Timeout time.Duration
}
