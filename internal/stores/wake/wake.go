// Package wake has the types that stores share to wake their waiters.
package wake

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Key identifies a waiter of a store.
type Key struct {
	Name string
	ID   store.ID
}

// MaxQueue is how many requests can wait for a name on a store whose servers read the whole queue
// for each request that joins it.
const MaxQueue = 1000

// Crowded returns the error of a request that cannot be queued because MaxQueue requests wait.
func Crowded(name string) error {
	return fmt.Errorf("%d requests wait for %q, which is the most that can wait for a name; try again later, or let fewer clients wait for one name", MaxQueue, name)
}

// A Signal tells a waiter to ask again. The zero value is a signal that was not sent yet. A
// Signal does not lock: its users hold the mutex of the store that it belongs to.
type Signal struct {
	sent bool
	c    chan struct{} // made by C, closed by Send
}

// Send ends the waits for this signal, and those that begin before the next Reset.
func (s *Signal) Send() {
	s.sent = true
	if s.c != nil {
		close(s.c)
		s.c = nil
	}
}

// Reset makes the signal unsent, so that later waits block until the next Send.
func (s *Signal) Reset() { s.sent = false }

// Sent reports whether the signal was sent since the last Reset.
func (s *Signal) Sent() bool { return s.sent }

// C returns a channel that the next Send closes. It is nil if the signal was already sent.
func (s *Signal) C() <-chan struct{} {
	if s.sent {
		return nil
	}
	if s.c == nil {
		s.c = make(chan struct{})
	}
	return s.c
}

// Wait waits for a channel that C returned. It returns nil when the signal is sent, or at once if
// the channel is nil, and errClosed when closed is closed.
func Wait(ctx context.Context, c, closed <-chan struct{}, errClosed error) error {
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return errClosed
	}
}

// A Table holds the waiters of a store, and a value of the store for each. The mutex guards All.
type Table[V any] struct {
	sync.Mutex
	All  map[Key]*Waiter[V]
	Keep time.Duration // how long a waiter that stopped asking is remembered; set before the first call

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

// Wait blocks until a waiter should ask again, unless the table does not have it: see the function [Wait].
func (t *Table[V]) Wait(ctx context.Context, k Key, closed <-chan struct{}, errClosed error) error {
	t.Lock()
	var c <-chan struct{}
	if w := t.All[k]; w != nil {
		c = w.C()
	}
	t.Unlock()
	return Wait(ctx, c, closed, errClosed)
}
