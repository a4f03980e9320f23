package servers

import (
	"testing"
	"time"
)

const (
	startInterval = 2 * time.Millisecond  // short compared with the start of a server, which takes some 10 ms
	pollInterval  = 10 * time.Millisecond // longer, because one attempt may query many servers on the same machine
)

// Poll calls attempt until it returns nil. It fails the test with the last error if that takes
// longer than limit. Each attempt must be bounded in time.
func Poll(t testing.TB, limit time.Duration, attempt func() error) {
	t.Helper()
	pollFor(t, limit, func() (struct{}, error) { return struct{}{}, attempt() })
}

// pollFor is like Poll, and returns the value of the last attempt.
func pollFor[T any](t testing.TB, limit time.Duration, attempt func() (T, error)) T {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		value, err := attempt()
		if err == nil {
			return value
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", limit, err)
		}
		time.Sleep(pollInterval)
	}
}
