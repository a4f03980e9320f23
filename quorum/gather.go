package quorum

import (
	"context"
	"time"
)

// gather calls f for the given nodes at the same time, and note with each outcome, on the goroutine of
// the caller, until note returns true, the time limit of a call is over or ctx ends. Later outcomes
// are passed to late, if it is not nil. The caller has entered the lifetime of the store.
func gather[T any](ctx context.Context, s *Store, nodes []*node, f func(ctx context.Context, n *node) (T, error),
	note func(i int, v T, err error) (done bool), late func(i int, v T, err error),
) {
	type outcome struct {
		node int
		v    T
		err  error
	}
	outcomes := make(chan outcome, len(nodes))
	for _, n := range nodes {
		s.life.Add()
		s.workers.run(s.life.Closing, func() {
			defer s.life.Leave()
			o := outcome{node: n.index}
			o.err = n.call(&n.others, func(ctx context.Context) (err error) {
				o.v, err = f(ctx, n)
				return err
			})
			outcomes <- o
		})
	}
	timeout := time.NewTimer(s.opts.Timeout)
	defer timeout.Stop()
	pending := len(nodes)
	for done := false; pending > 0 && !done; {
		select {
		case o := <-outcomes:
			pending--
			done = note(o.node, o.v, o.err)
		case <-timeout.C:
			done = true
		case <-ctx.Done():
			done = true
		}
	}
	if pending > 0 && late != nil {
		s.life.Go(func(context.Context) {
			for ; pending > 0; pending-- {
				o := <-outcomes
				late(o.node, o.v, o.err)
			}
		})
	}
}
