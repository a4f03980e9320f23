package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// plain makes the calls that need no more than a statement for all of them, because nobody else
// holds or waits for their names. It returns the other calls. If it fails, all calls have failed.
func (s *Store) plain(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	var takes, drops []*call
	for _, one := range calls {
		switch {
		case one.take != nil:
			takes = append(takes, one)
		case one.drop && !s.unanswered.Has(one.ends):
			drops = append(drops, one)
		default:
			rest = append(rest, one)
		}
	}
	refused, err := s.takePlain(ctx, c, takes)
	if err != nil {
		return calls, err
	}
	held, err := s.dropPlain(ctx, c, drops)
	if err != nil {
		return calls, err
	}
	return slices.Concat(rest, refused, held), nil
}

// readMeta reads the floor of tokens, and whether this version may grant locks, unless it did so
// a moment ago. The caller has the lane of Acquire.
//
// Reading them in the statement that acquires would double its cost. A floor that is metaFresh
// old is good enough, because rows are removed only if their tokens are below a floor that is
// much older: see sweepEvery. A migration that ends the compatibility must wait as long.
func (s *Store) readMeta(ctx context.Context, c *conn) error {
	if time.Since(s.metaRead) < metaFresh {
		return nil
	}
	begin := time.Now()
	var compatible sql.NullInt64
	err := c.query(ctx, s.sql.meta, func(rows *sql.Rows) error { return rows.Scan(&s.low, &compatible) })
	if err != nil {
		return err
	}
	if !compatible.Valid || compatible.Int64 > version {
		return errIncompatible
	}
	s.metaRead = begin
	return nil
}

// takePlain grants names that are free and that nobody waits for. It returns the calls that it
// did not grant.
func (s *Store) takePlain(ctx context.Context, c *conn, calls []*call) (refused []*call, err error) {
	if len(calls) == 0 {
		return nil, nil
	}
	if err := s.readMeta(ctx, c); err != nil {
		return nil, err
	}
	if len(calls) == 1 {
		req := calls[0].take
		tokens, least := blockOf(req.Tokens), max(s.low, req.Floor)+1
		result, err := c.acquire.ExecContext(ctx, []byte(req.Name), req.ID[:], int64(req.Mode), req.Weight, req.Limit,
			least, tokens, least, tokens, req.TTL.Microseconds(), []byte(req.Owner), []byte(req.Meta))
		if err != nil {
			return nil, err
		}
		token, err := result.LastInsertId()
		if token == 0 || err != nil {
			return calls, err
		}
		calls[0].granted(store.Answer{Token: token, Tokens: tokens, TTL: req.TTL})
		return nil, nil
	}
	err = c.inTransaction(ctx, func() error {
		refused, err = s.takeMany(ctx, c, calls)
		return err
	})
	if isNumber(err, errDeadlock) {
		return calls, nil
	}
	return refused, err
}

// takeMany is takePlain for several names, within a transaction.
func (s *Store) takeMany(ctx context.Context, c *conn, calls []*call) (refused []*call, err error) {
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.name, b.name) }) // the order of locks
	rows, names := make([]string, len(calls)), make([]string, len(calls))
	for i, one := range calls {
		req := one.take
		tokens, least := strconv.Itoa(blockOf(req.Tokens)), strconv.FormatInt(max(s.low, req.Floor)+1, 10)
		rows[i] = "(" + strings.Join([]string{
			literal(req.Name), idLiteral(req.ID), strconv.Itoa(int(req.Mode)), strconv.Itoa(req.Weight), strconv.Itoa(req.Limit),
			"GREATEST(" + nowSQL + ", " + least + ")", tokens, "GREATEST(" + nowSQL + ", " + least + ") + " + tokens + " - 1",
			nowSQL, nowSQL + " + " + strconv.FormatInt(req.TTL.Microseconds(), 10), "0", literal(req.Owner), literal(req.Meta),
		}, ", ") + ")"
		names[i] = one.name
	}
	if _, err := c.exec(ctx, fmt.Sprintf(s.sql.takeMany, strings.Join(rows, ", "))); err != nil {
		return nil, err
	}
	type taken struct {
		grant
		crowd bool
	}
	found := make(map[string]taken, len(calls))
	err = c.query(ctx, fmt.Sprintf(s.sql.taken, literals(names)), func(rows *sql.Rows) error {
		var name string
		var t taken
		var id []byte
		var mode, state uint8
		if err := rows.Scan(&name, &t.crowd, &id, &mode, &t.weight, &t.limit, &t.token, &t.tokens, &state); err != nil {
			return err
		}
		t.id, t.mode, t.state = store.ID(id), store.Mode(mode), store.State(state)
		found[name] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, one := range calls {
		t, req := found[one.name], one.take
		if t.id != req.ID || t.crowd || t.state != store.Held || store.SameClaim(req, t.mode, t.weight, t.limit) != nil {
			refused = append(refused, one)
			continue
		}
		one.granted(store.Answer{Token: t.token, Tokens: t.tokens, TTL: req.TTL})
	}
	return refused, nil
}

// errNotAll undoes a transaction that did only a part of what it should.
var errNotAll = errors.New("not all")

// dropPlain releases names that nobody else holds or waits for. It returns the calls that it did
// not make: all of them if one was not plain.
func (s *Store) dropPlain(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	if len(calls) == 0 {
		return nil, nil
	}
	if len(calls) == 1 {
		result, err := c.release.ExecContext(ctx, []byte(calls[0].name), calls[0].ends[:])
		if err != nil {
			return nil, err
		}
		if n, err := result.RowsAffected(); n > 0 || err != nil {
			return nil, err
		}
		return calls, nil
	}
	names, ids := make([]string, len(calls)), make([]string, len(calls))
	for i, one := range calls {
		names[i], ids[i] = one.name, idLiteral(one.ends)
	}
	err = c.inTransaction(ctx, func() error {
		n, err := c.exec(ctx, fmt.Sprintf(s.sql.dropMany, literals(names), strings.Join(ids, ", ")))
		if err == nil && n != int64(len(calls)) {
			err = errNotAll
		}
		return err
	})
	if err == errNotAll || isNumber(err, errDeadlock) {
		return calls, nil
	}
	return nil, err
}

// inTransaction commits what f does, unless f fails.
func (c *conn) inTransaction(ctx context.Context, f func() error) error {
	if _, err := c.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	err := f()
	end := "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	if _, endErr := c.ExecContext(ctx, end); endErr != nil {
		return endErr
	}
	return err
}
