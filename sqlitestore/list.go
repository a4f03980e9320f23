package sqlitestore

import (
	"cmp"
	"context"
	"database/sql/driver"
	"slices"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// List returns one page of the names that have holders or waiters; see [store.Store]. Pages
// are sorted by name, and the cursor is the last name of the previous page. List uses its own
// connection, so that no other call waits for it.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	page, err := s.list(ctx, q)
	if err != nil {
		return store.Page{}, s.explain(err)
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, q store.Query) (page store.Page, err error) {
	if err := s.takeReader(ctx); err != nil {
		return page, err
	}
	defer func() { <-s.readTurn }()
	if err := s.file.check(); err != nil {
		return page, err
	}
	begin := func() error { // one snapshot for the whole page
		_, err := s.read.exec("BEGIN")
		if err == nil {
			_, err = s.read.get("SELECT one FROM meta")
		}
		if err != nil {
			s.read.exec("ROLLBACK")
		}
		return err
	}
	if err := s.retry(ctx, begin); err != nil {
		return page, s.checkTables(s.read, err)
	}
	defer s.read.exec("ROLLBACK") // nothing was written
	page, err = s.page(ctx, q)
	return page, s.checkTables(s.read, err)
}

// takeReader takes the turn to use the connection for listings, and opens it if necessary. The caller
// gives the turn back.
func (s *Store) takeReader(ctx context.Context) (err error) {
	if err := s.usable(ctx); err != nil {
		return err
	}
	select {
	case s.readTurn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Closing.Done():
		return errClosed
	}
	if err = s.usable(ctx); err == nil && s.read == nil {
		s.read, err = dial(s.dsn)
	}
	if err != nil {
		<-s.readTurn
	}
	return err
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
	var crowded []int // indexes into page.Locks
	err = s.read.each(func(row []driver.Value) error {
		if n++; n > limit {
			page.Next = last
			return nil
		}
		last = text(row[0])
		l := store.Lock{Name: last}
		if row[2] != nil {
			if g := grantOf(row[2:]); g.Until > now {
				l.Holders, l.Limit = []store.Holder{g.Holder(now, unit)}, g.Limit
			}
		}
		crowd := integer(row[1]) != 0
		if crowd {
			crowded = append(crowded, len(page.Locks))
		}
		if crowd || l.Holders != nil {
			page.Locks = append(page.Locks, l)
		}
		return nil
	}, query, args...)
	for _, i := range crowded {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = s.listCrowd(&page.Locks[i], now)
		}
	}
	page.Locks = slices.DeleteFunc(page.Locks, func(l store.Lock) bool { return l.Holders == nil && l.Waiters == nil })
	return page, err
}

// listCrowd adds the other holders, and the waiters, of a name.
func (s *Store) listCrowd(l *store.Lock, now int64) error {
	err := s.read.each(func(row []driver.Value) error {
		g := grantOf(row)
		l.Holders, l.Limit = append(l.Holders, g.Holder(now, unit)), g.Limit
		return nil
	}, sqlOldestHolders, l.Name, now, int64(-1))
	if err != nil {
		return err
	}
	slices.SortStableFunc(l.Holders, func(a, b store.Holder) int { return cmp.Compare(b.Age, a.Age) })
	return s.read.each(func(row []driver.Value) error {
		l.Limit = max(l.Limit, int(integer(row[3])))
		l.Waiters = append(l.Waiters, store.Waiter{
			ID: idOf(row[0]), Mode: store.Mode(integer(row[1])), Weight: int(integer(row[2])),
			Age: time.Duration(now - integer(row[4])), Owner: text(row[5]), Meta: text(row[6]),
		})
		return nil
	}, sqlListQueue, l.Name, now)
}
