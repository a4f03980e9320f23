package zkstore

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	// maxInFlight bounds the writes that are sent one by one. While so many are in flight, new
	// ones queue up, and are sent as one transaction when a reply arrives.
	maxInFlight = 4

	// maxBatch bounds a transaction. Servers refuse requests of a megabyte.
	maxBatch = 64

	// farPause bounds how long queued writes wait for a reply on a slow network. It is longer
	// than a busy server nearby takes to reply, because such a server needs few large batches.
	farPause = 20 * time.Millisecond
)

// A write takes, renews or releases one name. A transaction of many writes costs the servers a
// fraction of as many requests. If it is refused because of one write, nothing was done, and each
// is sent on its own.
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

// write sends a write. If its context ends, the write may still be done.
func (s *Store) write(w *write) error {
	if err := s.writes.Do(w.ctx, w, func() { w.err = s.wire.Do(w.ctx, w.call()) }); err != nil {
		return err
	}
	return w.err
}

// call returns the request of a single write.
func (w *write) call() *wire.Call {
	return &wire.Call{Op: wire.Multi(w.ops...), Then: func(c *wire.Call) { w.then(c.Parts, c.Err) }}
}

// sendWrites sends writes as one transaction, and sets the error of each.
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
		if w.err = w.ctx.Err(); w.err == nil { // else its caller may have called Leave already
			calls = append(calls, w.call())
		}
	}
	err = s.wire.Do(ctx, calls...)
	for _, w := range batch {
		switch {
		case w.err != nil:
		case err != nil && err == ctx.Err(): // the calls may still be in flight
			w.err = err
		default:
			w.err = calls[0].Err
			calls = calls[1:]
		}
	}
}
