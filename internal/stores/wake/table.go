package wake

import (
	"context"
	"sync"
	"time"
)

// A Table holds the waiters of a store, and a value of the store for each. The mutex guards All. The
// fields must be set before the first call.
type Table[V any] struct {
	sync.Mutex
	All  map[Key]*Waiter[V]
	Keep time.Duration // how long a waiter that stopped asking is remembered

	swept time.Time
}

// A Waiter is a queued identity.
type Waiter[V any] struct {
	Signal
	Value V
	until time.Time // it is forgotten at this time unless it asks again
}

// Put returns a waiter that asks, and adds it if it is new. The caller holds the mutex.
func (t *Table[V]) Put(k Key) *Waiter[V] {
	now := time.Now()
	if now.Sub(t.swept) > t.Keep {
		t.sweep(now)
	}
	w := t.All[k]
	if w == nil {
		if t.All == nil {
			t.All = make(map[Key]*Waiter[V])
		}
		w = new(Waiter[V])
		t.All[k] = w
	}
	w.until = now.Add(t.Keep)
	return w
}

// Expect is called when a waiter asks. A wake-up after this call ends its next Wait.
func (t *Table[V]) Expect(k Key) {
	t.Lock()
	defer t.Unlock()
	t.Put(k).Reset()
}

// Wake ends the waits of some waiters, unless the table does not have them.
func (t *Table[V]) Wake(keys ...Key) {
	if len(keys) == 0 {
		return
	}
	t.Lock()
	defer t.Unlock()
	for _, k := range keys {
		if w := t.All[k]; w != nil {
			w.Send()
		}
	}
}

// WakeAll ends the waits of all waiters.
func (t *Table[V]) WakeAll() {
	t.Lock()
	defer t.Unlock()
	for _, w := range t.All {
		w.Send()
	}
}

// Forget removes a waiter that is no longer queued, and ends its Wait.
func (t *Table[V]) Forget(k Key) {
	t.Lock()
	defer t.Unlock()
	t.forget(k)
}

func (t *Table[V]) forget(k Key) {
	if w := t.All[k]; w != nil {
		w.Send()
		delete(t.All, k)
	}
}

// Sweep forgets the waiters that stopped asking, and returns how many are left.
func (t *Table[V]) Sweep() int {
	t.Lock()
	defer t.Unlock()
	t.sweep(time.Now())
	return len(t.All)
}

func (t *Table[V]) sweep(now time.Time) {
	t.swept = now
	for k, w := range t.All {
		if now.After(w.until) {
			t.forget(k)
		}
	}
}

// Wait blocks until a waiter should ask again: see [Wait]. It returns nil at once if the table does not
// have it.
func (t *Table[V]) Wait(ctx context.Context, k Key, closed <-chan struct{}, errClosed error) error {
	t.Lock()
	var c <-chan struct{}
	if w := t.All[k]; w != nil {
		c = w.C()
	}
	t.Unlock()
	return Wait(ctx, c, closed, errClosed)
}
