package faults

import (
	"fmt"
	"hash/fnv"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast/internal/redis/rediscore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A taker takes names again and again, and checks that the tokens of each name grow.
type taker struct {
	t    testing.TB
	b    *bed
	last map[string]int64
	mu   sync.Mutex
}

// newTaker returns a taker of names that share a counter at each node of a quorum.
func newTaker(t testing.TB, b *bed) *taker {
	const names = 64
	k := &taker{t: t, b: b, last: make(map[string]int64)}
	for i := 0; len(k.last) < names; i++ {
		h := fnv.New32a()
		fmt.Fprint(h, i)
		if h.Sum32()%rediscore.QuorumCounters == 0 {
			k.last[fmt.Sprint(i)] = 0
		}
	}
	return k
}

// take takes each name several times with a new client, with blocks that are as large as possible.
func (k *taker) take(what string, rounds int) {
	k.t.Helper()
	s, err := store.Open(k.t.Context(), k.b.url)
	if err != nil {
		k.t.Fatal(err)
	}
	defer s.Close()
	var all sync.WaitGroup
	for name, last := range maps.Clone(k.last) { // the goroutines write to the map
		all.Go(func() {
			for range rounds {
				req := suites.Request(name)
				req.Tokens, req.TTL = 4096, shortTTL
				var answer store.Answer
				err := retryAny(func() (err error) {
					if answer, err = s.Acquire(k.t.Context(), req); err == nil && !answer.Granted() {
						err = errNotYet
					}
					return err
				})
				if err != nil {
					k.t.Errorf("%s: %v", what, err)
					return
				}
				if answer.Token <= last {
					k.t.Errorf("T: %s: token %d of %s after %d: %d lower", what, answer.Token, name, last, last-answer.Token)
				}
				last = answer.Token + int64(answer.Tokens) - 1
				if err := retryAny(func() error { return s.Leave(k.t.Context(), name, req.ID) }); err != nil {
					k.t.Errorf("%s: %v", what, err)
				}
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.last[name] = last
		})
	}
	all.Wait()
	if k.t.Failed() {
		k.t.FailNow()
	}
}

// Nodes vote again when the restart delay is over.
func TestTheTokensOfAQuorumGrowHoweverNodesLoseTheirData(t *testing.T) {
	t.Parallel()
	const many = 30
	for name, test := range map[string]func(t *testing.T, b *bed, k *taker, clock *wallClock){
		"a node is wiped and another one killed": func(_ *testing.T, b *bed, k *taker, _ *wallClock) {
			b.nodes[0].Wipe()
			b.nodes[1].Kill()
			k.take("the node that was wiped votes", 2)
		},
		"all nodes are wiped": func(_ *testing.T, b *bed, k *taker, _ *wallClock) {
			for _, node := range b.nodes {
				node.Wipe()
			}
			k.take("all nodes were wiped", 2)
		},
		"a clock is an hour ahead for a moment": func(_ *testing.T, b *bed, k *taker, clock *wallClock) {
			clock.shift(time.Hour)
			k.take("the clock is ahead", 2)
			clock.shift(0)
			b.nodes[1].Kill()
			k.take("the node whose clock was ahead votes", 1) // with a second one, the client would raise the other node
			b.nodes[1].Restart()
			b.nodes[0].Kill()
			k.take("without the node whose clock was ahead", 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock, opts := newClock(t)
			nodes := append(servers.StartRedisNodes(t, 1, opts), servers.StartRedisNodes(t, 2, servers.RedisOptions{})...)
			b := quorumOf(t, nodes, shortTTL.String())
			k := newTaker(t, b)
			k.take("the nodes are healthy", many)
			test(t, b, k, clock)
		})
	}
}
