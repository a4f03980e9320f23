package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// List returns one page of names, sorted by their bytes: see [store.Store].
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Exit()
	callCtx, cancel := s.limit(ctx)
	defer cancel()
	page, err := s.page(callCtx, q, rules.PageSize(q))
	switch {
	case err == nil:
		return page, nil
	case s.life.Closing.Err() != nil:
		return store.Page{}, s.life.ErrClosed
	}
	return store.Page{}, bounded.NoReply(ctx, callCtx, explain(err))
}

func (s *Store) page(ctx context.Context, q store.Query, limit int) (page store.Page, err error) {
	type name struct {
		Name            string
		Holders, Queued []row // from JSON
	}
	rows, _ := s.pool.Query(ctx, s.sql.list, pgx.QueryExecModeExec, q.Name, q.Prefix, q.Cursor, limit) // the error is in rows, too
	names, err := pgx.CollectRows(rows, pgx.RowToStructByPos[name])
	for _, n := range names {
		lock := store.Lock{Name: n.Name, Holders: holdersOf(n.Holders)}
		for _, r := range slices.Concat(n.Holders, n.Queued) {
			lock.Limit = max(lock.Limit, r.Lim)
		}
		for _, r := range n.Queued {
			lock.Waiters = append(lock.Waiters, store.Waiter{
				ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Age: time.Duration(r.Age) * time.Microsecond,
			})
		}
		if lock.Holders != nil || lock.Waiters != nil {
			page.Locks = append(page.Locks, lock)
		}
	}
	if len(names) == limit && q.Name == "" {
		page.Next = names[limit-1].Name
	}
	return page, err
}
