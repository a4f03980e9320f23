package quorum

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// crowdedFor is how long a name counts as contended after a request was refused or found
	// other waiters. Until then a request asks the bell first, which costs it a round if the name
	// is free.
	crowdedFor = time.Second

	// The pause before the next attempt after a split vote doubles with each split vote.
	leastSplitPause = time.Millisecond
	mostSplitPause  = 100 * time.Millisecond
)

// order returns the i-th node in the order of a name. It is the same for all clients.
func (s *Store) order(name string, i int) int {
	h := uint32(2166136261) // FNV-1a, which must never change
	for j := 0; j < len(name); j++ {
		h = (h ^ uint32(name[j])) * 16777619
	}
	return (int(h%uint32(len(s.nodes))) + i) % len(s.nodes)
}

// bellOf returns the node at which an identity queues, and whether to ask that node alone at
// first. It is asked alone if it is likely to refuse, or if it has pushed the grant with the
// wake-up, so that its answer is already known.
//
// The bell is the first node in the order of the name that is not down. A node whose calls fail
// from time to time is not skipped, because clients agree on the bell only if it does not depend
// on how busy they are.
func (s *Store) bellOf(se *session) (bell int, alone bool) {
	now := s.now()
	crowded := s.crowds.has(se.key.name, now)
	se.mu.Lock()
	defer se.mu.Unlock()
	// Now and then the others are asked too: the bell may have a vote that was left there.
	if !se.waiting {
		se.asksOthers = now + s.caps.Heartbeat/4
	}
	if alone = crowded || se.queued; alone && !se.woken && now >= se.asksOthers {
		alone, se.asksOthers = false, now+s.caps.Heartbeat/4
	}
	if !se.waiting || s.nodes[se.bell].down() {
		se.bell, se.queued = s.order(se.key.name, 0), false
		for i := range s.nodes {
			if n := s.order(se.key.name, i); !s.nodes[n].down() {
				se.bell = n
				break
			}
		}
	}
	se.waiting, se.woken = true, false
	return se.bell, alone
}

// holder returns the holder that most nodes report, and the number of those nodes.
func (a *attempt) holder() (h store.Holder, seen int) {
	count := make(map[store.ID]int)
	for _, r := range a.refusals {
		if r == nil || len(r.Holders) == 0 {
			continue
		}
		if id := r.Holders[0].ID; count[id]+1 > seen {
			h, seen = r.Holders[0], count[id]+1
		}
		count[r.Holders[0].ID]++
	}
	return h, seen
}

// bearer returns the holder of a name whose holder passes its votes on: the bell knows it.
func (a *attempt) bearer(h store.Holder) store.Holder {
	if !isBaton(a.req.Name, h.ID) {
		return h
	}
	for _, r := range a.refusals {
		if r != nil && len(r.Holders) > 0 && !isBaton(a.req.Name, r.Holders[0].ID) {
			return r.Holders[0]
		}
	}
	return h
}

// disagree reports whether the nodes report different tokens for the holder.
func (a *attempt) disagree() bool {
	h, seen := a.holder()
	for _, r := range a.refusals {
		if seen > 0 && r != nil && len(r.Holders) > 0 && r.Holders[0].ID == h.ID && r.Holders[0].Token != h.Token {
			return true
		}
	}
	return false
}

// refusal returns the refusal of the request, with the holder that most nodes report.
func (a *attempt) refusal() *store.Refusal {
	r := &store.Refusal{Again: mostSplitPause, Waiters: a.waiters}
	if h, seen := a.holder(); seen > 0 {
		h = a.bearer(h)
		var all []store.Holder
		for _, r := range a.refusals {
			if r != nil && len(r.Holders) > 0 && r.Holders[0].ID == h.ID {
				all = append(all, r.Holders[0])
			}
		}
		r.Holders = []store.Holder{a.s.merge(all)}
		r.Again = max(time.Millisecond, h.Left)
	}
	for _, node := range a.refusals {
		if node != nil {
			r.Again = min(r.Again, node.Again)
		}
	}
	return r
}

