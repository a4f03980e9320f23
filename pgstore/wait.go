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
	// listenIdle is how long the connection that listens is kept after the last waiter has gone, for the next.
	listenIdle = 30 * time.Second

	// listenRetry is the pause after an attempt to connect has failed.
	listenRetry = time.Second

	// listenPing is how often a connection without notifications is tested, because it may be dead.
	listenPing = 10 * time.Second
)

// A listener receives the wake-ups of one store by LISTEN, on its own connection outside of the
// pool. The functions settle, dequeue and keep in schema.sql send them. The connection is
// opened for the first waiter, and closed listenIdle after the last. Without it, waiters poll.
type listener struct {
	connect func(ctx context.Context) (*pgx.Conn, error)
	channel string
	log     *slog.Logger

	ctx  context.Context // ends with Close
	wg   sync.WaitGroup
	mu   sync.Mutex
	runs bool // the goroutine
	live bool // notifications arrive
	deaf bool // there is a pooler, so notifications never arrive

	waits wake.Table[struct{}] // identities that asked with Queue set and were not granted yet
}

// keyOf returns the key of a waiter. A notification has only its identity.
func keyOf(id store.ID) wake.Key { return wake.Key{ID: id} }

// channelForWaiters returns the channel to wake the waiters, or "" if notifications do not arrive.
func (l *listener) channelForWaiters() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf {
		return ""
	}
	return l.channel
}

// expect is called before an identity asks with Queue set. A notification after this call wakes it.
func (l *listener) expect(id store.ID) {
	l.waits.Expect(keyOf(id)) // before it looks whether the goroutine runs: see stop
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.runs && !l.deaf && l.ctx.Err() == nil {
		l.runs = true
		l.wg.Go(l.run)
	}
}

// pushed reports whether notifications arrive.
func (l *listener) pushed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
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

// stop reports whether the goroutine should end, because there are no waiters or there is a pooler.
func (l *listener) stop(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == errPooler {
		l.deaf = true
		l.log.Info("holdfast: the server is behind a connection pooler, which does not pass on notifications; waiters poll", "store", "postgres")
	}
	if l.deaf || l.waits.Sweep() == 0 {
		l.runs = false
		return true
	}
	return false
}

var errPooler = fmt.Errorf("postgres store: behind a connection pooler")

// listen receives notifications until there has been no waiter for listenIdle. Then it returns nil.
func (l *listener) listen() error {
	conn, err := l.connect(l.ctx) // has connectTimeout for each host
	if err != nil {
		return explain(err)
	}
	ctx, cancel := context.WithTimeout(l.ctx, connectTimeout)
	defer cancel()
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
		ctx, cancel := context.WithTimeout(l.ctx, l.waits.Keep)
		n, err := conn.WaitForNotification(ctx)
		over := ctx.Err() != nil
		cancel()
		now := time.Now()
		switch {
		case err == nil:
			if id, err := store.ParseID(n.Payload); err == nil { // otherwise it is not ours
				l.waits.Wake(keyOf(id))
			}
			alive = now
		case l.ctx.Err() != nil:
			return nil
		case !over:
			return explain(err)
		}
		if l.waits.Sweep() > 0 {
			idle = now
		} else if now.Sub(idle) > listenIdle {
			return nil
		}
		if now.Sub(alive) > listenPing {
			ctx, cancel := context.WithTimeout(l.ctx, connectTimeout)
			err := conn.Ping(ctx)
			cancel()
			if err != nil {
				return explain(err)
			}
			alive = now
		}
	}
}

// setLive records whether notifications arrive, and reports whether that has changed. All waiters then
// ask again, because some notifications may have been missed.
func (l *listener) setLive(live bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live == live {
		return false
	}
	l.live = live
	l.waits.WakeAll()
	return true
}

// Wait blocks until a queued identity should ask again: see [store.Store]. It returns nil at
// once if the identity did not ask through this store.
func (s *Store) Wait(ctx context.Context, _ string, id store.ID) error {
	if err := cmp.Or(ctx.Err(), s.life.Usable(ctx)); err != nil {
		return err
	}
	return s.listener.waits.Wait(ctx, keyOf(id), s.life.Closing.Done(), s.life.ErrClosed)
}
