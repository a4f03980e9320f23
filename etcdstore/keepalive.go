package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/batch"
)

const (
	// keepWindow bounds how many keep-alives are sent before their replies are read. The replies to
	// more of them might not fit into the flow control window of a client passed to New.
	keepWindow = 500

	// keepTime is added to the time limit for each lease of a batch.
	keepTime = 2 * time.Millisecond

	// proxyWait bounds the wait for the replies of a grpc-proxy, which sends keep-alives every half
	// second.
	proxyWait = time.Second

	// noLease is an ID that no lease has.
	noLease = 0
)

// errProxied ends a stream that turns out to go through a grpc-proxy.
var errProxied = errors.New("this is an etcd grpc-proxy")

// A keeper sends the keep-alives of a store over one stream. Calls that arrive while the stream is in
// use are sent in one batch after that. The stream stays open until Close: with authentication, the
// client library logs in for each stream.
type keeper struct {
	store   *Store
	batch   batch.Batcher[keepCall]
	proxied atomic.Bool // there is a grpc-proxy between the store and the servers

	mu     sync.Mutex // held while the stream is in use
	stream pb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc // ends the stream; nil if there is none
}

// A keepCall is a call that keeps leases alive.
type keepCall struct {
	leases []*lease
	alive  []bool
	err    error
}

func (k *keeper) init(s *Store) {
	k.store = s
	k.batch.MaxInFlight, k.batch.MaxBatch = 1, maxBatch
	k.batch.Send = func(calls []*keepCall) bool {
		k.send(s.life.Work, calls...)
		return false
	}
}

// keep restarts the TTLs of leases, and reports which of them are alive.
func (k *keeper) keep(ctx context.Context, leases []*lease) ([]bool, error) {
	if k.proxied.Load() {
		return k.keepThroughProxy(ctx, leases)
	}
	call := &keepCall{leases: leases, alive: make([]bool, len(leases))}
	if _, err := k.batch.Do(ctx, call, func() { k.send(ctx, call) }); err != nil {
		return nil, err
	}
	if errors.Is(call.err, errProxied) {
		return k.keepThroughProxy(ctx, leases)
	}
	return call.alive, call.err
}

// send makes calls over the stream. If the stream was opened earlier, it may have ended since, or its
// login may have expired. In that case send opens another one.
func (k *keeper) send(ctx context.Context, calls ...*keepCall) {
	var leases []*lease
	for _, call := range calls {
		leases = append(leases, call.leases...)
	}
	limit := bounded.CallTimeout
	if k.store.several {
		limit = hung
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	used := k.end != nil
	alive, err := k.exchange(ctx, limit, leases)
	if err != nil && ctx.Err() == nil && (used || loggedOut(err)) && !errors.Is(err, errProxied) {
		alive, err = k.exchange(ctx, limit, leases)
	}
	for _, call := range calls {
		if call.err = err; err == nil {
			alive = alive[copy(call.alive, alive):]
		}
	}
}

// exchange sends keep-alives and reads the replies. The caller holds the mutex.
func (k *keeper) exchange(ctx context.Context, limit time.Duration, leases []*lease) (alive []bool, err error) {
	s, began := k.store, sinceBase()
	limited, cancel := context.WithTimeout(ctx, limit+time.Duration(len(leases))*keepTime)
	defer cancel()
	var life context.Context
	opening := k.end == nil
	if opening {
		life, k.end = context.WithCancel(s.life.Work)
	}
	defer context.AfterFunc(limited, k.end)()
	if opening {
		err = k.open(life)
	}
	for part := range slices.Chunk(leases, keepWindow) {
		if err == nil {
			alive, err = k.exchangePart(part, alive)
		}
	}
	if err == nil {
		return alive, nil
	}
	if limited.Err() != nil {
		err = limited.Err()
		if s.several && k.stream != nil {
			p, _ := peer.FromContext(k.stream.Context())
			s.config.conns.hung(p, began)
		}
	}
	k.end()
	k.stream, k.end = nil, nil
	return nil, err
}

// open opens the stream. Its first keep-alive is for a lease that does not exist, to find out whether
// the stream goes through a grpc-proxy. A server replies in order, and with a TTL of 0. A proxy replies
// in any order, and with -1.
func (k *keeper) open(ctx context.Context) (err error) {
	if k.stream, err = k.store.leases.LeaseKeepAlive(ctx); err != nil {
		return err
	}
	_ = k.stream.Send(&pb.LeaseKeepAliveRequest{ID: noLease}) // Recv returns the error
	resp, err := k.stream.Recv()
	if err == nil && (resp.ID != noLease || resp.TTL != 0) {
		k.proxied.Store(true)
		err = errProxied
	}
	return err
}

// exchangePart keeps some leases alive, and appends which of them are.
func (k *keeper) exchangePart(leases []*lease, alive []bool) ([]bool, error) {
	sent := sinceBase()
	for _, l := range leases {
		if k.stream.Send(&pb.LeaseKeepAliveRequest{ID: l.id}) != nil {
			break // Recv returns the error
		}
	}
	for _, l := range leases {
		resp, err := k.stream.Recv()
		if err != nil {
			return nil, err
		}
		if resp.ID != l.id {
			return nil, fmt.Errorf("a keep-alive reply for lease %x instead of %x", resp.ID, l.id)
		}
		if resp.TTL > 0 {
			l.began(sent, resp.TTL)
		}
		alive = append(alive, resp.TTL > 0)
	}
	return alive, nil
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
