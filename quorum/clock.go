package quorum

import (
	"slices"
	"time"
)

const (
	// farAhead is how far the clock of a node may be ahead of those of most others when a client sees it
	// for the first time. A clock that is further ahead may have been set a moment ago.
	farAhead = time.Second

	// together is the time within which the clocks of a majority seem to jump if the clock of this host
	// stood still, for example while the host was suspended. Such clocks were not set.
	together = time.Second
)

// A clock is what is known about the clock of a node's server. Times are on the clock of the quorum, which
// is the monotonic clock of this host: see Store.now.
type clock struct {
	met    time.Duration // when the node was identified for the first time
	ahead  time.Duration // how far its clock was ahead of the clock of the quorum then; 0 if unknown
	jumped time.Duration // when its clock was seen to be set ahead; 0 if it never was
}

// saw records what a server says about its clock. The caller holds the mutex of the servers.
func (c *clock) saw(server Server, begin, now time.Duration) {
	if c.met == 0 {
		c.met = max(1, now)
		if !server.Clock.IsZero() {
			c.ahead = time.Duration(server.Clock.UnixNano()) - (begin+now)/2
		}
	}
	if server.Jumped > 0 {
		c.jumped = max(1, now-server.Jumped)
	}
}

// setAhead returns when the clock of the node may have been set ahead, or 0 if it was not. A server whose
// clock was set ahead ends grants too early. The caller holds the mutex of the servers.
func (n *node) setAhead() time.Duration {
	at, same := n.clock.jumped, 0
	var ahead []time.Duration
	for _, other := range n.quorum.nodes {
		if other.clock.jumped > 0 && (other.clock.jumped-at).Abs() <= together {
			same++
		}
		if other.clock.ahead != 0 {
			ahead = append(ahead, other.clock.ahead)
		}
	}
	if same >= n.quorum.majority {
		at = 0
	}
	slices.Sort(ahead)
	if n.clock.ahead != 0 && n.clock.ahead-ahead[(len(ahead)-1)/2] > farAhead {
		at = max(at, n.clock.met)
	}
	return at
}
