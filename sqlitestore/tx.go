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
	// spins is how often a statement that found the file locked is retried at once.
	spins = 10

	// maxPause bounds the pause between two retries, and how late a call notices that the file is free.
	maxPause = 2 * time.Millisecond

	// checkEvery is how often a transaction checks that the path still refers to the open file.
	// Renewals always check it: see Renew.
	checkEvery = 10 * time.Millisecond

	// maxBatch is how many calls share a transaction. A renewal of several grants counts as that many.
	maxBatch = 256

	// maxBatchTime is how long a transaction takes further calls, while other processes wait for it. A
	// request for permits of a name with ten thousand holders takes a millisecond or more.
	maxBatchTime = 5 * time.Millisecond
)

var (
	errRemoved  = errors.New("the file was removed while in use, so its locks do not exclude processes that open the path now; open the store again")
	errReplaced = errors.New("the file was replaced while in use, so its locks do not exclude processes that open the path now; open the store again")
)

// A callTx is a write transaction as one of its calls sees it.
type callTx struct {
	*Store
	call  func(tx *callTx) error
	size  int   // how many calls it counts as
	now   int64 // read while the file was locked, so that times follow the order of transactions
	wakes []wakeUp
	err   error
	done  chan struct{} // closed when the transaction has ended; nil if no goroutine waits for it
}

// A writeQueue batches calls. The goroutine that has the turn uses the connection. Calls that
// arrive meanwhile are queued, and that goroutine runs them in its own transaction.
//
// Package internal/stores/batch does not fit here, because it forms a batch before it sends it. Here the
// batch is formed while the file is locked, so that it includes the calls that arrived while the
// goroutine waited for another process. If the context of that goroutine ends before the file is free,
// another queued call takes the turn under its own context.
type writeQueue struct {
	turn   chan struct{} // holds one element while a goroutine has the turn
	mu     sync.Mutex
	queued []*callTx
}

// write runs a call, which counts as size calls, in a transaction, and then sends the wake-ups that it
// collected. An error of the store contract is committed too; any other error rolls the transaction back.
// Other calls may share the transaction, and it may run on another goroutine.
func (s *Store) write(ctx context.Context, size int, call func(tx *callTx) error) error {
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	tx := &callTx{Store: s, call: call, size: size}
	if s.writes.tryTurn() {
		s.transact(ctx, tx)
		s.writes.endTurn()
	} else {
		s.enqueue(ctx, tx)
	}
	s.pushes.send(tx.wakes)
	return s.explain(tx.err)
}

func (q *writeQueue) tryTurn() bool {
	select {
	case q.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (q *writeQueue) endTurn() { <-q.turn }

// moveNext moves the next queued call, if any, to the end of calls.
func (q *writeQueue) moveNext(calls []*callTx) []*callTx {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := min(1, len(q.queued))
	calls = append(calls, q.queued[:n]...)
	q.queued = slices.Delete(q.queued, 0, n)
	return calls
}

// remove reports whether a call was queued, and removes it.
func (q *writeQueue) remove(tx *callTx) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.queued, tx)
	if i >= 0 {
		q.queued = slices.Delete(q.queued, i, i+1)
	}
	return i >= 0
}

// enqueue waits until another goroutine has run the call, or runs it when the turn is free.
func (s *Store) enqueue(ctx context.Context, tx *callTx) {
	q := &s.writes
	tx.done = make(chan struct{})
	q.mu.Lock()
	q.queued = append(q.queued, tx)
	q.mu.Unlock()
	select {
	case <-tx.done:
		return
	case q.turn <- struct{}{}:
		if q.remove(tx) {
			s.transact(ctx, tx)
		}
		q.endTurn()
	case <-ctx.Done():
	case <-s.life.Closing.Done():
	}
	if q.remove(tx) { // ctx or the store has ended
		tx.err = s.life.Usable(ctx)
		return
	}
	<-tx.done
}

