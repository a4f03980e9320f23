package etcdstore

import (
	"context"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A preempted client is overtaken by another one before its first write of this key.
type preempted struct {
	pb.KVClient
	key   string
	other func()
}

func (p *preempted) Txn(ctx context.Context, req *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	for _, op := range req.Success {
		if string(op.GetRequestPut().GetKey()) == p.key && p.other != nil {
			other := p.other
			p.other = nil
			other()
		}
	}
	return p.KVClient.Txn(ctx, req, opts...)
}

// Two clients raise the floor at the same time. The higher one must win, or the tokens of later grants
// would be lower.
func TestAClientDoesNotLowerTheFloorOfAnother(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	for _, test := range []struct {
		by     string
		tokens int // that a renewal asks for
	}{{"renewal", 0}, {"renewal with tokens", 5}, {"grant", 0}} {
		one, two := opened(t, server.Addr()), opened(t, server.Addr())
		held := suites.Request("held by " + test.by)
		floor := must(t, one, held, 0).Token + 1000*block
		req := suites.Request(test.by)
		req.Floor = floor + 1000*block
		var granted store.Answer
		one.kv = &preempted{KVClient: one.kv, key: one.keys.floor, other: func() { granted = must(t, two, req, 0) }}
		if test.by == "grant" {
			other := suites.Request("other")
			other.Floor = floor
			must(t, one, other, 0)
		} else if out, err := one.Renew(suites.Limited(t), []store.Renewal{
			{Name: held.Name, ID: held.ID, TTL: held.TTL, Mode: held.Mode, Tokens: test.tokens, Floor: floor},
		}); err != nil || out[0].Status != store.Extended || test.tokens > 0 && out[0].Token <= floor {
			t.Fatalf("%s: %+v, %v, want tokens above %d", test.by, out, err, floor)
		}
		if granted.Token <= req.Floor {
			t.Fatalf("%s: the other client has token %d, want one above %d", test.by, granted.Token, req.Floor)
		}
		suites.Release(t, two, req)
		if next := must(t, opened(t, server.Addr()), suites.Request(req.Name), 0); next.Token <= granted.Token {
			t.Errorf("%s: token %d after token %d", test.by, next.Token, granted.Token)
		}
	}
}
