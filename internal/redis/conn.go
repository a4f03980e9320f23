// Package redis keeps locks on Redis servers, by whatever client library. The packages that
// bring a library along (redisstore and goredis) implement Conn, so that neither drags the
// other's library into a program.
package redis

import (
	"context"
	"time"
)

// A Conn is a client library, as far as it is needed here. Its methods may be called from
// many goroutines. Errors of a server begin with its own word for them, such as "NOPERM".
type Conn interface {
	// Eval runs a script. All keys are in one slot.
	Eval(ctx context.Context, call Call) (Value, error)

	// Do runs a plain command on a key.
	Do(ctx context.Context, command, key string, args ...string) (Value, error)

	// EvalAll runs many scripts in as few round trips as possible, with an outcome each.
	EvalAll(ctx context.Context, calls []Call) []Outcome

	// Subscribe listens on a channel until ctx ends or it fails. It calls on whenever it
	// begins to listen, also after the connection was lost meanwhile. With shard the channel
	// is one of a slot.
	Subscribe(ctx context.Context, channel string, shard bool, on func(), message func(string)) error

	// Scan reads some of the keys that match on one of the servers that have keys, which are
	// numbered from 0. It is done when next is 0. Servers is how many there are.
	Scan(ctx context.Context, server int, cursor uint64, match string, count int) (keys []string, next uint64, servers int, err error)

	// Close frees the library's client, if it belongs to the store.
	Close()
}

// A Call is one run of a script.
type Call struct {
	Script *Script
	Keys   []string
	Args   []string

	// Replicas is how many replicas must have what the script wrote within Patience, or the
	// call fails with a *ReplicasError.
	Replicas int
	Patience time.Duration
}

// An Outcome is what a Call returned.
type Outcome struct {
	Value Value
	Err   error
}

// A Value is what a script returned: an integer, a text, a list, or nothing.
type Value struct {
	Kind Kind
	Int  int64
	Text string
	List []Value
}

// Kind is the kind of a Value.
type Kind uint8

const (
	Nothing Kind = iota
	Int
	Text
	List
)

// Any is the value as Go programs expect it: an int64, a string, a []any, or nil.
func (v Value) Any() any {
	switch v.Kind {
	case Int:
		return v.Int
	case Text:
		return v.Text
	case List:
		list := make([]any, len(v.List))
		for i := range v.List {
			list[i] = v.List[i].Any()
		}
		return list
	}
	return nil
}
