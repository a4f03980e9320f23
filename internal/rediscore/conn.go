package rediscore

import (
	"context"
	"time"
)

// A Conn is a client library, as far as it is needed here. Its methods may be called from
// many goroutines. An error of a server begins with the server's word for it, such as "NOPERM".
type Conn interface {
	// Eval runs a script. All keys are in one slot.
	Eval(ctx context.Context, call Call) (Value, error)

	// Do runs a plain command on a key.
	Do(ctx context.Context, command, key string, args ...string) (Value, error)

	// EvalAll runs many scripts in as few round trips as possible, with an outcome for each.
	EvalAll(ctx context.Context, calls []Call) []Outcome

	// Subscribe listens on a channel until ctx ends or it fails. It calls on whenever it
	// begins to listen, also again after the connection was lost. With shard the channel
	// belongs to a slot.
	Subscribe(ctx context.Context, channel string, shard bool, on func(), message func(string)) error

	// Scan reads some of the matching keys of one server. Servers that have keys are numbered
	// from 0, and servers is their number. Next is 0 after the last page of a server.
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
