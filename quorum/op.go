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
	note    *baton        // that came with a grant
	passed  bool          // of a Pass
	floor   int64         // that the Renew had
}

// An op is one call of the quorum: its calls to nodes and their replies. The calls share one
// deadline, and run on goroutines of their own, so that neither a node nor a client library can
// delay the caller.
type op struct {
	s      *Store
	se     *session
	ctx    context.Context
	cancel context.CancelFunc
	refs   atomic.Int32
	signal chan struct{} // the replies that next waits for have arrived

	limited bool // next must report that its limit has passed; only for the caller

	mu      sync.Mutex
	replies []reply // that were not read yet
	wanted  int     // how many replies next waits for; 0 if it does not wait
	pending []bool  // by node
	over    bool
	ending  bool           // its messages end votes
	final   bool           // the identity is not used again
	late    func(r *reply) // gets the replies that arrive after finish, in their lane; may be nil
}

// newOp begins a call for the identity of a session. The caller must call finish.
func (s *Store) newOp(se *session) *op {
	o := &op{s: s, se: se, signal: make(chan struct{}, 1), pending: make([]bool, len(s.nodes))}
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
	o.limited = false // a new limit begins
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
		r.err = n.call(n.callContext(ctx), func(ctx context.Context) error {
			f(ctx, n, &r)
			return r.err
		})
		if o.ending {
			o.se.noteEnded(i, o.s.now(), r.err)
		}
		if o.final && r.err != nil && !isAnswer(r.err) {
			o.s.leaveLater(n, sessionKey{o.se.key.name, o.se.idAt(i)})
		}
		o.deliver(&r)
		o.se.pass(i)
	})
}

// deliver passes a reply to the caller, or to late if the caller has finished.
func (o *op) deliver(r *reply) {
	o.mu.Lock()
	o.pending[r.node] = false
	if o.over {
		late := o.late
		o.mu.Unlock()
		if late != nil {
			late(r)
		}
		return
	}
	defer o.mu.Unlock()
	o.replies = append(o.replies, *r)
	if o.wanted == 0 {
		return
	}
	o.wanted--
	good := r.err == nil && r.exclude == nil && r.answer.Granted() && r.renewed.Status != store.Gone
	if o.wanted == 0 || !good {
		o.wanted = 0
		o.signal <- struct{}{} // never blocks: next waits for it
	}
}

// finish ends the call for its caller. Replies that arrive later go to late. It returns the
// replies that have arrived and were not read.
func (o *op) finish(late func(r *reply)) (unread []reply) {
	o.mu.Lock()
	o.over, o.late = true, late
	unread, o.replies = o.replies, nil
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

// awaited returns how many healthy nodes have not answered yet.
func (o *op) awaited() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, pending := range o.pending {
		if pending && o.s.nodes[i].healthy() {
			n++
		}
	}
	return n
}

// next returns a reply. If there is none, it waits for as many as want, or for one that may change
// what to do. It returns false if ctx, the deadline of the op or limit ends, and no replies are
// left. A limit of 0 means no limit.
func (o *op) next(ctx context.Context, limit time.Duration, want int) (r reply, ok bool) {
	if o.limited {
		r, o.limited = o.read(0)
		return r, o.limited
	}
	if r, ok = o.read(max(1, want)); ok {
		return r, true
	}
	var timeout <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-o.signal:
		return o.read(0)
	case <-timeout:
		o.limited = true
	case <-ctx.Done():
	case <-o.ctx.Done():
	}
	r, ok = o.read(0)
	o.limited = o.limited && ok
	select {
	case <-o.signal: // it came at the same moment
	default:
	}
	return r, ok
}

// read returns a reply that has arrived. If there is none, signal gets a value when as many have
// arrived as wanted, unless read is called before.
func (o *op) read(wanted int) (r reply, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wanted = 0
	if len(o.replies) == 0 {
		o.wanted = wanted
		return r, false
	}
	r, o.replies = o.replies[0], o.replies[1:]
	return r, true
}
