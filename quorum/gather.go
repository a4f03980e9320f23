package quorum

import (
	"context"
	"sync/atomic"
	"time"
)

// A reply is what one node replied to a call.
type reply[T any] struct {
	node int
	v    T
	err  error
}

// receive passes replies to note, on the goroutine of the caller, until note returns true, the limit
// is over or ctx ends. A reply that has arrived by then counts, even if this process was stopped for long.
func receive[T any](ctx context.Context, limit time.Duration, replies <-chan reply[T], note func(reply[T]) (done bool)) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for over := false; !over || len(replies) > 0; {
		select {
		case r := <-replies:
			if note(r) {
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
	replies, pending := make(chan reply[T], len(nodes)), len(nodes)
	for _, n := range nodes {
		s.life.Add()
		s.workers.run(s.life.Closing, func() {
			defer s.life.Exit()
			r := reply[T]{node: n.index}
			_, r.err = n.call(&n.others, func(ctx context.Context) (err error) {
				r.v, err = f(ctx, n)
				return err
			})
			replies <- r
		})
	}
	receive(ctx, s.opts.Timeout, replies, func(r reply[T]) bool {
		pending--
		return note(r) || pending == 0
	})
}

// gatherAll calls f for the given nodes at the same time, and returns what each node of the store replied.
func gatherAll[T any](ctx context.Context, s *Store, nodes []*node, f func(ctx context.Context, n *node) (T, error)) ([]T, []error) {
	values, errs := make([]T, len(s.nodes)), make([]error, len(s.nodes))
	for _, n := range nodes {
		errs[n.index] = errTimeout
	}
	gather(ctx, s, nodes, f, func(r reply[T]) bool {
		values[r.node], errs[r.node] = r.v, r.err
		return false
	})
	return values, errs
}

// A workers runs functions on goroutines that it reuses. The stack of a new goroutine has to grow
// several times for a call of a client library, which costs a fifth of the client's processor time.
type workers struct {
	jobs    chan func()
	idle    atomic.Int32
	maxIdle int32
}

// run runs f on another goroutine. Idle goroutines end with ctx.
func (w *workers) run(ctx context.Context, f func()) {
	select {
	case w.jobs <- f:
	default:
		go w.work(ctx, f)
	}
}

// work runs f and then further functions, unless enough other goroutines are idle.
func (w *workers) work(ctx context.Context, f func()) {
	for f != nil {
		f()
		f = nil
		if w.idle.Add(1) <= w.maxIdle {
			select {
			case f = <-w.jobs:
			case <-ctx.Done():
			}
		}
		w.idle.Add(-1)
	}
}
