package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-lock/holdfast"
	_ "github.com/holdfast-lock/holdfast/redisstore"
)

// A peer is one lock library, or the plain commands.
type peer struct {
	name  string
	open  func(addr string) (*locker, error)
	poll  time.Duration // interval of its attempts while it waits; 0 if it is woken
	limit bool          // plain commands, which cannot wait
}

// foreign reports whether the peer is another library. Its failures do not end the run.
func (p *peer) foreign() bool { return p.name != us && !p.limit }

// A locker is a client of a peer.
type locker struct {
	lock  func(ctx context.Context, name string) (held, error) // waits for its turn
	close func() error

	// fork returns a locker for a further goroutine. It is nil if goroutines can share this one.
	fork func() (*locker, error)
}

// held is a held lock.
type held interface {
	Unlock(ctx context.Context) error
}

// An unlocker is a held lock of a peer.
type unlocker func(ctx context.Context) error

func (u unlocker) Unlock(ctx context.Context) error { return u(ctx) }

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

// ours is Holdfast with its defaults: tokens and renewal.
func ours(url func(addr string) string) peer {
	return peer{name: us, open: func(addr string) (*locker, error) {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		c, err := holdfast.Open(ctx, url(addr))
		if err != nil {
			return nil, err
		}
		return ourLocker(c), nil
	}}
}

func ourLocker(c *holdfast.Client) *locker {
	return &locker{close: c.Close, lock: func(ctx context.Context, name string) (held, error) { return c.Lock(ctx, name) }}
}

// scheme returns a function that puts the scheme of a URL before an address.
func scheme(name string) func(addr string) string {
	return func(addr string) string { return name + addr }
}

// redisServer has each library in its best configuration.
var redisServer = &system{
	start: func(b *bench) string { return b.redis.Addr() },
	trip:  redisTrip,
	peers: []peer{
		{name: raw, open: openRaw, limit: true},
		ours(scheme("redis://")),
		{name: "redislock", open: openRedislock, poll: redislockRetry},
		{name: "redsync", open: openRedsync, poll: redsyncRetry},
		{name: "rueidislock", open: openRueidislock},
	},
}

// dial opens a client of the library that redisstore uses, for the raw commands.
func dial(addr string) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
}

func redisTrip(addr string) (call func(ctx context.Context) error, end func(), err error) {
	conn, err := dial(addr)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) error { return conn.Do(ctx, conn.B().Ping().Build()).Error() }, conn.Close, nil
}

// openRaw uses the plain commands: SET NX PX and DEL.
func openRaw(addr string) (*locker, error) {
	conn, err := dial(addr)
	if err != nil {
		return nil, err
	}
	var n atomic.Int64
	return &locker{close: closed(conn.Close), lock: func(ctx context.Context, name string) (held, error) {
		id := strconv.FormatInt(n.Add(1), 36)
		err := conn.Do(ctx, conn.B().Set().Key(name).Value(id).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
		return unlocker(func(ctx context.Context) error {
			n, err := conn.Do(ctx, conn.B().Del().Key(name).Build()).AsInt64()
			if err == nil && n != 1 {
				err = fmt.Errorf("raw: %s was gone", name)
			}
			return err
		}), err
	}}, nil
}

// closed returns a close function that returns no error.
func closed(end func()) func() error {
	return func() error {
		end()
		return nil
	}
}

func openRedislock(addr string) (*locker, error) {
	conn := redis.NewClient(&redis.Options{Addr: addr})
	client := redislock.New(conn)
	return &locker{close: conn.Close, lock: func(ctx context.Context, name string) (held, error) {
		// Obtain gives up after the TTL unless the context has a deadline.
		lock, err := client.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)})
		return unlocker(lock.Release), err
	}}, nil
}

// openRedsync locks on a majority of the servers, whose addresses have commas between them.
func openRedsync(addrs string) (*locker, error) {
	var conns []*redis.Client
	var pools []redsyncredis.Pool
	for _, addr := range strings.Split(addrs, ",") {
		conn := redis.NewClient(&redis.Options{Addr: addr})
		conns, pools = append(conns, conn), append(pools, goredis.NewPool(conn))
	}
	sync := redsync.New(pools...)
	end := closed(func() {
		for _, conn := range conns {
			conn.Close()
		}
	})
	return &locker{close: end, lock: func(ctx context.Context, name string) (held, error) {
		// By default the mutex gives up after 32 attempts.
		mutex := sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		return unlocker(func(ctx context.Context) error {
			_, err := mutex.UnlockContext(ctx)
			return err
		}), mutex.LockContext(ctx)
	}}, nil
}

// openRueidislock is rueidislock as documented for one server of Redis 7.0.5 or later. After
// TryNextAfter it abandons a reply to ask the next server, and can then wait forever for a lock
// that it holds. The default of 20 ms is too short for a busy machine, and there is no next server.
func openRueidislock(addr string) (*locker, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: ttl, TryNextAfter: hangs,
	})
	if err != nil {
		return nil, err
	}
	return &locker{close: closed(l.Close), lock: func(ctx context.Context, name string) (held, error) {
		_, cancel, err := l.WithContext(ctx, name)
		return unlocker(func(context.Context) error {
			cancel()
			return nil
		}), err
	}}, nil
}
