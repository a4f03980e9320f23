package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/redisstore"
)

// A peer is one lock library, or the raw commands.
type peer struct {
	name string
	open func(addr string) (locker, error)
	poll time.Duration // interval of its attempts while it waits; 0 if it is woken
}

// foreign reports whether the peer is another library. Its failures do not end the run.
func (p *peer) foreign() bool { return p.name != us && p.name != raw }

// A locker is a client of a peer.
type locker interface {
	Lock(ctx context.Context, name string) (held, error) // waits for its turn
	Close() error
}

// held is a held lock.
type held interface {
	Unlock(ctx context.Context) error
}

const (
	us  = "holdfast"
	raw = "raw"

	// ttl is the default of Holdfast, and the other libraries are set to it too.
	ttl = holdfast.DefaultTTL

	// redislockRetry is the interval that the documentation of redislock uses. redsync waits for
	// 50 to 250 ms.
	redislockRetry = 100 * time.Millisecond
	redsyncRetry   = 150 * time.Millisecond
)

// waiting lists the peers that can wait for a held lock, each in its best configuration.
var waiting = []peer{
	{name: us, open: openHoldfast},
	{name: "redislock", open: openRedislock, poll: redislockRetry},
	{name: "redsync", open: openRedsync, poll: redsyncRetry},
	{name: "rueidislock", open: openRueidislock},
}

// all lists the peers in waiting and the raw commands, which cannot wait.
var all = append([]peer{{name: raw, open: openRaw}}, waiting...)

// dial opens a client of the library that redisstore uses, for the raw commands.
func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
}

// A holdfastLocker is Holdfast with its defaults: tokens and renewal.
type holdfastLocker struct{ *holdfast.Client }

func openHoldfast(addr string) (locker, error) {
	c, err := holdfast.Open(context.Background(), "redis://"+addr)
	if err != nil {
		return nil, err
	}
	return holdfastLocker{c}, nil
}

func (l holdfastLocker) Lock(ctx context.Context, name string) (held, error) {
	return l.Client.Lock(ctx, name)
}

// A rawLocker uses the plain commands: SET NX PX and DEL.
type rawLocker struct {
	conn rueidis.Client
	n    atomic.Int64
}

type rawHeld struct {
	conn rueidis.Client
	name string
}

func openRaw(addr string) (locker, error) {
	conn, err := dial(addr)
	return &rawLocker{conn: conn}, err
}

func (l *rawLocker) Lock(ctx context.Context, name string) (held, error) {
	id := strconv.FormatInt(l.n.Add(1), 36)
	err := l.conn.Do(ctx, l.conn.B().Set().Key(name).Value(id).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
	if err != nil {
		return nil, err
	}
	return &rawHeld{l.conn, name}, nil
}

func (h *rawHeld) Unlock(ctx context.Context) error {
	n, err := h.conn.Do(ctx, h.conn.B().Del().Key(h.name).Build()).AsInt64()
	if err == nil && n != 1 {
		err = fmt.Errorf("raw: %s was gone", h.name)
	}
	return err
}

func (l *rawLocker) Close() error {
	l.conn.Close()
	return nil
}

type redislockLocker struct {
	conn   *redis.Client
	client *redislock.Client
}

type redislockHeld struct{ *redislock.Lock }

func openRedislock(addr string) (locker, error) {
	conn := redis.NewClient(&redis.Options{Addr: addr})
	return &redislockLocker{conn, redislock.New(conn)}, nil
}

func (l *redislockLocker) Lock(ctx context.Context, name string) (held, error) {
	// Obtain gives up after the TTL unless the context has a deadline.
	lock, err := l.client.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)})
	if err != nil {
		return nil, err
	}
	return redislockHeld{lock}, nil
}

func (h redislockHeld) Unlock(ctx context.Context) error { return h.Release(ctx) }

func (l *redislockLocker) Close() error { return l.conn.Close() }

type redsyncLocker struct {
	conn *redis.Client
	sync *redsync.Redsync
}

type redsyncHeld struct{ *redsync.Mutex }

func openRedsync(addr string) (locker, error) {
	conn := redis.NewClient(&redis.Options{Addr: addr})
	return &redsyncLocker{conn, redsync.New(goredis.NewPool(conn))}, nil
}

func (l *redsyncLocker) Lock(ctx context.Context, name string) (held, error) {
	// By default the mutex gives up after 32 attempts.
	mutex := l.sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{mutex}, nil
}

func (h redsyncHeld) Unlock(ctx context.Context) error {
	_, err := h.UnlockContext(ctx)
	return err
}

func (l *redsyncLocker) Close() error { return l.conn.Close() }

// A rueidislockLocker is rueidislock as documented for one server of Redis 7.0.5 or later. After
// TryNextAfter it abandons a reply to ask the next server, and can then wait forever for a lock
// that it holds. The default of 20 ms is too short for a busy machine, and there is no next server.
type rueidislockLocker struct{ rueidislock.Locker }

type rueidislockHeld context.CancelFunc

func openRueidislock(addr string) (locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: ttl, TryNextAfter: hangs,
	})
	return rueidislockLocker{l}, err
}

func (l rueidislockLocker) Lock(ctx context.Context, name string) (held, error) {
	_, cancel, err := l.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return rueidislockHeld(cancel), nil
}

func (h rueidislockHeld) Unlock(context.Context) error {
	h()
	return nil
}

func (l rueidislockLocker) Close() error {
	l.Locker.Close()
	return nil
}
