package quorum

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// lookups is how many names of a listing are looked up at the same time.
	lookups = 16

	// maxListings is how many listings are remembered. A listing that is forgotten before its end
	// may list names twice.
	maxListings = 16
)

// List returns one page of the names that have holders or waiters; see [store.Store]. A holder is
// listed if it may have a majority: if the nodes that have its grant and the nodes that do not
// answer are a majority together.
//
// It lists the names of one node after the other, and looks up each name at all nodes. It returns
// the names that it has not returned for an earlier node. The nodes that have a name can change
// at any time, so the store remembers for which node it returned a name.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if !s.caps.Features.Has(store.FeatureList) {
		return store.Page{}, fmt.Errorf("%w: not all nodes can list locks", store.ErrUnsupported)
	}
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Leave()
	if q.Name != "" {
		lock, err := s.lookup(ctx, q.Name, new(silent))
		if err != nil || lock.Name == "" {
			return store.Page{}, err
		}
		return store.Page{Locks: []store.Lock{lock}}, nil
	}
	c, err := parseCursor(q.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	errs := make([]error, len(s.nodes))
	for ; c.node < len(s.nodes); c.node, c.rest = c.node+1, "" {
		nq := q
		nq.Cursor = c.rest
		page, err := s.listNode(ctx, c.node, nq, &c.silent)
		if err != nil {
			if ctx.Err() != nil {
				return store.Page{}, ctx.Err()
			}
			// A name that is held on a majority of the nodes is found as long as only a minority
			// is left out.
			errs[c.node] = err
			if c.skipped |= 1 << c.node; bits.OnesCount16(c.skipped) > len(s.nodes)-s.majority {
				return store.Page{}, s.failures(errs)
			}
			continue
		}
		out := store.Page{}
		if out.Locks, err = s.lookupAll(ctx, page.Locks, c); err != nil {
			return store.Page{}, err
		}
		if c.rest = page.Next; c.rest == "" {
			c.node++
		}
		if c.node < len(s.nodes) {
			out.Next = fmt.Sprintf("%d:%d:%d:%s", c.node, c.skipped, c.listing, c.rest)
		} else {
			s.listings.forget(c.listing)
		}
		return out, nil
	}
	s.listings.forget(c.listing)
	return store.Page{}, nil
}

// silent is a set of nodes that did not answer in time. A call of List waits for each of them once,
// and not for every name.
type silent struct{ nodes atomic.Uint32 }

func (s *silent) has(i int) bool { return s.nodes.Load()&(1<<i) != 0 }

func (s *silent) add(i int) { s.nodes.Or(1 << i) }

// A cursor is a position in a listing.
type cursor struct {
	node    int    // that is listed
	skipped uint16 // nodes that could not be listed, as a set of bits
	listing uint64
	rest    string // cursor of the node
	silent  silent
}

func parseCursor(text string) (*cursor, error) {
	if text == "" {
		return &cursor{listing: rand.Uint64()}, nil
	}
	if parts := strings.SplitN(text, ":", 4); len(parts) == 4 {
		node, err1 := strconv.ParseUint(parts[0], 10, 8)
		skipped, err2 := strconv.ParseUint(parts[1], 10, 16)
		listing, err3 := strconv.ParseUint(parts[2], 10, 64)
		if err1 == nil && err2 == nil && err3 == nil {
			return &cursor{node: int(node), skipped: uint16(skipped), listing: listing, rest: parts[3]}, nil
		}
	}
	return nil, fmt.Errorf("%w: cursor %.40q: want Page.Next of the previous page", store.ErrInvalid, text)
}

// listings remembers the node for which each name of a listing was returned.
type listings struct {
	mu    sync.Mutex
	seed  maphash.Seed
	all   map[uint64]map[uint64]uint8 // by listing and hash of the name
	order []uint64                    // listings, the oldest first
}

// first reports whether a name was not returned for another node earlier.
func (l *listings) first(c *cursor, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.seed = make(map[uint64]map[uint64]uint8), maphash.MakeSeed()
	}
	names := l.all[c.listing]
	if names == nil {
		if len(l.order) == maxListings {
			delete(l.all, l.order[0])
			l.order = l.order[1:]
		}
		names = make(map[uint64]uint8)
		l.all[c.listing], l.order = names, append(l.order, c.listing)
	}
	h := maphash.String(l.seed, name)
	node, ok := names[h]
	if !ok {
		names[h] = uint8(c.node)
	}
	return !ok || int(node) == c.node // a page may be read again
}

