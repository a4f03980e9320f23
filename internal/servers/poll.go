package servers

import (
	"testing"
	"time"
)

const (
	// startInterval is short beside the start of a server, which takes some 10 ms.
	startInterval = 2 * time.Millisecond

	// pollInterval is longer: a question may go to many servers, and all share the machine.
	pollInterval = 10 * time.Millisecond
)

// Poll calls attempt until it returns nil, and fails the test with the last error if that
// takes longer than limit. Attempt must be bounded itself.
func Poll(t testing.TB, limit time.Duration, attempt func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still after %v: %v", limit, err)
		}
		time.Sleep(pollInterval)
	}
}
