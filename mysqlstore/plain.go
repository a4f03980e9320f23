package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// plain makes the calls whose names no other client holds or waits for, those of waiters that keep
// their places, and those that are refused without a place, with a few statements for all of a kind. It
// returns the other calls. If it fails, all calls have failed.
func (s *Store) plain(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	var takes, blocks, stays, drops, extends []*call
	for _, one := range calls {
		switch {
		case one.take && one.req.Tokens <= 1:
			takes = append(takes, one)
		case one.take:
			blocks = append(blocks, one)
		case one.stay:
			stays = append(stays, one)
		case one.drop && !s.unanswered.Has(one.ends):
			drops = append(drops, one)
		case one.renewal != nil && one.renewal.Tokens == 0 && one.renewal.Floor == 0:
			extends = append(extends, one)
		default:
			rest = append(rest, one)
		}
	}
	for _, step := range []struct {
		perform func(ctx context.Context, c *conn, calls []*call) (rest []*call, err error)
		calls   *[]*call
		rest    *[]*call
	}{
		{s.takePlain, &takes, &stays},
		{s.takePlain, &blocks, &stays},
		{s.refuse, &stays, &rest},
		{s.extendPlain, &extends, &rest},
		{s.dropPlain, &drops, &rest}, // the last one: after a failure, all calls are repeated, and only this one cannot be
	} {
		if len(*step.calls) == 0 {
			continue
		}
		left, err := step.perform(ctx, c, *step.calls)
		if err == errNotAll || isNumber(err, errDeadlock, errManyStatements) {
			left, err = *step.calls, nil
		}
		if err != nil {
			return calls, err
		}
		*step.rest = append(*step.rest, left...)
	}
	return rest, nil
}

// errNotAll leaves calls to a transaction, because only some of them are plain.
var errNotAll = errors.New("not all")

// readMeta reads the floor of tokens, and whether this version may grant locks, unless it did so
// a moment ago. The caller has the lane of Acquire.
//
// Reading them in the statement that acquires would double its cost. A floor that is metaFresh old is good
// enough: see sweepEvery. A migration to an incompatible version must wait that long.
func (s *Store) readMeta(ctx context.Context, c *conn) error {
	if time.Since(s.metaRead) < metaFresh {
		return nil
	}
	begin := time.Now()
	var compatible sql.NullInt64
	if err := c.query(ctx, s.sql.meta, func() {}, &s.low, &compatible); err != nil {
		return err
	}
	if !compatible.Valid || compatible.Int64 > version {
		return errIncompatible
	}
	s.metaRead = begin
	return nil
}

// takePlain grants names that are free and have no waiters, either all or none.
func (s *Store) takePlain(ctx context.Context, c *conn, calls []*call) (refused []*call, err error) {
	if err := s.readMeta(ctx, c); err == errIncompatible { // the other calls of the batch can still end grants
		for _, one := range calls {
			one.err = err
		}
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.name, b.name) }) // the order of locks
	statement, size, err := c.acquire.prepared(ctx, c, len(calls), s.sql.acquireOf)
	if err != nil {
		return nil, err
	}
	least := func(req *store.Request) int64 { return max(s.low, req.Floor) + 1 }
	args := make([]any, 0, size*strings.Count(acquireRow, "?")+1)
	var further int64 // tokens after the first one, in the largest block: for smaller ones it refuses more than it must
	for i := range size {
		req := calls[min(i, len(calls)-1)].req
		g := rules.Claim{Mode: req.Mode, Weight: req.Weight, Limit: req.Limit, Tokens: rules.Block(req.Tokens), Owner: req.Owner, Meta: req.Meta}
		args = append(args, req.Name, req.ID[:], req.TTL.Microseconds(), least(req), int64(g.Tokens-1), dataOf(&g))
		further = max(further, int64(g.Tokens-1))
	}
	args = append(args, further)
	result, err := statement.ExecContext(ctx, args...)
	if isNumber(err, errOutOfRange, errColumnOutOfRange) {
		return nil, errNotAll
	}
	if err != nil {
		return nil, err
	}
	now, err := result.LastInsertId()
	if err != nil {
		return nil, err
	}
	for _, one := range calls {
		one.answer = store.Answer{Token: max(now, least(one.req)), Tokens: rules.Block(one.req.Tokens), TTL: one.req.TTL}
	}
	return nil, nil
}

