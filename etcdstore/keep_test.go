package etcdstore

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// The lease of a record that is kept for a month must not stay for a month without the record.
func TestAKeepWithoutAReplyLeavesNoLeaseWithoutARecord(t *testing.T) {
	t.Parallel()
	keep := store.Keep{State: store.Done, For: 30 * 24 * time.Hour}
	lease := binary.AppendUvarint([]byte{1 << 3}, uint64(keep.For/time.Second)) // field 1 of the request is the TTL
	record := []byte("lock/a" + separator + string(rune(kindDone)))
	type fault struct {
		mark  []byte
		occur func(t *testing.T, p *faultproxy.Proxy, look *clientv3.Client, mark []byte, call func(context.Context) error)
	}
	late := func(t *testing.T, p *faultproxy.Proxy, _ *clientv3.Client, mark []byte, call func(context.Context) error) {
		p.Abandon(t, has(mark), call, func() {})
	}
	never := func(t *testing.T, p *faultproxy.Proxy, look *clientv3.Client, mark []byte, call func(context.Context) error) {
		late(t, p, look, mark, call)
		p.Cut()
	}
	for what, f := range map[string]fault{
		"the reply to the lease is lost":          {lease, lose},
		"the request for the lease is lost":       {lease, never},
		"the reply to the write is lost":          {record, lose},
		"the request for the write is lost":       {record, never},
		"the write arrives after the caller left": {record, late},
	} {
		for then, end := range map[string]func(t *testing.T, far *Store, id store.ID){
			"released again": func(t *testing.T, far *Store, id store.ID) {
				eventually(t, func(ctx context.Context) (int, error) { return 0, far.Release(ctx, "a", id, keep) })
			},
			"left": func(t *testing.T, far *Store, id store.ID) {
				eventually(t, func(ctx context.Context) (int, error) { return 0, far.Leave(ctx, "a", id) })
			},
			"closed": func(*testing.T, *Store, store.ID) {},
		} {
			t.Run(what+", "+then, func(t *testing.T) {
				t.Parallel()
				proxy, far, _, look := behind(t)
				req := suites.Request("a")
				must(t, far, req, 0)
				f.occur(t, proxy, look, f.mark, func(ctx context.Context) error {
					return far.Release(ctx, "a", req.ID, keep)
				})
				proxy.Heal()
				eventually(t, func(ctx context.Context) (*snapshot, error) { return far.look(ctx, claimKey{"b", store.NewID()}) })
				end(t, far, req.ID)
				far.Close()
				keys, leases := 0, 0
				left := etcdtest.Residue(t, look)
				for _, one := range left {
					if strings.HasPrefix(one, "lease ") {
						leases++
					} else {
						keys++
					}
				}
				if leases != keys || then == "released again" && keys != 1 {
					t.Errorf("left on the server: %q", left)
				}
			})
		}
	}
}
