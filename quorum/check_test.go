//go:build !race

package quorum

import (
	"cmp"
	"flag"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"testing"
)

var (
	modelSeeds = flag.Int("model.seeds", 40, "random runs of the model")
	modelSeed  = flag.Uint64("model.seed", 1, "first seed of the random runs of the model")
)

// explore visits every state that can be reached, breadth first, and returns the first
// violation. States are remembered by a hash of 128 bits.
func (c *mConfig) explore(limit int) (violation string, states int, complete bool) {
	type origin struct{ parent, step int32 }
	type at struct {
		state mState
		index int32
	}
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	key := func(s *mState) [2]uint64 {
		return [2]uint64{maphash.Comparable(seeds[0], *s), maphash.Comparable(seeds[1], *s)}
	}
	start := c.start()
	seen := map[[2]uint64]struct{}{key(&start): {}}
	origins := []origin{{-1, 0}}
	frontier := []at{{start, 0}}
	for len(frontier) > 0 {
		var next []at
		for _, from := range frontier {
			for n, step := range c.steps(&from.state) {
				if step.bad != "" {
					var path []int32
					for i := from.index; i > 0; i = origins[i].parent {
						path = append(path, origins[i].step)
					}
					slices.Reverse(path)
					return step.bad + c.replay(append(path, int32(n))), len(seen), true
				}
				k := key(&step.next)
				if _, ok := seen[k]; ok {
					continue
				}
				if len(seen) >= limit {
					return "", len(seen), false
				}
				seen[k] = struct{}{}
				origins = append(origins, origin{from.index, int32(n)})
				next = append(next, at{step.next, int32(len(origins) - 1)})
			}
		}
		frontier = next
	}
	return "", len(seen), true
}

// replay describes the steps of a path, one in each line.
func (c *mConfig) replay(path []int32) (trace string) {
	described := *c
	described.trace = true
	s := c.start()
	for _, n := range path {
		step := described.steps(&s)[n]
		trace += "\n" + step.what
		s = step.next
	}
	return trace
}

func (c *mConfig) walk(seed uint64, steps int) (violation string) {
	random := rand.New(rand.NewPCG(seed, 0))
	s := c.start()
	var path []int32
	for range steps {
		all := c.steps(&s)
		if len(all) == 0 {
			return ""
		}
		n := random.IntN(len(all))
		step := all[n]
		path = append(path, int32(n))
		if step.bad != "" {
			return step.bad + c.replay(path)
		}
		s = step.next
	}
	return ""
}

// scenarios are explored exhaustively, each with three nodes, and with two clients that make one attempt for
// one token if it does not say otherwise. Each of them allows other events.
var scenarios = map[string]mConfig{
	"two clients, messages in any order, counters apart":     {counters: [mNodes]int8{0, 2, 3}},
	"three clients, messages in any order":                   {clients: 3, hold: true},
	"two clients, a second attempt, late messages":           {attempts: 2, timeouts: 2, hold: true},
	"two clients, blocks of tokens, a crash between rounds":  {tokens: 2, crashes: 1, timeouts: 1, counters: [mNodes]int8{0, 1, 3}},
	"leases expire, and a reply is late":                     {ticks: 3, second: 2, late: 1, hold: true},
	"one client renews while another asks":                   {renewals: 1, ticks: 3, second: 2, hold: true},
	"a node restarts without its data while a lease is held": {restarts: 1, ticks: 1, hold: true},
	"a node has restarted without its data, and counts again": {
		restarts: 1, restartHeld: true, prompt: true, ticks: 3, second: 3, hold: true, clocks: true, offsets: [mNodes]int8{0, 2, 5},
	},
	"a node restarts without its data, and is repaired":                  {restarts: 1, renewals: 1, ticks: 2, second: 2, hold: true},
	"a lease is over before it is renewed":                               {renewals: 1, ticks: 3, second: 3},
	"the vote of an earlier attempt is given back while a lease is held": {renewals: 1, ticks: 3, second: 3, hold: true, returning: true},
}

func TestModelHoldsInEveryState(t *testing.T) {
	for name, c := range scenarios {
		t.Run(name, func(t *testing.T) {
			c.nodes, c.locks = 3, 1
			c.clients, c.attempts, c.tokens = cmp.Or(c.clients, 2), cmp.Or(c.attempts, 1), cmp.Or(c.tokens, 1)
			v, states, complete := c.explore(3_000_000)
			t.Logf("%d states, complete: %v", states, complete)
			if v != "" {
				t.Fatal(v)
			}
			if !complete {
				t.Fatal("not all states were visited")
			}
		})
	}
}

var large = mConfig{
	nodes: 5, clients: 4, locks: 3, attempts: 3, tokens: 2, renewals: 2, renewTokens: 1,
	ticks: 14, timeouts: 6, late: 4, restarts: 3, crashes: 1, clocks: true, offsets: [mNodes]int8{0, 3, 1, 0, 2},
}

func TestModelHoldsInRandomRuns(t *testing.T) {
	c := large
	for i := range *modelSeeds * 50 {
		c.nodes = 3 + 2*(i/50%2)
		seed := *modelSeed + uint64(i)
		if v := c.walk(seed, 400); v != "" {
			t.Fatalf("seed %d, %d nodes: %s", seed, c.nodes, v)
		}
	}
}
