package etcdstore

import (
	"maps"
	"slices"
)

// list returns the connections that are open.
func (c *conns) list() []*conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.all))
}
