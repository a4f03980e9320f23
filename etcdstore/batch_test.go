package etcdstore

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/testing/faultproxy"
	"github.com/holdfast-lock/holdfast/internal/testing/suites"
	"github.com/holdfast-lock/holdfast/store"
)

// A crowd sends transactions through a slow network, so that they are batched.
type crowd struct {
	t     *testing.T
	s     *Store
	proxy *faultproxy.Proxy
	look  *clientv3.Client
	first []<-chan sent // transactions in flight, not in a batch
}

type sent = suites.LaterResult[*pb.TxnResponse]

func gather(t *testing.T) *crowd {
	proxy, s, _, look := behind(t)
	c := &crowd{t: t, s: s, proxy: proxy, look: look}
	_, err := s.look(suites.Limited(t), claimKey{"a", store.NewID()}) // to be connected
	noError(t, err)
	proxy.ToServer.Hold()
	for i := range maxFlying {
		c.first = append(c.first, c.later(fmt.Sprint("first", i), write(fmt.Sprint("first", i), 0)))
	}
	return c
}

// later sends a transaction, and returns when it is in flight or queued.
func (c *crowd) later(name string, txn *pb.TxnRequest) <-chan sent {
	c.t.Helper()
	return suites.Later(c.t, c.s.batch.Len, func() (*pb.TxnResponse, error) {
		return c.s.txnOn(within(c.t, patience), name, txn)
	})
}

// write returns a transaction that writes a key if it does not exist.
func write(key string, lease int64) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{modIs(key, 0)}, Success: []*pb.RequestOp{put(key, nil, lease)}}
}

func done(t *testing.T, c <-chan sent) *pb.TxnResponse {
	t.Helper()
	got := <-c
	if got.Err != nil || !got.Value.Succeeded {
		t.Fatalf("%v, %v", got.Value, got.Err)
	}
	return got.Value
}

func TestQueuedTransactionsAreSentInOneBatch(t *testing.T) {
	t.Parallel()
	c := gather(t)
	var all []<-chan sent
	for i := range 20 {
		name := fmt.Sprint("n", i)
		all = append(all, c.later(name, write(name, 0)))
	}
	taken := c.later("taken", write("taken", 0))
	_, err := c.look.Put(t.Context(), "taken", "")
	noError(t, err)
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
	if got := <-taken; got.Err != nil || got.Value.Succeeded {
		t.Errorf("a transaction whose condition is not true: %v, %v", got.Value, got.Err)
	}
}

// The server refuses a whole batch because of one transaction, here because its lease is gone.
func TestATransactionThatIsRefusedDoesNotAffectTheOthers(t *testing.T) {
	t.Parallel()
	c := gather(t)
	good := c.later("good", write("good", 0))
	bad := c.later("bad", write("bad", 12345))
	better := c.later("better", write("better", 0))
	c.proxy.Heal()
	done(t, good)
	done(t, better)
	if got := <-bad; !leaseGone(got.Err) {
		t.Errorf("%v, %v, want that the lease is gone", got.Value, got.Err)
	}
}
