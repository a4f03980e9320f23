package rediscore

import (
	"sync"
	"time"
)

// maxStep is how far the clock of a server may be set ahead without being noticed. It must be less than
// the margin of the shortest lease.
const maxStep = 5 * time.Millisecond

// A serverClock notices when the clock of a server is set ahead: the server then ends grants too early,
// because it expires keys by its time of day. How far its clock is ahead of the client's own is known from
// each reply, except for the time that the call took. So the longest possible distance before is
// compared with the shortest possible one now. Clocks may drift by 1 percent meanwhile.
type serverClock struct {
	mu    sync.Mutex
	most  time.Duration // how far it is ahead of sinceBase at most
	at    time.Duration // when that was known, since base; 0 if it is not
	jumps uint64        // how often it was set ahead
	last  time.Time     // when that was noticed last
}

// observe compares the time that a server read with the times of the client before and after that. Sent
// is 0 if it is unknown.
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

// ClockJumps returns how often the clock of the server was set ahead, and when that was noticed last. It
// is known only of a node of a quorum.
func (s *Store) ClockJumps() (n uint64, last time.Time) {
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	return s.clock.jumps, s.clock.last
}

// observe looks at the time in a reply. Only a quorum can do without a server whose clock was set.
func (s *Store) observe(server, sent time.Duration) {
	if s.config.Counters > 1 {
		s.clock.observe(server, sent, sinceBase())
	}
}
