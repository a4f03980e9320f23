package quorum

import (
	"context"
	"sync/atomic"
)

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
