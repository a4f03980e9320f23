package mysqlstore

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// defaultHeartbeat is how long a waiter that stopped asking keeps its place. A dead waiter
	// delays the next one for that long. A live waiter that is paused for longer loses its place.
	defaultHeartbeat = 5 * time.Second

	// asksPerHeartbeat is how often a waiter asks per heartbeat, so that it does not lose its
	// place if one request is late.
	asksPerHeartbeat = 2.5

	// minAgain keeps a waiter from spinning when a grant is about to expire.
	minAgain = time.Millisecond
)

// ask answers a request.
func (e *entry) ask(req *store.Request) (store.Answer, error) {
	e.asker = req.ID
	if e.hasEnded(req.ID) {
		return store.Answer{}, fmt.Errorf("%w: %q: this request has left", store.ErrInvalid, e.name)
	}
	w := e.queued(req.ID)
	answer, err := e.decide(req, w)
	if err != nil && w != nil {
		e.dequeue(w) // a request that is invalid leaves nothing queued
	}
	return answer, err
}

func (e *entry) decide(req *store.Request, w *waiter) (store.Answer, error) {
	g := e.find(req.ID)
	if g != nil && g.state == store.Held {
		if err := store.SameClaim(req, g.mode, g.weight, g.limit); err != nil {
			return store.Answer{}, err
		}
		g.until = e.now + req.TTL.Microseconds()
		e.changed(g)
		return store.Answer{Token: g.token, Tokens: g.tokens, TTL: req.TTL, Waiters: len(e.waiters)}, nil
	}
	if w != nil {
		if err := store.SameClaim(req, w.mode, w.weight, w.limit); err != nil {
			return store.Answer{}, err
		}
	}
	if err := e.mixes(req); err != nil {
		return store.Answer{}, err
	}
	// A kept record of this identity means that its grant has ended. The identity must not be
	// granted again beside its own record.
	fits := g == nil && e.admits(req.Mode, req.Weight, req.Limit)
	if !fits || len(e.waiters) > 0 && e.waiters[0] != w {
		return store.Answer{Refusal: e.refuse(req, w, fits)}, nil
	}
	token, tokens, err := e.reserve(req.Tokens, req.Floor)
	if err != nil {
		return store.Answer{}, err
	}
	e.add(&grant{
		id: req.ID, mode: req.Mode, weight: req.Weight, limit: req.Limit,
		token: token, tokens: tokens, since: e.now, until: e.now + req.TTL.Microseconds(),
		owner: req.Owner, meta: req.Meta,
	})
	if w != nil {
		e.dequeue(w)
	}
	return store.Answer{Token: token, Tokens: tokens, TTL: req.TTL, Waiters: len(e.waiters)}, nil
}

// refuse returns why a request is not granted. W is the waiter of the request, if it is queued
// already.
func (e *entry) refuse(req *store.Request, w *waiter, fits bool) *store.Refusal {
	r := new(store.Refusal)
	if !fits {
		r.Holders = e.holders(store.MaxHolders)
	}
	inFront := e.waiters
	if req.Queue {
		w = e.enqueue(req, w)
		inFront = e.waiters[:slices.Index(e.waiters, w)]
		r.Place, r.Waiters = len(inFront)+1, len(e.waiters)-1
	} else {
		if w != nil {
			e.dequeue(w)
			inFront = e.waiters
		}
		r.Waiters = len(e.waiters)
	}
	// A waiter behind others need not watch the grants, because the waiter in front of it wakes
	// it. If the waiter in front dies, this one asks again when that place expires.
	ends := e.now + e.s.again().Microseconds()
	if len(inFront) == 0 {
		for _, g := range e.grants() {
			ends = min(ends, g.until)
		}
	}
	for _, other := range inFront {
		ends = min(ends, other.until)
	}
	r.Again = max(minAgain, micros(ends-e.now))
	return r
}

// again returns how soon a waiter asks again if nothing expires earlier.
func (s *Store) again() time.Duration {
	return time.Duration(float64(s.heartbeat) / asksPerHeartbeat)
}

func (e *entry) queued(id store.ID) *waiter {
	for _, w := range e.waiters {
		if w.id == id {
			return w
		}
	}
	return nil
}

// enqueue adds a request at the end of the queue, or keeps the place that it has.
func (e *entry) enqueue(req *store.Request, w *waiter) *waiter {
	if w == nil {
		w = &waiter{name: e.name, seq: 1, grant: grant{
			id: req.ID, mode: req.Mode, weight: req.Weight, limit: req.Limit, since: e.now,
		}}
		if n := len(e.waiters); n > 0 {
			w.seq = e.waiters[n-1].seq + 1
		}
		e.waiters = append(e.waiters, w)
	}
	w.until = e.now + e.s.heartbeat.Microseconds() + 1 // dropped only if silent for longer than a heartbeat
	w.owner, w.meta = req.Owner, req.Meta
	w.rung, w.dirty = false, true
	return w
}

// dequeue removes a waiter.
func (e *entry) dequeue(w *waiter) {
	e.waiters = slices.DeleteFunc(e.waiters, func(other *waiter) bool { return other == w })
	e.drops = append(e.drops, w.key())
	e.freed = true // the next waiter may be first now
	if w.id != e.asker {
		e.woken = append(e.woken, w) // ends its Wait
	}
}

// wakeFirst wakes the first waiter if it may be granted now. While the name is kept closed, the
// first waiter is woken in any case. It may want to give up, and then the next one is woken.
func (e *entry) wakeFirst() {
	if len(e.waiters) == 0 || e.waiters[0].id == e.asker {
		return
	}
	w := e.waiters[0]
	kept := slices.ContainsFunc(e.grants(), func(g *grant) bool { return g.state != store.Held })
	if kept || e.admits(w.mode, w.weight, w.limit) {
		e.wake(w)
	}
}

// wake tells a waiter to ask again. It does so through the waiter's row, unless the waiter is in
// this process.
func (e *entry) wake(w *waiter) {
	e.woken = append(e.woken, w)
	if !w.rung && !e.s.waits.has(w.name, w.id) {
		w.rung, w.ring = true, true
	}
}
