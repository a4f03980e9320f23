package zkstore

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const defaultPage = 100 // names, if the query gives no limit; no more are listed at once

// List returns a page of the names in use; see [store.Store]. It needs many requests and only reads, so it
// starts again if the connection is lost meanwhile.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	for again := true; again; again = err == wire.ErrUnknown && ctx.Err() == nil {
		if page = (store.Page{}); q.Name != "" {
			parent, _ := s.place(q.Name)
			err = s.listName(ctx, parent, &page)
		} else {
			page, err = s.listAll(ctx, &q)
		}
	}
	return page, s.explain(err)
}

// listAll lists the buckets in order, and the names of a bucket in the order of their nodes. The
// cursor is the last node that was read, with its bucket.
//
// Because a round trip may take long, names are listed in parallel, and buckets are read together: at first
// one, because it may have more names than a page, and then twice as many each time.
func (s *Store) listAll(ctx context.Context, q *store.Query) (page store.Page, err error) {
	page.Next = q.Cursor
	limit, last := cmp.Or(max(q.Limit, 0), defaultPage), s.root+"/"+q.Cursor
	buckets, err := s.children(ctx, s.root)
	buckets = slices.DeleteFunc(buckets, func(bucket string) bool {
		return len(bucket) != len(s.root)+len("/1f") || bucket < last && !strings.HasPrefix(last, bucket)
	})
	var nodes []string
	for n := 1; err == nil && len(nodes) <= limit && len(buckets) > 0; n *= 2 {
		n = min(n, len(buckets))
		var more []string
		more, err = s.children(ctx, buckets[:n]...)
		buckets = buckets[n:]
		nodes = append(nodes, slices.DeleteFunc(more, func(node string) bool {
			name, ok := decode(path.Base(node))
			return !ok || !strings.HasPrefix(name, q.Prefix) || node <= last
		})...)
	}
	if err != nil {
		return page, err
	}
	for some := range slices.Chunk(nodes[:min(limit, len(nodes))], defaultPage) {
		_, _ = s.now(ctx) // so that not every name asks for it
		pages, errs := make([]store.Page, len(some)), make([]error, len(some))
		var all sync.WaitGroup
		for i, node := range some {
			all.Go(func() { errs[i] = s.listName(ctx, node, &pages[i]) })
		}
		all.Wait()
		for i, node := range some {
			if page.Next = node[len(s.root)+1:]; errs[i] != nil {
				return page, errs[i]
			}
			page.Locks = append(page.Locks, pages[i].Locks...)
		}
	}
	if len(nodes) <= limit {
		page.Next = ""
	}
	return page, nil
}

// children returns the sorted paths of the children of nodes, after the server has caught up.
func (s *Store) children(ctx context.Context, parents ...string) (list []string, err error) {
	calls := []*wire.Call{{Op: wire.Sync(s.root)}}
	for _, parent := range parents {
		calls = append(calls, &wire.Call{Op: wire.Children(parent, false)})
	}
	if err := s.wire.Do(ctx, calls...); ignoreNoNode(err) != nil {
		return nil, err // after the end of ctx the calls may still be in flight
	}
	for i, parent := range parents {
		err = cmp.Or(err, ignoreNoNode(calls[i+1].Err))
		for _, child := range calls[i+1].Children {
			list = append(list, parent+"/"+child)
		}
	}
	slices.Sort(list)
	return list, err
}

// listName adds one name to a page.
//
// The nodes are read after their list. If one of them is gone and the name has no holder, the
// list is outdated, and a new request may hold the name by now. So everything is read again.
func (s *Store) listName(ctx context.Context, parent string, page *store.Page) error {
	return again(func() error {
		q, err := s.look(ctx, parent, &wire.Call{Op: wire.Sync(parent)})
		if err = cmp.Or(err, q.unknown); err != nil || len(q.nodes) == 0 {
			return err
		}
		recs, err := s.read(ctx, q, q.nodes...)
		if err != nil {
			return err
		}
		recs = slices.DeleteFunc(recs, func(r standing) bool { return r.record == nil })
		if len(recs) < len(q.nodes) && !slices.ContainsFunc(recs, func(r standing) bool { return r.granted }) {
			return errChanged
		}
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		var lock store.Lock
		lock.Name, _ = decode(path.Base(parent))
		for _, r := range recs {
			if r.Mode == store.Permits {
				lock.Limit = r.Limit
			}
			if r.granted {
				lock.Holders = append(lock.Holders, r.holder(now))
				continue
			}
			lock.Waiters = append(lock.Waiters, store.Waiter{
				ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight,
				Age: time.Duration(max(0, now-r.stat.Ctime)) * time.Millisecond,
			})
		}
		page.Locks = append(page.Locks, lock)
		return nil
	})
}
