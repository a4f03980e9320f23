package model

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// Acquire checks the answer to a request. Under one identity, mode, weight and limit must not change.
func (m *Model) Acquire(at Span, req store.Request, a store.Answer, err error) error {
	if req.Queue {
		defer func() { m.waited[req.ID] = true }()
	}
	return m.step(req.Name, at, func(s *state) error {
		h, place, ending := s.grant(req.ID), s.place(req.ID), s.ending(at)
		if h == nil {
			must, may, limit := s.mixes(&req)
			switch {
			case errors.Is(err, store.ErrInvalid) && may:
				if limit != 0 && !(strings.Contains(err.Error(), fmt.Sprint(limit)) && strings.Contains(err.Error(), fmt.Sprint(req.Limit))) {
					return fmt.Errorf("the error %q does not name both limits, %d and %d", err, limit, req.Limit)
				}
				return nil
			case must:
				return fmt.Errorf("error %v, want ErrInvalid", err)
			}
		}
		if err != nil {
			return fmt.Errorf("error %v, want none", err)
		}
		admitted := s.holder(req.ID) == nil && s.admits(&req)
		may := admitted && (place == 0 || place < 0 && len(s.queue) == 0)
		must := may
		if !m.ordered() { // another waiter may be next
			may, must = admitted, admitted && (len(s.queue) == 0 || len(s.queue) == 1 && place == 0)
		}
		switch {
		case a.Granted() && h == nil && !may:
			return fmt.Errorf("granted, want a refusal")
		case !a.Granted() && (h != nil || must):
			return fmt.Errorf("refused, want a grant: %+v", *a.Refusal)
		case !a.Granted():
			return m.refused(s, at, &req, admitted, a.Refusal)
		}
		if a.TTL <= 0 || a.Tokens < 1 || a.Token+int64(a.Tokens)-1 > store.MaxToken {
			return fmt.Errorf("granted %d tokens from %d for %v", a.Tokens, a.Token, a.TTL)
		}
		until := lasts(at, a.TTL, req.TTL)
		if h == nil {
			if a.Tokens > max(1, req.Tokens) {
				return fmt.Errorf("granted %d tokens, want up to %d", a.Tokens, req.Tokens)
			}
			s.dequeue(req.ID)
			s.holders = append(s.holders, holder{Holder: describe(&req), limit: req.Limit, above: max(s.highest, req.Floor), since: at})
			h = s.holder(req.ID)
		}
		if h.pushed { // the answer may be older than this call
			until.To = max(until.To, h.until.To)
		} else if err := m.waiters(a.Waiters, len(s.queue)); err != nil && !ending {
			return err
		}
		m.extend(h, until, a.TTL)
		if !m.ordered() && a.Token > h.Token {
			h.Token, h.tokens = 0, 0 // the servers of a quorum may have agreed on a higher one
		}
		return s.learn(h, a.Token, a.Tokens)
	})
}

// lasts returns when a grant ends. The answer says how long it lasts at least. A store that reuses what
// it prepared earlier may have to subtract more than has passed, but must not exceed what was asked for.
func lasts(at Span, answered, asked time.Duration) Span {
	return Span{at.From + answered, at.To + max(answered, asked)}
}

// extend sets a new TTL. A quorum, whose servers may reorder calls, may keep the longest TTL of the grant.
func (m *Model) extend(h *holder, until Span, ttl time.Duration) {
	if !m.ordered() && ttl < h.ttl {
		until.To, ttl = until.To+h.ttl-ttl, h.ttl
	}
	h.until, h.ttl, h.pushed = until, ttl, false
}

// ending reports whether a holder may expire during the call. A store may count it as a waiter then.
func (s *state) ending(at Span) bool {
	return slices.ContainsFunc(s.holders, func(h holder) bool { return at.To >= h.until.From-h.ttl/100 })
}

// mixes reports whether a request must or may be invalid, because it cannot be combined with a
// holder or a waiter, and the other limit if that is the reason.
func (s *state) mixes(req *store.Request) (must, may bool, limit int) {
	differs := func(mode store.Mode, other int) bool {
		if req.Mode == store.Exclusive || mode == store.Exclusive || req.Mode == mode && req.Limit == other {
			return false
		}
		may = true
		if limit = 0; req.Mode == mode {
			limit = other
		}
		return true
	}
	for _, w := range s.queue {
		differs(w.req.Mode, w.req.Limit)
	}
	for _, h := range s.holders {
		if differs(h.Mode, h.limit) && h.State == store.Held {
			must = true
		}
	}
	return must, may, limit
}

