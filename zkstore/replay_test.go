package zkstore

import (
	"testing"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/storetest"
)

// The handle has lost its claim to another handle, so that its request has two nodes for a moment.
func TestARepeatedRequestDoesNotCountItself(t *testing.T) {
	addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
	storetest.Replay(t, harness(connect(t, addr), addr), []storetest.Step{
		{Op: storetest.Acquire, Conn: 1, Mode: store.Permits, Weight: 1, Limit: 3},
		{Op: storetest.Renew},
		{Op: storetest.Acquire, Mode: store.Permits, Weight: 1, Limit: 3, Queue: true},
	})
}

// A block that a renewal could not reserve, because another client waits, is not listed.
func TestARefusedBlockIsNotListed(t *testing.T) {
	addr := servers.StartZooKeeper(t, servers.ZooKeeperOptions{}).Addr()
	storetest.Replay(t, harness(connect(t, addr), addr), []storetest.Step{
		{Op: storetest.Acquire, Mode: store.Exclusive},
		{Op: storetest.Acquire, Client: 1, Mode: store.Exclusive, Queue: true},
		{Op: storetest.Renew, Tokens: 8},
		{Op: storetest.List},
		{Op: storetest.Renew, Tokens: 8, Floor: true},
		{Op: storetest.List},
	})
}
