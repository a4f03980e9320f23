package rediscore

import (
	"sync"
	"time"
)

// maxStep is how far the clock of a server can be set ahead unnoticed. It must not be longer than the
// margin of the shortest lease.
const maxStep = 5 * time.Millisecond

// A serverClock notices when the clock of a server is set ahead. Such a server ends grants too early, because
// it expires keys by its time of day. Each reply shows how far that clock is ahead of the client's monotonic
// clock, to within the time that the call took. So the most that it can have been ahead before is compared
// with the least that it can be ahead now. Clocks may drift by 1 percent in between, so after a pause of the
// client only a larger step is noticed.
type serverClock struct {
	mu    sync.Mutex
	most  time.Duration // how far it was ahead of sinceBase, at most
	at    time.Duration // when most was set, since base; 0 if it is not set
	jumps uint64        // how often the clock was set ahead
	last  time.Time     // when that was last noticed
}

// observe compares the time in a reply with those of the client before and after it. Sent is 0 if unknown.
func (c *serverClock) observe(server, sent, received time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.most + (received-c.at)/100
	if c.at > 0 && server-received > most+maxStep {
		c.jumps++
		c.last = time.Now()
		c.at = 0
	}
	if sent > 0 && (c.at == 0 || server-sent < most) {
		c.most, c.at = server-sent, received
	}
}

// ClockJumps returns how often the clock of a node of a quorum was set ahead, and when that was last noticed.
func (s *Store) ClockJumps() (n uint64, last time.Time) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.jumps, s.clock.last
}

// ObserveClock looks at the time in the reply to a command that was sent at a time of the client.
func (s *Store) ObserveClock(server, sent time.Time) {
	s.observe(time.Duration(server.UnixNano()), sent.Sub(base)+1)
}

// observe looks at the time in a reply. Only a quorum can do without a server whose clock was set.
func (s *Store) observe(server, sent time.Duration) {
	if s.config.Counters > 1 {
		s.clock.observe(server, sent, sinceBase())
	}
}
