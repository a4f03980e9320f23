package quorum

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-lock/holdfast/store"
)

// lookups is how many names of a listing are looked up at the same time.
const lookups = 16

// List returns one page of the names that have holders or waiters; see [store.Store]. A holder
// is listed if it may have a majority: if nodes that have it and nodes that do not answer are one
// together.
//
// It lists the names of one node after the other, looks up each at all nodes, and returns it with
// the names of the first node in the order of the name that has it.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if !s.caps.Features.Has(store.FeatureList) {
		return store.Page{}, fmt.Errorf("%w: not all nodes can list locks", store.ErrUnsupported)
	}
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Leave()
	if q.Name != "" {
		lock, _, err := s.lookup(ctx, q.Name)
		if err != nil || lock.Name == "" {
			return store.Page{}, err
		}
		return store.Page{Locks: []store.Lock{lock}}, nil
	}
	at, cursor, err := parseCursor(q.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	// A node that does not answer is left out. So many may fail before a name is missed.
	spare := len(s.nodes) - s.majority
	errs := make([]error, len(s.nodes))
	for ; at < len(s.nodes); at, cursor = at+1, "" {
		nq := q
		nq.Cursor = cursor
		page, err := s.listNode(ctx, at, nq)
		if err != nil {
			if ctx.Err() != nil {
				return store.Page{}, ctx.Err()
			}
			errs[at] = err
			if spare--; spare < 0 {
				return store.Page{}, s.failures(errs)
			}
			continue
		}
		out := store.Page{}
		if out.Locks, err = s.lookupAll(ctx, at, page.Locks); err != nil {
			return store.Page{}, err
		}
		switch {
		case page.Next != "":
			out.Next = strconv.Itoa(at) + ":" + page.Next
		case at < len(s.nodes)-1:
			out.Next = strconv.Itoa(at+1) + ":"
		}
		return out, nil
	}
	return store.Page{}, nil
}

func parseCursor(cursor string) (node int, rest string, err error) {
	if cursor == "" {
		return 0, "", nil
	}
	head, rest, ok := strings.Cut(cursor, ":")
	node, err = strconv.Atoi(head)
	if !ok || err != nil || node < 0 {
		return 0, "", fmt.Errorf("%w: cursor %.40q: want Page.Next of the previous page", store.ErrInvalid, cursor)
	}
	return node, rest, nil
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

// lookupAll looks up the names that a node listed, without those that belong to another node.
func (s *Store) lookupAll(ctx context.Context, at int, locks []store.Lock) ([]store.Lock, error) {
	found := make([]store.Lock, len(locks))
	errs := make([]error, len(locks))
	turns := make(chan struct{}, lookups)
	var wg sync.WaitGroup
	for k, lock := range locks {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			lock, first, err := s.lookup(ctx, lock.Name)
			if err == nil && first == at {
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

// lookup asks all nodes about one name. First is the first node that knows it, in the order of the
// name. The name of the lock is empty if it has neither holder nor waiters.
func (s *Store) lookup(ctx context.Context, name string) (lock store.Lock, first int, err error) {
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
	first = -1
	holders := make(map[store.ID][]store.Holder)
	waiters := make(map[store.ID]store.Waiter)
	for k := range pages {
		i := s.order(name, k)
		if errs[i] != nil {
			silent++
			continue
		}
		for _, l := range pages[i].Locks {
			if first < 0 {
				first = i
			}
			for _, h := range l.Holders {
				holders[h.ID] = append(holders[h.ID], h)
			}
			for _, w := range l.Waiters {
				if old, ok := waiters[w.ID]; !ok || w.Age > old.Age {
					waiters[w.ID] = w
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
	slices.SortFunc(lock.Waiters, func(a, b store.Waiter) int { return int(b.Age - a.Age) })
	if len(lock.Holders)+len(lock.Waiters) > 0 {
		lock.Name = name
	}
	return lock, first, nil
}
