package etcdstore

import (
	"context"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-lock/holdfast/etcdstore/internal/etcdtest"
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A lateGrant keeps the first request for a lease with an ID, as a server that hangs would.
type lateGrant struct {
	pb.LeaseClient
	kept   *pb.LeaseGrantRequest
	gaveUp context.CancelFunc
}

func (l *lateGrant) LeaseGrant(ctx context.Context, req *pb.LeaseGrantRequest, opts ...grpc.CallOption) (*pb.LeaseGrantResponse, error) {
	if req.ID == noLease || l.kept != nil {
		return l.LeaseClient.LeaseGrant(ctx, req, opts...)
	}
	l.kept = req
	l.gaveUp()
	<-ctx.Done()
	return nil, ctx.Err()
}

// A lease may be created after its Keep was repeated, when there was nothing to revoke yet.
func TestALeaseOfAKeepThatArrivesLateIsRevokedByClose(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{})
	look := direct(t, server.Addr())
	s, keep := opened(t, server.Addr()), store.Keep{State: store.Done, For: 30 * 24 * time.Hour}
	ctx, cancel := context.WithCancel(suites.Limited(t))
	late := &lateGrant{LeaseClient: s.leases, gaveUp: cancel}
	s.leases = late
	req := suites.Request("a")
	must(t, s, req, 0)
	if err := s.Release(ctx, "a", req.ID, keep); err == nil {
		t.Fatal("Release succeeds though there was no reply")
	}
	if err := s.Release(suites.Limited(t), "a", req.ID, keep); err != nil {
		t.Fatal(err)
	}
	if err := s.Break(suites.Limited(t), "a", req.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := late.LeaseClient.LeaseGrant(suites.Limited(t), late.kept); err != nil {
		t.Fatal(err)
	}
	suites.Leave(t, s, suites.Request("b"))
	s.Close()
	if left := etcdtest.Residue(t, look); len(left) > 0 {
		t.Errorf("left on the server: %q", left)
	}
}
