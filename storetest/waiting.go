package storetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// G6: waiters are served in order of arrival, wake-ups are pushed, and dead waiters are dropped.
var waitingTests = []test{
	{name: "a wake-up is pushed and does not rely on polling", needs: store.FeatureQueue, run: func(s *suite) {
		s.promptly(false, exclusiveRivals)
	}},
	{name: "a wake-up is pushed when any holder of permits leaves", needs: store.FeatureQueue | store.FeaturePermits, run: func(s *suite) {
		s.promptly(false, func(one, two *conn, name string) (holder, waiter *claim) {
			a := one.permits(name, 1, 2).granted()
			two.permits(name, 1, 2).granted()
			return a, two.permits(name, 1, 2)
		})
	}},
	{name: "a change between refusal and Wait is not lost", needs: store.FeatureQueue, run: func(s *suite) {
		s.promptly(true, exclusiveRivals)
	}},
	{name: "calls of Wait on one connection are independent", run: func(s *suite) {
		one, two, same := s.open2()
		type pair struct{ holder, waiter *claim }
		var pairs []pair
		var waits []*wait
		for range 5 {
			name := s.name()
			pairs = append(pairs, pair{one.exclusive(name).granted(), two.exclusive(name).queued(1)})
		}
		// Also test two waiters of one name, where the second follows the first.
		first := pair{one.exclusive(same).granted(), two.exclusive(same).queued(1)}
		pairs = append(pairs, first, pair{first.waiter, two.exclusive(same).queued(2)})
		for _, p := range pairs {
			waits = append(waits, p.waiter.wait())
		}
		for i, p := range pairs {
			p.holder.release()
			waits[i].woken()
			p.waiter.granted()
		}
	}},
	{name: "Wait ends with its context", run: func(s *suite) {
		one, two, name := s.open2()
		one.exclusive(name).granted()
		// Wait may return nil early. So ask again until a call is still blocked when its context ends.
		b := two.exclusive(name)
		for cause, limit := range map[error]time.Duration{context.DeadlineExceeded: s.TTL / 20, context.Canceled: eternity} {
			cut := s.eventually(patience, func() bool {
				b.queued(1)
				w := b.waitFor(limit)
				if cause == context.Canceled {
					time.Sleep(s.TTL / 20)
					w.cancel()
				}
				err := w.ended()
				if err != nil && !errors.Is(err, cause) {
					s.Fatalf("Wait: %v, want %v", err, cause)
				}
				return err != nil
			})
			if !cut {
				s.Fatalf("Wait never returns %v", cause)
			}
		}
	}},
	{name: "the next waiter is granted within Again after an expiry", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).short().granted()
		b := two.exclusive(name)
		took := b.served(patience + a.ans.TTL)
		if limit := a.ans.TTL + b.again + s.Slack + busy; took > limit {
			s.Fatalf("served after %v, want %v at most", took, limit)
		}
	}},
	{name: "twenty waiters on five connections are served in order", run: func(s *suite) {
		var conns []*conn
		for range 5 {
			conns = append(conns, s.open())
		}
		name := s.name()
		holder := conns[0].exclusive(name).granted()
		const waiters = 20
		ctx, cancel := s.boundedFor(waiters)
		var mu sync.Mutex
		var order []int
		var late bool // one of them may have lost its place
		var all sync.WaitGroup
		defer all.Wait()
		defer cancel()
		for i := range waiters {
			w := conns[i%len(conns)].exclusive(name).queued(i + 1)
			// It asks again at once, so that it keeps its place even if the others join slowly.
			all.Go(func() {
				if err := w.drive(ctx); err != nil {
					s.Errorf("%d: %v", i, err)
					return
				}
				mu.Lock() // the order is that of grants, because each holder is alone
				order, late = append(order, i), late || w.late
				mu.Unlock()
				if err := w.tryRelease(store.Keep{}); err != nil {
					s.Errorf("%d: Release: %v", i, err)
				}
			})
		}
		time.Sleep(s.TTL / 10) // let them wait
		holder.release()
		all.Wait()
		if s.caps.Features.Has(store.FeatureQueue) && !slices.IsSorted(order) {
			if s.Logf("served in the order %v", order); !late {
				s.Error("no waiter asked later than a heartbeat after it had asked before")
			}
		}
	}},
	{name: "invalid requests do not affect a waiter", needs: store.FeatureQueue | store.FeaturePermits, run: func(s *suite) {
		one, two, name := s.open2()
		holder := one.permits(name, 1, 1).granted()
		waiter := two.permits(name, 1, 1).queued(1)
		ctx, cancel := s.boundedFor(1)
		defer cancel()
		served := make(chan error, 1)
		go func() { served <- waiter.drive(ctx) }()
		for range 30 {
			wrong := one.permits(name, 1, 2)
			wrong.req.Queue = true
			_, err := wrong.attempt()
			wrong.expect("Acquire", err, store.ErrInvalid)
		}
		holder.release()
		waiter.expect("Acquire of the waiter", <-served, nil)
	}},
	{name: "the delays of dead waiters do not add up", needs: store.FeatureQueue, run: func(s *suite) {
		// The sum of their heartbeats is far above the limit.
		n := max(5, int(2*(2*s.caps.Heartbeat+s.Slack+busy)/s.caps.Heartbeat))
		one, two, name := s.open2()
		holder := one.exclusive(name).granted()
		for range n {
			two.exclusive(name).queued(0)
		}
		last := one.exclusive(name).queued(0)
		holder.release()
		took := last.served(patience + time.Duration(n+1)*s.caps.Heartbeat)
		if limit := s.caps.Heartbeat + last.again + s.Slack + busy; took > limit {
			s.Fatalf("served after %v, want %v at most", took, limit)
		}
	}},
}
