package storetest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

func (c *link) Acquire(ctx context.Context, req store.Request) (store.Answer, error) {
	l, err := c.enter(ctx, req.Name)
	defer func() { c.leave(l) }()
	if err != nil {
		if c.bug("a cancelled call is undone when it is repeated") {
			if c.late == nil {
				c.late = map[store.ID]bool{}
			}
			c.late[req.ID] = true
		}
		return store.Answer{}, err
	}
	if h := l.holder(req.ID); h != nil && h.State == store.Held {
		if !c.bug("asking again does not restart the TTL") {
			h.until = time.Now().Add(req.TTL)
		}
		a := store.Answer{Token: h.Token, Tokens: h.tokens, TTL: req.TTL, Waiters: len(l.queue)}
		switch {
		case c.bug("asking again returns the first block"):
			a.Token = h.first
		case c.bug("asking again with a floor moves the token") && h.Token <= req.Floor:
			h.Token = c.reserve(h.tokens, req.Floor)
			a.Token = h.Token
		}
		return a, nil
	}
	for _, h := range l.holders {
		err := store.Mixes(req.Name, req.Mode, req.Limit, h.Mode, h.limit)
		switch {
		case c.bug("shared and permits are refused, not invalid") && h.Mode != req.Mode:
			err = nil
		case c.bug("the error does not name both limits") && err != nil:
			err = store.ErrInvalid
		}
		if err != nil {
			l.invalid = err
			return store.Answer{}, err
		}
	}
	if c.bug("an invalid request fails the waiters") && l.place(req.ID) >= 0 && l.invalid != nil {
		return store.Answer{}, l.invalid
	}
	if c.fits(l, &req) {
		a := c.grant(l, &req)
		if c.late[req.ID] {
			l.holders = l.holders[:len(l.holders)-1]
		}
		return a, nil
	}
	return store.Answer{Refusal: c.refuse(l, &req)}, nil
}

// fits reports whether a request can be granted now.
func (c *link) fits(l *lock, req *store.Request) bool {
	fits := l.usage().Admits(req.Mode, req.Weight, req.Limit)
	front := l.queue
	if i := l.place(req.ID); i >= 0 {
		front = l.queue[:i]
	}
	switch {
	case c.bug("waiters are served in reverse order"):
		if i := l.place(req.ID); i >= 0 {
			front = l.queue[i+1:]
		}
	case c.bug("a request without Queue overtakes the queue") && !req.Queue:
		front = nil
	}
	fits = fits && len(front) == 0
	switch {
	case c.bug("a held name is granted now and then"):
		if len(l.holders) > 0 {
			c.refused++
			return c.refused%5 == 0
		}
	case c.bug("the check and the grant are not atomic") && fits:
		c.mu.Unlock()
		time.Sleep(time.Microsecond)
		c.mu.Lock()
	case c.bug("permits exceed their limit") && req.Mode == store.Permits:
		return len(front) == 0 && len(l.holders) < req.Limit
	case c.bug("readers exclude each other") && req.Mode == store.Shared:
		return fits && len(l.holders) == 0
	}
	return fits
}

func (c *link) grant(l *lock, req *store.Request) store.Answer {
	now := time.Now()
	ttl := req.TTL
	switch {
	case c.bug("a TTL is cut to whole units"):
		ttl = min(ttl, 1500*time.Millisecond)
	case c.bug("a waiter is granted for the TTL of its last refusal") && l.place(req.ID) >= 0:
		ttl = l.queue[l.place(req.ID)].req.TTL
	}
	tokens := max(1, min(req.Tokens, 8))
	h := &holder{
		Holder: store.Holder{ID: req.ID, Owner: req.Owner, Meta: req.Meta, Mode: req.Mode, Weight: req.Weight},
		limit:  req.Limit, tokens: tokens, via: c, since: now, until: now.Add(ttl),
	}
	h.first = c.reserve(tokens, req.Floor)
	h.Token = h.first
	l.holders = append(l.holders, h)
	if i := l.place(req.ID); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	if !c.bug("a grant does not wake the next waiter") && !c.bug("only the first waiter is woken") {
		c.wake(l)
	}
	if c.bug("a goroutine per grant") {
		go func() { <-c.done }()
	}
	a := store.Answer{Token: h.Token, Tokens: tokens, TTL: req.TTL, Waiters: len(l.queue)}
	if c.bug("a grant reports no waiters") {
		a.Waiters = 0
	}
	return a
}

