package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	_ "github.com/holdfast-lock/holdfast/etcdstore"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
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
