package etcdstore

import (
	"context"
	"errors"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A floor above the tokens of the current revision is stored on the server, and earlier clients
// learn of it.
func TestAFloorHoldsForAllClients(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	one, two := opened(t, server.Addr()), opened(t, server.Addr())
	ctx := within(t, patience)
	highest := int64(0)
	grant := func(s *Store, floor int64) store.Request {
		t.Helper()
		req := request("a", false)
		req.Floor, req.Tokens = floor, block
		answer := must(t, s, req, 0)
		if answer.Token <= max(highest, floor) || answer.Tokens != block {
			t.Fatalf("%d tokens from %d, want more than %d and the floor %d", answer.Tokens, answer.Token, highest, floor)
		}
		highest = answer.Token + block - 1
		return req
	}
	release := func(s *Store, req store.Request) {
		t.Helper()
		if err := s.Release(ctx, "a", req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
	}
	release(one, grant(one, 0))
	release(two, grant(two, 0))
	release(one, grant(one, highest+1000*block))
	release(two, grant(two, 0)) // this store did not know of the floor
	req := grant(one, highest+1000*block)
	out, err := two.Renew(ctx, []store.Renewal{{Name: "a", ID: req.ID, TTL: req.TTL, Mode: req.Mode, Floor: highest + 1000*block}})
	if err != nil || out[0].Status != store.Extended {
		t.Fatalf("Renew: %+v, %v", out, err)
	}
	highest += 1000 * block
	out, err = one.Renew(ctx, []store.Renewal{{Name: "a", ID: req.ID, TTL: req.TTL, Mode: req.Mode, Tokens: 5}})
	if err != nil || out[0].Token <= highest {
		t.Fatalf("Renew: %+v, %v, want tokens above %d", out, err, highest)
	}
	highest = out[0].Token + 4
	release(one, req)
	release(opened(t, server.Addr()), grant(opened(t, server.Addr()), 0))

	over := request("a", false)
	over.Floor = store.MaxToken - block
	if _, err := one.Acquire(ctx, over); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a floor with no tokens above it: %v", err)
	}
}

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
		held := request("held by "+test.by, false)
		floor := must(t, one, held, 0).Token + 1000*block
		req := request(test.by, false)
		req.Floor = floor + 1000*block
		var granted store.Answer
		one.kv = &preempted{KVClient: one.kv, key: one.keys.floor, other: func() { granted = must(t, two, req, 0) }}
		if test.by == "grant" {
			other := request("other", false)
			other.Floor = floor
			must(t, one, other, 0)
		} else if out, err := one.Renew(within(t, patience), []store.Renewal{
			{Name: held.Name, ID: held.ID, TTL: held.TTL, Mode: held.Mode, Tokens: test.tokens, Floor: floor},
		}); err != nil || out[0].Status != store.Extended || test.tokens > 0 && out[0].Token <= floor {
			t.Fatalf("%s: %+v, %v, want tokens above %d", test.by, out, err, floor)
		}
		if granted.Token <= req.Floor {
			t.Fatalf("%s: the other client has token %d, want one above %d", test.by, granted.Token, req.Floor)
		}
		if err := two.Release(within(t, patience), req.Name, req.ID, store.Keep{}); err != nil {
			t.Fatal(err)
		}
		if next := must(t, opened(t, server.Addr()), request(req.Name, false), 0); next.Token <= granted.Token {
			t.Errorf("%s: token %d after token %d", test.by, next.Token, granted.Token)
		}
	}
}
