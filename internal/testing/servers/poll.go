package servers

import (
	"testing"
	"time"
)

const (
	// startInterval is short compared with the start of a server, which takes some 10 ms.
	startInterval = 2 * time.Millisecond

	// pollInterval is longer than startInterval, because one attempt may query many servers on
	// the same machine.
	pollInterval = 10 * time.Millisecond
)

// Poll calls attempt until it returns nil. It fails the test with the last error if that takes
// longer than limit. Each attempt must be bounded in time.
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
