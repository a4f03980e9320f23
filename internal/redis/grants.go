package redis

import (
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

// maxGrants bounds what is remembered of grants that nobody ever releases.
const maxGrants = 1 << 20

// grants are the records of the locks that this handle took the plain way, by which it can
// give them back the plain way. What is not here is released by a script that looks at the
// whole state.
type grants struct {
	mu      sync.Mutex
	records map[store.ID]string
}

func (g *grants) note(id store.ID, record string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.records == nil || len(g.records) >= maxGrants {
		g.records = make(map[store.ID]string)
	}
	g.records[id] = record
}

// record is "" if it is not known.
func (g *grants) record(id store.ID) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.records[id]
}

func (g *grants) forget(id store.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.records, id)
}