func (m *Model) refused(s *state, at Span, req *store.Request, admitted bool, r *store.Refusal) error {
	ending, holders := !admitted && s.ending(at), r.Holders
	if !m.ordered() { // a waiter of a quorum may have the vote of a server already
		holders = slices.DeleteFunc(slices.Clone(holders), func(h store.Holder) bool { return s.place(h.ID) >= 0 })
	}
	switch {
	case r.Again <= 0, m.ordered() && req.Queue && r.Again >= m.caps.Heartbeat:
		return fmt.Errorf("ask again after %v, want more than 0 and less than the heartbeat", r.Again)
	case admitted && len(holders) > 0:
		return fmt.Errorf("refused because of %+v, want no holders, because only waiters exclude the request", holders)
	case ending: // and may be removed at this moment
	case !m.ordered() && len(holders) == 0 && len(s.queue) > 0: // it did not look for holders
	case !admitted:
		// A store may repeat to a client that has waited what it read earlier. So it may not know of a renewal.
		if err := m.same(s, at, holders, !m.waited[req.ID]); err != nil {
			return err
		}
	}
	place := 0
	if !req.Queue {
		s.dequeue(req.ID)
	} else {
		i := s.place(req.ID)
		if i < 0 {
			i = len(s.queue)
			s.queue = append(s.queue, waiter{joined: at})
		}
		w := &s.queue[i]
		w.req, w.asked, w.due = *req, at, false
		if m.ordered() {
			place = i + 1
		}
	}
	if r.Place != place {
		return fmt.Errorf("place %d in the queue, want %d", r.Place, place)
	}
	if ending {
		return nil
	}
	return m.waiters(r.Waiters, len(s.queue)-min(place, 1))
}

func (m *Model) waiters(got, want int) error {
	if got != want && m.ordered() {
		return fmt.Errorf("%d other waiters, want %d", got, want)
	}
	return nil
}

// same checks a list of all holders, and with left set, also the time that they have left.
func (m *Model) same(s *state, at Span, list []store.Holder, left bool) error {
	if len(list) != len(s.holders) {
		return fmt.Errorf("%d holders, want %d", len(list), len(s.holders))
	}
	for _, got := range list {
		h := s.holder(got.ID)
		if h == nil {
			return fmt.Errorf("the holder %s, which is none", got.ID)
		}
		want := h.Holder
		want.Age, want.Left, want.Token = got.Age, got.Left, got.Token
		if m.ordered() { // the servers of a quorum may have different tokens
			if err := s.learn(h, got.Token, 0); err != nil {
				return err
			}
		}
		if got != want {
			return fmt.Errorf("holder:\n got %+v\nwant %+v", got, want)
		}
		if err := m.age(at, got.Age, h.since); err != nil {
			return err
		}
		if low, high := h.until.From-at.To-m.slack, h.until.To-at.From+m.slack; left && (got.Left < max(0, low) || got.Left > high) {
			return fmt.Errorf("a holder with %v left, want from %v to %v", got.Left, low, high)
		}
	}
	return nil
}

func (m *Model) age(at Span, age time.Duration, since Span) error {
	low, high := at.From-since.To-m.slack, at.To-since.From+m.slack
	if !m.ordered() { // a server of a quorum may have got the grant later than others
		low = 0
	}
	if age < max(0, low) || age > high {
		return fmt.Errorf("an age of %v, want from %v to %v", age, low, high)
	}
	return nil
}

