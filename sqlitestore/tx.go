package sqlitestore

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/holdfast-lock/holdfast/store"
)

const (
	// spins is how often a statement that found the file locked is tried again at once:
	// most transactions are over in some ten microseconds.
	spins = 10

	// maxPause bounds the pause between two tries. It is how late a call may notice that
	// the file is free.
	maxPause = 2 * time.Millisecond

	// checkEvery is how often it is checked that the path still means the open file, which
	// takes a microsecond or two. Renewals are always checked: see Renew.
	checkEvery = 10 * time.Millisecond

	// maxShare is how many calls share a transaction, a renewal of many grants counting as
	// many. What they share is most of its cost; others wait meanwhile.
	maxShare = 256
)

var (
	errRemoved  = errors.New("the file was removed while in use: what is locked in it excludes nobody who opens the path now; open the store again")
	errReplaced = errors.New("the file was replaced by another while in use: what is locked in it excludes nobody who opens the path now; open the store again")
)

// A transaction is one call's part in a write transaction.
type transaction struct {
	*Store
	call  call
	size  int   // how many calls it counts as
	now   int64 // read while the file was locked, so that it is in the order of transactions
	wakes []wakeUp
	err   error
	done  chan struct{} // closed when the transaction is over; nil if nobody waits for it
}

// A call is what to do in a transaction.
type call interface {
	do(tx *transaction) error
}

type callFunc func(tx *transaction) error

func (f callFunc) do(tx *transaction) error { return f(tx) }

// A turn is the right to use a connection. Calls that cannot have it at once line up, and
// whoever has it does their work along with its own.
type turn struct {
	taken chan struct{} // holds one element while a goroutine has the turn
	mu    sync.Mutex
	line  []*transaction
}

// write does a call in a transaction, and then wakes whom it wanted to wake. If the call
// returns an error of the contract, what it did up to there stays; any other error undoes
// the transaction. It may be shared with other calls, and be another goroutine's.
func (s *Store) write(ctx context.Context, call call) error {
	return s.writeMany(ctx, call, 1)
}

// writeMany is write for a call that does the work of many.
func (s *Store) writeMany(ctx context.Context, call call, size int) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	tx := &transaction{Store: s, call: call, size: size}
	if s.turn.try() {
		s.transact(ctx, tx)
		s.turn.end()
	} else {
		s.lineUp(ctx, tx)
	}
	s.pushes.send(tx.wakes)
	return s.explain(tx.err)
}

// try takes the turn if nobody has it.
func (t *turn) try() bool {
	select {
	case t.taken <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t *turn) end() { <-t.taken }

// next takes some calls out of the line.
func (t *turn) next() []*transaction {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, size := 0, 0
	for n < len(t.line) && size < maxShare {
		size += t.line[n].size
		n++
	}
	next := slices.Clone(t.line[:n]) // no allocation if it is empty
	t.line = slices.Delete(t.line, 0, n)
	return next
}

// leave takes one call out of the line. It is false if that is not in it any more.
func (t *turn) leave(tx *transaction) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.line, tx)
	if i >= 0 {
		t.line = slices.Delete(t.line, i, i+1)
	}
	return i >= 0
}

// lineUp waits until somebody has done the call, or does it when nobody else is there to.
func (s *Store) lineUp(ctx context.Context, tx *transaction) {
	t := &s.turn
	tx.done = make(chan struct{})
	t.mu.Lock()
	t.line = append(t.line, tx)
	t.mu.Unlock()
	select {
	case <-tx.done:
		return
	case t.taken <- struct{}{}:
		if t.leave(tx) {
			s.transact(ctx, tx)
		}
		t.end()
	case <-ctx.Done():
		if t.leave(tx) {
			tx.err = ctx.Err()
			return
		}
	case <-s.done:
		if t.leave(tx) {
			tx.err = errClosed
			return
		}
	}
	<-tx.done
}

// transact does a call and those that line up in one transaction. It needs the turn.
func (s *Store) transact(ctx context.Context, tx *transaction) {
	var others []*transaction
	recorded := s.recorded
	err := s.begin(ctx)
	if err == nil {
		others = s.turn.next()
		if err = s.together(tx, others); err != nil {
			// It fails if SQLite has rolled back by itself. Then there is nothing to do.
			s.conn.exec("ROLLBACK")
			s.recorded = recorded
		}
	}
	tx.over(err)
	for _, tx := range others {
		tx.over(err)
	}
}

// over ends a call's part. The error is that of the whole transaction.
func (tx *transaction) over(err error) {
	if err != nil {
		tx.err, tx.wakes = err, nil
	}
	if tx.done != nil {
		close(tx.done)
	}
}

func (s *Store) begin(ctx context.Context) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	_, err := s.conn.exec("BEGIN IMMEDIATE")
	if err != nil && busy(err) {
		err = s.retry(ctx, func() error {
			_, err := s.conn.exec("BEGIN IMMEDIATE")
			return err
		})
	}
	return err
}

// together does calls within a transaction, up to its end. Its error is that of all.
func (s *Store) together(first *transaction, others []*transaction) error {
	now := s.clock.now()
	if apart(now, s.checked, checkEvery) {
		if err := s.file.check(); err != nil {
			return err
		}
		s.checked = now
	}
	if err := s.recordTime(now); err != nil {
		return err
	}
	if err := first.do(); err != nil {
		return err
	}
	for _, tx := range others {
		if err := tx.do(); err != nil {
			return err
		}
	}
	_, err := s.conn.exec("COMMIT")
	return err
}

// apart reports whether two times are at least d apart, in whichever order: some clocks can
// be set back.
func apart(now, then int64, d time.Duration) bool {
	return now-then >= int64(d) || now < then
}

// do does one call. It returns an error only if that is of the whole transaction.
func (tx *transaction) do() error {
	tx.now = tx.clock.now()
	tx.err = tx.call.do(tx)
	if tx.err == nil || errors.Is(tx.err, store.ErrNotHeld) || errors.Is(tx.err, store.ErrInvalid) {
		return nil
	}
	return tx.err
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

// retry calls f until the file is not locked by another connection. It is instead of
// SQLite's own busy timeout, which no context can end.
func (s *Store) retry(ctx context.Context, f func() error) error {
	err := f()
	if err == nil || !busy(err) {
		return err
	}
	pause := 50 * time.Microsecond
	for try := 1; ; try++ {
		if try < spins {
			runtime.Gosched()
			if ctx.Err() != nil {
				return lockedError(ctx)
			}
		} else {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return lockedError(ctx)
			case <-s.done:
				timer.Stop()
				return errClosed
			}
			pause = min(2*pause, maxPause)
		}
		if err = f(); err == nil || !busy(err) {
			return err
		}
	}
}

func lockedError(ctx context.Context) error {
	return fmt.Errorf("%w: another process or connection has the file locked", ctx.Err())
}

// explain makes an error of a call one that says what to do.
func (s *Store) explain(err error) error {
	if err == nil || errors.Is(err, errClosed) || err == store.ErrNotHeld || errors.Is(err, store.ErrInvalid) ||
		err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	return fmt.Errorf("sqlite store %s: %w%s", s.file.path, err, adviceFor(err))
}

func adviceFor(err error) string {
	switch codeOf(err) {
	case sqlite3.SQLITE_FULL:
		return ": the disk, or the file's quota, is full; make room"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return ": the file, its directory or the file system cannot be written to by this user"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ": the file is damaged; stop all its users, then remove it with the -wal and -shm files beside it"
	case sqlite3.SQLITE_IOERR:
		return ": the disk failed, is full, or a file beside it was removed"
	}
	return ""
}
