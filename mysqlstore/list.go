package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// pageSize is how many names List returns by default.
	pageSize = 100

	// maxPage is the maximum number of names on a page.
	maxPage = 10_000
)

// List returns one page of the names that have holders or waiters: see [store.Store]. Pages are
// sorted by name, and the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	if err := s.usable(ctx); err != nil {
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
	limit := min(q.Limit, maxPage)
	if limit <= 0 {
		limit = pageSize
	}
	where := "name = " + literal(q.Name)
	if q.Name == "" {
		where = fmt.Sprintf("name > %s AND name >= %s", literal(q.Cursor), literal(q.Prefix))
		if q.Prefix != "" {
			end := []byte(q.Prefix)
			end[len(end)-1]++ // no byte of UTF-8 is 255
			where += " AND name < " + literal(string(end))
		}
	}
	var entries []*entry
	var crowded []string
	err = c.query(ctx, fmt.Sprintf(s.sql.list, where, limit+1), func(rows *sql.Rows) error {
		e := new(entry)
		var g grantRow
		if err := rows.Scan(append([]any{&e.call.Now, &e.name, &e.special, &e.last}, g.dest()...)...); err != nil {
			return err
		}
		if first := g.grant(e.last); first.Until > e.call.Now {
			e.Holders = []*rules.Claim{first}
		}
		if e.special&hasClaims != 0 {
			crowded = append(crowded, e.name)
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		return page, err
	}
	if len(entries) > limit {
		entries = entries[:limit]
		page.Next = entries[limit-1].name
	}
	for names := range slices.Chunk(crowded, maxBatch) {
		if err := s.listClaims(ctx, c, names, entries); err != nil {
			return page, err
		}
	}
	for _, e := range entries {
		if l := e.Lock(e.name, e.call.Now, unit); l.Holders != nil || l.Waiters != nil {
			page.Locks = append(page.Locks, l)
		}
	}
	return page, nil
}

// listClaims adds the other holders and the waiters of crowded names to the entries of a page.
func (s *Store) listClaims(ctx context.Context, c *conn, crowded []string, entries []*entry) error {
	return c.query(ctx, fmt.Sprintf(s.sql.listAll, literals(crowded)), func(rows *sql.Rows) error {
		var name string
		var g grantRow
		if err := rows.Scan(append([]any{&name, &g.g.Seq, &g.g.Woken}, g.dest()...)...); err != nil {
			return err
		}
		c := g.grant(0)
		i := slices.IndexFunc(entries, func(e *entry) bool { return e.name == name })
		switch {
		case i < 0 || c.Seq == seqEnded: // a name of the next page, or a claim that has ended
		case c.Seq > 0:
			entries[i].Queue = append(entries[i].Queue, c)
		case entries[i].Holder(c.ID) == nil:
			entries[i].Holders = append(entries[i].Holders, c)
		}
		return nil
	})
}
