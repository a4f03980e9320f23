package pgstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-lock/holdfast/internal/stores/wake"
	"github.com/holdfast-lock/holdfast/store"
)

const (
	// listenIdle is how long the connection that listens is kept after the last waiter has gone.
	// So a name that is contended from time to time does not need a new connection each time.
	listenIdle = 30 * time.Second

	// listenConnect bounds one attempt to connect, and listenRetry is the pause after it failed.
	listenConnect = 5 * time.Second
	listenRetry   = time.Second

	// listenPing is how often a connection without notifications is tested. Otherwise a dead
	// connection would not be noticed.
	listenPing = 10 * time.Second
)

// A listener receives the wake-ups of one store by LISTEN, on its own connection outside of the
// pool. The connection is opened for the first waiter, and closed listenIdle after the last.
// Without it, waiters poll.
type listener struct {
	connect func(ctx context.Context) (*pgx.Conn, error)
	channel string
	keep    time.Duration // how long a waiter that stopped asking is remembered
	log     *slog.Logger

	ctx  context.Context // ends with Close
	wg   sync.WaitGroup
	mu   sync.Mutex
	runs bool // the goroutine
	live bool // notifications arrive
	deaf bool // there is a pooler, so notifications never arrive
	// waits holds the identities that asked with Queue set and were not granted yet.
	waits map[store.ID]*waiter
	swept time.Time // when waiters that stopped asking were last removed
}

type waiter struct {
	signal wake.Signal
	until  time.Time // the waiter is forgotten at this time unless it asks again
}

// channelForWaiters returns the channel to wake the waiters of this store, or "" if
// notifications do not arrive.
func (l *listener) channelForWaiters() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf {
		return ""
	}
	return l.channel
}

// expect is called before an identity asks with Queue set. A notification after this call wakes
// it.
func (l *listener) expect(id store.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.waits[id]
	if w == nil {
		w = new(waiter)
		l.waits[id] = w
	}
	w.signal.Reset()
	now := time.Now()
	w.until = now.Add(l.keep)
	if now.Sub(l.swept) > l.keep {
		l.sweep(now)
	}
	if !l.runs && !l.deaf && l.ctx.Err() == nil {
		l.runs = true
		l.wg.Go(l.run)
	}
}

// forget ends the wait of an identity that is no longer queued.
func (l *listener) forget(id store.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waits[id]; w != nil {
		w.signal.Send()
		delete(l.waits, id)
	}
}

// pushed reports whether notifications arrive.
func (l *listener) pushed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

// signalOf returns the channel for Wait, or nil if there is nothing to wait for.
func (l *listener) signalOf(id store.ID) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waits[id]; w != nil {
		return w.signal.C()
	}
	return nil
}

// run keeps a connection while there are waiters.
func (l *listener) run() {
	failed := false // without a connection in between
	for {
		err := l.listen()
		if l.setLive(false) {
			failed = false
		}
		if l.ctx.Err() != nil || l.stop(err) {
			return
		}
		if err != nil {
			if !failed {
				failed = true
				l.log.Warn("holdfast: waiters poll until the connection for notifications is back", "store", "postgres", "error", err)
			}
			select {
			case <-time.After(listenRetry):
			case <-l.ctx.Done():
				return
			}
		}
	}
}

// stop reports whether the goroutine should end, because there are no waiters or there is a
// pooler.
func (l *listener) stop(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == errPooler {
		l.deaf = true
		l.log.Info("holdfast: the server is behind a connection pooler, which does not pass on notifications; waiters poll", "store", "postgres")
	}
	if l.deaf || len(l.waits) == 0 {
		l.runs = false
		return true
	}
	return false
}

var errPooler = fmt.Errorf("postgres store: behind a connection pooler")

// listen receives notifications until there has been no waiter for listenIdle. Then it returns
// nil.
func (l *listener) listen() error {
	ctx, cancel := context.WithTimeout(l.ctx, listenConnect)
	defer cancel()
	conn, err := l.connect(ctx)
	if err != nil {
		return explain(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx)
	}()
	if pooler, err := poolerAt(ctx, conn); pooler || err != nil {
		return cmp.Or(err, errPooler)
	}
	if _, err := conn.Exec(ctx, "LISTEN "+l.channel, pgx.QueryExecModeExec); err != nil {
		return explain(err)
	}
	l.setLive(true)
	idle, alive := time.Now(), time.Now()
	for {
		ctx, cancel := context.WithTimeout(l.ctx, l.keep)
		n, err := conn.WaitForNotification(ctx)
		over := ctx.Err() != nil
		cancel()
		now := time.Now()
		switch {
		case err == nil:
			l.wake(n.Payload)
			alive = now
		case l.ctx.Err() != nil:
			return nil
		case !over:
			return explain(err)
		}
		if l.anybody(now) {
			idle = now
		} else if now.Sub(idle) > listenIdle {
			return nil
		}
		if now.Sub(alive) > listenPing {
			ctx, cancel := context.WithTimeout(l.ctx, listenConnect)
			err := conn.Ping(ctx)
			cancel()
			if err != nil {
				return explain(err)
			}
			alive = now
		}
	}
}

// setLive records whether notifications arrive, and reports whether that has changed. Some
// notifications may have been missed before, so all waiters ask again.
func (l *listener) setLive(live bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == live {
		return false
	}
	l.live = live
	for _, w := range l.waits {
		w.signal.Send()
	}
	return true
}

// wake wakes the waiter that a notification names.
func (l *listener) wake(payload string) {
	id, err := store.ParseID(payload)
	if err != nil {
		return // not ours
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.waits[id]; w != nil {
		w.signal.Send()
	}
}

// anybody reports whether anybody waits.
func (l *listener) anybody(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweep(now)
	return len(l.waits) > 0
}

// sweep forgets waiters that stopped asking. The caller holds the mutex.
func (l *listener) sweep(now time.Time) {
	l.swept = now
	for id, w := range l.waits {
		if now.After(w.until) {
			w.signal.Send()
			delete(l.waits, id)
		}
	}
}

// Wait blocks until a queued identity should ask again: see [store.Store]. It returns nil at
// once if the identity did not ask through this store.
func (s *Store) Wait(ctx context.Context, _ string, id store.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.ctx.Err() != nil {
		return errClosed
	}
	return wake.Wait(ctx, s.listener.signalOf(id), s.ctx.Done(), errClosed)
}
