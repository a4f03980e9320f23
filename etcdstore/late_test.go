package etcdstore

import (
	"context"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A lateBed keeps one write of a store, as a server that hangs would, and executes it later.
type lateBed struct {
	pb.KVClient
	t        *testing.T
	s, other *Store
	key      string // of the write to keep begins with it; empty if none is to be kept
	kept     *pb.TxnRequest
	gaveUp   context.CancelFunc
}

func newLateBed(t *testing.T) *lateBed {
	addr := servers.StartEtcd(t, servers.EtcdOptions{}).Addr()
	b := &lateBed{t: t, s: opened(t, addr), other: opened(t, addr)}
	b.KVClient, b.s.kv = b.s.kv, b
	return b
}

func (b *lateBed) Txn(ctx context.Context, req *pb.TxnRequest, opts ...grpc.CallOption) (*pb.TxnResponse, error) {
	for _, op := range req.Success {
		if key := string(op.GetRequestPut().GetKey()); b.key != "" && strings.HasPrefix(key, b.key) {
			b.key, b.kept = "", req
			b.gaveUp()
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	return b.KVClient.Txn(ctx, req, opts...)
}

// delay asks for a name, and gives up when the write of the grant is on its way.
func (b *lateBed) delay(r store.Request) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(suites.Limited(b.t))
	b.key, b.gaveUp = b.s.keys.name(r.Name)+string(rune(kindOf(r.Mode))), cancel
	if answer, err := b.s.Acquire(ctx, r); err == nil {
		b.t.Fatalf("Acquire: %+v though there was no reply", answer)
	}
}

func (b *lateBed) arrive() {
	b.t.Helper()
	if _, err := b.KVClient.Txn(suites.Limited(b.t), b.kept); err != nil && !leaseGone(err) {
		b.t.Fatal(err)
	}
}

func TestLateRequestsAreNotGranted(t *testing.T) {
	t.Parallel()
	suites.Late(t, func(t *testing.T) *suites.LateBed {
		b := newLateBed(t)
		return &suites.LateBed{S: b.s, Other: b.other, Delay: b.delay, Arrive: b.arrive}
	})
}

// The first waiter is granted by a request that gets no reply, is granted again, and its grant is broken.
func TestALateRequestOfAWaiterIsNotGrantedAfterItsGrantIsBroken(t *testing.T) {
	t.Parallel()
	b := newLateBed(t)
	holder, r, next := suites.Request("a"), suites.Queued("a"), suites.Queued("a")
	must(t, b.other, holder, 0)
	must(t, b.s, r, 1)
	must(t, b.other, next, 2)
	suites.Release(t, b.other, holder)
	b.delay(r)
	must(t, b.s, r, 0) // it has kept its place
	noError(t, b.other.Break(suites.Limited(t), "a", r.ID))
	must(t, b.other, next, 0)
	suites.Release(t, b.other, next)
	b.arrive()
	if out, err := b.s.Renew(suites.Limited(t), []store.Renewal{suites.Renewal(r)}); err != nil || out[0].Status != store.Gone {
		t.Errorf("Renew: %+v, %v; want that the grant is gone", out, err)
	}
	must(t, b.other, suites.Request("a"), 0)
}

// If a request that does not wait is refused, nothing of it stays, not even an attempt without a reply.
func TestALateRequestIsNotGrantedAfterItWasRefused(t *testing.T) {
	t.Parallel()
	b := newLateBed(t)
	holder, r := suites.Request("a"), suites.Request("a")
	b.delay(r)
	must(t, b.other, holder, 0)
	suites.Refused(t, b.s, r)
	if len(b.s.claims) > 0 {
		t.Errorf("%d claims are left", len(b.s.claims))
	}
	suites.Release(t, b.other, holder)
	b.arrive()
	must(t, b.other, suites.Request("a"), 0)
}
