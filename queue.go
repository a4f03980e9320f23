package holdfast

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// The local queue. Goroutines of one client that want the same name queue here in order of
// arrival, and at most one of them stands at the store. A name that the client holds
// exclusively passes from one to the next without the store (handover.go).

// slots are the names that this client holds exclusively, asks for or releases. They are
// spread over shards so that different names do not wait for each other's mutex.
type slots struct {
	seed   maphash.Seed
	shards [64]shard
}

type shard struct {
	mu    sync.Mutex
	slots map[string]*slot
	spare *slot // the last one that ended, still in the map: a name is often used again
}

func (s *slots) init() {
	s.seed = maphash.MakeSeed()
	for i := range s.shards {
		s.shards[i].slots = make(map[string]*slot)
	}
}

func (s *slots) shard(name string) *shard {
	return &s.shards[maphash.String(s.seed, name)%uint64(len(s.shards))]
}

// A slot is the state of one name in this client. It is guarded by its shard's mutex and
// lives while it has a grant, is busy or has waiters.
type slot struct {
	shard *shard
	name  string
	grant *grant // held exclusively by this client
	busy  bool   // a goroutine asks the store about this name, or gives it back
	known known  // what the store said last to the one who stands

	// The request of a call that gave up and left its place in the store's queue to the
	// next call of this client; nil if there is none.
	place *store.Request

	first, last *waiter
	crowd       atomic.Int32 // how many waiters there are, to be read without the mutex
}

// A waiter is a goroutine in the queue of a slot. It is in the list until it is signalled.
type waiter struct {
	prev, next *waiter
	queued     bool

	call  call
	ready chan struct{} // capacity 1

	// What the signal means: a lease, an error, or with neither that it is the waiter's
	// turn to stand at the store.
	lease *Lease
	err   error
}