// merge combines what several nodes report about a holder. A node that has not received a Keep
// yet still has the grant. The token is the one that the rule Above gives.
func (s *Store) merge(all []store.Holder) store.Holder {
	h, tokens := all[0], []int64{all[0].Token}
	for _, other := range all[1:] {
		tokens = append(tokens, other.Token)
		switch {
		case h.State == other.State:
			h.Age, h.Left = max(h.Age, other.Age), max(h.Left, other.Left)
		case h.State == store.Held:
			h = other
		}
	}
	slices.Sort(tokens)
	h.Token = tokens[min(s.majority, len(tokens))-1]
	if h.State == store.Held {
		h.Left = max(0, s.rules.validity(h.Left, 0))
	}
	return h
}

// enqueue records where a refused request waits, and when it asks again.
func (a *attempt) enqueue(r *store.Refusal) {
	s, se := a.s, a.se
	se.mu.Lock()
	defer se.mu.Unlock()
	se.until = s.now() + s.caps.Heartbeat
	if bell := a.refusals[a.bell]; a.votes[a.bell].state == refused && bell != nil {
		se.queued, se.splits = true, 0
		// Jitter keeps clients that were refused together from asking together.
		r.Again = max(time.Millisecond, bell.Again*3/4+rand.N(bell.Again/4+1))
		return
	}
	// Its bell did not refuse the request, so nothing would wake it. It waits at the first node that
	// did, as all requests do that give way.
	se.queued = false
	se.splits++
	for i := range a.votes {
		if n := s.order(se.key.name, i); a.votes[n].state == refused && !s.nodes[n].failing.Load() {
			se.bell = n
			break
		}
	}
	pause := min(mostSplitPause, leastSplitPause<<min(se.splits, 6))
	r.Again = pause/2 + rand.N(pause/2)
	se.retryAt = s.now() + r.Again
}

// Wait blocks until a refused identity should ask again; see [store.Store]. The bell of the name
// wakes it. It returns nil at once if the identity does not wait.
func (s *Store) Wait(ctx context.Context, name string, id store.ID) error {
	if s.life.Closing.Err() != nil {
		return errClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	se := s.find(name, id)
	if se == nil {
		return nil
	}
	se.mu.Lock()
	waiting, queued, woken, bell, retryAt := se.waiting, se.queued, se.woken, se.bell, se.retryAt
	se.mu.Unlock()
	if !waiting || woken {
		return nil
	}
	waitCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.life.Closing, cancel)()
	pause := retryAt - s.now()
	if queued {
		err := s.nodes[bell].Wait(waitCtx, name, id)
		if err == nil {
			se.mu.Lock()
			se.woken = true
			se.mu.Unlock()
			return nil
		}
		if waitCtx.Err() == nil {
			s.nodes[bell].fail(err)
		}
		pause = mostSplitPause/2 + rand.N(mostSplitPause/2) // it cannot push, so the waiter polls
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-waitCtx.Done():
	}
	if s.life.Closing.Err() != nil {
		return errClosed
	}
	return ctx.Err()
}

// crowds remembers which names are contended. It does not forget a name because a request was
// granted and found no waiter: between two clients that take turns, the other one is often just
// about to ask. If both asked all nodes, they would split the votes.
type crowds struct {
	mu      sync.Mutex
	until   map[string]time.Duration
	sweepAt time.Duration // when to remove the names that are no longer contended
}

func (c *crowds) has(name string, now time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now < c.until[name]
}

// note remembers a name for a time.
func (c *crowds) note(name string, now, lasts time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now >= c.sweepAt {
		maps.DeleteFunc(c.until, func(_ string, until time.Duration) bool { return now >= until })
		c.sweepAt = now + crowdedFor
	}
	c.until[name] = now + lasts
}
