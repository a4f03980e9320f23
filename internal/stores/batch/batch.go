// Package batch sends concurrent calls to a server in batches.
package batch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Batcher sends calls. While fewer than MaxInFlight requests are in flight, a call is sent at once,
// alone. Otherwise calls queue up, and when a request returns, they are sent in one batch of up to
// MaxBatch calls. No call waits for others to arrive. The fields must be set before the first call.
type Batcher[T any] struct {
	MaxInFlight int // maximum number of single requests in flight; further calls queue up
	MaxBatch    int // maximum number of calls in a batch

	// MaxWait, if not 0, keeps queued calls from waiting for a slow reply: they are sent some time after
	// the last request, which is MaxWait times the requests in flight divided by MaxInFlight.
	MaxWait time.Duration

	// Timeout, if not 0, bounds how long a queued call waits until its batch has returned.
	Timeout time.Duration

	// Name, if set, returns the name of a call. A batch contains one call per name at most.
	Name func(call *T) string

	// Send sends a batch, and writes the outcome of each call into it. If refused is true, because one
	// of the calls made the server reject the batch, each call is then sent alone.
	Send func(calls []*T) (refused bool)

	wg      sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	flying  int
	sent    time.Time // when the last request was sent
	armed   bool      // a timer is running
	waiting []*item[T]
}

type item[T any] struct {
	call  *T
	alone func()
	done  chan struct{}
	left  bool // the caller gave up while the batch was under way
	ended bool
}

// Do sends a call, by calling alone, or Send for a batch. If ctx or the time of a queued call ends first,
// it returns the error of the context. Then the call is not sent, unless its batch is under way: late is
// not nil in this case, and is closed when the batch has returned. After Close, Do always uses alone.
func (b *Batcher[T]) Do(ctx context.Context, call *T, alone func()) (late <-chan struct{}, err error) {
	b.mu.Lock()
	if b.flying < b.MaxInFlight || b.closed {
		b.depart()
		b.mu.Unlock()
		defer b.landed()
		alone()
		return nil, nil
	}
	one := &item[T]{call: call, alone: alone, done: make(chan struct{})}
	b.waiting = append(b.waiting, one)
	b.follow()
	b.mu.Unlock()
	if b.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, b.Timeout)
		defer cancel()
	}
	select {
	case <-one.done:
		return nil, nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.ended {
		return nil, nil
	}
	if i := slices.Index(b.waiting, one); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		return nil, ctx.Err()
	}
	one.left = true
	return one.done, ctx.Err()
}

// Len returns the number of requests in flight plus the number of queued calls.
func (b *Batcher[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flying + len(b.waiting)
}

// Close waits for batches in flight. Call it when calls fail quickly, as after their connection was closed.
func (b *Batcher[T]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}

// landed is called when a request has returned. It sends a batch of the queued calls, if any.
func (b *Batcher[T]) landed() {
	b.mu.Lock()
	b.flying--
	if !b.closed {
		b.next()
		b.mu.Unlock()
		return
	}
	batch := b.take()
	b.mu.Unlock()
	if len(batch) > 0 {
		b.send(batch) // after Close, which does not wait for this call, it returns soon
	}
}

// follow sends queued calls, or starts a timer to do so: see MaxWait. The caller holds the mutex.
func (b *Batcher[T]) follow() {
	if b.MaxWait == 0 || b.armed || len(b.waiting) == 0 || b.closed {
		return
	}
	wait := b.MaxWait*time.Duration(b.flying)/time.Duration(b.MaxInFlight) - time.Since(b.sent)
	if wait <= 0 {
		b.next()
		b.follow() // there may be more than one batch
		return
	}
	b.armed = true
	time.AfterFunc(wait, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.armed = false
		b.follow()
	})
}

// next sends a batch of the queued calls, if any. The caller holds the mutex.
func (b *Batcher[T]) next() {
	if batch := b.take(); len(batch) > 0 {
		b.wg.Go(func() { b.send(batch) })
	}
}

// depart records that a request is sent. The caller holds the mutex.
func (b *Batcher[T]) depart() {
	b.flying++
	if b.MaxWait > 0 {
		b.sent = time.Now()
	}
}

// take removes the calls of the next batch, if any, from the queue. The caller sends them, and holds
// the mutex.
func (b *Batcher[T]) take() (batch []*item[T]) {
	if len(b.waiting) == 0 {
		return nil
	}
	b.depart()
	n := min(len(b.waiting), b.MaxBatch)
	if b.Name == nil {
		batch = slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		return batch
	}
	names := make(map[string]bool, n)
	b.waiting = slices.DeleteFunc(b.waiting, func(one *item[T]) bool {
		name := b.Name(one.call)
		if names[name] || len(batch) == b.MaxBatch {
			return false
		}
		names[name] = true
		batch = append(batch, one)
		return true
	})
	return batch
}

func (b *Batcher[T]) send(batch []*item[T]) {
	defer b.landed()
	calls := make([]*T, len(batch))
	for i, one := range batch {
		calls[i] = one.call
	}
	if b.Send(calls) {
		var all sync.WaitGroup
		b.mu.Lock()
		for _, one := range batch {
			if !one.left {
				all.Go(one.alone)
			}
		}
		b.mu.Unlock()
		all.Wait()
	}
	b.mu.Lock()
	for _, one := range batch {
		one.ended = true
		close(one.done)
	}
	b.mu.Unlock()
}
