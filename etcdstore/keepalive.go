package etcdstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"
)

// keepLinger is how long the stream for keep-alives outlives its last use: longer than the
// time between two renewals of most leases. To open one is dear where there is a password,
// since the library logs in for each.
const keepLinger = time.Minute

// A keeper sends the keep-alives of a handle, all on one stream, which is there while it is
// used: a goroutine that sends and one that receives.
type keeper struct {
	store *Store
	wg    sync.WaitGroup

	mu     sync.Mutex
	stream *keepStream // nil if there is none
	idle   *time.Timer
}

// A keepStream is one stream. The server answers in the order of the requests.
type keepStream struct {
	cancel context.CancelFunc
	more   chan struct{} // has a value if there is something to send

	// Under the mutex of the keeper.
	queue   []int64 // to send
	pending []*keepBatch
	peer    *peer.Peer
	heard   time.Duration // when it was last answered, since base
}

// A keepBatch is some keep-alives that are waited for together.
type keepBatch struct {
	leases []*lease
	alive  []bool // of those that were answered
	sent   time.Duration
	err    error
	done   chan struct{}
}

// keep sends keep-alives and waits for the answers.
func (k *keeper) keep(ctx context.Context, leases []*lease) ([]bool, error) {
	b := &keepBatch{leases: leases, sent: sinceBase(), done: make(chan struct{})}
	k.mu.Lock()
	st := k.stream
	if st == nil {
		st = k.open()
	}
	k.idle.Reset(keepLinger)
	for _, l := range leases {
		st.queue = append(st.queue, l.id)
	}
	st.pending = append(st.pending, b)
	k.mu.Unlock()
	select {
	case st.more <- struct{}{}:
	default:
	}
	select {
	case <-b.done:
		return b.alive, b.err
	case <-ctx.Done():
		k.silent(st, b.sent)
		return nil, ctx.Err()
	}
}

// silent gives up a stream on which nothing was heard since.
func (k *keeper) silent(st *keepStream, since time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if st.heard >= since {
		return
	}
	if k.stream == st {
		k.stream = nil
	}
	st.cancel()
	if st.peer != nil && k.store.several {
		k.store.config.conns.hung(st.peer, since)
	}
}

// open starts a stream. It needs the mutex.
func (k *keeper) open() *keepStream {
	ctx, cancel := context.WithCancel(k.store.life)
	st := &keepStream{cancel: cancel, more: make(chan struct{}, 1)}
	k.stream = st
	if k.idle == nil {
		k.idle = time.AfterFunc(keepLinger, k.rest)
	}
	k.wg.Add(1)
	go k.run(ctx, st)
	return st
}

// rest ends a stream that nobody has used for a while.
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
	stream, err := k.store.leases.LeaseKeepAlive(ctx)
	if err == nil {
		k.mu.Lock()
		st.peer, _ = peer.FromContext(stream.Context())
		k.mu.Unlock()
		k.wg.Add(1)
		go k.sending(ctx, st, stream)
		for err == nil {
			var resp *pb.LeaseKeepAliveResponse
			if resp, err = stream.Recv(); err == nil {
				err = k.received(st, resp)
			}
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stream == st {
		k.stream = nil
	}
	for _, b := range st.pending {
		b.err = err
		close(b.done)
	}
	st.pending = nil
}

// sending sends what is queued.
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
				return // Recv tells why
			}
		}
	}
}

// received notes an answer.
func (k *keeper) received(st *keepStream, resp *pb.LeaseKeepAliveResponse) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	st.heard = sinceBase()
	if len(st.pending) == 0 {
		return fmt.Errorf("an answer for lease %x that nobody asked for", resp.ID)
	}
	b := st.pending[0]
	l := b.leases[len(b.alive)]
	if resp.ID != l.id {
		return fmt.Errorf("asked to keep lease %x alive, answered for %x", l.id, resp.ID)
	}
	if resp.TTL > 0 {
		l.began(b.sent, resp.TTL)
	}
	if b.alive = append(b.alive, resp.TTL > 0); len(b.alive) == len(b.leases) {
		st.pending = st.pending[1:]
		close(b.done)
	}
	return nil
}

func (k *keeper) close() {
	k.mu.Lock()
	if k.idle != nil {
		k.idle.Stop()
	}
	k.mu.Unlock()
	k.wg.Wait() // life has ended
}
