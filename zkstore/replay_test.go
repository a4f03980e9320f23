package zkstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

func TestReplay(t *testing.T) {
	addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
	for name, steps := range map[string][]storetest.Step{
		// The handle has lost its claim to another handle, so that its request has two nodes for a moment.
		"a repeated request does not count itself": {
			{Op: storetest.Acquire, Conn: 1, Mode: store.Permits, Weight: 1, Limit: 3},
			{Op: storetest.Renew},
			{Op: storetest.Acquire, Mode: store.Permits, Weight: 1, Limit: 3, Queue: true},
		},
		// A block that a renewal could not reserve, because another client waits, is not listed.
		"a refused block is not listed": {
			{Op: storetest.Acquire, Mode: store.Exclusive},
			{Op: storetest.Acquire, Client: 1, Mode: store.Exclusive, Queue: true},
			{Op: storetest.Renew, Tokens: 8},
			{Op: storetest.List},
			{Op: storetest.Renew, Tokens: 8, Floor: true},
			{Op: storetest.List},
		},
	} {
		t.Run(name, func(t *testing.T) { storetest.Replay(t, harness(connect(t, addr), addr), steps) })
	}
}
