package suites

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// A LaterResult is the outcome of a call.
type LaterResult[T any] struct {
	Value T
	Err   error
}

// Later starts a call, and returns when it is in flight or queued. It waits until length, the
// length of the store's batcher, has grown.
func Later[T any](t testing.TB, length func() int, call func() (T, error)) <-chan LaterResult[T] {
	t.Helper()
	before, done := length(), make(chan LaterResult[T], 1)
	go func() {
		value, err := call()
		done <- LaterResult[T]{value, err}
	}()
	servers.Poll(t, time.Minute, func() error {
		if length() <= before {
			return errors.New("the call has not started")
		}
		return nil
	})
	return done
}
