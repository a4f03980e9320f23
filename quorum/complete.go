package quorum

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// completeAfter is how long a lease is held before the nodes that were not asked are asked
	// for their votes. Most locks are released before that. Until then the loss of one of its
	// nodes can cost the lease, but not exclusion.
	completeAfter = 10 * time.Millisecond

	// Nodes that take longer than this are not waited for if others can be asked.
	leastHedge = 3 * time.Millisecond
	firstHedge = 20 * time.Millisecond
)

// hedge returns how long to wait for the first nodes that were asked: several times as long as
// usual.
func (s *Store) hedge() time.Duration {
	if trip := time.Duration(s.trip.Load()); trip > 0 {
		return min(s.opts.Timeout/4, max(leastHedge, 6*trip))
	}
	return min(s.opts.Timeout/4, firstHedge)
}

// noteRoundTrip notes how long a call took.
func (s *Store) noteRoundTrip(d time.Duration) {
	if old := s.trip.Load(); old > 0 {
		d = (7*time.Duration(old) + d) / 8
	}
	s.trip.Store(int64(d)) // a lost update does not matter
}

// completions are leases that have the votes of a bare majority. One timer serves all of them.
type completions struct {
	mu      sync.Mutex
	waiting []completion // in the order of their times
	armed   bool
	stopped bool
	timer   *time.Timer
}

type completion struct {
	se *session
	at time.Duration
}

// completeLater asks the other nodes for their votes if the lease is still held after a while.
func (s *Store) completeLater(se *session) {
	c := &s.complete
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.waiting = append(c.waiting, completion{se, s.now() + completeAfter})
	if !c.armed {
		c.armed = true
		c.timer = time.AfterFunc(completeAfter, s.completeDue)
	}
}

func (c *completions) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped, c.waiting = true, nil
	if c.timer != nil {
		c.timer.Stop()
	}
}

// completeDue renews the leases that are due. A renewal gives the vote to nodes that do not have
// it, but only while the lease has its majority. If it has none, its holder learns that from its own
// renewal. Until then the votes that are left stay where they are.
func (s *Store) completeDue() {
	if !s.life.Enter() {
		return
	}
	defer s.life.Leave()
	c := &s.complete
	now := s.now()
	var due []store.Renewal
	c.mu.Lock()
	n := 0
	for ; n < len(c.waiting) && c.waiting[n].at <= now; n++ {
		se := c.waiting[n].se
		se.mu.Lock()
		if se.held && !se.renewed {
			due = append(due, store.Renewal{Name: se.key.name, ID: se.key.id, TTL: se.ttl, Mode: store.Exclusive})
		}
		se.mu.Unlock()
	}
	c.waiting = append(c.waiting[:0:0], c.waiting[n:]...)
	if c.armed = len(c.waiting) > 0 && !c.stopped; c.armed {
		c.timer = time.AfterFunc(max(time.Millisecond, c.waiting[0].at-now), s.completeDue)
	}
	c.mu.Unlock()
	for i := range due {
		// One by one: a renewal of one grant is in order with its other messages, and thus never
		// shortens what a later renewal has extended.
		s.life.Go(func(ctx context.Context) { s.renewOne(ctx, &due[i]) })
	}
}
