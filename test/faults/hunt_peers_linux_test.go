package faults

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-lock/holdfast/pgstore"
)

// A peer is another lock library. A hunt on it has the servers and the faults of a store.
type peer struct {
	bed     func(h *hunt)
	module  string
	open    func(o order) (lendFunc, error)
	clock   string   // what a server whose clock is set can do to its locks
	without []string // faults that concern only Holdfast
}

// A lendFunc waits for a lock. It is the client of a peer, which several goroutines share. It is
// never closed: the child that uses it is killed.
type lendFunc func(ctx context.Context, name string) (*loan, error)

var peers = map[string]peer{
	"redislock":   {huntRedis, "github.com/bsm/redislock", openRedislock, clockSet, nil},
	"redsync":     {huntQuorum, "github.com/go-redsync/redsync/v4", openRedsync, clockSet, nil},
	"rueidislock": {huntRedis, "github.com/redis/rueidis", openRueidislock, clockSet, nil},
	"etcd-mutex":  {huntEtcd, "go.etcd.io/etcd/client/v3", openEtcdMutex, "", nil},
	"zk-lock":     {huntZooKeeper, "github.com/go-zookeeper/zk", openZooLock, "", nil},
	"pg-advisory": {huntPostgres, "github.com/jackc/pgx/v5", openAdvisory, "", []string{"row locked", "long snapshot"}},
}

// begin starts the servers, and leaves out the faults that do not concern the peer.
func (p peer) begin(h *hunt) {
	p.bed(h)
	file, err := os.ReadFile("go.mod") // a test binary does not know its modules
	if err != nil {
		h.t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(file), "\t"+p.module+" ")
	version, _, _ = strings.Cut(version, "\n")
	h.result.Library = strings.TrimPrefix(p.module, "github.com/") + " " + version
	h.troubles = slices.DeleteFunc(h.troubles, func(tr trouble) bool { return slices.Contains(p.without, tr.kind) })
	for i, tr := range h.troubles {
		if strings.HasPrefix(tr.kind, "clock ") {
			h.troubles[i].weak, h.troubles[i].spares = p.clock, p.clock == ""
		}
	}
}

// A borrower is the workload of a peer.
type borrower struct {
	*printer
	lock  lendFunc
	who   string
	count atomic.Int64 // identifies holds, in the place of a token
}

func newBorrower(p *printer, o order, i int) (workload, error) {
	logging.Disable() // of go-redis
	lock, err := peers[o.Peer].open(o)
	return &borrower{printer: p, lock: lock, who: fmt.Sprintf("%s/%d", o.Who, i)}, err
}

func (b *borrower) turn(ctx context.Context, h *hand) error {
	b.borrow(ctx, fmt.Sprint("n", h.IntN(huntNames)), h.upTo(10*time.Millisecond))
	return nil
}

// keep contends for names of its own, and holds them for long enough to be renewed.
func (b *borrower) keep(ctx context.Context, h *hand) {
	for pause(ctx, h.upTo(think)) {
		b.borrow(ctx, fmt.Sprint("k", h.IntN(huntChildren)), 5*huntTTL/2)
	}
}

// borrow takes a lock, holds it for a time, and records it. A library may return any error during a
// fault.
func (b *borrower) borrow(ctx context.Context, name string, d time.Duration) {
	hold := Hold{Who: b.who, Name: name, Token: b.count.Add(1), TTL: huntTTL, Asked: now()}
	ctx, cancel := context.WithTimeout(ctx, 10*huntTTL)
	defer cancel()
	l, err := b.lock(ctx, name)
	if err != nil {
		b.recorder().unknown(Attempt{Who: hold.Who, Name: name, Asked: hold.Asked, Ended: now()})
		return
	}
	l.use(hold, d, now, time.Sleep, b.recorder().note)
}

func (b *borrower) close() error { return nil }

// hosts returns the addresses in the URL of a store.
func (o *order) hosts() []string {
	_, rest, _ := strings.Cut(o.URL, "://")
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		rest = rest[:i]
	}
	return strings.Split(rest, ",")
}

// A retryFunc is a strategy of redislock. It is called after each refusal.
type retryFunc func() time.Duration

func (f retryFunc) NextBackoff() time.Duration { return f() }

// openRedislock opens a library without a signal of loss: a lock is valid for its TTL, counted from
// a time before the successful request was sent.
func openRedislock(o order) (lendFunc, error) {
	client := redislock.New(redis.NewClient(&redis.Options{Addr: o.hosts()[0]}))
	return func(ctx context.Context, name string) (*loan, error) {
		until := now() + huntTTL
		retry := retryFunc(func() time.Duration {
			until = now() + huntTTL
			return 100 * time.Millisecond
		})
		l, err := client.Obtain(ctx, name, huntTTL, &redislock.Options{RetryStrategy: retry})
		extend := func(ctx context.Context) error {
			next := now() + huntTTL
			err := l.Refresh(ctx, huntTTL, nil)
			if err == nil {
				until = next
			} else if errors.Is(err, redislock.ErrNotObtained) {
				until = 0
			}
			return err
		}
		return &loan{func(context.Context) bool { return now() < until }, extend, l.Release}, err
	}, nil
}

