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

	"github.com/holdfast-lock/holdfast/store"
)

// lookups is how many names of a listing are looked up at the same time.
const lookups = 16

// List returns one page of the names that have holders or waiters; see [store.Store]. A holder
// is listed if it may have a majority: if nodes that have it and nodes that do not answer are one
// together.
//
// It lists the names of one node after the other, looks up each at all nodes, and returns it with
// the names of the first node in the order of the name that has it. If nodes could not be listed,
// the others are listed once more, for the names that were left out.
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
	at, skipped, cursor, err := parseCursor(q.Cursor)
	if err != nil {
		return store.Page{}, err
	}
	errs := make([]error, len(s.nodes))
	for ; at < len(s.nodes) || at < 2*len(s.nodes) && skipped != 0; at, cursor = at+1, "" {
		node := at % len(s.nodes)
		if at >= len(s.nodes) && skipped&(1<<node) != 0 {
			continue
		}
		nq := q
		nq.Cursor = cursor
		page, err := s.listNode(ctx, node, nq)
		if err != nil {
			if ctx.Err() != nil {
				return store.Page{}, ctx.Err()
			}
			// A name that has a majority of the nodes is found as long as a minority is left out.
			errs[node] = err
			if skipped |= 1 << node; bits.OnesCount16(skipped) > len(s.nodes)-s.majority {
				return store.Page{}, s.failures(errs)
			}
			continue
		}
		out := store.Page{Next: fmt.Sprintf("%d:%d:%s", at, skipped, page.Next)}
		if page.Next == "" {
			out.Next = fmt.Sprintf("%d:%d:", at+1, skipped)
		}
		if at == len(s.nodes)-1 && skipped == 0 && page.Next == "" {
			out.Next = ""
		}
		out.Locks, err = s.lookupAll(ctx, page.Locks, func(name string, known uint16) bool {
			if at < len(s.nodes) {
				return s.firstOf(name, known) == node
			}
			return skipped&(1<<s.firstOf(name, known)) != 0 && s.firstOf(name, known&^skipped) == node
		})
		return out, err
	}
	return store.Page{}, nil
}

// parseCursor returns the node that is listed, the nodes that were left out before as a set of bits,
// and the cursor of the node.
func parseCursor(cursor string) (node int, skipped uint16, rest string, err error) {
	if cursor == "" {
		return 0, 0, "", nil
	}
	parts := strings.SplitN(cursor, ":", 3)
	if len(parts) == 3 {
		at, err1 := strconv.ParseUint(parts[0], 10, 8)
		set, err2 := strconv.ParseUint(parts[1], 10, 16)
		if err1 == nil && err2 == nil {
			return int(at), uint16(set), parts[2], nil
		}
	}
	return 0, 0, "", fmt.Errorf("%w: cursor %.40q: want Page.Next of the previous page", store.ErrInvalid, cursor)
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

// firstOf returns the first node of a set in the order of a name, or -1.
func (s *Store) firstOf(name string, set uint16) int {
	for i := range s.nodes {
		if n := s.order(name, i); set&(1<<n) != 0 {
			return n
		}
	}
	return -1
}

// lookupAll looks up the names that a node listed, and returns those that wanted selects by their
// name and the nodes that know it.
func (s *Store) lookupAll(ctx context.Context, locks []store.Lock, wanted func(name string, known uint16) bool) ([]store.Lock, error) {
	found := make([]store.Lock, len(locks))
	errs := make([]error, len(locks))
	turns := make(chan struct{}, lookups)
	var wg sync.WaitGroup
	for k, lock := range locks {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			lock, known, err := s.lookup(ctx, lock.Name)
			if err == nil && known != 0 && wanted(lock.Name, known) {
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

// lookup asks all nodes about one name. Known are the nodes that know it, as a set of bits. The name
// of the lock is empty if it has neither holder nor waiters.
func (s *Store) lookup(ctx context.Context, name string) (lock store.Lock, known uint16, err error) {
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
			known |= 1 << i
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
	slices.SortFunc(lock.Waiters, func(a, b store.Waiter) int { return cmp.Compare(b.Age, a.Age) })
	if len(lock.Holders)+len(lock.Waiters) > 0 {
		lock.Name = name
	}
	return lock, known, nil
}
