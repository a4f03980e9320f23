package redis

import (
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// maxGrants bounds what is remembered of grants that nobody ever releases.
const maxGrants = 1 << 20

// grants are the records of the locks that this handle took the plain way, by which it can
// give them back the plain way. What is not here is released by a script that looks at the
// whole state.
type grants struct {
	mu      sync.Mutex
	records map[store.ID]plainGrant
}

type plainGrant struct {
	record string
	since  time.Duration // since base
}

// long is how long a lock is held to expect that somebody waits for it by now.
const long = 2 * time.Millisecond

func (g *grants) note(id store.ID, record string, now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.records == nil || len(g.records) >= maxGrants {
		g.records = make(map[store.ID]plainGrant)
	}
	g.records[id] = plainGrant{record, now}
}

func (g *grants) known(id store.ID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.records[id].record != ""
}

// brief is the record of a lock that was taken a short time ago, or "".
func (g *grants) brief(id store.ID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.records[id]; p.record != "" && sinceBase()-p.since < long {
		return p.record
	}
	return ""
}

func (g *grants) forget(id store.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.records, id)
}
