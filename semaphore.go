package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/internal/core/localqueue"
	"github.com/holdfast-lock/holdfast/store"
)

// A Semaphore is a name with a limited number of permits. Every program that uses the name
// must give the same limit.
type Semaphore struct {
	c     *Client
	name  string
	limit int
}

// Semaphore returns the semaphore with that name and that many permits in total. It does not
// touch the store. Acquire reports a bad name or limit.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{c, name, limit}
}

// Acquire waits for its turn and takes n permits. A large request is not overtaken by later
// small ones. An exclusive Lock of the same name takes all permits.
//
// It returns ErrHeld together with the cause of the context if the wait ended first,
// ErrUnavailable if the store does not answer, ErrWouldDeadlock if ctx holds the name
// already, ErrInvalid for bad input and if the name is in use with another limit,
// ErrUnsupported if the store has no permits, and ErrClosed after Close.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...CallOption) (*Lease, error) {
	return s.c.take(ctx, s.call("acquire", n, false), opts)
}

// TryAcquire takes n permits if they are free and no earlier request waits for permits. It
// makes a single attempt.
//
// It returns ErrHeld if too few permits are free (the error wraps a *HeldError, which says who
// holds them), ErrUnavailable if the store does not answer, ErrInvalid for bad input and if the
// name is in use with another limit, ErrUnsupported if the store has no permits, and ErrClosed
// after Close.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...CallOption) (*Lease, error) {
	return s.c.take(ctx, s.call("try acquire", n, true), opts)
}

func (s *Semaphore) call(op string, n int, try bool) *call {
	return &call{op: op, name: s.name, Call: localqueue.Call{
		Request: store.Request{Mode: store.Permits, Weight: n, Limit: s.limit},
		Try:     try,
	}}
}