// openRedsync opens a library that tells until when a lock is valid.
func openRedsync(o order) (lendFunc, error) {
	var pools []redsyncredis.Pool
	for _, addr := range o.hosts() {
		pools = append(pools, redsyncgoredis.NewPool(redis.NewClient(&redis.Options{Addr: addr})))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context, name string) (*loan, error) {
		m := rs.NewMutex(name, redsync.WithExpiry(huntTTL), redsync.WithTries(math.MaxInt))
		call := func(do func(context.Context) (bool, error)) func(context.Context) error {
			return func(ctx context.Context) error {
				ok, err := do(ctx)
				if !ok && err == nil {
					err = redsync.ErrFailed
				}
				return err
			}
		}
		live := func(context.Context) bool { return time.Now().Before(m.Until()) }
		return &loan{live, call(m.ExtendContext), call(m.UnlockContext)}, m.LockContext(ctx)
	}, nil
}

// openRueidislock opens a library that cancels a context on loss. With one server there is no
// next one to try.
func openRueidislock(o order) (lendFunc, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: o.hosts(), ForceSingleClient: true},
		KeyMajority:  1, NoLoopTracking: true, KeyValidity: huntTTL, TryNextAfter: huntTTL,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, name string) (*loan, error) {
		// A deadline of the context would bound the lock too.
		life, end := context.WithCancel(context.Background())
		stop := context.AfterFunc(ctx, end)
		held, release, err := locker.WithContext(life, name)
		if err != nil || !stop() {
			end()
			return nil, errors.Join(err, ctx.Err())
		}
		return &loan{
			live: func(context.Context) bool { return held.Err() == nil },
			unlock: func(context.Context) error {
				defer end()
				release()
				return nil
			},
		}, nil
	}, nil
}

// sessions keeps sessions of servers for reuse. Each has one lock at a time, because some libraries
// do not exclude goroutines of one session. A session whose call failed is closed, since the lock
// may have been granted.
type sessions[S any] struct {
	open func(ctx context.Context) (S, error)
	shut func(S)
	lock func(ctx context.Context, s S, name string) (*loan, error)

	mu   sync.Mutex
	idle []S
}

func (p *sessions[S]) take(ctx context.Context) (s S, err error) {
	p.mu.Lock()
	n := len(p.idle)
	if n > 0 {
		s, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	p.mu.Unlock()
	if n == 0 {
		s, err = p.open(ctx)
	}
	return s, err
}

func (p *sessions[S]) lend(ctx context.Context, name string) (*loan, error) {
	s, err := p.take(ctx)
	if err != nil {
		return nil, err
	}
	l, err := p.lock(ctx, s, name)
	if err != nil {
		go p.shut(s)
		return nil, err
	}
	unlock := l.unlock
	l.unlock = func(ctx context.Context) error {
		err := unlock(ctx)
		if err != nil {
			go p.shut(s)
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.idle = append(p.idle, s)
		return nil
	}
	return l, nil
}

// openEtcdMutex opens a library whose session tells its end.
func openEtcdMutex(o order) (lendFunc, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: o.hosts(), Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	p := &sessions[*concurrency.Session]{
		open: func(context.Context) (*concurrency.Session, error) {
			return concurrency.NewSession(client, concurrency.WithTTL(int(huntTTL.Seconds())))
		},
		shut: func(s *concurrency.Session) { s.Close() },
		lock: func(ctx context.Context, s *concurrency.Session, name string) (*loan, error) {
			m := concurrency.NewMutex(s, "peer/"+name)
			live := func(context.Context) bool {
				select {
				case <-s.Done():
					return false
				default:
					return true
				}
			}
			return &loan{live: live, unlock: m.Unlock}, m.Lock(ctx)
		},
	}
	return p.lend, nil
}

// openZooLock opens a library whose locks last as long as the session. Sync passes the leader, which
// knows whether the session has ended.
func openZooLock(o order) (lendFunc, error) {
	p := &sessions[*zk.Conn]{
		open: func(context.Context) (*zk.Conn, error) {
			conn, _, err := zk.Connect(o.hosts(), huntTTL, zk.WithLogger(silent{}))
			return conn, err
		},
		shut: func(conn *zk.Conn) { conn.Close() },
		lock: func(_ context.Context, conn *zk.Conn, name string) (*loan, error) {
			l := zk.NewLock(conn, "/peer/"+name, zk.WorldACL(zk.PermAll))
			if err := l.Lock(); err != nil {
				return nil, err
			}
			session := conn.SessionID()
			live := func(context.Context) bool {
				_, err := conn.Sync("/peer")
				return err == nil && conn.SessionID() == session
			}
			return &loan{live: live, unlock: func(context.Context) error { return l.Unlock() }}, nil
		},
	}
	return p.lend, nil
}

// openAdvisory opens the advisory locks of PostgreSQL, which last as long as the session.
func openAdvisory(o order) (lendFunc, error) {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, err
	}
	delete(config.RuntimeParams, "schema") // of Holdfast
	p := &sessions[*pgx.Conn]{
		open: func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, config) },
		shut: func(conn *pgx.Conn) {
			ctx, cancel := context.WithTimeout(context.Background(), huntTTL)
			defer cancel()
			conn.Close(ctx)
		},
		lock: func(ctx context.Context, conn *pgx.Conn, name string) (*loan, error) {
			key := pgstore.TxKey(name)
			_, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", key)
			return &loan{
				live: func(ctx context.Context) bool { return conn.Ping(ctx) == nil },
				unlock: func(ctx context.Context) error {
					var held bool
					err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock($1)", key).Scan(&held)
					if err == nil && !held {
						err = errors.New("the lock was not held")
					}
					return err
				},
			}, err
		},
	}
	return p.lend, nil
}
