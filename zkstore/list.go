package zkstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
	"github.com/holdfast-lock/holdfast/zkstore/internal/wire"
)

const defaultPage = 100 // names, if the query gives no limit

// List returns a page of the names in use; see [store.Store]. It needs many requests and only reads, so it
// starts again if the connection is lost meanwhile.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	for again := true; again; again = err == wire.ErrUnknown && ctx.Err() == nil {
		if page = (store.Page{}); q.Name != "" {
			parent, _ := s.place(q.Name)
			err = s.listName(ctx, parent, q.Name, &page)
		} else {
			page, err = s.listAll(ctx, &q)
		}
	}
	return page, s.explain(err)
}

// listAll lists the buckets in order, and the names of a bucket in the order of their nodes. The
// cursor is the last node that was read, with its bucket.
func (s *Store) listAll(ctx context.Context, q *store.Query) (page store.Page, err error) {
	limit := cmp.Or(max(q.Limit, 0), defaultPage)
	list, err := s.children(ctx, s.root)
	if err != nil {
		return page, err
	}
	atBucket, atNode, _ := strings.Cut(q.Cursor, "/")
	for _, bucket := range list {
		if len(bucket) != 2 || bucket < atBucket {
			continue
		}
		nodes, err := s.children(ctx, s.root+"/"+bucket)
		if err != nil {
			return page, err
		}
		for _, node := range nodes {
			name, ok := decode(node)
			if !ok || !strings.HasPrefix(name, q.Prefix) || bucket == atBucket && node <= atNode {
				continue
			}
			if len(page.Locks) >= limit {
				return page, nil
			}
			page.Next = bucket + "/" + node
			if err := s.listName(ctx, s.root+"/"+page.Next, name, &page); err != nil {
				return page, err
			}
		}
	}
	page.Next = ""
	return page, nil
}

// children returns the sorted children of a node, after the server has caught up.
func (s *Store) children(ctx context.Context, path string) ([]string, error) {
	list := &wire.Call{Op: wire.Children(path, false)}
	if err := s.wire.Do(ctx, &wire.Call{Op: wire.Sync(path)}, list); err != nil {
		return nil, ignoreNoNode(err) // after the end of ctx the call may still be in flight
	}
	slices.Sort(list.Children)
	return list.Children, nil
}

// listName adds one name to a page. It removes the parent of a name that is not in use.
//
// The nodes are read after their list. If one of them is gone and the name has no holder, the
// list is outdated, and a new request may hold the name by now. So everything is read again.
func (s *Store) listName(ctx context.Context, parent, name string, page *store.Page) error {
	return again(func() error {
		q, err := s.look(ctx, parent, &wire.Call{Op: wire.Sync(parent)})
		if err != nil || q == nil {
			return err
		}
		if q.unknown != nil {
			return q.unknown
		}
		if len(q.nodes) == 0 {
			s.wire.Send(&wire.Call{Op: wire.Delete(parent, wire.AnyVersion)}) // refused if it is in use
			return nil
		}
		recs, err := s.read(ctx, q, q.nodes...)
		if err != nil {
			return err
		}
		recs = slices.DeleteFunc(recs, func(r standing) bool { return r.record == nil })
		held := slices.ContainsFunc(recs, func(r standing) bool { return r.granted })
		if len(recs) < len(q.nodes) && !held {
			return errChanged
		}
		now, err := s.now(ctx)
		if err != nil {
			return err
		}
		lock := store.Lock{Name: name}
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
		if len(recs) > 0 {
			page.Locks = append(page.Locks, lock)
		}
		return nil
	})
}
