package quorum

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// lookups is how many names of a listing are looked up at the same time.
	lookups = 16

	// pageSize is how many names a page has if the caller does not say.
	pageSize = 256

	// listDelay is when a listing begins after it was called for. It is longer than the ages of
	// holders and waiters are inaccurate. So a node that has had a name since the call has listed it.
	listDelay = 2 * time.Millisecond
)

// List returns one page of the names that have holders or waiters; see [store.Store]. A holder is listed if it may
// have a majority: if the nodes that have its grant and the nodes that do not answer are a majority together.
//
// It lists the names of one node after the other, and looks up each name at all nodes. It leaves out
// a name that an earlier node has had since the listing began, because it was listed there. If a node fails between
// two pages of its names, those of the first pages may be listed again. A page ends early if it takes long, because
// then the call has no time left for another node that hangs.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	if !s.caps.Features.Has(store.FeatureList) {
		return page, fmt.Errorf("%w: not all nodes can list locks", store.ErrUnsupported)
	}
	if err := s.life.EnterCall(ctx); err != nil {
		return page, err
	}
	defer s.life.Exit()
	if q.Name != "" {
		lock, _, err := s.lookup(ctx, q.Name)
		if err == nil && lock.Name != "" {
			page.Locks = []store.Lock{lock}
		}
		return page, err
	}
	c := cursor{begin: s.now()}
	if q.Cursor == "" {
		time.Sleep(listDelay)
	} else if _, err := fmt.Sscanf(q.Cursor, "%d:%d:%d:", &c.node, &c.skipped, &c.begin); err != nil || c.node < 0 {
		return page, fmt.Errorf("%w: cursor %.40q: want Page.Next of the previous page", store.ErrInvalid, q.Cursor)
	} else {
		c.rest = strings.SplitN(q.Cursor, ":", 4)[3]
	}
	limit := cmp.Or(q.Limit, pageSize)
	listed := map[string]bool{peersName: true} // which is no lock
	failures := make([]error, len(s.nodes))
	for i := range failures {
		if c.skipped&(1<<i) != 0 {
			failures[i] = errSkipped // for an earlier page
		}
	}
	end, over := s.now()+s.opts.Timeout/10, false
	for ; !over && c.node < len(s.nodes) && len(page.Locks) < limit; over = s.now() >= end {
		one := store.Query{Prefix: q.Prefix, Cursor: c.rest, Limit: q.Limit}
		parts, errs := s.listAt(ctx, s.nodes[c.node:c.node+1], one)
		part := parts[c.node]
		if err := errs[c.node]; err != nil {
			if ctx.Err() != nil {
				return store.Page{}, ctx.Err()
			}
			// A name that is held on a majority of the nodes is found as long as only a minority is left out.
			failures[c.node] = err
			if c.skipped |= 1 << c.node; bits.OnesCount16(c.skipped) > len(s.nodes)-s.majority {
				return store.Page{}, s.failures(failures, c.node+1-bits.OnesCount16(c.skipped))
			}
		} // the part is empty then
		part.Locks = slices.DeleteFunc(part.Locks, func(l store.Lock) bool { return listed[l.Name] })
		found, err := s.lookupAll(ctx, part.Locks, c)
		if err != nil {
			return store.Page{}, err
		}
		for _, lock := range found {
			listed[lock.Name] = true
			page.Locks = append(page.Locks, lock)
		}
		if c.rest = part.Next; c.rest == "" {
			c.node++
		}
	}
	if c.node < len(s.nodes) {
		page.Next = fmt.Sprintf("%d:%d:%d:%s", c.node, c.skipped, c.begin, c.rest)
	}
	return page, nil
}

// A cursor is a position in a listing.
type cursor struct {
	node    int           // that is listed
	skipped uint16        // nodes that could not be listed, as a set of bits
	begin   time.Duration // when the listing began, on the clock of the quorum
	rest    string        // cursor of the node
}

// listAt calls List of the given nodes.
func (s *Store) listAt(ctx context.Context, nodes []*node, q store.Query) ([]store.Page, []error) {
	return gatherAll(ctx, s, nodes, func(ctx context.Context, n *node) (store.Page, error) { return n.List(ctx, q) })
}

// lookupAll looks up the names that a node listed, except those that were listed for an earlier node.
func (s *Store) lookupAll(ctx context.Context, locks []store.Lock, c cursor) ([]store.Lock, error) {
	found := make([]store.Lock, len(locks))
	errs := make([]error, len(locks))
	turns := make(chan struct{}, lookups)
	var wg sync.WaitGroup
	for k, lock := range locks {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			asked := s.now() // the nodes count the ages until later
			lock, ages, err := s.lookup(ctx, lock.Name)
			if errs[k] = err; err == nil && !c.hasListed(ages, asked) {
				found[k] = lock
			}
		})
	}
	wg.Wait()
	return slices.DeleteFunc(found, func(l store.Lock) bool { return l.Name == "" }), cmp.Or(errs...)
}

// hasListed reports whether a name was listed for an earlier node.
func (c cursor) hasListed(ages []time.Duration, now time.Duration) bool {
	for i, age := range ages[:c.node] {
		if c.skipped&(1<<i) == 0 && age >= now-c.begin {
			return true
		}
	}
	return false
}

// lookup asks all nodes about one name. It returns what they have of it, without a name if that is nothing, and
// for how long each node has had the name, or -1 if it does not have it.
func (s *Store) lookup(ctx context.Context, name string) (lock store.Lock, ages []time.Duration, err error) {
	pages, errs := s.listAt(ctx, s.nodes, store.Query{Name: name})
	if ctx.Err() != nil {
		return lock, nil, ctx.Err()
	}
	answers, _ := tally(errs)
	if answers < s.majority {
		return lock, nil, s.failures(errs, answers)
	}
	ages = slices.Repeat([]time.Duration{-1}, len(s.nodes))
	holders, waiters := make(map[store.ID][]store.Holder), make(map[store.ID]store.Waiter)
	for i := range pages {
		for _, l := range pages[i].Locks {
			for _, h := range l.Holders {
				holders[h.ID] = append(holders[h.ID], h)
				ages[i] = max(ages[i], h.Age)
			}
			for _, w := range l.Waiters {
				if old, ok := waiters[w.ID]; !ok || w.Age > old.Age {
					waiters[w.ID] = w
				}
				ages[i] = max(ages[i], w.Age)
			}
		}
	}
	for id, all := range holders {
		if len(all)+len(s.nodes)-answers >= s.majority {
			lock.Holders = append(lock.Holders, s.merge(all))
			delete(waiters, id) // it waits at nodes that had voted for another request
		}
	}
	oldest := func(a, b store.Waiter) int { return cmp.Compare(b.Age, a.Age) }
	lock.Waiters = slices.SortedFunc(maps.Values(waiters), oldest)
	if len(lock.Holders)+len(lock.Waiters) > 0 {
		lock.Name = name
	}
	return lock, ages, nil
}

// merge combines what several nodes report about a holder. A node that has not received a Keep yet
// still has the grant. The token is the one that the rule Above gives.
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
		h.Left = max(0, validity(h.Left))
	}
	return h
}
