// Package rules has the rules of a lock: which request is granted, which one waits, and which
// waiter is woken. Stores that decide in Go share it. A store loads a [Name], makes one of the
// calls of a [Call], and writes what has changed.
//
// The package reads no clock and does no I/O. It asks a Name only for what a decision depends on, so
// a store need not read the queue of a name that has none, or all of a long one.
package rules

import (
	"math"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// MinAgain keeps a waiter from spinning when a grant is about to expire.
const MinAgain = time.Millisecond

// A Call is one call of a store on a name. After it, the store calls Finish.
type Call struct {
	Name
	Now  int64         // on the clock of the store
	Unit time.Duration // of the times of the store

	Heartbeat time.Duration // how long a waiter that stopped asking keeps its place
	AskWithin time.Duration // how soon a refused request asks again if nothing expires earlier

	// Freed says that the first waiter may be granted now. The store sets it if claims have expired.
	Freed bool

	asker store.ID // gets a reply, and needs no wake-up
}

// After returns the time d after now, or the greatest time if the sum overflows.
func After(now int64, d, unit time.Duration) int64 {
	if end := now + int64(d/unit); end >= now || d < 0 {
		return end
	}
	return math.MaxInt64
}

func (c *Call) after(d time.Duration) int64 { return After(c.Now, d, c.Unit) }

// Ask answers a request: see [store.Store.Acquire].
func (c *Call) Ask(req *store.Request) (store.Answer, error) {
	c.asker = req.ID
	w := c.Waiter(req.ID)
	answer, err := c.ask(req, w)
	if err != nil && w != nil { // an invalid request leaves nothing queued
		c.dequeue(w)
	}
	return answer, err
}

func (c *Call) ask(req *store.Request, w *Claim) (_ store.Answer, err error) {
	h := c.Holder(req.ID)
	if h != nil && h.State == store.Held {
		if err := store.SameClaim(req, h.Mode, h.Weight, h.Limit); err != nil {
			return store.Answer{}, err
		}
		h.Until = c.after(req.TTL)
		c.Put(h)
		return store.Answer{Token: h.Token, Tokens: h.Tokens, TTL: req.TTL, Waiters: c.Waiters()}, nil
	}
	if w != nil {
		if err := store.SameClaim(req, w.Mode, w.Weight, w.Limit); err != nil {
			return store.Answer{}, err
		}
	}
	if err := c.mixes(req); err != nil {
		return store.Answer{}, err
	}
	// A kept record of this identity means that its grant has ended. The identity must not be
	// granted again beside its own record.
	fits := h == nil && c.admits(req.Mode, req.Weight, req.Limit)
	if first := c.First(); !fits || first != nil && first.ID != req.ID {
		return store.Answer{Refusal: c.refuse(req, w, fits)}, nil
	}
	h = newClaim(req, c.Now)
	h.Until = c.after(req.TTL)
	if h.Token, h.Tokens, err = c.Reserve(req.Tokens, req.Floor); err != nil {
		return store.Answer{}, err
	}
	c.Put(h)
	if w != nil {
		c.dequeue(w)
	}
	return store.Answer{Token: h.Token, Tokens: h.Tokens, TTL: req.TTL, Waiters: c.Waiters()}, nil
}

// admits reports whether a request can be granted beside the holders.
func (c *Call) admits(mode store.Mode, weight, limit int) bool {
	var u store.Usage
	if sum := c.Sum(mode); sum != (Sum{}) {
		u.Add(sum.Mode, sum.Weight, sum.Limit)
	}
	return u.Admits(mode, weight, limit)
}

// mixes returns an error if the request can never be combined with a holder or a waiter. All of them
// that are not exclusive have the same mode and limit.
func (c *Call) mixes(req *store.Request) error {
	if req.Mode == store.Exclusive {
		return nil
	}
	if sum := c.Sum(store.Exclusive); sum != (Sum{}) {
		if err := store.Mixes(req.Name, req.Mode, req.Limit, sum.Mode, sum.Limit); err != nil {
			return err
		}
	}
	if w := c.NotExclusive(); w != nil {
		return store.Mixes(req.Name, req.Mode, req.Limit, w.Mode, w.Limit)
	}
	return nil
}

// refuse queues the request if it asks for that. W is its waiter if it is queued already.
func (c *Call) refuse(req *store.Request, w *Claim, fits bool) *store.Refusal {
	r := new(store.Refusal)
	if !fits {
		for _, h := range c.Oldest(store.MaxHolders) {
			r.Holders = append(r.Holders, h.Holder(c.Now, c.Unit))
		}
	}
	if req.Queue {
		if w == nil {
			w = newClaim(req, c.Now)
		}
		w.Owner, w.Meta, w.Woken = req.Owner, req.Meta, false
		w.Until = c.after(c.Heartbeat) + 1 // dropped only if silent for longer than a heartbeat
		c.Enqueue(w)
	} else if w != nil {
		c.dequeue(w)
		w = nil
	}
	r.Waiters = c.Waiters()
	ahead, due := c.Ahead(w)
	if w != nil {
		r.Place = ahead + 1
		r.Waiters--
	}
	// A waiter behind others need not watch the holders, because the waiter ahead of it wakes it. If
	// the waiter ahead dies, this one asks again when that place expires.
	if sum := c.Sum(store.Exclusive); ahead == 0 && sum != (Sum{}) {
		due = sum.Until
	}
	r.Again = max(MinAgain, time.Duration(min(due, c.after(c.AskWithin))-c.Now)*c.Unit)
	return r
}

func (c *Call) dequeue(w *Claim) {
	c.Dequeue(w)
	c.Freed = true // the next waiter may be the first now
}

func (c *Call) remove(h *Claim) {
	c.Remove(h)
	c.Freed = true
}

// held returns the live grant of an identity, or nil.
func (c *Call) held(id store.ID) *Claim {
	if h := c.Holder(id); h != nil && h.State == store.Held {
		return h
	}
	return nil
}

// Leave removes an identity from the queue and releases its grant: see [store.Store.Leave].
func (c *Call) Leave(id store.ID) {
	if h := c.held(id); h != nil {
		c.remove(h)
	}
	if w := c.Waiter(id); w != nil {
		c.dequeue(w)
		c.Wake(w) // ends its Wait
	}
}

// Release ends a grant, or keeps its name closed for a time: see [store.Store.Release].
func (c *Call) Release(id store.ID, keep store.Keep) error {
	h := c.held(id)
	if h == nil {
		return store.ErrNotHeld
	}
	if keep.State == store.Held {
		c.remove(h)
		return nil
	}
	if err := store.CheckDone(keep, h.Mode); err != nil {
		return err
	}
	h.State, h.Since, h.Until = keep.State, c.Now, c.after(keep.For)
	c.Put(h)
	c.Freed = true // the first waiter may want to give up
	if keep.State == store.Done {
		for _, w := range c.All() { // any waiter may wait for the work to be done
			c.Wake(w)
		}
	}
	return nil
}

// Break ends a grant or a kept record by force: see [store.Store.Break].
func (c *Call) Break(id store.ID) error {
	h := c.Holder(id)
	if h == nil {
		return store.ErrNotHeld
	}
	c.remove(h)
	return nil
}

// Renew extends a grant: see [store.Store.Renew].
func (c *Call) Renew(r *store.Renewal) store.Renewed {
	h := c.held(r.ID)
	if h == nil {
		return store.Renewed{Status: store.Gone}
	}
	if err := store.CheckRenewal(r, h.Mode); err != nil {
		return store.Renewed{Err: err}
	}
	renewed := store.Renewed{Status: store.Extended, TTL: r.TTL}
	if r.Tokens > 0 && c.Waiters() == 0 {
		token, tokens, err := c.Reserve(r.Tokens, r.Floor)
		if err != nil {
			return store.Renewed{Err: err}
		}
		renewed.Token, renewed.Tokens, h.Token, h.Tokens = token, tokens, token, tokens
	} else if err := c.Raise(r.Floor); err != nil {
		return store.Renewed{Err: err}
	}
	h.Until = c.after(r.TTL)
	if r.Mode != h.Mode {
		h.Mode = store.Shared
		c.Freed = true
	}
	c.Put(h)
	return renewed
}

// Finish wakes the first waiter if it can be granted now, or if the name is kept closed: the waiter may
// want to give up, and then the next one is woken.
func (c *Call) Finish() {
	if !c.Freed {
		return
	}
	c.Freed = false
	if w := c.First(); w != nil && w.ID != c.asker && (c.Kept() || c.admits(w.Mode, w.Weight, w.Limit)) {
		c.Wake(w)
	}
}
