package memstore

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// listPart is how many names List looks at while other calls wait for it.
const listPart = 1000

// List returns one page of the names that have holders or waiters; see [store.Store]. Pages
// are sorted by name, and the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.usable(ctx); err != nil {
		return store.Page{}, err
	}
	limit := rules.PageSize(q)
	names := []string{q.Name}
	if q.Name == "" {
		names = s.table.namesAfter(q.Prefix, q.Cursor)
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

// namesAfter returns the names, in order, that have the prefix, follow the cursor, and have holders
// or waiters.
//
// Other calls can be made between two parts of the list. An entry that is removed meanwhile makes
// room for the last one, so going backwards misses none, and may see one twice.
func (t *table) namesAfter(prefix, cursor string) []string {
	var names []string
	t.mu.Lock()
	for end := len(t.list); end > 0; end -= listPart {
		now := t.now()
		for _, e := range t.list[min(max(0, end-listPart), len(t.list)):min(end, len(t.list))] {
			if e.name > cursor && strings.HasPrefix(e.name, prefix) && e.has(func(c *rules.Claim) bool { return c.Until > now }) {
				names = append(names, e.name)
			}
		}
		t.mu.Unlock()
		t.mu.Lock()
	}
	t.mu.Unlock()
	slices.Sort(names)
	return slices.Compact(names)
}
