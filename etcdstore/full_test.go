package etcdstore

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A server whose database is full accepts no more writes. Extending or releasing a lock must still
// work.
func TestAFullServerRenewsAndReleases(t *testing.T) {
	t.Parallel()
	server := servers.StartEtcd(t, servers.EtcdOptions{Args: []string{"--quota-backend-bytes=1000000"}})
	s, look := opened(t, server.Addr()), direct(t, server.Addr())
	held, reader, changed, waiter, left := suites.Request("a"), suites.Request("b"), suites.Request("c"), suites.Queued("a"), suites.Queued("a")
	writer := suites.Request("d")
	reader.Mode = store.Shared
	for _, req := range []store.Request{held, reader, changed, writer} {
		must(t, s, req, 0)
	}
	must(t, s, waiter, 1)
	must(t, s, left, 2)
	for {
		_, err := look.Put(suites.Limited(t), "other", strings.Repeat("x", 100_000))
		if errors.Is(err, rpctypes.ErrNoSpace) {
			break
		}
		noError(t, err)
	}
	out, err := s.Renew(suites.Limited(t), []store.Renewal{
		{Name: "a", ID: held.ID, TTL: held.TTL, Mode: held.Mode},
		{Name: "b", ID: reader.ID, TTL: reader.TTL, Mode: reader.Mode, Tokens: 10}, // no space for them
		{Name: "c", ID: changed.ID, TTL: 2 * changed.TTL, Mode: changed.Mode},      // no space for another lease
		{Name: "d", ID: writer.ID, TTL: writer.TTL, Mode: store.Shared},            // no space for another key
		{Name: "c", ID: changed.ID, TTL: changed.TTL, Mode: changed.Mode, Floor: 1 << 50},
	})
	if err != nil {
		t.Fatalf("Renew: %v", err)
	}
	if r := out[4]; r.Status != store.Unknown || r.Err == nil || !strings.Contains(r.Err.Error(), "disarm the alarm") {
		t.Errorf("Renew with a floor: %+v", r)
	}
	for i, r := range out[:4] {
		if r.Status != store.Extended || r.TTL > held.TTL || r.Tokens > 0 || (r.Err != nil) != (i == 3) {
			t.Errorf("Renew: %+v", r)
		}
	}
	must(t, s, waiter, 1) // its heartbeat
	if err := s.Leave(suites.Limited(t), "a", left.ID); err != nil {
		t.Errorf("Leave: %v", err)
	}
	suites.Release(t, s, held)
	suites.Release(t, s, reader)
	if err := s.Wait(suites.Limited(t), "a", waiter.ID); err != nil {
		t.Errorf("Wait: %v", err)
	}
	if _, err := s.Acquire(within(t, 5*time.Second), waiter); err == nil || !strings.Contains(err.Error(), "disarm the alarm") {
		t.Errorf("Acquire on a full server: %v", err)
	}
}

// A release is sent in a batch with requests to acquire other names, which a full server refuses.
func TestAFullServerReleasesThoughABatchAlsoAcquires(t *testing.T) {
	t.Parallel()
	c := gather(t)
	_, err := c.look.Put(t.Context(), "held", "")
	noError(t, err)
	alarm := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}
	_, err = pb.NewMaintenanceClient(c.look.ActiveConnection()).Alarm(t.Context(), alarm)
	noError(t, err)
	acquire := c.later("a", write("a", 0))
	release := c.later("held", &pb.TxnRequest{
		Compare: []*pb.Compare{nothingNew("held", "helf", math.MaxInt64-1)},
		Success: []*pb.RequestOp{remove("held")},
	})
	c.proxy.Heal()
	done(t, release)
	if got := <-acquire; rpctypes.Error(got.Err) != rpctypes.ErrNoSpace {
		t.Errorf("acquire on a full server: %v, %v", got.Value, got.Err)
	}
	resp, err := c.look.Get(t.Context(), "held")
	if err != nil || len(resp.Kvs) > 0 {
		t.Errorf("after the release: %v, %v", resp, err)
	}
}
