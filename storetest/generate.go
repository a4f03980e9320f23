package storetest

import (
	"math/rand/v2"

	"github.com/holdfast-lock/holdfast/store"
)

// A generator chooses the steps of one sequence. By its state it prefers steps that have an effect.
type generator struct {
	*rand.Rand
	features store.Features
	names    int
	clients  int
	conns    int
	use      int // of the names: 0 exclusive, 1 shared, 2 permits, 3 everything at once
	expires  int // how many steps may wait until TTLs are over
	pauses   int // and how many steps may wait at all
	slow     bool
	crowd    int // how many steps make a holder and its waiters at the beginning
	made     int // steps
	asked    int // the client of the last step + 1, if it may be queued now
}

func newGenerator(seed, n uint64, features store.Features) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, n)), features: features}
	g.names = max(1, g.IntN(6)-2)
	g.clients = 2 + g.IntN(4)
	g.conns = 1 + g.IntN(2)
	g.use = min(3, g.IntN(7)/2)
	if g.names == 1 && g.chance(30) {
		g.crowd = g.clients
	}
	return g
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func (g *generator) has(f store.Features) bool { return g.features.Has(f) }

// client returns a client and the name that it uses, most often a holder if the call is one for holders.
func (g *generator) client(q *sequence, op Op) (n, name int) {
	n = g.IntN(g.clients)
	if (op == Renew || op == Release || op == Break) && g.chance(70) {
		for range g.clients {
			if c := q.client(n); q.model.Holds(c.req.Name, c.req.ID) {
				break
			}
			n = (n + 1) % g.clients
		}
	}
	if name = n % g.names; g.chance(3) {
		name = g.IntN(g.names)
	}
	return n, name
}

func (g *generator) next(q *sequence) Step {
	st := Step{Conn: g.IntN(g.conns), Short: g.chance(30) || g.slow && g.chance(50)}
	if g.made++; g.slow && g.made == 8 {
		g.clients = max(2, g.clients-2) // the others are dead from now on
	}
	if g.made <= g.crowd {
		st.Op, st.Client, st.Queue, st.Tokens, st.Mode = Acquire, g.made-1, true, 1, store.Exclusive
		if g.made > 1 {
			g.claim(&st)
		}
		return st
	}
	if g.pauses > 0 && g.chance(40-10*g.expires) {
		g.pauses--
		st = Step{Op: Pause}
		if g.expires > 0 && g.chance(30) {
			g.expires--
			st.Op = Expire
		}
		return st
	}
	if n := g.asked; n > 0 && g.chance(60) { // as a client does after a refusal
		g.asked = 0
		return Step{Op: Watch, Client: n - 1}
	}
	g.asked = 0
	if first := g.IntN(g.clients); g.chance(50) { // see whether a wake-up was forgotten, before the client asks again
		for i := range g.clients {
			n := (first + i) % g.clients
			if c := q.client(n); !c.woken && q.mustWake(c) {
				return Step{Op: Wait, Client: n}
			}
		}
	}
	switch n := g.IntN(100); {
	case n < 38:
		st.Op = Acquire
		st.Client, st.Name = g.client(q, Acquire)
		st.Name = st.Client % g.names
		st.Queue = g.chance(65)
		st.Tokens = 1 + g.IntN(4)*g.IntN(3)
		st.Floor = g.chance(8)
		g.claim(&st)
		if st.Queue {
			g.asked = st.Client + 1
		}
		return st
	case n < 46 && g.has(store.FeatureList):
		return Step{Op: List, Conn: st.Conn, Name: g.IntN(g.names), All: g.chance(20)}
	case n < 58:
		st.Op = Renew
		st.All = g.chance(15)
		if g.chance(40) {
			st.Tokens = 1 + g.IntN(8)
		}
		st.Floor = g.chance(10)
	case n < 66:
		st.Op = Leave
	case n < 71 && g.has(store.FeatureList):
		st.Op = Break
	case n < 78:
		st.Op = Wait
	case n < 84:
		st.Op = Watch
	default:
		st.Op = Release
	}
	st.Client, st.Name = g.client(q, st.Op)
	if st.Op == Release && g.has(store.FeatureKeep) && (g.chance(25) || q.model.Waiters(q.name(st.Name)) > 1 && g.chance(50)) {
		st.Keep = store.Done + store.State(g.IntN(2))
	}
	if st.Op == Wait || st.Op == Watch {
		return Step{Op: st.Op, Client: st.Client}
	}
	if st.Op == Leave || st.Op == Break || st.Keep == 0 && st.Op == Release {
		st.Short = false
	}
	if st.Op == Renew && g.has(store.FeatureShared) {
		switch mode := q.client(st.Client).req.Mode; {
		case g.chance(5):
			st.Mode = store.Exclusive
		case g.chance(5), g.use%2 == 1 && mode == store.Exclusive && g.chance(60):
			st.Mode = store.Shared
		}
	}
	st.Old = g.chance(8)
	return st
}

// claim sets the mode of a request, and how many permits it wants.
func (g *generator) claim(st *Step) {
	st.Mode = store.Exclusive
	use := g.use
	if use == 3 {
		use = g.IntN(3)
	} else if g.chance(40) {
		use = 0
	}
	switch {
	case use == 1 && g.has(store.FeatureShared):
		st.Mode = store.Shared
	case use == 2 && g.has(store.FeaturePermits):
		st.Mode, st.Limit = store.Permits, 3
		if g.use == 3 && g.chance(20) {
			st.Limit = 4
		}
		st.Weight = 1 + g.IntN(st.Limit)
	}
}
