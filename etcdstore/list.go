package etcdstore

import (
	"context"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	pageSize = 100    // how many names List returns by default
	maxPage  = 10_000 // and at most
)

// List returns one page of the names that have holders or waiters: see [store.Store]. Pages are
// sorted by name, and the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Exit()
	page, err := s.list(ctx, q)
	return page, s.explain(ctx, err)
}

func (s *Store) list(ctx context.Context, q store.Query) (page store.Page, err error) {
	start, end, limit := s.keys.locks+q.Prefix, clientv3.GetPrefixRangeEnd(s.keys.locks+q.Prefix), min(q.Limit, maxPage)
	if limit <= 0 {
		limit = pageSize
	}
	if q.Cursor != "" {
		start = max(start, s.keys.behind(q.Cursor))
	}
	if q.Name != "" {
		start, end, limit = s.keys.name(q.Name), s.keys.behind(q.Name), maxPage
	}
	names, more, err := s.names(ctx, start, end, limit)
	if err != nil {
		return page, err
	}
	if more {
		page.Next = names[len(names)-1][0].name
	}
	left, err := s.allLeft(ctx, slices.Concat(names...))
	if err != nil {
		return page, err
	}
	now := time.Now()
	for _, records := range names {
		l := store.Lock{Name: records[0].name}
		sortByArrival(records)
		for i := range records {
			r := &records[i]
			l.Limit = max(l.Limit, r.Limit)
			if r.kind != kindWaiting {
				l.Holders = append(l.Holders, r.holder(now, left[r.lease]))
				continue
			}
			l.Waiters = append(l.Waiters, store.Waiter{
				ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Age: r.age(now),
			})
		}
		page.Locks = append(page.Locks, l)
	}
	return page, nil
}

// names reads the records of some names, and reports whether there are more names.
func (s *Store) names(ctx context.Context, start, end string, limit int) (names [][]record, more bool, err error) {
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
			n := len(names)
			if n > 0 && names[n-1][0].name == r.name {
				names[n-1] = append(names[n-1], r)
				continue
			}
			if n == limit {
				return names, true, nil
			}
			names = append(names, []record{r})
		}
		if !resp.More {
			return names, false, nil
		}
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// allLeft reads the remaining time of the lease of each holder.
func (s *Store) allLeft(ctx context.Context, records []record) (map[int64]time.Duration, error) {
	records = slices.DeleteFunc(records, func(r record) bool { return r.kind == kindWaiting })
	var mu sync.Mutex
	var failure error
	left := make(map[int64]time.Duration, len(records))
	inParallel(len(records), func(i int) {
		d, err := s.leftOf(ctx, records[i].lease)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failure = err
		}
		left[records[i].lease] = d
	})
	return left, failure
}
