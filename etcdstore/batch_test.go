package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/servers"
	"github.com/holdfast-lock/holdfast/store"
)

// A crowd is transactions that go together because the network is slow.
type crowd struct {
	t     *testing.T
	s     *Store
	proxy *faultproxy.Proxy
	look  *clientv3.Client
	first []<-chan sent // on their way each for itself
}

type sent struct {
	resp *pb.TxnResponse
	err  error
}

func gather(t *testing.T) *crowd {
	proxy, s, _, look := behind(t)
	c := &crowd{t: t, s: s, proxy: proxy, look: look}
	if _, err := s.look(bounded(t, patience), claimKey{"a", store.NewID()}); err != nil { // it is connected
		t.Fatal(err)
	}
	proxy.ToServer.Hold()
	for i := range maxFlying {
		c.first = append(c.first, c.later(bounded(t, patience), fmt.Sprint("first", i), write(fmt.Sprint("first", i), 0)))
	}
	return c
}

// later sends a transaction and returns when it is flying or waits.
func (c *crowd) later(ctx context.Context, name string, txn *pb.TxnRequest) <-chan sent {
	c.t.Helper()
	n, done := c.s.batch.Len(), make(chan sent, 1)
	go func() {
		resp, err := c.s.txnOn(ctx, name, txn)
		done <- sent{resp, err}
	}()
	servers.Poll(c.t, patience, func() error {
		if c.s.batch.Len() <= n {
			return errors.New("it has not started")
		}
		return nil
	})
	return done
}

// entries is how much went through the log of the server.
func (c *crowd) entries() uint64 {
	c.t.Helper()
	status, err := c.look.Status(bounded(c.t, patience), c.look.Endpoints()[0])
	if err != nil {
		c.t.Fatal(err)
	}
	return status.RaftIndex
}

// write writes a key that is not there.
func write(key string, lease int64) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{modIs(key, 0)}, Success: []*pb.RequestOp{put(key, nil, lease)}}
}

func done(t *testing.T, c <-chan sent) *pb.TxnResponse {
	t.Helper()
	got := <-c
	if got.err != nil || !got.resp.Succeeded {
		t.Fatalf("%v, %v", got.resp, got.err)
	}
	return got.resp
}

func TestWhoComesWhileOthersAreOnTheirWayGoTogether(t *testing.T) {
	t.Parallel()
	c := gather(t)
	before := c.entries()
	var all []<-chan sent
	const n = 20
	for i := range n {
		name := fmt.Sprint("n", i)
		all = append(all, c.later(bounded(t, patience), name, write(name, 0)))
	}
	taken := c.later(bounded(t, patience), "taken", write("taken", 0))
	if _, err := c.look.Put(t.Context(), "taken", ""); err != nil {
		t.Fatal(err)
	}
	before++
	c.proxy.Heal()
	for _, one := range c.first {
		done(t, one)
	}
	revision := done(t, all[0]).Header.Revision
	for i, one := range all[1:] {
		if got := done(t, one); got.Header.Revision != revision {
			t.Errorf("%d was written at revision %d, the first at %d", i+1, got.Header.Revision, revision)
		}
	}
	if got := <-taken; got.err != nil || got.resp.Succeeded {
		t.Errorf("one whose condition is not true: %v, %v", got.resp, got.err)
	}
	if got := c.entries() - before; got != maxFlying+1 {
		t.Errorf("%d entries of the log, want %d", got, maxFlying+1)
	}
	for i := range n {
		resp, err := c.look.Get(t.Context(), fmt.Sprint("n", i))
		if err != nil || len(resp.Kvs) != 1 || resp.Kvs[0].ModRevision != revision {
			t.Errorf("%d: %v, %v", i, resp, err)
		}
	}
}

// One that the server refuses, here because its lease is gone, does not spoil the others.
func TestOneThatIsRefusedIsRefusedAlone(t *testing.T) {
	t.Parallel()
	c := gather(t)
	good := c.later(bounded(t, patience), "good", write("good", 0))
	bad := c.later(bounded(t, patience), "bad", write("bad", 12345))
	better := c.later(bounded(t, patience), "better", write("better", 0))
	c.proxy.Heal()
	done(t, good)
	done(t, better)
	if got := <-bad; !leaseGone(got.err) {
		t.Errorf("%v, %v, want that the lease is gone", got.resp, got.err)
	}
}

// etcd tests all conditions first: the second would not see the first.
func TestTwoOnOneNameDoNotGoTogether(t *testing.T) {
	t.Parallel()
	c := gather(t)
	one := c.later(bounded(t, patience), "a", write("a", 0))
	two := c.later(bounded(t, patience), "a", write("a", 0))
	c.proxy.Heal()
	first, second := <-one, <-two
	if first.err != nil || second.err != nil || first.resp.Succeeded == second.resp.Succeeded {
		t.Errorf("%v, %v, and %v, %v", first.resp, first.err, second.resp, second.err)
	}
}

func TestWhoGivesUpBeforeItsTurnIsNotSent(t *testing.T) {
	t.Parallel()
	c := gather(t)
	ctx, cancel := context.WithCancel(t.Context())
	given := c.later(ctx, "a", write("a", 0))
	other := c.later(bounded(t, patience), "b", write("b", 0))
	cancel()
	if got := <-given; !errors.Is(got.err, context.Canceled) {
		t.Errorf("%v, %v", got.resp, got.err)
	}
	c.proxy.Heal()
	done(t, other)
	if resp, err := c.look.Get(t.Context(), "a"); err != nil || len(resp.Kvs) > 0 {
		t.Errorf("it was done: %v, %v", resp, err)
	}
}

func TestCloseEndsThoseWhoWaitForTheirTurn(t *testing.T) {
	t.Parallel()
	c := gather(t)
	var all []<-chan sent
	for i := range 3 {
		all = append(all, c.later(context.Background(), fmt.Sprint("n", i), write(fmt.Sprint("n", i), 0)))
	}
	begin := time.Now()
	c.s.Close()
	for _, one := range append(all, c.first...) {
		if got := <-one; got.err == nil {
			t.Error("done after Close")
		}
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("Close took %v", took)
	}
}
