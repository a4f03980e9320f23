package etcdstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-lock/holdfast/internal/core/bounded"
)

// freshPart limits which leases are reused without a keep-alive: those whose age is at most 1/freshPart of
// their TTL. Their age is subtracted from the TTL of the grant.
const freshPart = 20

const (
	noLease  = 0 // an ID that no lease has
	unusable = 0 // a TTL that no request has: of leases in the pool that only wait for Close
)

// A lease of etcd belongs to one identity at a time, so that each grant expires on its own and each waiter has
// its own heartbeat. Creating a lease costs as much as a lock, so the lease of a released grant is reused.
type lease struct {
	id      int64
	seconds int64        // as requested
	ttl     atomic.Int64 // as granted; a time.Duration; 0 after the lease has ended
	sent    atomic.Int64 // send time of the last successful call, since base; the TTL counts from then

	// Foreign leases were made by another handle, which may reuse them.
	foreign bool

	// Unsure means that a write with this lease got no reply and may still arrive. So the lease is not
	// reused, but revoked later, and from then on the server refuses that write.
	unsure atomic.Bool
}

// base is the zero of this package's monotonic clock.
var base = time.Now()

func sinceBase() time.Duration { return time.Since(base) + 1 }

func (l *lease) began(sent time.Duration, seconds int64) {
	l.ttl.Store(seconds * int64(time.Second))
	l.sent.Store(int64(sent))
}

func (l *lease) age() time.Duration { return sinceBase() - time.Duration(l.sent.Load()) }

func (l *lease) span() time.Duration { return time.Duration(l.ttl.Load()) }

// ends returns when the server may end the lease, since base.
func (l *lease) ends() time.Duration { return time.Duration(l.sent.Load()) + l.span() }

// left returns how much time the lease has, counted from the beginning of a call.
func (l *lease) left(began time.Duration) time.Duration {
	return l.span() - max(0, began-time.Duration(l.sent.Load()))
}

// A pool holds the unused leases by requested TTL, the most recently used ones last. Leases that are not
// kept alive expire. It has no limit, so that Close can revoke all leases that are alive: a lease that
// the pool dropped would stay on the server for the rest of its TTL.
type pool struct {
	mu   sync.Mutex
	idle map[int64][]*lease
}

func (p *pool) pop(seconds int64) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[seconds]
	if len(list) == 0 {
		return nil
	}
	l := list[len(list)-1]
	list[len(list)-1] = nil
	p.idle[seconds] = list[:len(list)-1]
	return l
}

func (p *pool) push(l *lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.idle == nil {
		p.idle = make(map[int64][]*lease)
	}
	seconds := l.seconds
	if l.unsure.Load() {
		seconds = unusable
	}
	list := p.idle[seconds]
	if len(list) == cap(list) { // before it grows, drop the expired ones
		list = slices.DeleteFunc(list, func(l *lease) bool { return l.age() > l.span() })
	}
	p.idle[seconds] = append(list, l)
}

// drain empties the pool. Leases that are alive come before expired ones. Unsure ones may be those of grants.
func (p *pool) drain() (all, unsure []*lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	unsure = p.idle[unusable]
	delete(p.idle, unusable)
	for _, list := range p.idle {
		all = append(all, list...)
	}
	p.idle = nil
	slices.SortFunc(all, func(a, b *lease) int { return cmp.Compare(b.ends(), a.ends()) })
	return all, unsure
}

// lease returns an unused or new lease with that TTL and nearly all of its time left.
func (s *Store) lease(ctx context.Context, ttl time.Duration) (*lease, error) {
	seconds := whole(ttl)
	for l := s.pool.pop(seconds); l != nil; l = s.pool.pop(seconds) {
		age := l.age()
		if age <= l.span()/freshPart {
			return l, nil
		}
		if age >= l.span() {
			continue // the server has ended it
		}
		alive, err := s.keepAlive(ctx, l)
		if err != nil {
			s.pool.push(l)
			return nil, err
		}
		if alive {
			return l, nil
		}
	}
	return s.createLease(ctx, seconds)
}