func (c *link) refuse(l *lock, req *store.Request) *store.Refusal {
	now := time.Now()
	r := &store.Refusal{Again: cmp.Or(c.heartbeat/2, time.Second)}
	if !l.usage().Admits(req.Mode, req.Weight, req.Limit) {
		r.Holders = c.list(l.holders)
	}
	for _, h := range l.holders {
		r.Again = max(time.Millisecond, min(r.Again, h.until.Sub(now)))
	}
	i := l.place(req.ID)
	if !c.features.Has(store.FeatureQueue) {
		if c.bug("a store without a queue reports a place") {
			r.Place = 1
		}
		return r
	}
	switch {
	case i < 0 && (req.Queue || c.bug("a request without Queue is queued")):
		l.queue = append(l.queue, &waiter{req: *req, joined: now})
		i = len(l.queue) - 1
	case i >= 0 && !req.Queue:
		l.queue = slices.Delete(l.queue, i, i+1)
		i = -1
		c.wake(l)
	case i >= 0 && c.bug("asking again moves to the end"):
		w := l.queue[i]
		l.queue = append(slices.Delete(l.queue, i, i+1), w)
		i = len(l.queue) - 1
	}
	r.Waiters = len(l.queue)
	if i >= 0 {
		w := l.queue[i]
		w.asked, w.woken = now, make(chan struct{})
		r.Place = i + 1
		r.Waiters--
	}
	switch {
	case c.bug("a refusal names no holder"):
		r.Holders = nil
	case c.bug("a refusal reports the TTL instead of the remaining time"):
		for i := range r.Holders {
			r.Holders[i].Left += r.Holders[i].Age
		}
	case c.bug("a refusal counts the waiter itself"):
		r.Waiters = len(l.queue)
	case c.bug("a refusal says to ask again too late"):
		r.Again = 2 * c.heartbeat
	}
	if c.bug("a refusal because of waiters names holders") && len(r.Holders) == 0 {
		r.Holders = []store.Holder{{ID: l.queue[0].req.ID}}
	}
	return r
}

func (c *link) Wait(ctx context.Context, name string, id store.ID) error {
	l, err := c.enter(ctx, name)
	if err != nil {
		c.leave(l)
		return err
	}
	if c.bug("a goroutine outlives Close") {
		go time.Sleep(time.Hour)
	}
	var woken chan struct{}
	if i := l.place(id); i >= 0 {
		woken = l.queue[i].woken
		if c.bug("a change before Wait is lost") {
			woken = make(chan struct{})
			l.queue[i].woken = woken
		}
	}
	defer c.waits.Add(-1)
	if c.waits.Add(1) > 1 && c.bug("one Wait per connection") {
		woken = make(chan struct{}) // a channel that is never closed
	}
	c.leave(l)
	if woken == nil && c.features.Has(store.FeatureQueue) {
		return nil
	}
	ended := ctx.Done()
	if c.bug("Wait ignores its context") {
		ended = nil
	}
	if c.bug("a goroutine per waiter") {
		stop := make(chan struct{})
		defer close(stop)
		go func() { <-stop }()
	}
	var again <-chan time.Time
	switch {
	case c.bug("a wake-up comes by the poll"):
		woken, again = nil, time.After(c.heartbeat/2)
	case !c.features.Has(store.FeatureQueue):
		again = time.After(100 * time.Millisecond)
	}
	select {
	case <-woken:
		return nil
	case <-again:
		return nil
	case <-ended:
		if c.bug("Wait hides why it ended") {
			return errors.New("model: interrupted")
		}
		return ctx.Err()
	case <-c.done:
		return fmt.Errorf("model: %w", store.ErrClosed)
	}
}

func (c *link) Leave(ctx context.Context, name string, id store.ID) error {
	l, err := c.enter(ctx, name)
	defer func() { c.leave(l) }()
	if err != nil {
		return err
	}
	h, i := c.holder(l, id, "Leave releases by name"), l.place(id)
	found := h != nil || i >= 0
	if h != nil && (h.State == store.Held || c.bug("Leave reopens a closed name")) && !c.bug("Leave does not release the grant") {
		l.remove(h)
	}
	if i >= 0 && !c.bug("Leave keeps the waiter queued") {
		l.queue = slices.Delete(l.queue, i, i+1)
		if c.bug("a request is executed after its Leave") {
			c.grant(l, &store.Request{Name: name, ID: id, Mode: store.Exclusive, Weight: 1, TTL: time.Hour, Tokens: 1})
		}
	}
	c.wake(l)
	if !found && c.bug("Leave without a grant is an error") {
		return store.ErrNotHeld
	}
	return nil
}
