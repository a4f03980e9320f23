package sqlitestore_test

import (
	"testing"
	"time"
)

// A release in one process wakes a waiter in another one long before it would poll.
func TestAWakeUpReachesAnotherProcess(t *testing.T) {
	path, s := newFile(t)
	best := time.Hour
	for range 5 {
		req := take(t, s, "order")
		c := start(t, "queue", path, "order")
		c.hears("queued 1")
		time.Sleep(time.Millisecond) // so that the child waits
		begin := time.Now()
		release(t, s, req)
		c.hears("served")
		best = min(best, time.Since(begin))
		c.hears("ended")
	}
	if poll := s.Capabilities().Heartbeat / 3; best > poll/2 {
		t.Errorf("the best of five took %v, which is no faster than polling every %v", best, poll)
	}
}
