package rediscore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Conn runs scripts on Redis servers through a client library. Its methods are safe for concurrent use and
// return soon after their context ends. An error reply contains the server's code for it, such as "NOPERM",
// and begins with it unless it is the error of a command in a script: before Redis 7, other text precedes it.
type Conn interface {
	// Run sends calls in one pipeline and returns a reply to each. On a Cluster all keys must be in one slot.
	Run(ctx context.Context, calls ...Call) []Reply

	// Subscribe listens on a channel, which on a Cluster belongs to a slot, until ctx ends or it fails. It
	// calls on whenever it starts to listen, also after it has reconnected.
	Subscribe(ctx context.Context, channel string, on func(), message func(string)) error

	// Servers returns the servers that have keys, in a stable order: one, unless they are a Cluster. If it
	// returns an error, it also returns the servers that could be found.
	Servers(ctx context.Context) ([]Server, error)

	// Close frees the connections that belong to the store.
	Close()
}

// A Server is one server that has keys.
type Server struct {
	Addr string

	// Do runs a command without keys. The reply has the types of a [Reply], or is a map of such types.
	Do func(ctx context.Context, args ...string) (any, error)

	ReadsReplicas bool // the client library may send commands to replicas of this server
}

// A Call is one run of a script, or of a command if Script is nil.
type Call struct {
	Script   *Script
	Command  string
	Keys     []string
	Args     []string
	Replicas int // how many replicas must have the writes within ReplicaTimeout; otherwise the reply is a *ReplicasError

	fallback func() Call // returns the call to run instead if the script returns -1
	moving   *Call       // the call to run instead while the slot migrates, unless it returns -1
	taker    store.ID    // the identity that may get a grant or a place in the queue, if there is one: see late.go
}

// A Reply is the reply to a Call: an int64, a string, a []any of these, or nil.
type Reply struct {
	Value any
	Err   error
}

// A ReplicasError means that too few replicas confirmed a write in time, so a failover may lose it.
type ReplicasError struct{ Want, Got int }

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("only %d of %d replicas confirmed the write in time: check that they run and keep up, or ask for fewer", e.Got, e.Want)
}

// ReplicaTimeout returns how long a call may wait for replicas: most of the time that its caller has left.
func ReplicaTimeout(ctx context.Context) time.Duration {
	const most = 2 * time.Second
	caller, _ := Caller(ctx)
	if end, ok := caller.Deadline(); ok {
		return min(most, max(time.Millisecond, time.Until(end)*3/4))
	}
	return most
}