// Renew checks the outcome of one renewal.
func (m *Model) Renew(at Span, r store.Renewal, out store.Renewed) error {
	return m.step(r.Name, at, func(s *state) error {
		h := s.grant(r.ID)
		down := h != nil && h.Mode == store.Exclusive && r.Mode == store.Shared
		switch {
		case h != nil && r.Mode != h.Mode && !down:
			if out.Status != store.Unknown || !errors.Is(out.Err, store.ErrInvalid) {
				return fmt.Errorf("status %d and error %v, want ErrInvalid", out.Status, out.Err)
			}
			return nil
		case h == nil && out.Status != store.Gone, h != nil && out.Status != store.Extended:
			return fmt.Errorf("status %d (error %v), want %d (held: %v)", out.Status, out.Err, store.Extended, h != nil)
		case h == nil:
			return nil
		case out.TTL <= 0:
			return fmt.Errorf("extended by %v", out.TTL)
		}
		m.extend(h, lasts(at, out.TTL, r.TTL), out.TTL)
		s.highest = max(s.highest, r.Floor)
		if out.Err == nil {
			h.Mode = r.Mode
		}
		want := r.Tokens
		if len(s.queue) > 0 && m.ordered() {
			want = 0
		}
		if out.Tokens < min(want, 1) && m.ordered() || out.Tokens > want {
			return fmt.Errorf("%d new tokens, want up to %d", out.Tokens, want)
		}
		if out.Tokens == 0 {
			return nil
		}
		if out.Token+int64(out.Tokens)-1 > store.MaxToken {
			return fmt.Errorf("token %d is too high", out.Token)
		}
		h.Token, h.tokens, h.above = 0, 0, s.highest
		return s.learn(h, out.Token, out.Tokens)
	})
}

// Release checks the error of a Release.
func (m *Model) Release(at Span, name string, id store.ID, keep store.Keep, err error) error {
	return m.step(name, at, func(s *state) error {
		h := s.grant(id)
		switch {
		case h == nil:
			if keep.State == store.Done && errors.Is(err, store.ErrInvalid) {
				return nil // the store remembers a grant that was not exclusive
			}
			return want(err, store.ErrNotHeld)
		case keep.State == store.Done && h.Mode != store.Exclusive:
			return want(err, store.ErrInvalid)
		case err != nil:
			return want(err, nil)
		case keep.State == store.Held:
			s.remove(id)
			return nil
		}
		h.State, h.since, h.until, h.ttl = keep.State, at, at.add(keep.For), keep.For
		for i := range s.queue {
			if keep.State == store.Done || i == 0 {
				s.queue[i].due = true
			}
		}
		return nil
	})
}

func want(err, want error) error {
	if err == want || want != nil && errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("error %v, want %v", err, want)
}

// Leave checks the error of a Leave.
func (m *Model) Leave(at Span, name string, id store.ID, err error) error {
	return m.step(name, at, func(s *state) error {
		s.dequeue(id)
		if s.grant(id) != nil {
			s.remove(id)
		}
		return want(err, nil)
	})
}

// Break checks the error of a Break.
func (m *Model) Break(at Span, name string, id store.ID, err error) error {
	return m.step(name, at, func(s *state) error {
		if s.holder(id) == nil {
			return want(err, store.ErrNotHeld)
		}
		s.remove(id)
		return want(err, nil)
	})
}

// List checks what a listing says about a name. Lock is nil if the name is not listed.
func (m *Model) List(at Span, name string, lock *store.Lock) error {
	return m.step(name, at, func(s *state) error {
		if lock == nil {
			if len(s.holders) > 0 || len(s.queue) > 0 && m.ordered() {
				return fmt.Errorf("not listed, want %d holders and %d waiters", len(s.holders), len(s.queue))
			}
			return nil
		}
		if err := m.same(s, at, lock.Holders, true); err != nil {
			return err
		}
		limit, other := 0, 0
		for _, h := range s.holders {
			limit, other = h.limit, h.limit
		}
		if !m.ordered() {
			return nil
		}
		if len(lock.Holders)+len(lock.Waiters) == 0 || len(lock.Waiters) != len(s.queue) {
			return fmt.Errorf("listed with %d waiters, want %d", len(lock.Waiters), len(s.queue))
		}
		for i, got := range lock.Waiters {
			w := s.queue[i]
			other = max(other, w.req.Limit)
			if want := (store.Waiter{ID: w.req.ID, Owner: w.req.Owner, Meta: w.req.Meta, Mode: w.req.Mode, Weight: w.req.Weight, Age: got.Age}); got != want {
				return fmt.Errorf("waiter %d:\n got %+v\nwant %+v", i+1, got, want)
			}
			if err := m.age(at, got.Age, w.joined); err != nil {
				return fmt.Errorf("waiter %d: %w", i+1, err)
			}
		}
		if lock.Limit != limit && (limit != 0 || lock.Limit != other) {
			return fmt.Errorf("listed with the limit %d, want %d", lock.Limit, limit)
		}
		return nil
	})
}
