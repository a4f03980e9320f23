package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/go-zookeeper/zk"
	_ "github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	_ "github.com/holdfast-lock/holdfast/zkstore"
)

var etcdServer = &system{
	name: "etcd",
	// One server that does not wait for its disk, which would slow down all candidates equally.
	start: func(b *bench) string {
		return servers.StartEtcd(b.t, servers.EtcdOptions{Args: []string{
			"--auto-compaction-mode=revision", "--auto-compaction-retention=10000", "--quota-backend-bytes=8000000000",
		}}).Addr()
	},
	trip: func(addr string) (call func(ctx context.Context) error, end func()) {
		client := dialEtcd(addr)
		return func(ctx context.Context) error { return errOf(client.Put(ctx, "trip", "")) }, func() { client.Close() }
	},
	peers: []peer{
		{name: raw, open: openRawEtcd, limit: true},
		ours("etcd://%s"),
		{name: "concurrency", open: openConcurrency},
	},
}

func dialEtcd(addr string) *clientv3.Client {
	return must.Get(clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()}))
}

var sessionTTL = concurrency.WithTTL(int(ttl.Seconds()))

// openConcurrency is etcd's own package. A mutex belongs to a session, which is a lease with
// keep-alives. Goroutines of one session do not exclude each other, so each call has its own.
func openConcurrency(addr string) *locker {
	client := dialEtcd(addr)
	free := make(chan *concurrency.Session, 1000)
	return &locker{close: func() { client.Close() }, lock: func(ctx context.Context, name string) (held, error) {
		var session *concurrency.Session
		select {
		case session = <-free:
		default:
			var err error
			if session, err = concurrency.NewSession(client, sessionTTL); err != nil {
				return nil, err
			}
		}
		mutex := concurrency.NewMutex(session, name)
		err := mutex.Lock(ctx)
		if err != nil {
			free <- session
		}
		return unlocker(func(ctx context.Context) error {
			defer func() { free <- session }()
			return mutex.Unlock(ctx)
		}), err
	}}
}

// openRawEtcd uses a transaction that creates a key, and its deletion.
func openRawEtcd(addr string) *locker {
	client := dialEtcd(addr)
	session := must.Get(concurrency.NewSession(client, sessionTTL))
	return &locker{close: func() { client.Close() }, lock: func(ctx context.Context, key string) (held, error) {
		resp, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, "", clientv3.WithLease(session.Lease()))).Commit()
		if err == nil && !resp.Succeeded {
			err = fmt.Errorf("raw: %s is there", key)
		}
		return unlocker(func(ctx context.Context) error { return errOf(client.Delete(ctx, key)) }), err
	}}
}

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
			must.Fail("no session")
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
