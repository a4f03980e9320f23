package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"
)

const (
	// keepLinger is how long the keep-alive stream outlives its last use: longer than the
	// interval between two renewals of most leases. Opening a stream is expensive with
	// authentication, because the client library logs in for each stream.
	keepLinger = time.Minute

	// proxyWait bounds the wait for the replies of a grpc-proxy, which sends keep-alives every half
	// second.
	proxyWait = time.Second

	// keepSilence is how long a stream may owe a reply before a call that gives up abandons it. It is
	// shorter than the limit of a call to one of several servers.
	keepSilence = hung * 3 / 4

	// keepPart limits that time to 1/keepPart of the TTL of the call's leases, so that a short lease
	// gets a second attempt, at another server. The core gives up a renewal after a sixth of the TTL.
	keepPart = 10

	// noLease is an ID that no lease has.
	noLease = 0
)

// errProxied ends a stream that turns out to go through a grpc-proxy.
var errProxied = errors.New("this is an etcd grpc-proxy")

// A keeper sends the keep-alives of a store, all on one stream. The stream is open while it is
// in use, with a goroutine that sends and one that receives.
type keeper struct {
	store   *Store
	wg      sync.WaitGroup
	proxied atomic.Bool // there is a grpc-proxy between the store and the servers

	mu     sync.Mutex
	closed bool
	stream *keepStream // nil if there is none
	idle   *time.Timer
}

// A keepStream is one stream. Its fields are guarded by the mutex of the keeper.
type keepStream struct {
	cancel context.CancelFunc
	more   chan struct{} // has a value if the queue is not empty

	queue   []int64              // leases to send
	probed  bool                 // the first reply has arrived
	pending map[int64][]keepCall // sent or queued, by lease, the oldest first
	peer    *peer.Peer
	owes    time.Duration // since when the server owes a reply, since base, if there are pending calls
}

// A keepBatch holds the keep-alives of one call.
type keepBatch struct {
	leases []*lease
	alive  []bool
	left   int // how many replies are missing
	sent   time.Duration
	err    error
	done   chan struct{}
}

// A keepCall is one lease of a batch.
type keepCall struct {
	batch *keepBatch
	index int
}

// keep sends keep-alives and waits for the replies. It logs in again and repeats them if the
// stream's login has expired.
func (k *keeper) keep(ctx context.Context, leases []*lease) ([]bool, error) {
	if k.proxied.Load() {
		return k.keepThroughProxy(ctx, leases)
	}
	alive, err := k.keepOnce(ctx, leases)
	if loggedOut(err) {
		alive, err = k.keepOnce(ctx, leases)
	}
	if errors.Is(err, errProxied) {
		return k.keepThroughProxy(ctx, leases)
	}
	return alive, err
}

func (k *keeper) keepOnce(ctx context.Context, leases []*lease) ([]bool, error) {
	b := &keepBatch{
		leases: leases, alive: make([]bool, len(leases)), left: len(leases),
		sent: sinceBase(), done: make(chan struct{}),
	}
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, errClosed
	}
	st := k.stream
	if st == nil {
		st = k.open()
	}
	k.idle.Reset(keepLinger)
	if len(st.pending) == 0 {
		st.owes = b.sent
	}
	for i, l := range leases {
		st.queue = append(st.queue, l.id)
		st.pending[l.id] = append(st.pending[l.id], keepCall{b, i})
	}
	k.mu.Unlock()
	select {
	case st.more <- struct{}{}:
	default:
	}
	select {
	case <-b.done:
		return b.alive, b.err
	case <-ctx.Done():
		k.gaveUp(st, leases)
		return nil, ctx.Err()
	}
}

