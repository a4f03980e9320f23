// Package etcdtest has helpers for tests against etcd servers.
package etcdtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Residue returns all keys and leases on the servers except those that are meant to stay.
func Residue(t testing.TB, client *clientv3.Client) (left []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	keys, err := client.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range keys.Kvs {
		if key := string(kv.Key); !strings.HasSuffix(key, "/floor") {
			left = append(left, key)
		}
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range leases.Leases {
		left = append(left, fmt.Sprintf("lease %x", l.ID))
	}
	return left
}
