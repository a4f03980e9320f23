package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

func listStatement(quotedSchema string) string {
	return fmt.Sprintf("SELECT name, holders, waiters FROM %s.list_v%d($1, $2, $3, $4)", quotedSchema, version)
}

// List returns one page of names: see [store.Store]. Pages are sorted by the bytes of names, and
// the cursor is the last name of the previous page.
func (s *Store) List(ctx context.Context, q store.Query) (store.Page, error) {
	if err := s.enter(ctx); err != nil {
		return store.Page{}, err
	}
	defer s.life.Exit()
	callCtx, cancel := s.limit(ctx)
	defer cancel()
	page, err := s.page(callCtx, q, rules.PageSize(q))
	if err != nil && s.life.Closing.Err() != nil {
		return store.Page{}, errClosed
	}
	if err != nil {
		return store.Page{}, bounded.NoReply(ctx, callCtx, explain(err))
	}
	return page, nil
}

func (s *Store) page(ctx context.Context, q store.Query, limit int) (page store.Page, err error) {
	rows, err := s.pool.Query(ctx, s.listSQL, pgx.QueryExecModeExec, q.Name, q.Prefix, q.Cursor, limit)
	if err != nil {
		return page, err
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var lock store.Lock
		var holders, waiters []byte
		if err := rows.Scan(&lock.Name, &holders, &waiters); err != nil {
			return page, err
		}
		if n++; n == limit && q.Name == "" {
			page.Next = lock.Name
		}
		if err := fill(&lock, holders, waiters); err != nil {
			return page, err
		}
		if lock.Holders != nil || lock.Waiters != nil {
			page.Locks = append(page.Locks, lock)
		}
	}
	return page, rows.Err()
}

func fill(lock *store.Lock, holders, waiters []byte) error {
	held, err := readRows(holders)
	if err != nil {
		return err
	}
	queued, err := readRows(waiters)
	if err != nil {
		return err
	}
	lock.Holders = holdersOf(held)
	for _, r := range held {
		lock.Limit = max(lock.Limit, r.Lim)
	}
	for _, r := range queued {
		lock.Limit = max(lock.Limit, r.Lim)
		lock.Waiters = append(lock.Waiters, store.Waiter{
			ID: r.ID, Owner: r.Owner, Meta: r.Meta, Mode: r.Mode, Weight: r.Weight, Age: time.Duration(r.Age) * time.Microsecond,
		})
	}
	return nil
}

func readRows(text []byte) (rows []row, err error) {
	if len(text) > 0 {
		err = json.Unmarshal(text, &rows)
	}
	return rows, err
}
