package main

import (
	"context"
	"errors"
	"io"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	_ "github.com/holdfast-lock/holdfast/zkstore"
)

const bareQueue = "bare queue"

var zooKeeper = &system{
	name: "ZooKeeper",
	start: func(b *bench) string {
		// Use the optimizing compiler, and enough memory for it.
		return servers.StartZooKeeper(b.t, servers.ZooKeeperOptions{Java: []string{"-XX:TieredStopAtLevel=4", "-Xmx512m"}}).Addr()
	},
	trip: func(addr string) (call func(ctx context.Context) error, end func()) {
		conn := dialZoo(addr)
		must.Get(conn.Create("/trip", nil, zk.FlagEphemeral, zooACL))
		return func(context.Context) error { return errOf(conn.Set("/trip", nil, -1)) }, conn.Close
	},
	peers: []peer{
		{name: raw, open: zooPeer(lockRawZoo), limit: true},
		ours("zk://%s"),
		{name: "zk.Lock", open: zooPeer(lockZoo)},
		{name: bareQueue, open: zooPeer(lockBareZoo), limit: true},
	},
}

var zooACL = zk.WorldACL(zk.PermAll)

// dialZoo connects with the client library of the peers.
func dialZoo(addr string) *zk.Conn {
	conn, events, err := zk.Connect([]string{addr}, 40*time.Second, zk.WithLogger(log.New(io.Discard, "", 0)))
	must.OK(err)
	late := time.After(hangs)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn
			}
		case <-late:
			must.OK(errors.New("no session"))
		}
	}
}

// zooPeer returns a peer that locks a path. The client library accepts no context.
func zooPeer(lock func(conn *zk.Conn, path string) (unlock func() error, err error)) func(addr string) *locker {
	return func(addr string) *locker {
		conn := dialZoo(addr)
		return &locker{close: conn.Close, lock: func(_ context.Context, name string) (held, error) {
			unlock, err := lock(conn, "/"+name)
			return unlocker(func(context.Context) error { return unlock() }), err
		}}
	}
}

// lockRawZoo is the raw limit without a queue: no identity and no token.
func lockRawZoo(conn *zk.Conn, path string) (unlock func() error, err error) {
	_, err = conn.Create(path, nil, zk.FlagEphemeral, zooACL)
	return func() error { return conn.Delete(path, -1) }, err
}

// lockBareZoo is the raw limit with a queue: a sequence node in a parent, without identity or token.
func lockBareZoo(conn *zk.Conn, parent string) (unlock func() error, err error) {
	results, err := conn.Multi(
		&zk.CreateRequest{Path: parent, Acl: zooACL},
		&zk.CreateRequest{Path: parent + "/", Acl: zooACL, Flags: zk.FlagEphemeralSequential})
	return func() error {
		return errOf(conn.Multi(
			&zk.DeleteRequest{Path: results[1].String, Version: -1}, &zk.DeleteRequest{Path: parent, Version: -1}))
	}, err
}

// lockZoo is the lock of the client library. It leaves the parent nodes behind.
func lockZoo(conn *zk.Conn, path string) (unlock func() error, err error) {
	lock := zk.NewLock(conn, path, zooACL)
	return lock.Unlock, lock.Lock()
}
