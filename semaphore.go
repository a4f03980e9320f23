package holdfast

import (
	"context"

	"github.com/holdfast-lock/holdfast/store"
)

// A Semaphore is a name with a number of permits, for which all programs must use the same limit.
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

// Acquire waits for its turn and takes n permits. Later small requests do not overtake a large one.
// A Lock of the name takes all permits. ErrInvalid may mean that the name has another limit.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...CallOption) (*Lease, error) {
	return s.take(ctx, "acquire", n, false, opts)
}

// TryAcquire takes n permits if they are free and no earlier request waits for permits. It
// makes a single attempt. It returns ErrInvalid also if the name is in use with another limit.
func (s *Semaphore) TryAcquire(ctx context.Context, n int, opts ...CallOption) (*Lease, error) {
	return s.take(ctx, "try acquire", n, true, opts)
}

func (s *Semaphore) take(ctx context.Context, op string, n int, try bool, opts []CallOption) (*Lease, error) {
	cl := newCall(op, s.name, store.Permits)
	cl.Request.Weight, cl.Request.Limit, cl.Try = n, s.limit, try
	return s.c.take(ctx, &cl, opts)
}
