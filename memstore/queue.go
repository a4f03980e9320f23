package memstore

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/internal/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// askWithin makes a waiter ask about three times per heartbeat, so that it does not lose
	// its place if one request is late.
	askWithin = heartbeat / 3

	// minAgain keeps a waiter from spinning when a grant is about to expire.
	minAgain = time.Millisecond
)

// A waiter is a queued request.
type waiter struct {
	claim
	joined     int64
	until      int64 // when it is dropped unless it asks again
	wake       wake.Signal
	prev, next *waiter
}

// A queue holds the waiters of a name in order of arrival.
type queue struct {
	first, last *waiter
	n           int
}

func (q *queue) find(id store.ID) *waiter {
	for w := q.first; w != nil; w = w.next {
		if w.id == id {
			return w
		}
	}
	return nil
}

// place returns the place of a waiter in the queue; the first has place 1.
func (q *queue) place(of *waiter) int {
	place := 1
	for w := q.first; w != of; w = w.next {
		place++
	}
	return place
}

// refuse queues the request if it asks for that, and returns its refusal. W is the waiter of the
// request if it is queued already.
func (t *table) refuse(e *entry, w *waiter, req *store.Request, fits bool, now int64) *store.Refusal {
	r := &store.Refusal{}
	if !fits {
		r.Holders = e.listHolders(store.MaxHolders, now)
	}
	if req.Queue {
		if w == nil {
			w = e.enqueue(now)
		}
		w.claim.set(req)
		w.until = now + int64(heartbeat) + 1 // dropped only if silent for longer than a heartbeat
		w.wake.Reset()
		e.due = min(e.due, w.until)
		r.Place = e.queue.place(w)
		r.Waiters = e.queue.n - 1
	} else {
		if w != nil {
			e.dequeue(w)
		}
		r.Waiters = e.queue.n
	}
	r.Again = max(minAgain, min(askWithin, time.Duration(e.due-now)))
	return r
}

func (e *entry) enqueue(now int64) *waiter {
	q := &e.queue
	w := &waiter{joined: now, prev: q.last}
	if w.prev == nil {
		q.first = w
	} else {
		w.prev.next = w
	}
	q.last = w
	q.n++
	return w
}

// dequeue removes a waiter and ends its Wait. If it was the head of the queue, the next waiter
// is woken.
func (e *entry) dequeue(w *waiter) {
	q := &e.queue
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	q.n--
	w.wake.Send()
	if w.prev != nil {
		w.prev.next = w.next
		return
	}
	q.first = w.next
	e.wakeHead()
}

// wakeHead wakes the first waiter if it can be granted now. While the name is kept closed, the
// first waiter is woken in any case. It may want to give up, and then the next one is woken.
func (e *entry) wakeHead() {
	if w := e.queue.first; w != nil && (e.kept > 0 || e.admits(w.mode, int(w.weight), int(w.limit))) {
		w.wake.Send()
	}
}

func (e *entry) wakeAll() {
	for w := e.queue.first; w != nil; w = w.next {
		w.wake.Send()
	}
}

// Wait blocks until a queued identity should ask again; see [store.Store]. It returns nil at
// once if the identity is not queued.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	var woken <-chan struct{}
	err := s.with(ctx, name, func(e *entry, _ int64) error {
		if e == nil {
			return nil
		}
		if w := e.queue.find(id); w != nil {
			woken = w.wake.C()
		}
		return nil
	})
	if err != nil {
		return err
	}
	return wake.Wait(ctx, woken, s.done, errClosed)
}
