package quorum

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A reply is the result of a call to one node.
type reply struct {
	node    int
	err     error
	answer  store.Answer  // of an Acquire
	exclude error         // why a grant does not count
	renewed store.Renewed // of a Renew
	floor   int64         // that the Renew had
}

// An op is one call of the quorum: its calls to nodes and their replies. The calls share one
// deadline, and run on goroutines of their own, so that neither a node nor a client library can
// delay the caller.
type op struct {
	s       *Store
	se      *session
	ctx     context.Context
	cancel  context.CancelFunc
	refs    atomic.Int32
	replies chan reply

	mu      sync.Mutex
	pending []bool // by node
	over    bool
	ending  bool           // its messages end votes
	final   bool           // the identity is not used again
	late    func(r *reply) // gets the replies that arrive after finish, in their lane; may be nil
}

// newOp begins a call for the identity of a session. The caller must call finish.
func (s *Store) newOp(se *session) *op {
	o := &op{s: s, se: se, replies: make(chan reply, 2*len(s.nodes)), pending: make([]bool, len(s.nodes))}
	o.ctx, o.cancel = context.WithTimeout(s.life.Work, s.opts.Timeout)
	o.refs.Store(1)
	s.keep(se)
	return o
}

func (o *op) unref() {
	if o.refs.Add(-1) == 0 {
		o.cancel()
		o.s.shut(o.se)
	}
}

// start calls f for a node, after the earlier calls of the same identity. At most one of these
// calls per node is in flight.
func (o *op) start(i int, f func(ctx context.Context, n *node, r *reply)) {
	n := o.s.nodes[i]
	turn := o.se.reserve(i)
	o.mu.Lock()
	o.pending[i] = true
	o.mu.Unlock()
	o.refs.Add(1)
	o.s.life.Add()
	o.s.workers.run(o.s.life.Closing, func() {
		defer o.s.life.Leave()
		defer o.unref()
		r := reply{node: i}
		// A message that ends a vote is sent even if the caller has gone on: the earlier call may be
		// an Acquire that the node carries out late.
		wait := o.ctx
		if o.ending {
			wait = o.s.life.Work
		}
		if !o.se.await(wait, i, turn) {
			r.err = errEarlier
			o.deliver(&r)
			return
		}
		ctx := o.ctx
		if o.ending && turn != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(wait, o.s.opts.Timeout)
			defer cancel()
		}
		if n.bounded {
			ctx = context.Background()
		}
		r.err = n.call(ctx, func(ctx context.Context) error {
			f(ctx, n, &r)
			return r.err
		})
		if o.ending {
			o.se.noteEnded(i, o.s.now(), r.err)
		}
		if o.final && r.err != nil && !isAnswer(r.err) {
			o.s.leaveLater(n, o.se.key)
		}
		o.deliver(&r)
		o.se.pass(i)
	})
}

// deliver passes a reply to the caller, or to late if the caller has finished.
func (o *op) deliver(r *reply) {
	o.mu.Lock()
	o.pending[r.node] = false
	if !o.over {
		o.replies <- *r // never blocks: there is room for all rounds
		o.mu.Unlock()
		return
	}
	late := o.late
	o.mu.Unlock()
	if late != nil {
		late(r)
	}
}

// finish ends the call for its caller. Replies that arrive later go to late. It returns the
// replies that have arrived and were not read.
func (o *op) finish(late func(r *reply)) (unread []reply) {
	o.mu.Lock()
	o.over, o.late = true, late
	for len(o.replies) > 0 {
		unread = append(unread, <-o.replies)
	}
	o.mu.Unlock()
	o.unref()
	return unread
}

// isPending reports whether a node has not answered yet.
func (o *op) isPending(i int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pending[i]
}

// awaitsHealthy reports whether a node that is healthy has not answered yet.
func (o *op) awaitsHealthy() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, pending := range o.pending {
		if pending && o.s.nodes[i].healthy() {
			return true
		}
	}
	return false
}

// next waits for a reply. It returns false if ctx, the deadline of the op or limit ends first. A
// limit of 0 means no limit.
func (o *op) next(ctx context.Context, limit time.Duration) (r reply, ok bool) {
	select {
	case r = <-o.replies: // usual, and cheaper
		return r, true
	default:
	}
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case r = <-o.replies:
		return r, true
	case <-timeout:
	case <-ctx.Done():
	case <-o.ctx.Done():
	}
	return r, false
}
