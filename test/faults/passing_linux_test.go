package faults

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/quorum"
	"github.com/holdfast-lock/holdfast/store"
)

// Clients pass the votes of a quorum on to each other, while the clock of the bell or of another node
// jumps. There is one holder at a time, tokens grow, and the clients go on.
func TestANodesClockDoesNotMatterForVotesThatArePassedOn(t *testing.T) {
	for _, by := range []time.Duration{wrong, -wrong} {
		for _, bell := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v bell=%v", by, bell), func(t *testing.T) {
				clock, opts := newClock(t)
				opts.InMemory = true
				nodes := append(servers.StartRedisNodes(t, 1, opts), servers.StartRedisNodes(t, 4, servers.RedisOptions{InMemory: true})...)
				var addrs []string
				for _, n := range nodes {
					addrs = append(addrs, n.Addr())
				}
				name := nameWithBell(addrs, nodes[0].Addr(), bell)
				var stores []*quorum.Store
				var clients []*holdfast.Client
				for range 6 {
					s, err := store.Open(t.Context(), "quorum+redis://"+strings.Join(addrs, ",")+"?restart=off")
					if err != nil {
						t.Fatal(err)
					}
					c, err := holdfast.New(s)
					if err != nil {
						t.Fatal(err)
					}
					defer s.Close()
					defer c.Close()
					stores, clients = append(stores, s.(*quorum.Store)), append(clients, c)
				}
				var holders atomic.Int32
				var token, grants atomic.Int64
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				for _, c := range clients {
					wg.Go(func() {
						for ctx.Err() == nil {
							lease, err := c.Lock(ctx, name)
							if err != nil {
								continue
							}
							if n := holders.Add(1); n > 1 {
								t.Errorf("%d holders", n)
							}
							if before := token.Swap(lease.Token()); before >= lease.Token() {
								t.Errorf("token %d after %d", lease.Token(), before)
							}
							grants.Add(1)
							holders.Add(-1)
							lease.Unlock(context.Background())
						}
					})
				}
				time.Sleep(time.Second)
				passes := uint64(0)
				for _, s := range stores {
					passes += s.Passes()
				}
				before := grants.Load()
				clock.shift(by)
				time.Sleep(3500 * time.Millisecond) // votes that are left over have expired
				during := grants.Load()
				time.Sleep(time.Second)
				t.Logf("%d grants, %d passed on; %d grants after the jump, %d after that", before, passes, during-before, grants.Load()-during)
				if passes == 0 || grants.Load() == during {
					t.Errorf("%d passed on, %d grants in a second after the jump", passes, grants.Load()-during)
				}
				cancel()
				wg.Wait()
			})
		}
	}
}

// nameWithBell returns a name whose bell is the given node, or another one.
func nameWithBell(addrs []string, node string, bell bool) string {
	sorted := slices.Sorted(slices.Values(addrs))
	for i := 0; ; i++ {
		name := fmt.Sprint("n", i)
		h := fnv.New32a()
		h.Write([]byte(name))
		if (sorted[h.Sum32()%uint32(len(sorted))] == node) == bell {
			return name
		}
	}
}
