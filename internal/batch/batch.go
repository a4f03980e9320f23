// Package batch lets calls that come at the same time go to a server together.
package batch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Batcher sends calls. While fewer than Flying requests are in flight, a call is sent at once,
// alone. Otherwise calls queue up, and all queued calls are sent in one batch when a request
// returns. So nobody waits for others to come, and the more there is to do, the cheaper is
// each call. The fields are set before the first call.
type Batcher[T any] struct {
	Flying int // how many requests are in flight before calls queue up
	Size   int // the most calls in a batch

	// Pause, if not 0, keeps queued calls from waiting for a reply that takes long: they are
	// sent a Pause after the last request, or the longer the more requests are in flight.
	Pause time.Duration

	// Name, if set, returns the name of a call: calls of one name are not sent in one batch.
	Name func(call *T) string

	// Send sends a batch, and writes the outcome of each call into it.
	Send func(calls []*T)

	// Late, if set, is called with a call that was sent, and whose caller gave up meanwhile.
	Late func(call *T)

	wg      sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	flying  int
	sent    time.Time // the last request
	timer   *time.Timer
	armed   bool // the timer is running
	waiting []*item[T]
}

type item[T any] struct {
	call  *T
	done  chan struct{}
	left  bool // nobody waits for it
	ended bool
}

// Do has a call done: by alone, or by Send together with others. It fails if the context ends
// before; then the call may still be done. After Close only alone is tried.
func (b *Batcher[T]) Do(ctx context.Context, call *T, alone func()) error {
	b.mu.Lock()
	if b.flying < b.Flying || b.closed {
		b.flying++
		b.depart()
		b.mu.Unlock()
		defer b.landed()
		alone()
		return nil
	}
	one := &item[T]{call: call, done: make(chan struct{})}
	b.waiting = append(b.waiting, one)
	b.follow()
	b.mu.Unlock()
	select {
	case <-one.done:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if one.ended {
		return nil
	}
	one.left = true
	if i := slices.Index(b.waiting, one); i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
	}
	return ctx.Err()
}

// Len is how many requests are on their way, and calls wait.
func (b *Batcher[T]) Len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flying + len(b.waiting)
}

// Close waits until nothing is on its way that no Do waits for. It is for when calls fail at
// once, because what they are sent over was closed.
func (b *Batcher[T]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.wg.Wait()
}

// landed sends those who wait, if any, in place of what came back.
func (b *Batcher[T]) landed() {
	b.mu.Lock()
	b.flying--
	if !b.closed {
		b.next()
		b.mu.Unlock()
		return
	}
	batch := b.take()
	if len(batch) > 0 {
		b.flying++
	}
	b.mu.Unlock()
	if len(batch) > 0 {
		b.send(batch) // nothing takes long any more, and Close does not wait for it
	}
}

// follow sends queued calls if the last request is long enough ago, or sees to it that this
// happens when it is. It needs the mutex.
func (b *Batcher[T]) follow() {
	if b.Pause == 0 || b.armed || len(b.waiting) == 0 || b.closed {
		return
	}
	wait := b.Pause*time.Duration(b.flying)/time.Duration(b.Flying) - time.Since(b.sent)
	if wait <= 0 {
		b.next()
		b.follow() // there may be more than one batch
		return
	}
	b.armed = true
	if b.timer == nil {
		b.timer = time.AfterFunc(wait, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.armed = false
			b.follow()
		})
		return
	}
	b.timer.Reset(wait)
}

// next sends a batch of the queued calls, if any. It needs the mutex.
func (b *Batcher[T]) next() {
	if batch := b.take(); len(batch) > 0 {
		b.flying++
		b.depart()
		b.wg.Go(func() { b.send(batch) })
	}
}

// depart notes that a request goes. It needs the mutex.
func (b *Batcher[T]) depart() {
	if b.Pause > 0 {
		b.sent = time.Now()
	}
}

// take takes those who go together. It needs the mutex.
func (b *Batcher[T]) take() (batch []*item[T]) {
	if len(b.waiting) == 0 {
		return nil
	}
	if b.Name == nil {
		n := min(len(b.waiting), b.Size)
		batch = slices.Clone(b.waiting[:n])
		b.waiting = slices.Delete(b.waiting, 0, n)
		return batch
	}
	names := make(map[string]struct{}, min(len(b.waiting), b.Size))
	b.waiting = slices.DeleteFunc(b.waiting, func(one *item[T]) bool {
		name := b.Name(one.call)
		if _, twice := names[name]; twice || len(batch) == b.Size {
			return false
		}
		names[name] = struct{}{}
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
	b.Send(calls)
	var late []*T
	b.mu.Lock()
	for _, one := range batch {
		one.ended = true
		if one.left {
			late = append(late, one.call)
		}
		close(one.done)
	}
	b.mu.Unlock()
	if b.Late != nil {
		for _, call := range late {
			b.Late(call)
		}
	}
}
