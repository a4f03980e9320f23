package zkstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-lock/holdfast/store"
)

// defaultPage is how many names a page has if nobody says.
const defaultPage = 100

// List reads who holds and who waits: see store.Store.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	return do(ctx, s, func() (store.Page, error) {
		if q.Name == "" {
			return s.listAll(ctx, &q)
		}
		var page store.Page
		parent, _ := s.place(q.Name)
		if err := s.catchUp(parent); err != nil {
			return page, err
		}
		lock, err := s.lock(parent, q.Name)
		if err == nil && lock != nil {
			page.Locks = append(page.Locks, *lock)
		}
		return page, err
	})
}

// listAll reads bucket by bucket, in each by name. The cursor is the last node read, with its
// bucket.
func (s *Store) listAll(ctx context.Context, q *store.Query) (page store.Page, err error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	if err := s.catchUp(s.root); err != nil {
		return page, err
	}
	list, err := s.children(s.root)
	if err != nil {
		return page, err
	}
	atBucket, atNode, _ := strings.Cut(q.Cursor, "/")
	for _, bucket := range list {
		if len(bucket) != 2 || bucket < atBucket {
			continue
		}
		nodes, err := s.children(s.root + "/" + bucket)
		if err != nil {
			return page, err
		}
		for _, node := range nodes {
			if bucket == atBucket && node <= atNode {
				continue
			}
			name, ok := decode(node)
			if !ok || !strings.HasPrefix(name, q.Prefix) {
				continue
			}
			if len(page.Locks) >= limit {
				return page, nil
			}
			if err := ctx.Err(); err != nil {
				return page, err
			}
			lock, err := s.lock(s.root+"/"+bucket+"/"+node, name)
			if err != nil {
				return page, err
			}
			if lock != nil {
				page.Locks = append(page.Locks, *lock)
				page.Next = bucket + "/" + node
			}
		}
	}
	page.Next = ""
	return page, nil
}

func (s *Store) children(path string) ([]string, error) {
	list, _, err := s.conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	slices.Sort(list)
	return list, err
}

// lock reads one name. It is nil if nobody uses it; what is left of it is removed then.
func (s *Store) lock(parent, name string) (*store.Lock, error) {
	q, err := s.lookAt(parent)
	if err != nil || q == nil {
		return nil, err
	}
	if len(q.nodes) == 0 {
		s.conn.Delete(parent, -1) // fails if somebody comes
		return nil, nil
	}
	n, holders, _, err := s.holders(q, 0)
	if err != nil {
		return nil, err
	}
	lock := &store.Lock{Name: name, Holders: holders}
	now, err := s.now()
	if err != nil {
		return nil, err
	}
	for i := range q.nodes {
		if q.nodes[i].mode == store.Permits {
			lock.Limit = q.nodes[i].limit
		}
	}
	for i := n; i < len(q.nodes); i++ {
		rec, stat, err := s.read(q, &q.nodes[i])
		if err != nil {
			return nil, err
		}
		if rec == nil || rec.granted {
			continue
		}
		lock.Waiters = append(lock.Waiters, store.Waiter{
			ID: rec.id, Owner: rec.owner, Meta: rec.meta, Mode: rec.mode, Weight: rec.weight,
			Age: time.Duration(max(0, now-stat.Ctime)) * time.Millisecond,
		})
	}
	if len(lock.Holders)+len(lock.Waiters) == 0 {
		return nil, nil
	}
	return lock, nil
}