// gaveUp is called when a call has ended without a reply. It abandons the stream if the server has owed
// a reply for long. Otherwise the caller had little time, and other calls still wait for their replies.
func (k *keeper) gaveUp(st *keepStream, leases []*lease) {
	limit := keepSilence
	for _, l := range leases {
		if ttl := l.span(); ttl > 0 { // it is not known of a foreign lease
			limit = min(limit, ttl/keepPart)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(st.pending) == 0 || sinceBase()-st.owes < limit {
		return
	}
	if k.stream == st {
		k.stream = nil
	}
	st.cancel()
	if st.peer != nil && k.store.several {
		k.store.config.conns.hung(st.peer, st.owes)
	}
}

// open starts a stream. The caller holds the mutex.
func (k *keeper) open() *keepStream {
	ctx, cancel := context.WithCancel(k.store.life.Work)
	st := &keepStream{cancel: cancel, more: make(chan struct{}, 1), queue: []int64{noLease}, pending: make(map[int64][]keepCall)}
	k.stream = st
	if k.idle == nil {
		k.idle = time.AfterFunc(keepLinger, k.rest)
	}
	k.wg.Add(1)
	go k.run(ctx, st)
	return st
}

// rest closes a stream that has not been used for a while.
func (k *keeper) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stream != nil && len(k.stream.pending) == 0 {
		k.stream.cancel()
		k.stream = nil
	}
}

// run opens the stream and receives from it until it ends.
func (k *keeper) run(ctx context.Context, st *keepStream) {
	defer k.wg.Done()
	defer st.cancel()
	err := k.serve(ctx, st)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stream == st {
		k.stream = nil
	}
	for _, calls := range st.pending {
		for _, call := range calls {
			if b := call.batch; b.err == nil {
				b.err = err
				close(b.done)
			}
		}
	}
	clear(st.pending)
}

func (k *keeper) serve(ctx context.Context, st *keepStream) error {
	stream, err := k.store.leases.LeaseKeepAlive(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	st.peer, _ = peer.FromContext(stream.Context())
	k.mu.Unlock()
	k.wg.Add(1)
	go k.sending(ctx, st, stream)
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := k.received(st, resp); err != nil {
			return err
		}
	}
}

// sending sends the queued keep-alives.
func (k *keeper) sending(ctx context.Context, st *keepStream, stream pb.Lease_LeaseKeepAliveClient) {
	defer k.wg.Done()
	for {
		select {
		case <-st.more:
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
		queue := st.queue
		st.queue = nil
		k.mu.Unlock()
		for _, id := range queue {
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: id}) != nil {
				return // Recv returns the error
			}
		}
	}
}

// received matches a reply to the oldest call for its lease.
//
// The first request of a stream is for a lease that does not exist, to find out whether the
// stream goes through a grpc-proxy. A server replies in order, and with a TTL of 0. A proxy
// replies in any order, and with -1.
func (k *keeper) received(st *keepStream, resp *pb.LeaseKeepAliveResponse) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	st.owes = sinceBase()
	if !st.probed {
		st.probed = true
		if resp.ID != noLease || resp.TTL != 0 {
			k.proxied.Store(true)
			return errProxied
		}
		return nil
	}
	calls := st.pending[resp.ID]
	if len(calls) == 0 {
		return fmt.Errorf("a keep-alive reply for lease %x, which was not sent", resp.ID)
	}
	if len(calls) == 1 {
		delete(st.pending, resp.ID)
	} else {
		st.pending[resp.ID] = calls[1:]
	}
	b := calls[0].batch
	if resp.TTL > 0 {
		b.leases[calls[0].index].began(b.sent, resp.TTL)
		b.alive[calls[0].index] = true
	}
	if b.left--; b.left == 0 {
		close(b.done)
	}
	return nil
}

// keepThroughProxy keeps leases alive through a grpc-proxy. A proxy keeps leases alive by itself
// while the stream is open. It answers a request with the reply to any of its own keep-alives,
// even one that was sent before the request, and under load it drops replies. So each call has a
// stream of its own, and afterwards asks the server for the remaining time of the leases.
func (k *keeper) keepThroughProxy(ctx context.Context, leases []*lease) ([]bool, error) {
	sending, cancel := context.WithTimeout(ctx, proxyWait)
	defer cancel()
	stream, err := k.store.leases.LeaseKeepAlive(undated{sending}) // with a deadline the proxy would end it too early
	if err != nil {
		return nil, err
	}
	missing := make(map[int64]struct{}, len(leases))
	for _, l := range leases {
		missing[l.id] = struct{}{}
		if stream.Send(&pb.LeaseKeepAliveRequest{ID: l.id}) != nil {
			break // Recv returns the error
		}
	}
	for len(missing) > 0 && sending.Err() == nil {
		resp, err := stream.Recv()
		switch {
		case err == nil:
			delete(missing, resp.ID)
		case sending.Err() == nil:
			return nil, err
		}
	}
	alive, errs := make([]bool, len(leases)), make([]error, len(leases))
	inParallel(len(leases), func(i int) {
		sent := sinceBase()
		resp, err := call(k.store, ctx, k.store.leases.LeaseTimeToLive, &pb.LeaseTimeToLiveRequest{ID: leases[i].id})
		if errs[i] = err; err == nil && resp.TTL >= 0 {
			leases[i].began(sent, resp.TTL)
			alive[i] = true
		}
	})
	return alive, errors.Join(errs...)
}

func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	if k.idle != nil {
		k.idle.Stop()
	}
	k.mu.Unlock()
	k.wg.Wait() // life has ended
}