// createLease creates a lease. If ctx ends first, the lease is available to later calls when the reply
// arrives. Otherwise each caller with little time would leave a lease behind, and never get one.
func (s *Store) createLease(ctx context.Context, seconds int64) (*lease, error) {
	var l *lease
	var err error
	done := make(chan bool)
	s.life.Go(func(work context.Context) {
		waiting, cancel := context.WithCancel(work)
		defer cancel()
		defer context.AfterFunc(ctx, func() { time.AfterFunc(bounded.CallTimeout, cancel) })()
		l, err = s.newLease(waiting, noLease, seconds)
		select {
		case done <- true:
		case <-ctx.Done():
			s.recycle(work, l)
		}
	})
	select {
	case <-done:
		return l, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// newLease creates a lease. The server chooses its ID unless id is set.
func (s *Store) newLease(ctx context.Context, id, seconds int64) (*lease, error) {
	sent := sinceBase()
	resp, err := call(s, ctx, s.leases.LeaseGrant, &pb.LeaseGrantRequest{ID: id, TTL: seconds})
	if err != nil {
		return nil, err
	}
	l := &lease{id: resp.ID, seconds: seconds}
	l.began(sent, resp.TTL)
	return l, nil
}

// recycle makes a lease without keys available for reuse, or revokes it.
func (s *Store) recycle(ctx context.Context, l *lease) {
	if l != nil && !l.foreign && (!l.unsure.Load() || s.revokeUnsure(ctx, l) != nil) {
		s.pool.push(l)
	}
}

// revokeUnsure revokes a lease, unless no write with it can still arrive.
func (s *Store) revokeUnsure(ctx context.Context, l *lease) error {
	if l == nil || l.foreign || !l.unsure.Load() || l.span() == 0 {
		return nil
	}
	err := s.revoke(ctx, l.id)
	if err == nil {
		l.ttl.Store(0)
	}
	return err
}

// revoke ends a lease and deletes its keys. If that fails, the lease ends by itself.
func (s *Store) revoke(ctx context.Context, id int64) error {
	if _, err := call(s, ctx, s.leases.LeaseRevoke, &pb.LeaseRevokeRequest{ID: id}); !leaseGone(err) {
		return err
	}
	return nil
}

// keepAlive restarts the TTL of one lease, and reports whether it is alive.
func (s *Store) keepAlive(ctx context.Context, l *lease) (bool, error) {
	alive, err := s.keepAlives(ctx, []*lease{l})
	return err == nil && alive[0], err
}

// keepAlives restarts the TTLs of leases, and reports which of them are alive.
func (s *Store) keepAlives(ctx context.Context, leases []*lease) ([]bool, error) {
	if s.several {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, hung+time.Duration(len(leases))*hung/1000)
		defer cancel()
	}
	return s.keeper.keep(ctx, leases)
}

// leftOf returns the remaining time of a lease, or 0 if there is no such lease.
func (s *Store) leftOf(ctx context.Context, id int64) (time.Duration, error) {
	resp, err := call(s, ctx, s.leases.LeaseTimeToLive, &pb.LeaseTimeToLiveRequest{ID: id})
	if err != nil {
		return 0, err
	}
	return time.Duration(max(0, resp.TTL)) * time.Second, nil
}

// closeLeases revokes idle leases, those of waiters, and those of grants that do not exist.
func (s *Store) closeLeases(ctx context.Context) {
	var ends, grants []*lease
	s.mu.Lock()
	for _, c := range s.claims {
		if c.place != nil {
			ends = append(ends, c.place)
		}
		if c.grant != nil && !c.grant.foreign {
			grants = append(grants, c.grant)
		}
	}
	clear(s.claims)
	s.mu.Unlock()
	idle, unsure := s.pool.drain()
	ends, grants = append(ends, idle...), append(grants, unsure...)
	inParallel(len(ends), func(i int) { _ = s.revoke(ctx, ends[i].id) })
	inParallel(len(grants), func(i int) {
		l := grants[i]
		resp, err := call(s, ctx, s.leases.LeaseTimeToLive, &pb.LeaseTimeToLiveRequest{ID: l.id, Keys: true})
		if err == nil && resp.TTL > 0 && len(resp.Keys) == 0 {
			_ = s.revoke(ctx, l.id)
		}
	})
}

// inParallel calls f(0) … f(n-1), a few at a time.
func inParallel(n int, f func(i int)) {
	const workers = 32
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	wg.Wait()
}
