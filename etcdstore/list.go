package etcdstore

import (
	"cmp"
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	pageSize = 100    // how many names List returns by default
	maxPage  = 10_000 // and at most
)

// List returns one page of the names that have holders or waiters, sorted by name: see [store.Store].
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.life.EnterCall(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Exit()
	page, err := s.list(ctx, q)
	return page, s.explain(ctx, err)
}

func (s *Store) list(ctx context.Context, q store.Query) (page store.Page, err error) {
	start, end := s.keys.locks+q.Prefix, clientv3.GetPrefixRangeEnd(s.keys.locks+q.Prefix)
	limit := cmp.Or(min(max(q.Limit, 0), maxPage), pageSize)
	if q.Cursor != "" {
		start = max(start, s.keys.behind(q.Cursor))
	}
	if q.Name != "" {
		start, end, limit = s.keys.name(q.Name), s.keys.behind(q.Name), maxPage
	}
	records, more, err := s.records(ctx, start, end, limit)
	if err != nil {
		return page, err
	}
	errs := make([]error, len(records))
	inParallel(len(records), func(i int) {
		if r := &records[i]; r.kind != kindWaiting {
			r.left, errs[i] = s.leftOf(ctx, r.lease)
		}
	})
	if err := cmp.Or(errs...); err != nil {
		return page, err
	}
	sortByArrival(records)
	now := time.Now()
	for i, r := range records {
		if i == 0 || r.name != records[i-1].name {
			page.Locks = append(page.Locks, store.Lock{Name: r.name})
		}
		l := &page.Locks[len(page.Locks)-1]
		l.Limit = max(l.Limit, r.Limit)
		if r.kind != kindWaiting {
			l.Holders = append(l.Holders, r.holder(now, r.left))
			continue
		}
		l.Waiters = append(l.Waiters, store.Waiter{
			ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Age: r.age(now),
		})
	}
	if more {
		page.Next = records[len(records)-1].name
	}
	return page, nil
}

// records reads the records of some names, and reports whether there are more names.
func (s *Store) records(ctx context.Context, start, end string, limit int) (list []record, more bool, err error) {
	for names := 0; ; {
		resp, err := call(s, ctx, s.kv.Range, &pb.RangeRequest{Key: []byte(start), RangeEnd: []byte(end), Limit: int64(2*limit + 1)})
		if err != nil {
			return nil, false, err
		}
		for _, kv := range resp.Kvs {
			r, err := s.keys.parseRecord(kv)
			if err != nil {
				return nil, false, err
			}
			if len(list) == 0 || list[len(list)-1].name != r.name {
				if names == limit {
					return list, true, nil
				}
				names++
			}
			list = append(list, r)
		}
		if !resp.More {
			return list, false, nil
		}
		start = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