// has reports whether a name was returned for another node before.
func (l *listings) has(c *cursor, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.all[c.listing]
	if names == nil {
		return false
	}
	node, ok := names[maphash.String(l.seed, name)]
	return ok && int(node) != c.node
}

// forget forgets a listing that has ended.
func (l *listings) forget(listing uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.all[listing]; ok {
		delete(l.all, listing)
		l.order = slices.DeleteFunc(l.order, func(other uint64) bool { return other == listing })
	}
}

func (s *Store) listNode(ctx context.Context, i int, q store.Query, silent *silent) (page store.Page, err error) {
	if silent.has(i) {
		return page, errTimeout
	}
	// If the caller has less time than a node, that is not a failure of the node.
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opts.Timeout)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	n := s.nodes[i]
	err = n.call(callCtx, func(ctx context.Context) (err error) {
		page, err = n.List(ctx, q)
		return err
	})
	if err == errTimeout {
		silent.add(i)
	}
	return page, err
}

// lookupAll looks up the names that a node listed, except those that were returned before.
func (s *Store) lookupAll(ctx context.Context, locks []store.Lock, c *cursor) ([]store.Lock, error) {
	found := make([]store.Lock, len(locks))
	errs := make([]error, len(locks))
	turns := make(chan struct{}, lookups)
	var wg sync.WaitGroup
	for k, lock := range locks {
		if s.listings.has(c, lock.Name) {
			continue
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			lock, err := s.lookup(ctx, lock.Name, &c.silent)
			if err == nil && lock.Name != "" && s.listings.first(c, lock.Name) {
				found[k] = lock
			}
			errs[k] = err
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(found, func(l store.Lock) bool { return l.Name == "" }), nil
}

// lookup asks all nodes about one name. The name in the result is empty if it has neither a
// holder nor waiters.
func (s *Store) lookup(ctx context.Context, name string, silentNodes *silent) (lock store.Lock, err error) {
	pages := make([]store.Page, len(s.nodes))
	errs := make([]error, len(s.nodes))
	var wg sync.WaitGroup
	for i := range s.nodes {
		wg.Go(func() { pages[i], errs[i] = s.listNode(ctx, i, store.Query{Name: name}, silentNodes) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return lock, ctx.Err()
	}
	silent := 0
	holders, at := make(map[store.ID][]store.Holder), make(map[store.ID]int)
	waiters := make(map[store.ID]store.Waiter)
	for i := range pages {
		if errs[i] != nil {
			silent++
			continue
		}
		for _, l := range pages[i].Locks {
			for _, h := range l.Holders {
				holders[h.ID], at[h.ID] = append(holders[h.ID], h), i
			}
			for _, w := range l.Waiters {
				if old, ok := waiters[w.ID]; !ok || w.Age > old.Age {
					waiters[w.ID] = w
				}
			}
		}
	}
	if silent > len(s.nodes)-s.majority {
		return lock, s.failures(errs)
	}
	s.showBearer(ctx, name, holders, at, len(s.nodes)-1-silent)
	for _, all := range holders {
		if len(all)+silent >= s.majority {
			lock.Holders = append(lock.Holders, s.merge(all))
		}
	}
	for _, w := range waiters {
		lock.Waiters = append(lock.Waiters, w)
	}
	slices.SortFunc(lock.Waiters, func(a, b store.Waiter) int { return cmp.Compare(b.Age, a.Age) })
	if len(lock.Holders)+len(lock.Waiters) > 0 {
		lock.Name = name
	}
	return lock, nil
}

// showBearer replaces the identity of votes that are passed on by that of the holder that has them. It
// is the holder at the bell, if at least the given number of other nodes has these votes. The token is one
// that this holder or an earlier one had. At has a node for each holder.
func (s *Store) showBearer(ctx context.Context, name string, holders map[store.ID][]store.Holder, at map[store.ID]int, least int) {
	for id, votes := range holders {
		if !isBaton(name, id) || len(votes) < least {
			continue
		}
		for bearer, all := range holders {
			if isBaton(name, bearer) || len(all) > 1 || s.isBell(ctx, at[bearer]) != nil {
				continue
			}
			h := all[0]
			for _, vote := range votes {
				h.Token = vote.Token
				holders[bearer] = append(holders[bearer], h)
			}
			holders[bearer] = holders[bearer][1:]
			delete(holders, id)
			return
		}
	}
}
