package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-lock/holdfast/internal/stores/rules"
	"github.com/holdfast-lock/holdfast/store"
)

// A transaction is the work of several calls on different names. It locks the rows of all names first, in
// sorted order, so that transactions cannot wait for each other in a circle. Only rows that do not exist yet
// are locked when they are created. After a deadlock, a transaction finds them when it starts again.
type transaction struct {
	s       *Store
	c       *conn
	entries map[string]*entry
}

// transact makes calls in one transaction. If it returns an error, all calls have failed, and
// nothing was changed unless the connection failed. The outcome of each call is in its err.
func (s *Store) transact(ctx context.Context, c *conn, calls []*call) error {
	var err error
	for range deadlocks {
		tx := &transaction{s: s, c: c, entries: make(map[string]*entry, len(calls))}
		for _, one := range calls {
			one.err, one.wakes = nil, nil
		}
		if err = tx.run(ctx, calls); !fromServer(err) {
			return err // if it is not nil, the connection is closed, which ends the transaction
		}
		if _, rollbackErr := c.ExecContext(ctx, "ROLLBACK"); rollbackErr != nil {
			return rollbackErr
		}
		if !isNumber(err, errDeadlock) {
			return err
		}
	}
	return err
}

func (tx *transaction) run(ctx context.Context, calls []*call) error {
	if _, err := tx.c.ExecContext(ctx, "BEGIN"); err != nil {
		return err
	}
	names := make([]string, len(calls))
	for i, one := range calls {
		names[i] = one.name
	}
	if err := tx.load(ctx, fmt.Sprintf(tx.s.sql.lock, literals(names))); err != nil {
		return err
	}
	if err := tx.create(ctx, calls); err != nil {
		return err
	}
	if err := tx.loadClaims(ctx); err != nil {
		return err
	}
	for _, one := range calls {
		e := tx.entries[one.name]
		if e == nil {
			e = tx.s.newEntry(one.name) // there is no row for the name
			tx.entries[one.name] = e
		}
		if one.req != nil && !e.usable {
			one.err = errIncompatible
			delete(tx.entries, one.name) // a later version may know more about the name than what was read
			continue
		}
		if one.err = one.do(e); one.err != nil && !isOutcome(one.err) {
			return one.err
		}
		if !errors.Is(one.err, store.ErrInvalid) && tx.s.unanswered.Has(one.ends) { // after ErrInvalid the grant stays
			e.noteEnd(one.ends)
		}
		e.call.Finish()
		one.wakes, e.woken = e.woken, nil
	}
	if err := tx.store(ctx); err != nil {
		return err
	}
	_, err := tx.c.ExecContext(ctx, "COMMIT")
	return err
}

// load reads the rows of names, with one of the statements read, lock and list.
func (tx *transaction) load(ctx context.Context, query string) error {
	var name string
	var special int
	var now, last int64
	var compatible sql.NullInt64
	var g grantRow
	return tx.c.query(ctx, query, func() {
		e := tx.s.newEntry(name)
		e.row, e.special, e.last, e.call.Now = true, special, last, now
		e.usable = compatible.Valid && compatible.Int64 <= version
		first := g.grant(e.last)
		switch {
		case first.Until > e.call.Now:
			e.first, e.Holders = first, []*rules.Claim{first}
		case first.Until != 0:
			e.call.Freed, e.dirty = true, true // the grant has expired
		}
		tx.entries[name] = e
	}, append([]any{&now, &compatible, &name, &special, &last}, g.dest()...)...)
}

// create creates rows for names that need one, but none for a request if only later versions may grant names.
func (tx *transaction) create(ctx context.Context, calls []*call) error {
	var missing, selects []string
	for _, one := range calls {
		if (one.req != nil || tx.s.unanswered.Has(one.ends)) && tx.entries[one.name] == nil {
			row := fmt.Sprintf("SELECT %s, low FROM {{meta}} WHERE one = 1", literal(one.name))
			if one.req != nil {
				row += fmt.Sprintf(" AND compatible <= %d", version)
			}
			missing, selects = append(missing, one.name), append(selects, withTables(row, tx.s.prefix))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(selects)
	if _, err := tx.c.exec(ctx, fmt.Sprintf(tx.s.sql.create, strings.Join(selects, " UNION ALL "))); err != nil {
		return err
	}
	return tx.load(ctx, fmt.Sprintf(tx.s.sql.lock, literals(missing)))
}

// loadClaims reads the claims of crowded names. If this transaction has locked their rows, others
// change nothing but the until of waiters: see Store.refuse.
func (tx *transaction) loadClaims(ctx context.Context) error {
	var crowded []string
	for name, e := range tx.entries {
		if e.special&hasClaims != 0 {
			crowded = append(crowded, name)
		}
	}
	var name string
	var g grantRow
	dest := append([]any{&name, &g.g.Seq, &g.g.Woken}, g.dest()...)
	for names := range slices.Chunk(crowded, maxBatch) {
		query := fmt.Sprintf(tx.s.sql.claims, literals(names))
		if err := tx.c.query(ctx, query, func() { tx.entries[name].addClaim(g.grant(0)) }, dest...); err != nil {
			return err
		}
	}
	return nil
}

// addClaim adds a claim that was read, unless it has expired.
func (e *entry) addClaim(c *rules.Claim) {
	switch {
	case c.Until <= e.call.Now:
		e.drops, e.call.Freed = append(e.drops, claimKey(e.name, c.Seq, c.ID)), true
	case c.Seq == seqEnded:
		e.ended = append(e.ended, c)
	case c.Seq == 0 && e.Holder(c.ID) == nil: // a listing reads the names and the claims one after the other
		e.Holders = append(e.Holders, c)
	case c.Seq > 0:
		e.Queue = append(e.Queue, c)
	}
}

// store writes what changed.
func (tx *transaction) store(ctx context.Context) error {
	var names, claims, rings, drops []string
	for _, name := range slices.Sorted(maps.Keys(tx.entries)) {
		e := tx.entries[name]
		if row := e.values(); row != "" {
			names = append(names, row)
		}
		drops = append(drops, e.drops...)
		for _, c := range slices.Concat(e.others(), e.ended, e.Queue) {
			switch {
			case e.changed[c]:
				rung := map[bool]int{true: 1}[c.Woken]
				claims = append(claims, fmt.Sprintf("(%s, %d, %d, %s)", literal(name), c.Seq, rung, grantValues(c)))
			case e.rung[c]:
				rings = append(rings, claimKey(name, c.Seq, c.ID)) // its until may be newer than what was read
			}
		}
	}
	for _, part := range []struct {
		statement, separator string
		rows                 []string
	}{
		{tx.s.sql.delClaim, " OR ", drops},
		{tx.s.sql.putNames, ", ", names},
		{tx.s.sql.putClaim, ", ", claims},
		{tx.s.sql.ring, " OR ", rings},
	} {
		for rows := range slices.Chunk(part.rows, maxBatch) {
			if _, err := tx.c.exec(ctx, fmt.Sprintf(part.statement, strings.Join(rows, part.separator))); err != nil {
				return err
			}
		}
	}
	return nil
}
