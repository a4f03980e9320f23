package main

import (
	"context"
	"fmt"
	"math"
	"slices"
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
	"github.com/holdfast-lock/holdfast/internal/testing/servers"
	"github.com/holdfast-lock/holdfast/internal/tools/must"
	"github.com/holdfast-lock/holdfast/memstore"
	_ "github.com/holdfast-lock/holdfast/redisstore"
)

// A system is a kind of server, with the contenders that are compared on it.
type system struct {
	name  string // before the work in the report; empty for a single Redis server
	start func(b *bench) (addr string)
	peers []peer

	// trip, if set, returns a call that is one round trip. On servers that write to several
	// replicas it is a write, because a release and a grant are writes.
	trip func(addr string) (call func(ctx context.Context) error, end func())
}

// systems are all systems, so that a child process finds its peer.
var systems = []*system{redisServer, redisQuorum, etcdServer, zooKeeper, sqliteFile, mariaDB, mariaDBWithoutFlushes, postgres}

// work returns the name of a workload in the report.
func (s *system) work(text string) string {
	if s.name == "" {
		return text
	}
	return s.name + ", " + text
}

func (s *system) peer(name string) peer {
	return s.peers[slices.IndexFunc(s.peers, func(p peer) bool { return p.name == name })]
}

// addr returns the address of a system, which is started when it is first used.
func (b *bench) addr(s *system) string {
	if b.addrs[s] == "" {
		b.addrs[s] = s.start(b)
	}
	return b.addrs[s]
}

func (b *bench) open(s *system, p peer) *locker { return p.open(b.addr(s)) }

// wanted returns the peers that the user selected.
func (b *bench) wanted(peers []peer) []peer {
	return slices.DeleteFunc(slices.Clone(peers), func(p peer) bool {
		return b.who != nil && !slices.Contains(b.who, p.name)
	})
}

// waiting returns the selected peers that can wait for a held lock.
func (b *bench) waiting(s *system) []peer {
	return slices.DeleteFunc(b.wanted(s.peers), func(p peer) bool { return p.limit })
}

// A peer is one lock library, or the plain commands.
type peer struct {
	name  string
	open  func(addr string) *locker
	poll  time.Duration // interval of its attempts while it waits; 0 if it is woken
	limit bool          // plain commands, which cannot wait
}

// foreign reports whether the peer is another library.
func (p *peer) foreign() bool { return p.name != us && !p.limit }

// A locker is a client of a peer.
type locker struct {
	lock  func(ctx context.Context, name string) (held, error) // waits for its turn
	close func()
}

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

	// redislockRetry is that of the documentation of redislock. redsync waits for 50 to 250 ms.
	redislockRetry = 100 * time.Millisecond
	redsyncRetry   = 150 * time.Millisecond
)

// ours is Holdfast with its defaults: tokens and renewal. The URL of the store has %s for the address.
func ours(url string) peer {
	return peer{name: us, open: func(addr string) *locker {
		ctx, cancel := context.WithTimeout(context.Background(), hangs)
		defer cancel()
		return ourLocker(must.Get(holdfast.Open(ctx, fmt.Sprintf(url, addr))))
	}}
}

func ourLocker(c *holdfast.Client) *locker {
	return &locker{close: func() { c.Close() }, lock: func(ctx context.Context, name string) (held, error) { return c.Lock(ctx, name) }}
}

// memory is the core without a server.
var memory = &system{
	name:  "memory",
	start: func(*bench) string { return "memory" },
	peers: []peer{{name: us, open: func(string) *locker { return ourLocker(must.Get(holdfast.New(memstore.New()))) }}},
}

// redisServer has each library in its best configuration.
var redisServer = &system{
	start: func(b *bench) string { return b.redis.Addr() },
	trip: func(addr string) (call func(ctx context.Context) error, end func()) {
		conn := dial(addr)
		return func(ctx context.Context) error { return conn.Do(ctx, conn.B().Ping().Build()).Error() }, conn.Close
	},
	peers: []peer{
		{name: raw, open: openRaw, limit: true},
		ours("redis://%s"),
		{name: "redislock", open: openRedislock, poll: redislockRetry},
		{name: "redsync", open: openRedsync, poll: redsyncRetry},
		{name: "rueidislock", open: openRueidislock},
	},
}

var redisOptions = servers.RedisOptions{InMemory: true, Config: []string{"maxclients 20000"}}

// serverTime returns the CPU time of a single Redis server, which other programs do not lengthen.
func (b *bench) serverTime(s *system) time.Duration {
	if s != redisServer {
		return 0
	}
	fields := must.Get(b.redis.Info("cpu"))
	user, system := must.Get(strconv.ParseFloat(fields["used_cpu_user"], 64)), must.Get(strconv.ParseFloat(fields["used_cpu_sys"], 64))
	return time.Duration((user + system) * float64(time.Second))
}

// dial opens a client of the library that redisstore uses, for the raw commands.
func dial(addr string) rueidis.Client {
	return must.Get(rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true}))
}

// openRaw uses the plain commands: SET NX PX and DEL.
func openRaw(addr string) *locker {
	conn := dial(addr)
	var n atomic.Int64
	return &locker{close: conn.Close, lock: func(ctx context.Context, name string) (held, error) {
		id := strconv.FormatInt(n.Add(1), 36)
		err := conn.Do(ctx, conn.B().Set().Key(name).Value(id).Nx().PxMilliseconds(ttl.Milliseconds()).Build()).Error()
		return unlocker(func(ctx context.Context) error {
			n, err := conn.Do(ctx, conn.B().Del().Key(name).Build()).AsInt64()
			if err == nil && n != 1 {
				err = fmt.Errorf("raw: %s was gone", name)
			}
			return err
		}), err
	}}
}

func openRedislock(addr string) *locker {
	conn := redis.NewClient(&redis.Options{Addr: addr})
	client := redislock.New(conn)
	return &locker{close: func() { conn.Close() }, lock: func(ctx context.Context, name string) (held, error) {
		// Obtain gives up after the TTL unless the context has a deadline.
		lock, err := client.Obtain(ctx, name, ttl, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)})
		return unlocker(lock.Release), err
	}}
}

// openRedsync locks on a majority of the servers, whose addresses have commas between them.
func openRedsync(addrs string) *locker {
	var conns []*redis.Client
	var pools []redsyncredis.Pool
	for addr := range strings.SplitSeq(addrs, ",") {
		conn := redis.NewClient(&redis.Options{Addr: addr})
		conns, pools = append(conns, conn), append(pools, goredis.NewPool(conn))
	}
	sync := redsync.New(pools...)
	end := func() {
		for _, conn := range conns {
			conn.Close()
		}
	}
	return &locker{close: end, lock: func(ctx context.Context, name string) (held, error) {
		// By default the mutex gives up after 32 attempts.
		mutex := sync.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		unlock := func(ctx context.Context) error { return errOf(mutex.UnlockContext(ctx)) }
		return unlocker(unlock), mutex.LockContext(ctx)
	}}
}

// openRueidislock is rueidislock as documented for one server of Redis 7.0.5 or later. After
// TryNextAfter it abandons a reply to ask the next server, and can then wait forever for a lock
// that it holds. The default of 20 ms is too short for a busy machine, and there is no next server.
func openRueidislock(addr string) *locker {
	l := must.Get(rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, ForceSingleClient: true},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: ttl, TryNextAfter: hangs,
	}))
	return &locker{close: l.Close, lock: func(ctx context.Context, name string) (held, error) {
		_, cancel, err := l.WithContext(ctx, name)
		return unlocker(func(context.Context) error {
			cancel()
			return nil
		}), err
	}}
}
