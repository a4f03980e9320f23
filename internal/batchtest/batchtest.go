// Package batchtest helps to test stores that send concurrent calls in batches.
package batchtest

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/servers"
)

// A Result is the outcome of a call.
type Result[T any] struct {
	Value T
	Err   error
}

// Later starts a call, and returns when it is in flight or queued. It waits until length, the
// length of the store's batcher, has grown.
func Later[T any](t testing.TB, length func() int, call func() (T, error)) <-chan Result[T] {
	t.Helper()
	before, done := length(), make(chan Result[T], 1)
	go func() {
		value, err := call()
		done <- Result[T]{value, err}
	}()
	servers.Poll(t, time.Minute, func() error {
		if length() <= before {
			return errors.New("the call has not started")
		}
		return nil
	})
	return done
}