// refuse refuses requests without locking rows. Waiters that keep their places, and clients that try to
// take a name all the time, would otherwise delay each other and, worse, the renewals of the holder. It
// returns the calls that it did not make: those that have to write more than the claim of a waiter that
// keeps its place. These are made in transactions.
//
// What it reads may be old by then. That does no harm: whoever made a place free meanwhile has woken
// the first waiter, and that waiter then asks in a transaction. If the claim was removed or rung
// meanwhile, the statement does not change it. A waiter that is so late that another client is
// removing its claim may be told that it has its place, and finds out when its row is read next.
func (s *Store) refuse(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	var names []string
	for _, one := range calls {
		if one.stay || !one.req.Queue && !s.unanswered.Has(one.req.ID) { // otherwise it may have been granted
			names = append(names, one.name)
		}
	}
	if len(names) == 0 {
		return calls, nil
	}
	tx := &transaction{s: s, c: c, entries: make(map[string]*entry, len(names))}
	if err := tx.load(ctx, fmt.Sprintf(s.sql.read, literals(names))); err != nil {
		return nil, err
	}
	if err := tx.loadClaims(ctx); err != nil {
		return nil, err
	}
	stays := make(map[*call]*rules.Claim)
	var keys []string
	for _, one := range calls {
		switch w, ok := tx.entries[one.name].refuse(one); {
		case !ok:
			rest = append(rest, one)
		case w != nil:
			stays[one] = w
			keys = append(keys, claimKey(one.name, w.Seq, w.ID))
		}
	}
	if len(keys) > 0 {
		n, err := c.exec(ctx, fmt.Sprintf(s.sql.stay, s.heartbeat.Microseconds()+1, strings.Join(keys, " OR ")))
		if isNumber(err, errDeadlock) || err == nil && n != int64(len(keys)) {
			return calls, nil
		}
		if err != nil {
			return nil, err
		}
	}
	for one, w := range stays {
		s.waits.stay(keyOf(one.req), w.Seq, one.answer.Refusal.Place)
	}
	return rest, nil
}

// refuse answers a request, and returns its waiter if it keeps a place. If not ok, it needs a transaction.
func (e *entry) refuse(one *call) (w *rules.Claim, ok bool) {
	if e == nil || !e.usable {
		return nil, false
	}
	req := one.req
	if one.stay {
		if w = e.Waiter(req.ID); w == nil || w.Woken || w.Owner != req.Owner || w.Meta != req.Meta {
			return nil, false
		}
	} else if req.Queue || e.first == nil || e.first.Mode != store.Exclusive || e.call.Freed {
		return nil, false
	}
	var err error
	one.answer, err = e.ask(req) // sets Freed if it removes a waiter
	return w, err == nil && !one.answer.Granted() && !e.call.Freed
}

// dropPlain releases names that no other client holds or waits for, either all or none.
func (s *Store) dropPlain(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	statement, size, err := c.release.prepared(ctx, c, len(calls), s.sql.releaseOf)
	if err != nil {
		return nil, err
	}
	args := make([]any, 2*size)
	for i := range size {
		one := calls[min(i, len(calls)-1)]
		args[i], args[size+i] = one.name, one.ends[:]
	}
	drop := func() error {
		result, err := statement.ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if err == nil && n != int64(len(calls)) {
			err = errNotAll
		}
		return err
	}
	if len(calls) == 1 {
		return nil, drop()
	}
	return nil, c.inTransaction(ctx, drop)
}

// extendPlain extends grants with equal parameters, each in the row of its name.
func (s *Store) extendPlain(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	first := calls[0].renewal
	names, ids := make([]string, len(calls)), make([]string, len(calls))
	for i, one := range calls {
		if one.renewal.TTL != first.TTL || one.renewal.Mode != first.Mode {
			return nil, errNotAll
		}
		names[i], ids[i] = one.name, idLiteral(one.renewal.ID)
	}
	n, err := c.exec(ctx, fmt.Sprintf(s.sql.renew, first.TTL.Microseconds(), literals(names), strings.Join(ids, ", "), first.Mode))
	if err == nil && n != int64(len(calls)) {
		err = errNotAll
	}
	if err != nil {
		return nil, err
	}
	for _, one := range calls {
		one.renewed = store.Renewed{Status: store.Extended, TTL: first.TTL}
	}
	return nil, nil
}

// inTransaction runs f in a transaction. It commits unless f fails.
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
