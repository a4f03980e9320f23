package zkstore

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const (
	maxInFlight = 4  // writes, before further ones are batched
	maxBatch    = 64 // writes in a transaction, each of 5 kB at most; servers refuse a megabyte

	// farPause bounds how long queued writes wait for a reply on a slow network. It is longer than a busy
	// server nearby takes to reply, because such a server needs few large batches.
	farPause = 20 * time.Millisecond
)

// A write takes, renews or releases one name. A transaction of many writes costs the servers a
// fraction of what separate requests cost.
type write struct {
	ctx  context.Context
	name string
	ops  []wire.Op
	then func(parts []wire.Result, err error) error // called in the order of replies; returns the outcome of the write
	err  error
}

// write sends a write. If its context ends, it may still be executed, but it is not sent after write has
// returned. So a later request of the caller, such as that of Leave, finds what it has left.
func (s *Store) write(w *write) error {
	alone := func() {
		call := &wire.Call{Op: wire.Multi(w.ops...), Then: func(c *wire.Call) { c.Err = w.then(c.Parts, c.Err) }}
		s.sending.Lock()
		if w.err = w.ctx.Err(); w.err == nil {
			s.wire.Send(call)
		}
		s.sending.Unlock()
		if w.err == nil {
			w.err = s.wire.Wait(w.ctx, call)
		}
	}
	if _, err := s.writes.Do(w.ctx, w, alone); err != nil {
		s.sending.Lock() // the write is in flight, or its end is seen before it would be sent
		defer s.sending.Unlock()
		return err
	}
	return w.err
}

// sendWrites sends writes as one transaction, and sets the error of each unless it is refused. It does not
// send a write whose caller gave up before there was a connection, and stops waiting for one when all
// callers have given up.
func (s *Store) sendWrites(batch []*write) (refused bool) {
	waiting := func() bool { // drops the writes whose callers have given up
		batch = slices.DeleteFunc(batch, func(w *write) bool { w.err = w.ctx.Err(); return w.err != nil })
		return len(batch) > 0
	}
	for waiting() && !s.wire.Connected() && s.life.Closing.Err() == nil {
		_ = s.wire.Do(batch[0].ctx, &wire.Call{Op: wire.Sync("/")})
	}
	s.sending.Lock()
	if !waiting() {
		s.sending.Unlock()
		return false
	}
	ops, outcomes := make([]wire.Op, 0, 2*len(batch)), make([]error, len(batch))
	for _, w := range batch {
		ops = append(ops, w.ops...)
	}
	call := &wire.Call{Op: wire.Multi(ops...), Then: func(all *wire.Call) {
		parts := all.Parts
		if _, refused := all.Err.(wire.Error); refused {
			return
		} else if all.Err != nil {
			parts = make([]wire.Result, len(ops))
		}
		for i, w := range batch {
			outcomes[i] = w.then(parts[:len(w.ops)], all.Err)
			parts = parts[len(w.ops):]
		}
	}}
	err := s.life.Closing.Err()
	if err == nil {
		s.wire.Send(call)
	}
	s.sending.Unlock()
	if err == nil {
		err = s.wire.Wait(s.life.Closing, call)
	}
	_, refused = err.(wire.Error)
	for i, w := range batch {
		if w.err = err; err == nil { // otherwise the batch may still be in flight, and write the outcomes
			w.err = outcomes[i]
		}
	}
	return refused
}
