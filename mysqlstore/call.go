package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/holdfast-lock/holdfast/internal/stores/expiring"
	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

// maxBatch calls share a transaction. Statements with the longest texts fit into a max_allowed_packet of 1 MiB.
const maxBatch = 128

// A call is one call of the store on one name.
type call struct {
	name string
	do   func(e *entry) error // handles every case, within a transaction

	req    *store.Request // of an Acquire; the name then needs a row
	answer store.Answer   // to it

	renewal *store.Renewal
	renewed store.Renewed // its outcome

	// Plain cases need no transaction: a name without other clients, and a waiter that keeps its place.
	take bool // an Acquire that may be plain
	stay bool // an Acquire of a waiter that was not woken
	drop bool // a Release that may be plain

	ends store.ID // the identity whose grant or wait the call ends

	left atomic.Bool // the caller has given up; a call that was not sent yet must not be sent

	err   error
	wakes []wake.Key // waiters that the call wakes
}

// do makes a call in a lane. If ctx or callTimeout ends, it returns soon. A call that was not sent by then
// never is. A call that was sent alone is ended after grace. A batch continues, and later calls wait for it.
func (s *Store) do(ctx context.Context, l *lane, c *call) error {
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	_, err := l.calls.Do(ctx, c, func() { l.send(ctx, []*call{c}) })
	switch {
	case err != nil || ctx.Err() != nil:
		c.left.Store(true)
		if ctx.Err() != nil {
			return s.usedUp(ctx.Err())
		}
		return s.explain(ctx, s.noReply())
	case s.life.Closing.Err() != nil:
		return s.life.ErrClosed
	}
	return s.explain(ctx, c.err)
}

// send makes calls, and then wakes the waiters that can now be granted.
func (l *lane) send(ctx context.Context, calls []*call) {
	rest := calls
	err := l.use(ctx, func(ctx context.Context, c *conn) (err error) {
		rest, err = l.s.performAll(ctx, c, slices.DeleteFunc(calls, func(c *call) bool { return c.left.Load() }))
		if err != nil && !fromServer(err) {
			for _, one := range rest {
				if one.take { // a single statement may arrive later; a transaction would then not be committed
					l.s.unanswered.Add(one.req.ID, expiring.Late)
				}
			}
		}
		return err
	})
	for _, one := range rest {
		if err != nil && one.err == nil {
			one.err = err
		}
		if one.err == nil {
			l.s.waits.Wake(one.wakes...)
		}
	}
}

// perform makes calls: the plain ones first, in single statements, and the others in a transaction. It
// returns the calls that were not plain. If it returns an error, those calls have failed.
func (s *Store) perform(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	rest, err = s.plain(ctx, c, calls)
	if err == nil && len(rest) > 0 {
		err = s.transact(ctx, c, rest)
	}
	return rest, err
}

// performAll is like perform, but calls whose rows are known to be stuck come last, and do not wait for
// them, and calls may also fail with errors of their own.
func (s *Store) performAll(ctx context.Context, c *conn, calls []*call) (rest []*call, err error) {
	var free, stuck []*call
	for _, one := range calls {
		if s.stuck.Has(one.name) {
			stuck = append(stuck, one)
		} else {
			free = append(free, one)
		}
	}
	rest, err = s.perform(ctx, c, free)
	if isLocked(err) {
		if len(rest) == 1 {
			s.stuck.Add(rest[0].name, stuckFor)
			rest[0].err, err = err, nil
		} else {
			err = s.performUnlocked(ctx, c, rest, err)
		}
	}
	if err == nil && len(stuck) > 0 {
		err = s.performUnlocked(ctx, c, stuck, errStuck)
	}
	return append(rest, stuck...), err
}

// performUnlocked makes the calls whose rows are not locked after one has waited too long for a row, and the
// others fail: waiting for each row in turn could cost leases on other names. Waiters keep their places
// without the rows of their names, but not without their claims. It looks twice, because other clients
// lock rows for a moment.
func (s *Store) performUnlocked(ctx context.Context, c *conn, calls []*call, failure error) error {
	for range 2 {
		names := make([]string, len(calls))
		for i, one := range calls {
			names[i] = one.name
		}
		locked, err := s.lockedNames(ctx, c, names)
		if err != nil {
			return err
		}
		lockedClaims, err := s.lockedClaims(ctx, c, names)
		if err != nil {
			return err
		}
		var unlocked, stays, rest []*call
		for _, one := range calls {
			one.err = nil // of the transaction that was rolled back
			switch {
			case lockedClaims[one.name]:
				rest = append(rest, one)
			case !locked[one.name]:
				s.stuck.Remove(one.name)
				unlocked = append(unlocked, one)
			case one.stay:
				stays = append(stays, one)
			default:
				rest = append(rest, one)
			}
		}
		failed, err := s.perform(ctx, c, unlocked)
		if err != nil && !fromServer(err) {
			return err
		}
		for _, one := range failed {
			if err != nil {
				one.err = err
			}
		}
		moved, err := s.refuse(ctx, c, stays)
		if isLocked(err) {
			moved, err = stays, nil
		}
		if err != nil {
			return err
		}
		if calls = append(rest, moved...); len(calls) == 0 {
			return nil
		}
	}
	for _, one := range calls {
		one.err = failure
		if failure != errStuck { // it has waited
			s.stuck.Add(one.name, stuckFor)
		}
	}
	return nil
}

// lockedNames returns the names whose rows other sessions have locked. It does not wait for them.
func (s *Store) lockedNames(ctx context.Context, c *conn, names []string) (map[string]bool, error) {
	locked := make(map[string]bool)
	read := func(statement string, isLocked bool) error {
		var name string
		return c.query(ctx, fmt.Sprintf(statement, literals(names)), func() { locked[name] = isLocked }, &name)
	}
	if err := read(s.sql.exist, true); err != nil {
		return nil, err
	}
	// The row of a name may also have been added by a session that has not committed yet.
	if _, err := c.ExecContext(ctx, "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"); err != nil {
		return nil, err
	}
	if err := read(s.sql.exist, true); err != nil {
		return nil, err
	}
	return locked, read(s.sql.unlocked, false)
}

// lockedClaims returns the names with claims that other sessions have locked. It does not wait for
// them. Claims that are added or removed meanwhile do not count.
func (s *Store) lockedClaims(ctx context.Context, c *conn, names []string) (map[string]bool, error) {
	type key struct {
		name, id string
		seq      int64
	}
	free, all, locked := make(map[key]bool), make(map[key]bool), make(map[string]bool)
	for _, read := range []struct {
		statement string
		into      map[key]bool
	}{{s.sql.freeIDs, free}, {s.sql.claimIDs, all}, {s.sql.freeIDs, free}} {
		var k key
		err := c.query(ctx, fmt.Sprintf(read.statement, literals(names)), func() { read.into[k] = true }, &k.name, &k.seq, &k.id)
		if err != nil {
			return nil, err
		}
	}
	for k := range all {
		locked[k.name] = locked[k.name] || !free[k]
	}
	return locked, nil
}

// isOutcome reports whether an error is the outcome of one call and not a failure.
func isOutcome(err error) bool {
	return errors.Is(err, store.ErrNotHeld) || errors.Is(err, store.ErrInvalid)
}
