// Package batch lets calls that come at the same time go to a server together.
package batch

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Batcher sends calls. The first few go each for itself, at once. Who comes while so many are
// on their way waits until one of them is back, and goes then together with all who have come
// by that time: nobody waits for others to come, and the more there is to do, the cheaper does
// each get. Its fields are set before the first call.
type Batcher[T any] struct {
	Flying int // how many requests are on their way, at least if there is so much to do
	Size   int // how many calls go together at most

	// If requests take long, others follow up to Most, but each a Pause after the last: so
	// that who comes does not wait for the answer of another, which may be far away. None do
	// if Most is 0.
	Most  int
	Pause time.Duration

	// Name, if set, is what a call is about: those about the same do not go together.
	Name func(call *T) string

	// Send sends calls together, and writes into them what became of each.
	Send func(calls []*T)

	// Late, if set, is called with a call that was done though nobody waits for it any more.
	Late func(call *T)

	wg      sync.WaitGroup
	mu      sync.Mutex
	closed  bool
	flying  int
	sent    time.Time // the last request
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
	if b.flying < b.Most && time.Since(b.sent) >= b.Pause {
		b.next()
	}
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

// next sends those who wait, if any. It needs the mutex.
func (b *Batcher[T]) next() {
	if batch := b.take(); len(batch) > 0 {
		b.flying++
		b.depart()
		b.wg.Go(func() { b.send(batch) })
	}
}

// depart notes that a request goes. It needs the mutex.
func (b *Batcher[T]) depart() {
	if b.Most > 0 {
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
