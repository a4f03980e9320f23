package fence

import "sync"

// Gates holds a gate for each of many resources, by name. The zero Gates is empty and ready to use. It is
// safe for concurrent use, and must not be copied after first use.
//
// A gate is created on the first use of its name and kept until [Gates.Forget], because a holder can be
// paused for any time. It costs about 100 bytes plus the name. So use the names of existing resources, and
// not arbitrary names from requests.
type Gates struct {
	mu    sync.Mutex
	gates map[string]*Gate
}

// Gate returns the gate of a resource. It returns the same gate for the same name.
func (g *Gates) Gate(name string) *Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	gate := g.gates[name]
	if gate == nil {
		if g.gates == nil {
			g.gates = make(map[string]*Gate)
		}
		gate = new(Gate)
		g.gates[name] = gate
	}
	return gate
}

// Forget drops the gate of a resource together with its highest token. Call it only for a resource that no
// longer exists and that no work can reach: if the name is used again, a stale token is admitted.
func (g *Gates) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.gates, name)
}
