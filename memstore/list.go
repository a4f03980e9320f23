package memstore

import (
	"context"
	"slices"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// List returns one page of the names that have holders or waiters; see [store.Store]. Pages
// are sorted by name, and the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.usable(ctx); err != nil {
		return store.Page{}, err
	}
	limit := rules.PageSize(q)
	names := []string{q.Name}
	if q.Name == "" {
		names = s.table.namesAfter(q.Prefix, q.Cursor, limit+1)
	}
	var page store.Page
	if len(names) > limit {
		names = names[:limit]
		page.Next = names[limit-1]
	}
	for _, name := range names {
		s.table.call(name, func(c *rules.Call) error {
			if e := c.Name.(*entry); !e.Empty() {
				page.Locks = append(page.Locks, e.Lock(name, c.Now, c.Unit))
			}
			return nil
		})
	}
	return page, nil
}

// namesAfter returns the first n names, in order, that have the prefix, follow the cursor, and have
// holders or waiters. It sorts the names in parts, and skips those that cannot be among the first n.
func (t *table) namesAfter(prefix, cursor string, n int) []string {
	var names []string
	end := rules.PrefixEnd(prefix)
	first := func() {
		slices.Sort(names)
		if len(names) > n {
			names, end = names[:n], names[n]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, e := range t.list {
		if e.name > cursor && e.name >= prefix && e.name < end && e.has(func(c *rules.Claim) bool { return c.Until > now }) {
			if names = append(names, e.name); len(names) > 2*n {
				first()
			}
		}
	}
	first()
	return names
}
