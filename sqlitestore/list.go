package sqlitestore

import (
	"context"
	"database/sql/driver"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// List returns one page of the names that have holders or waiters, sorted by name; see [store.Store]. It uses
// its own connection, so that no other call waits for it.
func (s *Store) List(ctx context.Context, q store.Query) (page store.Page, err error) {
	err = s.reading(ctx, func() error {
		if err := s.file.check(); err != nil {
			return err
		}
		defer s.read.exec("ROLLBACK") // nothing was written
		if _, err := s.read.exec("BEGIN"); err != nil {
			return err
		}
		err := s.retry(ctx, func() error { // begins one snapshot for the whole page
			_, err := s.read.get("SELECT one FROM meta")
			return err
		})
		if err == nil {
			page, err = s.page(ctx, q)
		}
		return s.checkTables(s.read, err)
	})
	if err != nil {
		return store.Page{}, s.explain(err)
	}
	return page, nil
}

// reading calls f while this goroutine has the connection for listings, and opens it if necessary.
func (s *Store) reading(ctx context.Context, f func() error) (err error) {
	select {
	case s.readTurn <- struct{}{}:
		defer func() { <-s.readTurn }()
	case <-ctx.Done():
	case <-s.life.Closing.Done():
	}
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	if s.read == nil {
		if s.read, err = dial(dataSource(s.file.path)); err != nil {
			return err
		}
	}
	return f()
}

// page reads one page within a transaction.
func (s *Store) page(ctx context.Context, q store.Query) (page store.Page, err error) {
	limit := rules.PageSize(q)
	query, args := sqlListOne, []driver.Value{q.Name}
	if q.Name == "" {
		query, args = sqlList, []driver.Value{q.Cursor, q.Prefix, rules.PrefixEnd(q.Prefix), int64(limit) + 1}
	}
	now := s.clock.now()
	last, n := "", 0
	err = s.read.each(func(row []driver.Value) error {
		if n++; n > limit {
			page.Next = last
			return nil
		}
		last = text(row[0])
		var claims rules.Loaded
		if row[2] != nil {
			if g := grantOf(row[2:]); g.Until > now {
				claims.Holders = []*rules.Claim{&g.Claim}
			}
		}
		if integer(row[1]) != 0 {
			if err := s.readCrowd(ctx, &claims, last, now); err != nil {
				return err
			}
		}
		if !claims.Empty() {
			page.Locks = append(page.Locks, claims.Lock(last, now, unit))
		}
		return nil
	}, query, args...)
	return page, err
}

// readCrowd reads the other holders, and the waiters, of a name.
func (s *Store) readCrowd(ctx context.Context, claims *rules.Loaded, name string, now int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.read.each(func(row []driver.Value) error {
		claims.Holders = append(claims.Holders, &grantOf(row).Claim)
		return nil
	}, sqlOldestHolders, name, now, int64(-1))
	if err != nil {
		return err
	}
	return s.read.each(func(row []driver.Value) error {
		w := waiterOf(row)
		w.Since, w.Owner, w.Meta = integer(row[6]), text(row[7]), text(row[8])
		claims.Queue = append(claims.Queue, w)
		return nil
	}, sqlAllWaiters, name, now)
}
