package quorum

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// steadyAfter is how long a node must have worked without a failure to be reported as working again.
const steadyAfter = time.Second

// A node is one store of the quorum.
type node struct {
	store.Store
	name      string
	index     int
	quorum    *Store
	restarter Restarter     // nil if the store does not implement it
	bounded   bool          // the store bounds its calls itself
	slow      time.Duration // a call that failed after this time may have sent a message that is executed late
	overdue   time.Duration // a call that takes longer is not expected to return
	seed      atomic.Uint32 // identity of its server: see rank; 0 if it is not known yet

	asks, others health // of Acquire, and of all other calls: a server without memory fails only the first

	// Times are on the clock of the quorum.
	lastReply atomic.Int64 // when the server that was identified last answered
	failedAt  atomic.Int64 // when a call failed last
	bad       atomic.Bool  // the last report was an error

	server   server        // under Store.servers
	verified atomic.Uint64 // one more than Connections when it was last identified
}

var (
	errSkipped = errors.New("skipped: it does not answer")
	errTimeout = errors.New("no reply in time")
	errPending = errors.New("no reply so far")
	errBarred  = errors.New("it has not confirmed an earlier release yet")
	errRefused = errors.New("another request has its vote")
	errWithout = errors.New("it does not have the lock")
)

const (
	// maxFailures is how many consecutive calls fail before a node counts as down. A single reply may be lost.
	maxFailures = 3

	// probePause is how long to wait at least before the next call to a node that is down. If the last
	// one took longer to fail, the pause is as long, up to the time limit of a call.
	probePause = 50 * time.Millisecond

	// maxOverdue bounds the pause before the next call to a node whose calls do not return: the time limit of
	// a call for each of them, up to so many.
	maxOverdue = 60
)

// A health is how calls of one kind to a node are doing.
type health struct {
	inFlight atomic.Int32 // without those that are overdue
	overdue  atomic.Int32
	since    atomic.Int64 // when a call returned last, or was made after a pause
	failures atomic.Int32 // consecutive calls that failed
	retryAt  atomic.Int64 // when to make the next call if they have failed
}

// isDown reports whether calls are not worth waiting for: the last ones failed, or none has returned
// for as long as a call may take.
func (h *health) isDown(now, timeout time.Duration) bool {
	return h.failures.Load() >= maxFailures || h.inFlight.Load() > 0 && now-time.Duration(h.since.Load()) >= timeout
}

// skips reports whether a call is not made. As long as calls fail, only one at a time is made, to
// find out whether the node answers again. So what may have to be undone at the node is bounded by
// the number of calls in flight when it begins to hang.
func (h *health) skips(now, timeout time.Duration) bool {
	return h.isDown(now, timeout) && (h.inFlight.Load() > 0 || now < time.Duration(h.retryAt.Load()))
}

// isDown reports whether a node does not answer.
func (n *node) isDown() bool {
	now, timeout := n.quorum.now(), n.quorum.opts.Timeout
	return n.others.isDown(now, timeout) || n.asks.isDown(now, timeout)
}

// call calls f, which may outlive the caller, and records how the node is doing. It returns errSkipped, and sends
// nothing, if the node is not expected to answer. Late tells that the message of a call that failed may be executed
// later, for example from a connection that was given up: the call took long, or the node was silent.
//
// If the store bounds its calls itself, the context cannot end: some client libraries are faster then.
func (n *node) call(h *health, f func(ctx context.Context) error) (late bool, err error) {
	s := n.quorum
	begin := s.now()
	if h.skips(begin, s.opts.Timeout) {
		return false, errSkipped
	}
	ctx := context.Background()
	if !n.bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(s.life.Work, s.opts.Timeout)
		defer cancel()
	}
	if h.inFlight.Load() == 0 {
		h.since.Store(int64(begin)) // it was idle, not silent
	}
	h.inFlight.Add(1)
	overdue := time.AfterFunc(n.overdue, func() { n.giveUp(h) })
	defer func() {
		if overdue.Stop() {
			h.inFlight.Add(-1)
		} else {
			h.overdue.Add(-1)
		}
	}()
	err = f(ctx)
	now := s.now()
	before := time.Duration(h.since.Load())
	answered := err == nil || isAnswer(err)
	if answered || now-begin < n.slow { // it may have refused the connection
		h.since.Store(int64(now))
	}
	switch {
	case answered:
		if n.isVerified() { // otherwise the server may be another one
			n.lastReply.Store(int64(now))
		}
		h.failures.Store(0)
		if n.bad.Load() {
			n.report(nil)
		}
	case s.life.Closing.Err() != nil:
	case ctx.Err() != nil && before > begin && now-before < n.slow:
		late, err = true, errTimeout // it answers others, and may have got this call late
	default:
		if ctx.Err() != nil {
			err = errTimeout
		}
		late = now-min(begin, before) >= n.slow && !isUnsent(err)
		h.failures.Add(1)
		h.retryAt.Store(int64(now + max(probePause, min(now-begin, s.opts.Timeout))))
		n.fail(err)
	}
	return late, err
}

