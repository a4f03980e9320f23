package etcdstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// An unheard server does not reply to transactions that read this key.
type unheard struct {
	pb.KVClient
	key string
}

func (u *unheard) Txn(ctx context.Context, req *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	for _, op := range req.Success {
		if string(op.GetRequestRange().GetKey()) == u.key {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	return u.KVClient.Txn(ctx, req, opts...)
}

// The keys of many grants are read in several transactions. If the reply to one of them is lost,
// the outcomes of the other grants are known.
func TestALostReplyAffectsTheRenewalsOfItsReadOnly(t *testing.T) {
	t.Parallel()
	s := opened(t, servers.StartEtcd(t, servers.EtcdOptions{}).Addr())
	grants := make([]store.Renewal, 2*maxOps)
	inParallel(len(grants), func(i int) {
		req := suites.Request(fmt.Sprint("n", i))
		must(t, s, req, 0)
		grants[i] = suites.Renewal(req)
	})
	for _, lost := range []int{0, maxOps} {
		g := &grants[lost]
		c, _ := s.claim(claimKey{g.Name, g.ID})
		kv := s.kv
		s.kv = &unheard{kv, s.keys.key(g.Name, kindOf(g.Mode), c.grant.id)}
		outcomes, err := s.Renew(within(t, 2*time.Second), grants)
		s.kv = kv
		if err != nil {
			t.Errorf("the read of grant %d is lost: %v", lost, err)
			continue
		}
		for i, o := range outcomes {
			if want := i/maxOps != lost/maxOps; (o.Status == store.Extended) != want || (o.Err == nil) != want {
				t.Fatalf("the read of grant %d is lost: grant %d: %+v", lost, i, o)
			}
		}
	}
}

// The core gives up a renewal after a sixth of the TTL. So two round trips, one after the other, would cost
// short leases at a server that is far away.
func TestARenewalNeedsOneRoundTrip(t *testing.T) {
	t.Parallel()
	const trip = 500 * time.Millisecond
	proxy, far, _, _ := behind(t)
	req := suites.Request("a")
	must(t, far, req, 0)
	proxy.ToClient.Delay(trip)
	out, err := far.Renew(within(t, trip*9/5), []store.Renewal{suites.Renewal(req)})
	if err != nil || out[0].Status != store.Extended {
		t.Errorf("Renew: %+v, %v", out, err)
	}
}
