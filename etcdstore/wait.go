package etcdstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// pause is how long no other stream is opened after one that failed at once. Waiters are woken after
// the pause, so that they ask again and get a watch.
const pause = time.Second

// waits holds the queued identities of this store and the stream that wakes them. All waiters share one
// stream, with two goroutines, which is opened for the first of them and stays open until Close.
//
// A watch begins when the server receives the request for it. If the server tells of a revision after
// the read by which a waiter was refused, when a watch begins or when it reports a change, the waiter asks
// once more, so that no change is missed. (A watch can begin at an earlier revision, but then the server
// takes up to a tenth of a second to catch up.) If a watch cannot continue, because the stream ended, the
// server has lost its leader, or it cancelled the watch, its waiters are woken and ask again.
type waits struct {
	store  *Store
	client pb.WatchClient
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	all    map[claimKey]*waitState
	byID   map[int64]*waitState // by the ID of a watch of the stream
	stream *watchStream         // nil if there is none
}

// A watch is a key, or a range of keys, to watch: for deletions, or with puts for writes.
type watch struct {
	key, end string
	puts     bool
}

type waitState struct {
	watches []watch
	ids     []int64 // of the watches
	refused int64   // the revision of the last read
	news    int64   // the last revision that the server told of
	gone    bool    // a watch has reported a change since the last read
	signal  wake.Signal
	left    map[int64]remaining
}

// remaining is the time that a lease had left when the server was asked.
type remaining struct {
	left time.Duration
	at   time.Time
}

// A watchStream is one stream. Its fields are guarded by the mutex of waits.
type watchStream struct {
	more  chan struct{} // has a value if the queue is not empty
	queue []*pb.WatchRequest

	nextID int64 // of the next watch; 0 leaves the choice to the server, which counts from 0
}

// expect records that an identity was refused by a read at that revision, and starts its watches.
func (w *waits) expect(key claimKey, watches []watch, revision int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	state := w.all[key]
	if state == nil {
		state = new(waitState)
		w.all[key] = state
	}
	state.refused = revision
	if state.news <= revision {
		state.gone = false
		state.signal.Reset()
	}
	if len(state.ids) > 0 && slices.Equal(state.watches, watches) {
		return // the watches continue
	}
	w.cancel(state)
	state.watches = watches
	if w.stream == nil {
		st := &watchStream{more: make(chan struct{}, 1)}
		w.stream = st
		w.wg.Go(func() { w.run(st) })
	}
	for _, one := range watches {
		id := w.stream.nextID
		w.stream.nextID++
		w.byID[id] = state
		state.ids = append(state.ids, id)
		filter := pb.WatchCreateRequest_NOPUT
		if one.puts {
			filter = pb.WatchCreateRequest_NODELETE
		}
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
			Key: []byte(one.key), RangeEnd: []byte(one.end), WatchId: id,
			Filters: []pb.WatchCreateRequest_FilterType{filter},
		}}})
	}
}

// gone reports whether a watch of an identity has reported a change, which is usually that its key is
// gone. It returns true only once. If the identity is not granted then, it has to read the name.
func (w *waits) gone(key claimKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.all[key]
	if state == nil || !state.gone {
		return false
	}
	state.gone = false
	return true
}

func (w *waits) cancel(state *waitState) {
	for _, id := range state.ids { // while there are any, there is a stream
		delete(w.byID, id)
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
	}
	state.ids = nil
}

func (w *waits) send(r *pb.WatchRequest) {
	w.stream.queue = append(w.stream.queue, r)
	select {
	case w.stream.more <- struct{}{}:
	default:
	}
}

// forget ends the wait of an identity that is no longer queued.
func (w *waits) forget(key claimKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if state := w.all[key]; state != nil {
		w.cancel(state)
		state.signal.Send()
		delete(w.all, key)
	}
}

// run opens a stream and receives from it until it ends, and then wakes all waiters. They ask
// again, which opens the next stream, with a new login if authentication is on.
func (w *waits) run(st *watchStream) {
	ctx, cancel := context.WithCancel(w.store.life.Work)
	defer cancel()
	begin := time.Now()
	// A server without a leader learns of no changes, so it should end the stream.
	stream, err := w.client.Watch(clientv3.WithRequireLeader(ctx))
	if err == nil {
		w.wg.Go(func() { w.sending(ctx, st, stream) })
		for err == nil {
			var resp *pb.WatchResponse
			if resp, err = stream.Recv(); err == nil {
				err = w.received(st, resp)
			}
		}
	}
	if time.Since(begin) < pause {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stream = nil
	clear(w.byID)
	for _, state := range w.all {
		state.ids = nil
		state.signal.Send()
	}
}

func (w *waits) sending(ctx context.Context, st *watchStream, stream pb.Watch_WatchClient) {
	for {
		select {
		case <-st.more:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		queue := st.queue
		st.queue = nil
		w.mu.Unlock()
		for _, r := range queue {
			if stream.Send(r) != nil {
				return // Recv returns the error
			}
		}
	}
}

// received wakes the waiter of a watch. An error ends the stream.
func (w *waits) received(st *watchStream, resp *pb.WatchResponse) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if resp.Created && (resp.Canceled || resp.WatchId >= st.nextID) {
		// The watch is refused, and the reply does not say which one: the login of the stream has
		// expired or lost its rights.
		return fmt.Errorf("watch %d refused: %s", resp.WatchId, resp.CancelReason)
	}
	state := w.byID[resp.WatchId]
	switch {
	case state == nil:
	case resp.Canceled:
		w.cancel(state)
		state.signal.Send()
	default: // the watch has begun, or reports a change
		state.news = max(state.news, resp.Header.Revision)
		if state.news > state.refused {
			state.gone = state.gone || len(resp.Events) > 0
			state.signal.Send()
		}
	}
	return nil
}

func (w *waits) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait() // life has ended
}

// left returns the remaining time of a lease. Asking the server costs a round trip, so a waiter that asks
// repeatedly gets the last answer minus the time that has passed, until half of it is over.
func (w *waits) left(ctx context.Context, key claimKey, lease int64) (time.Duration, error) {
	now := time.Now()
	var last remaining
	w.mu.Lock()
	state := w.all[key]
	if state != nil {
		last = state.left[lease]
	}
	w.mu.Unlock()
	if age := now.Sub(last.at); age <= last.left/2 {
		return last.left - age, nil
	}
	left, err := w.store.leftOf(ctx, lease)
	if err == nil && state != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if state.left == nil || len(state.left) > store.MaxHolders {
			state.left = make(map[int64]remaining)
		}
		state.left[lease] = remaining{left, now}
	}
	return left, err
}

// Wait blocks until a queued identity should ask again: see [store.Store]. It returns nil at once
// if the identity was not queued through this handle.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if err := s.life.EnterCall(ctx); err != nil {
		return err
	}
	defer s.life.Exit()
	w := &s.waits
	w.mu.Lock()
	var woken <-chan struct{}
	if state := w.all[claimKey{name, id}]; state != nil {
		woken = state.signal.C()
	}
	w.mu.Unlock()
	return wake.Wait(ctx, woken, s.life.Closing.Done(), s.life.ErrClosed)
}
