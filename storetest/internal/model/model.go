// Package model decides whether the answers of a store are answers that the contract of package
// store allows. It shares no code with any store.
//
// The contract leaves some choices to a store: the exact time at which a grant or a waiter
// expires, and whether a waiter is granted before it asks again. So a [Model] keeps, for each name,
// every state that fits the answers so far. Each answer removes the states that it contradicts. An
// answer that contradicts all of them breaks the contract.
package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// A Span is a range of times, such as those of a call, counted from the start of a sequence of calls.
type Span struct{ From, To time.Duration }

func (s Span) add(d time.Duration) Span { return Span{s.From + d, s.To + d} }

// A Model follows the names that one sequence of calls uses.
type Model struct {
	caps   store.Capabilities
	slack  time.Duration // how late the store may be, and how inexact its times
	states map[string][]*state
	waited map[store.ID]bool // identities that asked to be queued
}

// New returns a model of a store that keeps nothing.
func New(caps store.Capabilities, slack time.Duration) *Model {
	return &Model{caps: caps, slack: slack, states: map[string][]*state{}, waited: map[store.ID]bool{}}
}

func (m *Model) ordered() bool { return m.caps.Features.Has(store.FeatureQueue) }

// A state is what a store may keep for a name.
type state struct {
	holders []holder
	queue   []waiter
	highest int64 // tokens granted from now on are greater
}

type holder struct {
	store.Holder       // without Age and Left; Token is 0 while it is not known
	limit        int   // of permits
	tokens       int   // length of the newest block; 0 while it is not known
	above        int64 // the token is greater than this
	since, until Span
	ttl          time.Duration
	pushed       bool // granted before it asked, and it has not asked since
}

type waiter struct {
	req           store.Request
	joined, asked Span
	due           bool // Wait must return, because of a change since the last refusal
}

func (s *state) clone() *state {
	return &state{slices.Clone(s.holders), slices.Clone(s.queue), s.highest}
}

func (s *state) holder(id store.ID) *holder {
	i := slices.IndexFunc(s.holders, func(h holder) bool { return h.ID == id })
	if i < 0 {
		return nil
	}
	return &s.holders[i]
}

// grant returns the holder of that identity unless it is a kept record.
func (s *state) grant(id store.ID) *holder {
	if h := s.holder(id); h != nil && h.State == store.Held {
		return h
	}
	return nil
}

func (s *state) remove(id store.ID) {
	s.holders = slices.DeleteFunc(s.holders, func(h holder) bool { return h.ID == id })
}

// place returns the index of an identity in the queue, or -1.
func (s *state) place(id store.ID) int {
	return slices.IndexFunc(s.queue, func(w waiter) bool { return w.req.ID == id })
}

// admits reports whether a request can be granted beside the holders.
func (s *state) admits(req *store.Request) bool {
	sum := req.Weight
	for _, h := range s.holders {
		if h.Mode != req.Mode || req.Mode == store.Exclusive {
			return false
		}
		sum += h.Weight
	}
	return req.Mode != store.Permits || sum <= req.Limit || len(s.holders) == 0
}

// next returns the identity of the first waiter if it can be granted now.
func (s *state) next() (id store.ID) {
	if len(s.queue) > 0 && s.admits(&s.queue[0].req) {
		id = s.queue[0].req.ID
	}
	return id
}

// wake notes that the first waiter must be woken if a call has made it the next one.
func (s *state) wake(before store.ID) {
	if next := s.next(); !next.IsZero() && next != before {
		s.queue[0].due = true
	}
}

func (s *state) dequeue(id store.ID) {
	s.queue = slices.DeleteFunc(s.queue, func(w waiter) bool { return w.req.ID == id })
}

// learn checks the tokens of a grant that an answer shows. If tokens is 0, it shows only the first.
func (s *state) learn(h *holder, token int64, tokens int) error {
	switch {
	case token <= h.above || h.Token != 0 && token != h.Token:
		return fmt.Errorf("token %d, want %d (or one above %d if that is 0)", token, h.Token, h.above)
	case tokens != 0 && h.tokens != 0 && tokens != h.tokens:
		return fmt.Errorf("%d tokens, want the %d of its newest block", tokens, h.tokens)
	}
	h.Token, h.tokens = token, cmp.Or(tokens, h.tokens)
	s.highest = max(s.highest, token+int64(max(1, h.tokens))-1)
	return nil
}

// step applies a call to all states of a name. Apply changes a state, or says how the answer contradicts it.
func (m *Model) step(name string, at Span, apply func(s *state) error) error {
	var next []*state
	var wrong error
	for _, s := range m.now(name, at) {
		before := s.next()
		if err := apply(s); err != nil {
			wrong = cmp.Or(wrong, err)
			continue
		}
		s.wake(before)
		next = append(next, s)
	}
	if len(next) == 0 {
		return wrong
	}
	m.states[name] = merge(m.push(next, at))
	return nil
}

// now returns copies of the states that a name may have during a call.
func (m *Model) now(name string, at Span) []*state {
	var all []*state
	for _, s := range m.before(name) {
		all = append(all, m.expire(s, at)...)
	}
	return merge(m.push(all, at))
}

