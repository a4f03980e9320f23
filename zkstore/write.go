package zkstore

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	// maxInFlight is how many writes are sent each by itself. While so many are in flight, new
	// ones queue up, and are sent as one transaction when a reply comes.
	maxInFlight = 4

	// maxBatch bounds a transaction. Servers refuse requests of a megabyte.
	maxBatch = 64

	// On a slow network queued writes do not wait for a reply, but are sent farPause after the
	// last request. It is above the time of a reply by a busy server nearby, which is served
	// best by few large batches.
	farPause = 20 * time.Millisecond
)

// A write takes, renews or releases one name. Many of them are sent as one transaction, which
// costs the servers a fraction of as many requests. If it is refused because of one of them
// nothing was done, and each is sent by itself.
type write struct {
	ctx  context.Context
	name string
	ops  []wire.Op
	then func(parts []wire.Result, err error) // called with the outcome, in the order of replies
	err  error
	ours bool // set by then: the node belongs to this session
}

func (s *Store) initWrites() {
	s.writes.MaxInFlight, s.writes.MaxBatch = maxInFlight, maxBatch
	s.writes.MaxWait = farPause
	s.writes.Name = func(w *write) string { return w.name }
	s.writes.Send = func(batch []*write) { s.sendWrites(s.life, batch) }
}

// write does a write. If its context ends it may still be done.
func (s *Store) write(w *write) error {
	if err := s.writes.Do(w.ctx, w, func() { w.err = s.wire.Do(w.ctx, w.call()) }); err != nil {
		return err
	}
	return w.err
}

// call is a write by itself.
func (w *write) call() *wire.Call {
	return &wire.Call{Op: wire.Multi(w.ops...), Then: func(c *wire.Call) { w.then(c.Parts, c.Err) }}
}

// sendWrites sends writes as one transaction, and notes the error of each.
func (s *Store) sendWrites(ctx context.Context, batch []*write) {
	ops := make([]wire.Op, 0, 2*len(batch))
	for _, w := range batch {
		ops = append(ops, w.ops...)
	}
	all := &wire.Call{Op: wire.Multi(ops...), Then: func(all *wire.Call) {
		if _, refused := all.Err.(wire.Error); refused {
			return
		}
		parts := all.Parts
		if all.Err != nil {
			parts = make([]wire.Result, len(ops))
		}
		for _, w := range batch {
			w.then(parts[:len(w.ops)], all.Err)
			parts = parts[len(w.ops):]
		}
	}}
	err := s.wire.Do(ctx, all)
	if _, refused := err.(wire.Error); !refused {
		for _, w := range batch {
			w.err = err
		}
		return
	}
	var calls []*wire.Call
	for _, w := range batch {
		if w.err = w.ctx.Err(); w.err == nil { // else its caller may have left the name already
			calls = append(calls, w.call())
		}
	}
	err = s.wire.Do(ctx, calls...)
	for _, w := range batch {
		switch {
		case w.err != nil:
		case ctx.Err() != nil:
			w.err = err
		default:
			w.err = calls[0].Err
			calls = calls[1:]
		}
	}
}
