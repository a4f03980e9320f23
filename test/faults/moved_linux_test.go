package faults

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-lock/holdfast"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
)

// On Kubernetes, a pod that is replaced comes back with another address.
func TestNodesOfAClusterThatComeBackOnOtherAddressesCostNoLease(t *testing.T) {
	t.Parallel()
	const (
		ttl   = 15 * time.Second
		pause = 1500 * time.Millisecond // longer than a client waits before it looks for the nodes
		learn = 7 * time.Second         // within this time, a client that makes no calls knows the new addresses
	)
	b := redisCluster(t)
	h := new(History)
	client := b.open()
	var idle []*holdfast.Client
	for range 8 {
		idle = append(idle, b.open())
	}
	var leases []*held
	for i := range 30 {
		leases = append(leases, record(h).must(t, client, fmt.Sprint("n", i), ttl))
	}
	nodes := b.shards.Nodes
	// First most primaries are gone, so that no replica can take over. After the second wave no
	// node has its first address. At the end, a replica takes over.
	for _, wave := range [][]*servers.Redis{nodes[:3], nodes[3:], nodes[:1]} {
		b.shards.Move(pause, wave...)
		b.shards.AwaitOK()
		time.Sleep(learn)
	}
	var again []func() error
	for _, lease := range leases {
		again = append(again, renewed(lease))
	}
	for i, renewed := range again {
		within(t, 2*ttl, "it is renewed or lost", func() error {
			if err := renewed(); errors.Is(err, errNotYet) {
				return err
			}
			return nil
		})
		check(t, leases[i].Err())
	}
	if t.Failed() {
		return
	}
	for i, lease := range leases {
		lease.mustUnlock(t)
		for _, c := range idle {
			record(h).must(t, c, fmt.Sprint("n", i), ttl).mustUnlock(t)
		}
	}
	check(t, h.Check())
	b.clean(soon, append(idle, client)...)
}
