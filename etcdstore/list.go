package etcdstore

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// pageSize is how many names List returns by default.
	pageSize = 100

	// maxPage bounds a page.
	maxPage = 10_000
)

// List returns one page of the names that have holders or waiters: see [store.Store]. Pages are
// sorted by name, and the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Leave()
	page, err := s.list(ctx, q)
	return page, s.explain(ctx, err)
}

func (s *Store) list(ctx context.Context, q store.Query) (page store.Page, err error) {
	if q.Name != "" {
		names, _, err := s.names(ctx, s.keys.name(q.Name), s.keys.behind(q.Name), maxPage)
		if err != nil {
			return page, err
		}
		return page, s.describe(ctx, &page, names)
	}
	limit := min(q.Limit, maxPage)
	if limit <= 0 {
		limit = pageSize
	}
	start, end := s.keys.locks+q.Prefix, after(s.keys.locks+q.Prefix)
	if q.Cursor != "" {
		start = max(start, s.keys.behind(q.Cursor))
	}
	names, more, err := s.names(ctx, start, end, limit)
	if err != nil {
		return page, err
	}
	if more {
		page.Next = names[len(names)-1].name
	}
	return page, s.describe(ctx, &page, names)
}

// after returns the least key that is greater than all keys with a prefix.
func after(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return string(end[:i+1])
		}
	}
	return "\x00" // to the end
}

type named struct {
	name    string
	holders []record
	waiters []record
}

func (n *named) add(r record) {
	if r.kind == kindWaiting {
		n.waiters = append(n.waiters, r)
	} else {
		n.holders = append(n.holders, r)
	}
}

// names reads names with all of their records, and reports whether there are more names.
func (s *Store) names(ctx context.Context, start, end string, limit int) (names []named, more bool, err error) {
	for {
		resp, err := call(s, ctx, s.kv.Range, &pb.RangeRequest{Key: []byte(start), RangeEnd: []byte(end), Limit: int64(2*limit + 1)})
		if err != nil {
			return nil, false, err
		}
		for _, kv := range resp.Kvs {
			r, err := s.keys.parseRecord(kv)
			if err != nil {
				return nil, false, err
			}
			if n := len(names); n == 0 || names[n-1].name != r.name {
				if n == limit {
					return names, true, nil
				}
				names = append(names, named{name: r.name})
			}
			names[len(names)-1].add(r)
		}
		if !resp.More {
			return names, false, nil
		}
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// describe adds names to a page.
func (s *Store) describe(ctx context.Context, page *store.Page, names []named) error {
	left, err := s.allLeft(ctx, names)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, n := range names {
		sortByArrival(n.holders)
		sortByArrival(n.waiters)
		l := store.Lock{Name: n.name}
		for i := range n.holders {
			h := &n.holders[i]
			l.Limit = max(l.Limit, h.Limit)
			l.Holders = append(l.Holders, h.holder(now, left[h.lease]))
		}
		for i := range n.waiters {
			w := &n.waiters[i]
			l.Limit = max(l.Limit, w.Limit)
			l.Waiters = append(l.Waiters, store.Waiter{
				ID: w.ID, Owner: w.Owner, Meta: w.Meta, Mode: w.Mode, Weight: w.Weight, Age: w.age(now),
			})
		}
		if len(l.Holders)+len(l.Waiters) > 0 {
			page.Locks = append(page.Locks, l)
		}
	}
	return nil
}

// allLeft reads the remaining time of the lease of each holder.
func (s *Store) allLeft(ctx context.Context, names []named) (map[int64]time.Duration, error) {
	var ids []int64
	for _, n := range names {
		for i := range n.holders {
			ids = append(ids, n.holders[i].lease)
		}
	}
	var mu sync.Mutex
	var failure error
	left := make(map[int64]time.Duration, len(ids))
	inParallel(len(ids), func(i int) {
		id := ids[i]
		d, err := s.leftOf(ctx, id)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failure = err
		}
		left[id] = d
	})
	return left, failure
}