// newWaiter takes a waiter from the client's pool: a hot name needs one for every pair. The
// pool is the client's own because a program's tests may run each in a synctest bubble,
// which a channel must not leave.
func (c *Client) newWaiter(cl *call) *waiter {
	w, ok := c.waiters.Get().(*waiter)
	if !ok {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	w.call = *cl
	return w
}

// freeWaiter keeps a waiter that was signalled or removed for another call.
func (c *Client) freeWaiter(w *waiter) {
	*w = waiter{ready: w.ready}
	c.waiters.Put(w)
}

// enqueue takes the lock for a checked call: at once if nobody of this client is in front.
func (c *Client) enqueue(ctx context.Context, cl *call, begin time.Duration) (*Lease, error) {
	sh := c.slots.shard(cl.req.Name)
	sh.mu.Lock()
	s := sh.slot(cl.req.Name)
	if s.grant == nil && !s.busy { // then nobody is queued either
		s.busy = true
		sh.mu.Unlock()
		return c.stand(ctx, cl, s, begin, begin)
	}
	if err := s.answer(c, cl); err != nil {
		sh.mu.Unlock()
		return nil, fail(cl.op, cl.name, err)
	}
	w := c.newWaiter(cl)
	s.push(w)
	sh.mu.Unlock()
	return c.waitTurn(ctx, cl, s, w, begin)
}

// waitTurn waits until the waiter is signalled or its context ends.
func (c *Client) waitTurn(ctx context.Context, cl *call, s *slot, w *waiter, begin time.Duration) (*Lease, error) {
	cl.tellWaiting(c)
	var over error
	select {
	case <-w.ready:
	case <-ctx.Done():
		over = context.Cause(ctx)
	case <-c.life.Done():
		over = ErrClosed
	}
	if over != nil {
		return nil, c.giveUpTurn(ctx, cl, s, w, over)
	}
	lease, err := w.lease, w.err
	c.freeWaiter(w)
	switch {
	case err != nil:
		return nil, fail(cl.op, cl.name, err)
	case lease != nil:
		if c.observed() {
			c.emit(Event{Kind: EventHandedOver, Name: cl.name, Mode: cl.req.Mode, Token: lease.token, Waited: c.now() - begin, Queued: true})
		}
		return lease, nil
	}
	return c.stand(ctx, cl, s, begin, c.now())
}

// giveUpTurn takes a waiter whose wait is over out of the queue. If it was signalled in the
// same moment, it passes on what it got.
func (c *Client) giveUpTurn(ctx context.Context, cl *call, s *slot, w *waiter, over error) error {
	s.shard.mu.Lock()
	why := s.inTheWay(c, cl)
	queued := w.queued
	if queued {
		s.remove(w)
	}
	s.shard.mu.Unlock()
	if !queued {
		<-w.ready
		switch {
		case w.lease != nil:
			why = nil
			w.lease.giveBack(ctx) // goes to the next in line
		case w.err == nil:
			c.next(s) // it was its turn to stand at the store
		}
	}
	c.freeWaiter(w)
	if why != nil {
		return fail(cl.op, cl.name, why, over)
	}
	return fail(cl.op, cl.name, over)
}

// stand asks the store for the slot's name on behalf of the whole client. The slot is busy
// meanwhile; when it ends, the next in line is let go.
func (c *Client) stand(ctx context.Context, cl *call, s *slot, begin, now time.Duration) (*Lease, error) {
	standing := true
	defer func() {
		if standing { // refused, or a strategy panicked
			c.endStand(cl, s)
		}
	}()
	lease, err := c.ask(ctx, cl, s, now)
	if err != nil {
		return nil, err
	}
	standing = false
	sh := s.shard
	sh.mu.Lock()
	s.busy, s.known = false, known{}
	if cl.req.Mode == store.Exclusive {
		s.grant = lease.g
		lease.g.slot, lease.g.shard = s, sh
		s.answerAll(c)
	} else {
		s.pass()
	}
	sh.mu.Unlock()
	if !c.renewals.add(lease.g) { // Close gave up waiting for this answer
		lease.finish(ErrClosed)
		return nil, fail(cl.op, cl.name, ErrClosed)
	}
	if c.observed() {
		c.emit(Event{Kind: EventAcquired, Name: cl.name, Mode: cl.req.Mode, Token: lease.token, Waited: c.now() - begin, Queued: cl.waiting})
	}
	return lease, nil
}

// endStand ends a stand that was not granted. Until the store has heard that the call gave
// up, the slot stays busy: the next call of this client must not be refused because of it.
func (c *Client) endStand(cl *call, s *slot) {
	if !cl.left {
		c.next(s)
		return
	}
	s.shard.mu.Lock()
	s.known = known{} // it may be about this call's own place
	s.shard.mu.Unlock()
	c.leaveThen(&cl.req, func() { c.next(s) })
}

// slot returns the slot of a name, made if need be.
func (sh *shard) slot(name string) *slot {
	if s := sh.slots[name]; s != nil {
		if s == sh.spare {
			sh.spare = nil
		}
		return s
	}
	s := &slot{shard: sh, name: name}
	sh.slots[name] = s
	return s
}

// next ends a busy time of the slot. If a place in the store's queue is left and no call is
// there to use it, it is cancelled first.
func (c *Client) next(s *slot) {
	s.shard.mu.Lock()
	if orphan := s.place; orphan != nil && s.first == nil {
		s.place, s.known = nil, known{}
		s.shard.mu.Unlock()
		c.leaveThen(orphan, func() { c.next(s) })
		return
	}
	s.busy = false
	s.pass()
	s.shard.mu.Unlock()
}

// pass lets the next in line stand at the store, or ends the slot if nobody is left. The
// slot is neither busy nor has it a grant.
func (s *slot) pass() {
	if w := s.first; w != nil {
		s.busy = true
		s.signal(w, nil, nil)
		return
	}
	if old := s.shard.spare; old != nil {
		delete(s.shard.slots, old.name)
	}
	s.known = known{}
	s.shard.spare = s
}

// known is the last word of the store about a name: a refusal or a failure. Calls that do
// not wait are answered from it while another one stands.
type known struct {
	at      time.Duration
	held    *HeldError
	failure error
}

// answer ends a call that need not wait, because what it wants to know is known: nil if it
// is not.
func (s *slot) answer(c *Client, cl *call) error {
	if !cl.try && !cl.once {
		return nil
	}
	why := s.inTheWay(c, cl)
	if held := (*HeldError)(nil); cl.once && errors.As(why, &held) {
		if done := held.done(); done != nil {
			return done
		}
	}
	if !cl.try {
		return nil
	}
	return why
}

// inTheWay is what the client knows without asking the store about who or what is in the
// way, nil if nothing.
func (s *slot) inTheWay(c *Client, cl *call) error {
	now := c.now()
	switch g := s.grant; {
	case g != nil:
		l := g.lease.Load()
		return &HeldError{Name: cl.name, Holders: []Holder{{
			ID:      g.id,
			Owner:   c.set.owner,
			Meta:    g.meta,
			Mode:    store.Exclusive,
			Permits: 1,
			Token:   l.token,
			Since:   time.Now().Add(l.since - now),
			Left:    max(0, time.Duration(g.deadline.Load())-now),
		}}}
	case s.known.held != nil:
		held := s.known.held.aged(now - s.known.at)
		held.Place = 0 // that is the place of the one who stands
		return held
	}
	if now-s.known.at > pollMost {
		return nil // the one who stands may be in for a long wait: ask
	}
	return s.known.failure
}

// answerAll ends the calls in the queue whose answer is known now.
func (s *slot) answerAll(c *Client) {
	s.each(func(w *waiter) {
		if err := s.answer(c, &w.call); err != nil {
			s.signal(w, nil, err)
		}
	})
}

// answerSame ends the single attempts in the queue that ask for the same as cl, which the
// store just refused.
func (s *slot) answerSame(cl *call, held *HeldError) {
	s.each(func(w *waiter) {
		if w.call.try && w.call.sameShape(cl.req.Mode, cl.req.Weight, cl.req.Limit) {
			s.signal(w, nil, held)
		}
	})
}

func (cl *call) sameShape(mode store.Mode, weight, limit int) bool {
	return cl.req.Mode == mode && cl.req.Weight == weight && cl.req.Limit == limit
}

// each calls fn for every waiter in order; fn may remove it.
func (s *slot) each(fn func(*waiter)) {
	for w := s.first; w != nil; {
		next := w.next
		fn(w)
		w = next
	}
}

// signal takes a waiter out of the queue and tells it what it got.
func (s *slot) signal(w *waiter, lease *Lease, err error) {
	s.remove(w)
	w.lease, w.err = lease, err
	w.ready <- struct{}{} // never blocks: a waiter is signalled once
}

func (s *slot) push(w *waiter) {
	w.queued = true
	s.crowd.Add(1)
	w.prev = s.last
	if s.last != nil {
		s.last.next = w
	} else {
		s.first = w
	}
	s.last = w
}

func (s *slot) remove(w *waiter) {
	s.crowd.Add(-1)
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		s.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		s.last = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
}
