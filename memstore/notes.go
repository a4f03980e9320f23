package memstore

import (
	"context"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// This file has what only a quorum uses, which may have stores in memory as its nodes in tests: see
// quorum.Passer.

// A noted is what Pass needs to know of a waiter.
type noted struct {
	handle *Store
	ttl    time.Duration
	tokens int
	sent   int64 // when it asked last
	after  int64 // token of the exclusive holder that refused it then, or 0
}

// A passed is what a holder got from the previous one.
type passed struct {
	handle *Store
	note   string
	sent   int64
}

// AcquireNoted is like Acquire, and a holder may pass the name on to a request that it queues: see
// Pass. Then it returns the note as well, and the time since the request that was granted was sent.
func (s *Store) AcquireNoted(ctx context.Context, req store.Request) (answer store.Answer, note string, age time.Duration, err error) {
	sent := s.table.now()
	answer, err = s.take(ctx, &req, func(e *entry, granted bool, now int64) {
		if granted {
			if p := e.find(req.ID).passed; p != nil && p.handle == s {
				note, age = p.note, time.Duration(now-p.sent)
			}
			return
		}
		if w := e.queue.find(req.ID); w != nil {
			w.noted = &noted{handle: s, ttl: req.TTL, tokens: req.Tokens, sent: sent}
			if h := e.first; h != nil && h.mode == store.Exclusive {
				w.noted.after = h.token
			}
		}
	})
	return answer, note, age, err
}

// Pass ends a grant if token is its token, and the first waiter can be granted the name at once, wants
// one token and asked last before that token was granted. The waiter gets a token above floor, and the
// note. Otherwise Pass changes nothing, and returns false, or ErrNotHeld if the identity does not have
// the grant.
func (s *Store) Pass(ctx context.Context, name string, id store.ID, token, floor int64, note string) (done bool, err error) {
	err = s.with(ctx, name, func(e *entry, now int64) error {
		h := e.find(id)
		if h == nil || h.state != store.Held {
			return store.ErrNotHeld
		}
		w := e.queue.first
		if h.mode != store.Exclusive || h.token != token || w == nil || w.mode != store.Exclusive || w.noted == nil || w.noted.tokens > 1 || w.noted.after == token {
			return nil
		}
		first, tokens, err := s.table.reserve(w.noted.tokens, floor)
		if err != nil {
			return nil
		}
		e.remove(h)
		e.grant(&store.Request{
			ID: w.id, Mode: w.mode, Weight: int(w.weight), Limit: int(w.limit), Owner: w.owner, Meta: w.meta, TTL: min(w.noted.ttl, heartbeat),
		}, first, tokens, now)
		e.last.passed = &passed{handle: w.noted.handle, note: note, sent: w.noted.sent}
		e.dequeue(w)
		done = true
		return nil
	})
	return done, err
}

// LeaveNoted is like Leave, and returns the note of a grant that was passed on.
func (s *Store) LeaveNoted(ctx context.Context, name string, id store.ID) (note string, err error) {
	err = s.leave(ctx, name, id, func(h *holder) {
		if h.passed != nil {
			note = h.passed.note
		}
	})
	return note, err
}

// Rename gives an exclusive grant to another identity, with another TTL, and with tokens that are not
// below the given ones. It returns false if neither identity has a grant.
func (s *Store) Rename(ctx context.Context, from store.ID, to store.Request, token int64) (renamed bool, err error) {
	err = s.with(ctx, to.Name, func(e *entry, now int64) error {
		h := e.find(from)
		if h == nil {
			h = e.find(to.ID)
		}
		if h == nil || h.state != store.Held || h.mode != store.Exclusive {
			return nil
		}
		if err := s.table.raise(token + int64(max(1, to.Tokens)) - 1); err != nil {
			return err
		}
		if e.index != nil {
			delete(e.index, h.id)
			e.index[to.ID] = h
		}
		h.id, h.owner, h.meta = to.ID, to.Owner, to.Meta
		if h.token <= token {
			h.token, h.tokens = token, int32(max(1, to.Tokens))
		}
		e.extend(h, after(now, to.TTL))
		renamed = true
		return nil
	})
	return renamed, err
}
