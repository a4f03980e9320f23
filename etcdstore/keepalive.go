package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"
)

const (
	// keepSilence is how long a server may owe a reply before a call that gives up ends the stream.
	// It is shorter than the limit of a call to one of several servers.
	keepSilence = hung * 3 / 4

	// keepPart limits that time to 1/keepPart of the TTL of the call's leases, if the call has waited
	// for that long, so that a short lease gets a second attempt, at another server. The core gives up
	// a renewal after a sixth of the TTL.
	keepPart = 10

	keepChunk = 1000 // how many keep-alives are sent before their replies are read
)

// A keeper sends the keep-alives of a store on one stream. The stream stays open, because the client
// library logs in for each stream. Calls that arrive while replies are missing are sent together afterwards.
type keeper struct {
	store *Store
	wg    sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	busy    bool // a goroutine sends calls
	waiting []*keepCall
	owes    time.Duration // since when the server owes a reply, since base, if busy

	stream pb.Lease_LeaseKeepAliveClient // nil if there is none
	peer   *peer.Peer
	cancel context.CancelFunc // ends the stream, or the attempt to open it
}

type keepCall struct {
	leases []*lease
	alive  []bool
	err    error
	done   chan struct{}
}

func (k *keeper) keep(ctx context.Context, leases []*lease) ([]bool, error) {
	call, began := &keepCall{leases: leases, done: make(chan struct{})}, sinceBase()
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, k.store.life.ErrClosed
	}
	k.waiting = append(k.waiting, call)
	if !k.busy {
		k.busy, k.owes = true, began
		k.wg.Go(k.run)
	}
	k.mu.Unlock()
	select {
	case <-call.done:
		return call.alive, call.err
	case <-ctx.Done():
		k.gaveUp(leases, sinceBase()-began)
		return nil, ctx.Err()
	}
}

// gaveUp is called when a call has ended without a reply. It ends the stream if the server has owed a
// reply for long. Otherwise the caller had little time, and other calls still wait for their replies.
func (k *keeper) gaveUp(leases []*lease, waited time.Duration) {
	limit := keepSilence
	for _, l := range leases {
		if part := l.span() / keepPart; part > 0 && part <= waited { // it is 0 for a foreign lease
			limit = min(limit, part)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.busy || k.cancel == nil || sinceBase()-k.owes < limit {
		return
	}
	k.cancel()
	if k.store.several {
		k.store.config.conns.hung(k.peer, k.owes)
	}
}

// run sends calls until none is waiting. Calls that fail on an old stream are sent again on a new one,
// because the old one may have ended since its last use, for example because its login has expired.
func (k *keeper) run() {
	for {
		k.mu.Lock()
		calls, old := k.waiting, k.stream != nil
		k.waiting, k.busy = nil, len(calls) > 0
		k.mu.Unlock()
		if len(calls) == 0 {
			return
		}
		var leases []*lease
		for _, call := range calls {
			leases = append(leases, call.leases...)
		}
		alive, err := k.send(leases)
		if err != nil && (old || loggedOut(err)) {
			alive, err = k.send(leases)
		}
		for _, call := range calls {
			if call.err = err; err == nil {
				call.alive, alive = alive[:len(call.leases)], alive[len(call.leases):]
			}
			close(call.done)
		}
	}
}

// send sends keep-alives and reads the replies, which arrive in order.
func (k *keeper) send(leases []*lease) (alive []bool, err error) {
	sent := sinceBase()
	stream, err := k.open(sent)
	defer func() {
		if err != nil {
			k.end()
		}
	}()
	if err != nil {
		return nil, err
	}
	for chunk := range slices.Chunk(leases, keepChunk) {
		for _, l := range chunk {
			if stream.Send(&pb.LeaseKeepAliveRequest{ID: l.id}) != nil {
				break // Recv returns the error
			}
		}
		for _, l := range chunk {
			resp, err := stream.Recv()
			if err != nil {
				return nil, err
			}
			if resp.ID != l.id {
				return nil, fmt.Errorf("a keep-alive reply for lease %x, want lease %x", resp.ID, l.id)
			}
			l.began(sent, resp.TTL)
			alive = append(alive, resp.TTL > 0)
			k.mu.Lock()
			k.owes = sinceBase()
			k.mu.Unlock()
		}
	}
	return alive, nil
}

// open returns the stream, and opens it if there is none.
func (k *keeper) open(now time.Duration) (stream pb.Lease_LeaseKeepAliveClient, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owes = now; k.stream != nil {
		return k.stream, nil
	}
	ctx, cancel := context.WithCancel(k.store.life.Work)
	k.cancel, k.peer = cancel, nil
	k.mu.Unlock()
	stream, err = k.store.leases.LeaseKeepAlive(ctx)
	k.mu.Lock()
	if err == nil {
		k.stream = stream
		k.peer, _ = peer.FromContext(stream.Context())
	}
	return stream, err
}

func (k *keeper) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cancel != nil {
		k.cancel()
	}
	k.stream, k.cancel = nil, nil
}

func (k *keeper) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.wg.Wait() // life has ended
	k.end()
}