// transact runs a call, together with the queued calls, in one transaction. The caller has the turn.
func (s *Store) transact(ctx context.Context, tx *callTx) {
	calls, err := s.runAll(ctx, []*callTx{tx})
	if full(err) && s.checkpoint("RESTART") { // now the log need not grow
		calls, err = s.runAll(ctx, calls)
	}
	err = s.checkTables(s.conn, err)
	for _, tx := range calls {
		if err != nil {
			tx.err, tx.wakes = err, nil
		}
		if tx.done != nil {
			close(tx.done)
		}
	}
}

func (s *Store) begin(ctx context.Context) error {
	if err := s.life.Usable(ctx); err != nil {
		return err
	}
	return s.retry(ctx, func() error {
		_, err := s.conn.exec("BEGIN IMMEDIATE")
		return err
	})
}

// runAll runs calls, and calls from the queue, in one transaction. It returns them, and their error.
func (s *Store) runAll(ctx context.Context, calls []*callTx) ([]*callTx, error) {
	if err := s.begin(ctx); err != nil {
		return calls, err
	}
	recorded := s.recorded
	calls, err := s.commitAll(calls)
	if err != nil {
		s.conn.exec("ROLLBACK") // fails harmlessly if SQLite has already rolled back on its own
		s.recorded = recorded
		return calls, err
	}
	s.boundLog()
	return calls, nil
}

func (s *Store) commitAll(calls []*callTx) ([]*callTx, error) {
	now := s.clock.now()
	if elapsed(now, s.checked, checkEvery) {
		if err := s.file.check(); err != nil {
			return calls, err
		}
		s.checked = now
	}
	if err := s.recordTime(now); err != nil {
		return calls, err
	}
	size := 0
	for i := 0; i < len(calls); i++ {
		if err := calls[i].run(); err != nil {
			return calls, err
		}
		size += calls[i].size
		if i == len(calls)-1 && size < maxBatch && !elapsed(s.clock.now(), now, maxBatchTime) {
			calls = s.writes.moveNext(calls)
		}
	}
	_, err := s.conn.exec("COMMIT")
	return calls, err
}

// elapsed reports whether d has passed since then, or the clock was set back.
func elapsed(now, then int64, d time.Duration) bool {
	return now-then >= int64(d) || now < then
}

// run runs one call. It returns an error only if the error applies to the whole transaction.
func (tx *callTx) run() error {
	tx.now, tx.wakes = tx.clock.now(), nil
	tx.err = tx.call(tx)
	if tx.err == nil || errors.Is(tx.err, store.ErrNotHeld) || errors.Is(tx.err, store.ErrInvalid) {
		return nil
	}
	return tx.err
}

// retry calls f until the file is not locked by another connection. It replaces SQLite's own busy
// timeout, which cannot be ended by a context.
func (s *Store) retry(ctx context.Context, f func() error) error {
	pause := 50 * time.Microsecond
	for try := 1; ; try++ {
		if err := f(); err == nil || !busy(err) {
			return err
		}
		if try < spins {
			runtime.Gosched()
		} else {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			case <-s.life.Closing.Done():
				return s.life.ErrClosed
			}
			pause = min(2*pause, maxPause)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: another process or connection has the file locked", ctx.Err())
		}
	}
}

// explain adds the path and advice to an error of SQLite.
func (s *Store) explain(err error) error {
	if err == nil || errors.Is(err, s.life.ErrClosed) || err == store.ErrNotHeld || errors.Is(err, store.ErrInvalid) ||
		err == context.Canceled || err == context.DeadlineExceeded {
		return err
	}
	return fmt.Errorf("sqlite store %s: %w%s", s.file.path, err, s.adviceFor(err))
}

func (s *Store) adviceFor(err error) string {
	switch resultCode(err) {
	case sqlite3.SQLITE_FULL:
		return ": the disk or the quota is full; free some space"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		if path := s.file.unwritable(); path != "" {
			return fmt.Sprintf(": this user cannot write to %s; change its permissions, and if several users share the file, set the setgid bit of its directory (chmod g+s)", path)
		}
		return ": this user cannot write to the file, its directory or the file system; change the permissions"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ": the file is damaged; stop all its users, then remove it with the -wal and -shm files beside it"
	case sqlite3.SQLITE_IOERR:
		return ": the disk failed or is full, or the file or one of the -wal and -shm files beside it was removed"
	}
	return ""
}
