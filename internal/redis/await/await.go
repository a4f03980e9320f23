// Package await calls functions that do not always return when their context ends.
package await

import (
	"context"
	"time"
)

// Grace is how long Call waits for a function after the context has ended. A function that honors its context
// returns in that time, and nothing is left running.
const Grace = 50 * time.Millisecond

// Call runs fn and returns its result. If fn does not return soon after ctx ends, Call returns
// the error of ctx; a value that fn returns later without an error is passed to late, if that is
// not nil. If ctx cannot end, fn runs on the goroutine of the caller.
func Call[T any](ctx context.Context, fn func() (T, error), late func(T)) (value T, err error) {
	if ctx.Done() == nil {
		return fn()
	}
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		value, err := fn()
		results <- result{value, err}
	}()
	select {
	case r := <-results:
		return r.value, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-results:
		return r.value, r.err
	case <-time.After(Grace):
	}
	if late != nil {
		go func() {
			if r := <-results; r.err == nil {
				late(r.value)
			}
		}()
	}
	return value, ctx.Err()
}
