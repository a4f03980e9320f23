package redis

import (
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// A lock that was held for longer than brief may have waiters by now: the plain release
	// would only find that out.
	brief = 2 * time.Millisecond

	// On a node of a quorum there are waiters only at one of the nodes, and then the name is
	// known to be contended.
	longBrief = time.Minute

	// crowdedFor is how long a name counts as wanted by others after a call was in the way of
	// another.
	crowdedFor = time.Second

	// maxHints bounds what is remembered of grants that are never released, and of names.
	maxHints = 1 << 20
)

// hints help to choose the lane that needs one round trip. A wrong one costs a round trip and
// nothing else.
type hints struct {
	brief   time.Duration
	mu      sync.Mutex
	plain   map[store.ID]plainGrant
	crowded map[string]time.Duration // until when
}

type plainGrant struct {
	record string // as the server has it
	since  time.Duration
}

// taken notes a grant of the plain lane.
func (h *hints) taken(id store.ID, record string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.plain == nil || len(h.plain) >= maxHints {
		h.plain = make(map[store.ID]plainGrant)
	}
	h.plain[id] = plainGrant{record, sinceBase()}
}

// released forgets a grant. It returns its record if the plain lane is likely to release it,
// or "".
func (h *hints) released(id store.ID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, ok := h.plain[id]
	delete(h.plain, id)
	if !ok || sinceBase()-g.since > h.brief {
		return ""
	}
	return g.record
}

// isPlain reports whether a grant of the plain lane is likely to be there as it was taken.
func (h *hints) isPlain(id store.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.plain[id]
	return ok
}

// contended notes whether others want a name.
func (h *hints) contended(name string, yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !yes {
		delete(h.crowded, name)
		return
	}
	if h.crowded == nil || len(h.crowded) >= maxHints {
		h.crowded = make(map[string]time.Duration)
	}
	h.crowded[name] = sinceBase() + crowdedFor
}

func (h *hints) isContended(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	until, ok := h.crowded[name]
	return ok && sinceBase() < until
}
