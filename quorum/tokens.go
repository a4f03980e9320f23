package quorum

import (
	"sync"
	"time"
)

const (
	// resync is how long an estimate of the nodes' counters is used. Without an estimate, the
	// next request takes the tokens that the nodes choose. That costs a second round and yields a
	// new estimate. During this time, clocks drift apart by less than a node's counter may be
	// behind its clock.
	resync = 10 * time.Minute

	// nearby is how far, in microseconds, the counter of a node may be above the others for
	// proposals to exceed it. If a clock is wrong by more, requests need a second round at that
	// node, but the other nodes still grant blocks of tokens.
	nearby = 1_000_000
)

// tokens chooses proposals. A bad proposal costs a second round and nothing else.
//
// The counters of many nodes follow their clocks in microseconds. So an estimate grows at the
// same rate. It is made from tokens that the nodes chose and not from proposals, because
// otherwise it could run further and further ahead of the clocks.
type tokens struct {
	mu      sync.Mutex
	highest int64 // seen or proposed
	base    int64 // a token that the nodes chose at baseAt
	baseAt  time.Duration
}

// propose returns the first token to request.
func (t *tokens) propose(now time.Duration) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.highest + 1
	if t.base > 0 && now-t.baseAt < resync {
		p = max(p, t.base+(now-t.baseAt).Microseconds())
	}
	t.highest = p    // not the end of the block, because proposals must not run ahead of the clocks of nodes
	return max(p, 2) // so that the floor is not 0, which would mean no floor
}

// learn records tokens that were agreed on. Chosen says that the nodes chose them.
func (t *tokens) learn(first, last int64, chosen bool, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.highest = max(t.highest, last)
	if chosen {
		t.base, t.baseAt = first, now
	}
}
