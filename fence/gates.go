package fence

import "sync"

// Gates keeps a gate for each of many resources, by name. The zero Gates is ready and
// empty. It may be used from many goroutines, and must not be copied after its first use.
//
// A gate is made when its name is first asked for and is kept until [Gates.Forget]: about
// 100 bytes and the name, for each resource ever seen. Nothing is dropped by age, because
// how long a holder can be paused has no bound. The number of names must therefore have
// one: take names of resources that exist, and not whatever a request says.
type Gates struct {
	mu    sync.Mutex
	gates map[string]*Gate
}

// Gate returns the gate of a resource, always the same one.
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

// Forget drops the gate of a resource, with the highest token it has seen. It is for a
// resource that is gone for good and that no work can reach any more: if the name comes
// back, a stale token is admitted as if it were the first.
func (g *Gates) Forget(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.gates, name)
}
