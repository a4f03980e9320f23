package memstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// pageSize is the default number of names per page: one or two screens of text.
const pageSize = 100

// maxPage is the greatest number of names per page.
const maxPage = 10_000

// List returns one page of the names that have holders or waiters; see [store.Store]. Pages
// are sorted by name, and the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.usable(ctx); err != nil {
		return store.Page{}, err
	}
	names := []string{q.Name}
	var page store.Page
	if q.Name == "" {
		limit := min(q.Limit, maxPage)
		if limit <= 0 {
			limit = pageSize
		}
		names = s.table.namesAfter(q.Prefix, q.Cursor, limit)
		if len(names) > limit {
			names = names[:limit]
			page.Next = names[limit-1]
		}
	}
	for _, name := range names {
		err := s.with(ctx, name, func(e *entry, now int64) error {
			if e != nil && !e.empty() {
				page.Locks = append(page.Locks, e.list(now))
			}
			return nil
		})
		if err != nil {
			return store.Page{}, err
		}
	}
	return page, nil
}

// namesAfter returns the first limit+1 names, in order, that have the prefix, follow the
// cursor, and have holders or waiters.
func (t *table) namesAfter(prefix, cursor string, limit int) []string {
	var names []string
	full := false // if set, names greater than names[limit] can be ignored
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		now := t.now()
		for _, e := range sh.buckets {
			for ; e != nil; e = e.next {
				if e.name <= cursor || !strings.HasPrefix(e.name, prefix) || full && e.name > names[limit] {
					continue
				}
				if e.settle(now); e.empty() {
					continue // a sweep will remove it
				}
				names = append(names, e.name)
				// Sort rarely, and keep at most twice the names that are needed.
				if len(names) > 2*(limit+1) {
					slices.Sort(names)
					names, full = names[:limit+1], true
				}
			}
		}
		sh.mu.Unlock()
	}
	slices.Sort(names)
	return names[:min(len(names), limit+1)]
}

func (e *entry) list(now int64) store.Lock {
	l := store.Lock{Name: e.name, Holders: e.listHolders(0, now)}
	if e.first != nil {
		l.Limit = int(e.first.limit)
	}
	for w := e.queue.first; w != nil; w = w.next {
		l.Limit = max(l.Limit, int(w.limit))
		l.Waiters = append(l.Waiters, store.Waiter{
			ID: w.id, Owner: w.owner, Meta: w.meta,
			Mode: w.mode, Weight: int(w.weight),
			Age: time.Duration(now - w.joined),
		})
	}
	return l
}