// before returns the states of a name after the last call.
func (m *Model) before(name string) []*state {
	if all := m.states[name]; len(all) > 0 {
		return all
	}
	return []*state{{}}
}

// expire returns the states that follow by time alone. What is about over may be there or not.
func (m *Model) expire(s *state, at Span) []*state {
	all := []*state{{highest: s.highest}}
	fork := func(until Span, ttl time.Duration, add func(s *state)) {
		// Servers that count in milliseconds may be early by a hundredth. The core's margin is wider.
		ended, alive := at.From > until.To+m.slack, at.To < until.From-ttl/100
		if !ended && !alive {
			for _, s := range all {
				all = append(all, s.clone())
			}
		}
		for i, s := range all {
			if alive || !ended && i < len(all)/2 {
				add(s)
			}
		}
	}
	for _, h := range s.holders {
		fork(h.until, h.ttl, func(s *state) { s.holders = append(s.holders, h) })
	}
	for _, w := range s.queue {
		fork(w.asked.add(m.caps.Heartbeat), m.caps.Heartbeat, func(s *state) { s.queue = append(s.queue, w) })
	}
	return all
}

// push adds the states in which the store has granted waiters before they ask.
func (m *Model) push(all []*state, at Span) []*state {
	for i := 0; i < len(all); i++ {
		s := all[i]
		if s.next().IsZero() || !m.ordered() {
			continue
		}
		p := s.clone()
		req := p.queue[0].req
		p.queue = p.queue[1:]
		most := min(req.TTL, m.caps.Heartbeat)
		p.holders = append(p.holders, holder{
			Holder: describe(&req), limit: req.Limit, above: max(s.highest, req.Floor), since: at, pushed: true,
			// The contract has no lower bound, but a shorter grant would be of no use.
			until: Span{at.From + most/2, at.To + m.caps.Heartbeat}, ttl: most,
		})
		p.wake(req.ID)
		all = append(all, p)
	}
	return all
}

func describe(req *store.Request) store.Holder {
	return store.Holder{ID: req.ID, Owner: req.Owner, Meta: req.Meta, Mode: req.Mode, Weight: req.Weight}
}

// merge unites states that differ in times only.
func merge(all []*state) []*state {
	if len(all) == 1 {
		return all
	}
	byKey := map[string]*state{}
	out := all[:0:0]
	for _, s := range all {
		slices.SortFunc(s.holders, func(a, b holder) int { return slices.Compare(a.ID[:], b.ID[:]) })
		var key strings.Builder
		for _, h := range s.holders {
			fmt.Fprint(&key, h.ID[:4], h.State, h.Mode, h.Token, h.tokens, h.pushed, h.ttl)
		}
		for _, w := range s.queue {
			fmt.Fprint(&key, w.req.ID[:4], w.due)
		}
		same := byKey[key.String()]
		if same == nil {
			byKey[key.String()] = s
			out = append(out, s)
			continue
		}
		unite := func(a *Span, b Span) { a.From, a.To = min(a.From, b.From), max(a.To, b.To) }
		for i, h := range s.holders {
			unite(&same.holders[i].since, h.since)
			unite(&same.holders[i].until, h.until)
			same.holders[i].above = min(same.holders[i].above, h.above)
		}
		for i, w := range s.queue {
			unite(&same.queue[i].joined, w.joined)
			unite(&same.queue[i].asked, w.asked)
		}
		same.highest = min(same.highest, s.highest)
	}
	return out
}

// MustWake reports whether a Wait of that identity must return now.
func (m *Model) MustWake(at Span, name string, id store.ID) bool {
	return m.ordered() && !slices.ContainsFunc(m.now(name, at), func(s *state) bool {
		i, h := s.place(id), s.grant(id)
		return !(i >= 0 && s.queue[i].due || h != nil && h.pushed)
	})
}

// MayWake reports whether a Wait may return now. The first waiter is told that its name is closed.
func (m *Model) MayWake(at Span, name string, id store.ID) bool {
	return slices.ContainsFunc(m.now(name, at), func(s *state) bool {
		i := s.place(id)
		closed := slices.ContainsFunc(s.holders, func(h holder) bool { return h.State != store.Held })
		return i < 0 || s.queue[i].due || s.next() == id || i == 0 && closed
	})
}

// MayBePushed reports whether an identity may have a grant that it does not know of.
func (m *Model) MayBePushed(at Span, name string, id store.ID) bool {
	return slices.ContainsFunc(m.now(name, at), func(s *state) bool {
		h := s.grant(id)
		return h != nil && h.pushed
	})
}

// Holds reports whether an identity is a holder in the first state. It guides the choice of calls.
func (m *Model) Holds(name string, id store.ID) bool {
	return m.before(name)[0].holder(id) != nil
}

// Waiters returns the number of waiters in the first state of a name. It guides the choice of calls.
func (m *Model) Waiters(name string) int { return len(m.before(name)[0].queue) }

// Highest returns a token that no grant of the name exceeds.
func (m *Model) Highest(name string) (highest int64) {
	for _, s := range m.states[name] {
		highest = max(highest, s.highest)
	}
	return highest
}
