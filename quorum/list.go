package quorum

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// lookups is how many names of a listing are looked up at the same time.
	lookups = 16

	// resolution is how exact the ages are that nodes report.
	resolution = 2 * time.Millisecond
)

// List returns one page of the names that have holders or waiters; see [store.Store]. A holder
// is listed if it may have a majority: if nodes that have it and nodes that do not answer are one
// together.
//
// It lists the names of one node after the other, and looks up each at all nodes. A name is left out
// if a node that was listed before had it already when the listing began.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if !s.caps.Features.Has(store.FeatureList) {
		return store.Page{}, fmt.Errorf("%w: not all nodes can list locks", store.ErrUnsupported)
	}
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Leave()
	if q.Name != "" {
		lock, _, err := s.lookup(ctx, q.Name, 0)
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
		page, err := s.listNode(ctx, c.node, nq)
		if err != nil {
			if ctx.Err() != nil {
				return store.Page{}, ctx.Err()
			}
			// A name that has a majority of the nodes is found as long as a minority is left out.
			errs[c.node] = err
			if c.skipped |= 1 << c.node; bits.OnesCount16(c.skipped) > len(s.nodes)-s.majority {
				return store.Page{}, s.failures(errs)
			}
			continue
		}
		out := store.Page{}
		before := (uint16(1)<<c.node - 1) &^ c.skipped
		if out.Locks, err = s.lookupAll(ctx, page.Locks, c.began, before); err != nil {
			return store.Page{}, err
		}
		if c.rest = page.Next; c.rest == "" {
			c.node++
		}
		if c.node < len(s.nodes) {
			out.Next = c.String()
		}
		return out, nil
	}
	return store.Page{}, nil
}

// A cursor is a position in a listing.
type cursor struct {
	node    int       // that is listed
	skipped uint16    // nodes that could not be listed, as a set of bits
	began   time.Time // when the listing did
	rest    string    // cursor of the node
}

func (c *cursor) String() string {
	return fmt.Sprintf("%d:%d:%d:%s", c.node, c.skipped, c.began.UnixMicro(), c.rest)
}

func parseCursor(text string) (*cursor, error) {
	if text == "" {
		return &cursor{began: time.Now()}, nil
	}
	if parts := strings.SplitN(text, ":", 4); len(parts) == 4 {
		node, err1 := strconv.ParseUint(parts[0], 10, 8)
		skipped, err2 := strconv.ParseUint(parts[1], 10, 16)
		began, err3 := strconv.ParseInt(parts[2], 10, 64)
		if err1 == nil && err2 == nil && err3 == nil {
			return &cursor{int(node), uint16(skipped), time.UnixMicro(began), parts[3]}, nil
		}
	}
	return nil, fmt.Errorf("%w: cursor %.40q: want Page.Next of the previous page", store.ErrInvalid, text)
}

func (s *Store) listNode(ctx context.Context, i int, q store.Query) (page store.Page, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	defer cancel()
	n := s.nodes[i]
	err = n.call(ctx, func(ctx context.Context) (err error) {
		page, err = n.List(ctx, q)
		return err
	})
	return page, err
}

// lookupAll looks up the names that a node listed, and returns those that no node of the set before
// had already when the listing began.
func (s *Store) lookupAll(ctx context.Context, locks []store.Lock, began time.Time, before uint16) ([]store.Lock, error) {
	found := make([]store.Lock, len(locks))
	errs := make([]error, len(locks))
	turns := make(chan struct{}, lookups)
	var wg sync.WaitGroup
	for k, lock := range locks {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			lock, old, err := s.lookup(ctx, lock.Name, time.Since(began)-resolution)
			if err == nil && old&before == 0 {
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

// lookup asks all nodes about one name. Old are the nodes that have had it for at least that age, as a
// set of bits. The name of the lock is empty if it has neither holder nor waiters.
func (s *Store) lookup(ctx context.Context, name string, age time.Duration) (lock store.Lock, old uint16, err error) {
	pages := make([]store.Page, len(s.nodes))
	errs := make([]error, len(s.nodes))
	var wg sync.WaitGroup
	for i := range s.nodes {
		wg.Go(func() { pages[i], errs[i] = s.listNode(ctx, i, store.Query{Name: name}) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return lock, 0, ctx.Err()
	}
	silent := 0
	holders := make(map[store.ID][]store.Holder)
	waiters := make(map[store.ID]store.Waiter)
	for i := range pages {
		if errs[i] != nil {
			silent++
			continue
		}
		for _, l := range pages[i].Locks {
			for _, h := range l.Holders {
				holders[h.ID] = append(holders[h.ID], h)
				if h.Age >= age {
					old |= 1 << i
				}
			}
			for _, w := range l.Waiters {
				if other, ok := waiters[w.ID]; !ok || w.Age > other.Age {
					waiters[w.ID] = w
				}
				if w.Age >= age {
					old |= 1 << i
				}
			}
		}
	}
	if silent > len(s.nodes)-s.majority {
		return lock, 0, s.failures(errs)
	}
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
	return lock, old, nil
}