// giveUp records that a call has not returned. It may never return, and others are made meanwhile.
func (n *node) giveUp(h *health) {
	s := n.quorum
	pause := s.opts.Timeout * time.Duration(min(h.overdue.Add(1), maxOverdue))
	h.retryAt.Store(int64(s.now() + pause))
	h.failures.Add(1)
	h.inFlight.Add(-1)
	if s.life.Closing.Err() == nil {
		n.fail(errTimeout)
	}
}

// fail records and reports that a call failed.
func (n *node) fail(err error) {
	n.failedAt.Store(int64(max(1, n.quorum.now())))
	n.report(err)
}

// isAnswer reports whether an error is the node's answer, as opposed to a failure.
func isAnswer(err error) bool {
	return errors.Is(err, store.ErrNotHeld) || errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnsupported)
}

// isUnsent reports whether a call failed before its message was sent.
func isUnsent(err error) bool {
	var dial *net.OpError
	return err == errSkipped || err == errBarred || errors.As(err, &dial) && dial.Op == "dial"
}

// report reports a change of the node's state. A node is reported as working again when no call has failed for some
// time. For example, a server whose memory is full refuses new locks, but still releases locks.
func (n *node) report(err error) {
	s := n.quorum
	if err == nil {
		s.servers.Lock()
		err = n.exclusion()
		s.servers.Unlock()
	}
	if failed := time.Duration(n.failedAt.Load()); err == nil && failed > 0 && s.now()-failed < steadyAfter {
		return
	}
	if n.bad.Swap(err != nil) != (err != nil) {
		s.opts.Report(n.name, err)
	}
}

// A reply is what one node replied to a call.
type reply[T any] struct {
	node int
	v    T
	err  error
}

// receive passes up to n replies to note, on the goroutine of the caller, until note returns true, the limit
// is over or ctx ends. A reply that has arrived by then counts, even if this process was stopped for long.
func receive[T any](ctx context.Context, limit time.Duration, replies chan reply[T], n int, note func(reply[T]) bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for over := false; n > 0 && (!over || len(replies) > 0); {
		select {
		case r := <-replies:
			if n--; note(r) {
				return
			}
		case <-timer.C:
			over = true
		case <-ctx.Done():
			over = true
		}
	}
}

// gather calls f for the given nodes at the same time, and note with each reply until it returns true,
// the time limit of a call is over or ctx ends. The caller has entered the lifetime of the store.
func gather[T any](ctx context.Context, s *Store, nodes []*node, f func(ctx context.Context, n *node) (T, error), note func(reply[T]) (done bool)) {
	replies := make(chan reply[T], len(nodes))
	for _, n := range nodes {
		s.run(func() {
			r := reply[T]{node: n.index}
			_, r.err = n.call(&n.others, func(ctx context.Context) (err error) {
				r.v, err = f(ctx, n)
				return err
			})
			replies <- r
		})
	}
	receive(ctx, s.opts.Timeout, replies, len(nodes), note)
}

// gatherAll calls f for the given nodes at the same time, and returns the reply or the error of each node.
func gatherAll[T any](ctx context.Context, s *Store, nodes []*node, f func(ctx context.Context, n *node) (T, error)) ([]T, []error) {
	values, errs := make([]T, len(s.nodes)), slices.Repeat([]error{errTimeout}, len(s.nodes))
	gather(ctx, s, nodes, f, func(r reply[T]) bool {
		if errs[r.node] = r.err; r.err == nil {
			values[r.node] = r.v
		}
		return false
	})
	return values, errs
}

// run runs f on another goroutine, which Close waits for. The caller has entered the lifetime of the store.
//
// Goroutines are reused. The stack of a new goroutine has to grow several times for a call of a client
// library, which costs a fifth of the client's processor time.
func (s *Store) run(f func()) {
	s.life.Add()
	select {
	case s.jobs <- f:
	default:
		go s.work(f)
	}
}

// work runs f and then further functions, unless enough other goroutines are idle.
func (s *Store) work(f func()) {
	for f != nil {
		f()
		s.life.Exit()
		f = nil
		if int(s.idle.Add(1)) <= 2*len(s.nodes) {
			select {
			case f = <-s.jobs:
			case <-s.life.Closing.Done():
			}
		}
		s.idle.Add(-1)
	}
}
