package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
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
	var name string
	var holders, waiters []byte // not decoded by pgx: a program may have set another codec for JSON

	rows, _ := s.pool.Query(ctx, s.sql.list, pgx.QueryExecModeExec, q.Name, q.Prefix, q.Cursor, limit) // the error is in rows, too
	n := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &holders, &waiters}, func() error {
		if n++; n == limit && q.Name == "" {
			page.Next = name
		}
		held, err := readRows(holders)
		queued, queueErr := readRows(waiters)
		if err := cmp.Or(err, queueErr); err != nil {
			return err
		}
		lock := store.Lock{Name: name, Holders: holdersOf(held)}
		for _, r := range slices.Concat(held, queued) {
			lock.Limit = max(lock.Limit, r.Lim)
		}
		for _, r := range queued {
			lock.Waiters = append(lock.Waiters, store.Waiter{
				ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Age: time.Duration(r.Age) * time.Microsecond,
			})
		}
		if lock.Holders != nil || lock.Waiters != nil {
			page.Locks = append(page.Locks, lock)
		}
		return nil
	})
	return page, err
}

func readRows(text []byte) (rows []row, err error) {
	if len(text) > 0 {
		err = json.Unmarshal(text, &rows)
	}
	return rows, err
}
