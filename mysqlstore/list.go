package mysqlstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// List returns one page of the names that have holders or waiters, sorted by name: see [store.Store].
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	if err := s.life.Usable(ctx); err != nil {
		return page, err
	}
	err = s.takes.use(ctx, func(ctx context.Context, c *conn) error {
		page, err = s.page(ctx, c, q)
		return err
	})
	if err != nil {
		return store.Page{}, s.explain(ctx, err)
	}
	return page, nil
}

func (s *Store) page(ctx context.Context, c *conn, q store.Query) (page store.Page, err error) {
	limit := rules.PageSize(q)
	where := "name = " + literal(q.Name)
	if q.Name == "" {
		where = fmt.Sprintf("name > %s AND name >= %s AND name < %s", literal(q.Cursor), literal(q.Prefix), literal(rules.PrefixEnd(q.Prefix)))
	}
	tx := &transaction{s: s, c: c, entries: make(map[string]*entry)}
	if err := tx.load(ctx, fmt.Sprintf(s.sql.list, where, limit+1)); err != nil {
		return page, err
	}
	names := slices.Sorted(maps.Keys(tx.entries))
	if len(names) > limit {
		delete(tx.entries, names[limit])
		names = names[:limit]
		page.Next = names[limit-1]
	}
	if err := tx.loadClaims(ctx); err != nil {
		return page, err
	}
	for _, name := range names {
		e := tx.entries[name]
		if l := e.Lock(name, e.call.Now, unit); l.Holders != nil || l.Waiters != nil {
			page.Locks = append(page.Locks, l)
		}
	}
	return page, nil
}
