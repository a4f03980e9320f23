package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// G7: no goroutine per grant or waiter (all tests of the suite count them), and nothing left behind.
var quietTests = []test{
	{name: "calls after Close return ErrClosed", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).granted()
		one.close()
		for call, f := range a.calls(one.exclusive(s.name())) {
			if err := s.call(f); !errors.Is(err, store.ErrClosed) {
				s.Errorf("%s after Close: %v, want ErrClosed", call, err)
			}
		}
		two.exclusive(s.name()).granted() // the other connection still works
	}},
	{name: "calls in flight when the store is closed finish or are closed", run: func(s *suite) {
		const rounds, callers = 6, 4
		for round := range rounds {
			one, two, held := s.open2()
			two.exclusive(held).granted()
			var calls []func(ctx context.Context) error
			for range callers {
				calls = append(calls, waiter(one.exclusive(held).short()), holder(one.exclusive(s.name()).short()))
			}
			if list := one.exclusive(held).calls(nil)["List"]; list != nil {
				calls = append(calls, list)
			}
			s.closeDuring(one, 1+round*callers*3, calls)
		}
		if s.Failed() {
			return
		}
		// A call that failed may have been executed. Whatever it left behind expires.
		s.undo()
		time.Sleep(max(s.TTL, s.caps.Heartbeat) + s.Slack)
		s.nothingLeft()
	}},
	{name: "a grant that was returned while the store was being closed lasts", run: func(s *suite) {
		const rounds, callers, each = 6, 8, 20
		for round := range rounds {
			one, two, _ := s.open2()
			claims := make([]*claim, callers*each)
			for i := range claims {
				claims[i] = one.exclusive(s.name())
			}
			var calls []func(ctx context.Context) error
			for mine := range slices.Chunk(claims, each) {
				calls = append(calls, func(ctx context.Context) error {
					if len(mine) == 0 {
						return store.ErrClosed // ends the loop of closeDuring
					}
					_, err := mine[0].try(ctx)
					mine = mine[1:]
					return err
				})
			}
			s.closeDuring(one, 1+round*callers/2, calls)
			for _, k := range claims {
				if k.ans.Token != 0 {
					two.exclusive(k.req.Name).refused()
				}
			}
		}
	}},
	{name: "Close ends a Wait", run: func(s *suite) {
		one, two, name := s.open2()
		one.exclusive(name).granted()
		w := two.exclusive(name).queued(1).wait()
		two.close()
		w.ended()
	}},
	{name: "closing one connection does not affect another", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).granted()
		b := one.exclusive(name).queued(1)
		w := b.wait()
		two.exclusive(s.name()).granted().release()
		two.close()
		a.extended()
		a.release()
		w.woken()
		b.granted()
	}},
	{name: "a thousand renewals in one call return their outcomes in order", run: func(s *suite) {
		one, two, _ := s.open2()
		const n = 1000
		const never, released, held = 0, 1, 3                   // 2 is released, and then held by another client
		kind := func(i int) int { return min(held, i*7919%10) } // in no simple pattern
		claims, rivals := make([]*claim, n), make([]*claim, n)
		renewals := make([]store.Renewal, n)
		for i := range n {
			name := s.name()
			claims[i], rivals[i] = one.exclusive(name), two.exclusive(name)
			renewals[i] = claims[i].renewal()
		}
		s.parallel(n, 16, func(i int) error {
			if kind(i) == never {
				return nil
			}
			if _, err := claims[i].attempt(); err != nil || kind(i) == held {
				return err
			}
			if err := claims[i].tryRelease(store.Keep{}); err != nil || kind(i) == released {
				return err
			}
			_, err := rivals[i].attempt()
			return err
		})
		out, err := one.renew(renewals...)
		if err != nil {
			s.Fatalf("Renew: %v", err)
		}
		if len(out) != n {
			s.Fatalf("Renew: %d outcomes for %d renewals", len(out), n)
		}
		for i, r := range out {
			want := store.Gone
			if kind(i) == held {
				want = store.Extended
			}
			if r.Status != want {
				s.Fatalf("Renew: outcome %d is %d, want %d", i, r.Status, want)
			}
		}
		all := slices.DeleteFunc(append(claims, rivals...), func(k *claim) bool { return !k.alive })
		s.parallel(len(all), 16, func(i int) error { return all[i].tryRelease(store.Keep{}) })
	}},
	{name: "grants and waiters need no goroutines", run: func(s *suite) {
		const n, few = 100, 30
		one, two, name := s.open2()
		one.exclusive(name).granted()
		two.exclusive(name).queued(1).wait() // the first grant and waiter may start goroutines
		before := runtime.NumGoroutine()
		for range n {
			one.exclusive(s.name()).granted()
		}
		s.noMoreGoroutinesThan(before + few)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ended := make(chan error, n)
		for range n {
			b := two.exclusive(name).queued(0)
			go func() { ended <- b.Wait(ctx, name, b.req.ID) }()
		}
		time.Sleep(s.TTL / 20)
		s.noMoreGoroutinesThan(before + few + n) // n goroutines belong to the suite
		cancel()
		for range n {
			<-ended
		}
	}},
	{name: "nothing is left after all grants are released and all waiters left", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).granted()
		b := two.exclusive(name).queued(1)
		c := one.exclusive(name).queued(2)
		two.exclusive(name).refused()
		w := c.wait()
		w.cancel()
		w.ended()
		c.leave()
		a.extended()
		a.release()
		b.granted().leave()
		if s.caps.Features.Has(store.FeatureShared) {
			a, b := one.shared(name).granted(), two.shared(name).granted()
			a.release()
			b.release()
		}
		if s.caps.Features.Has(store.FeaturePermits) {
			a, b := one.permits(name, 2, 3).granted(), two.permits(name, 1, 3).granted()
			a.release()
			b.release()
		}
		if s.caps.Features.Has(store.FeatureList) {
			a := one.exclusive(name).granted()
			a.expect("Break", a.tryBreak(two), nil)
		}
		if s.caps.Features.Has(store.FeatureList | store.FeatureKeep) {
			a := one.exclusive(name).granted()
			a.keep(store.Keep{State: store.Done, For: s.long})
			a.expect("Break", a.tryBreak(two), nil)
		}
		s.nothingLeft()
	}},
	{name: "nothing is left of a dead client after the next holder", run: func(s *suite) {
		one, two, name := s.open2()
		a := one.exclusive(name).short().granted()
		one.exclusive(name).queued(1)
		one.close() // as a process that crashes
		time.Sleep(max(a.ans.TTL, s.caps.Heartbeat) + s.Slack)
		b := two.exclusive(name).granted()
		if b.ans.Waiters != 0 {
			s.Errorf("%d waiters, want none, because it is dead", b.ans.Waiters)
		}
		b.release()
		if s.caps.Features.Has(store.FeatureKeep) {
			b = two.exclusive(name).granted()
			b.keep(store.Keep{State: store.Cooling, For: s.TTL})
			c := two.exclusive(name)
			c.within(s.TTL + s.Slack)
			c.release()
		}
		s.nothingLeft()
	}},
}

// nothingLeft closes all connections, and expects that the server is in the same state as before.
func (s *suite) nothingLeft() {
	s.Helper()
	s.claims = nil // so that the clean-up does not hide anything that the test left
	s.closeAll()
	if s.Residue == nil {
		return
	}
	var left []string
	clean := s.eventually(5*time.Second, func() bool {
		left = slices.DeleteFunc(s.Residue(s.T), func(what string) bool { return slices.Contains(s.residue, what) })
		return len(left) == 0
	})
	if !clean {
		s.Errorf("left on the server:\n%s", strings.Join(left, "\n"))
	}
}

// closeDuring repeats calls until the store is closed, and closes a connection after a number of calls.
func (s *suite) closeDuring(c *conn, after int, calls []func(ctx context.Context) error) {
	var wg sync.WaitGroup
	var n atomic.Int64
	enough := make(chan struct{})
	for _, call := range calls {
		wg.Go(func() {
			ctx, cancel := s.boundedFor(0)
			defer cancel()
			var err error
			for err == nil {
				err = call(ctx)
				if n.Add(1) == int64(after) {
					close(enough)
				}
			}
			if !errors.Is(err, store.ErrClosed) {
				s.Errorf("a call in flight at Close: %v, want nil or ErrClosed", err)
			}
		})
	}
	<-enough
	c.close()
	wg.Wait()
}

// inTurn returns a function that makes these calls, one at a time.
func inTurn(calls ...func(ctx context.Context) error) func(ctx context.Context) error {
	n := -1
	return func(ctx context.Context) error {
		n++
		return calls[n%len(calls)](ctx)
	}
}

// waiter returns a function that asks for a name that another client holds, waits and leaves.
func waiter(k *claim) func(ctx context.Context) error {
	k.req.Queue = true
	calls := k.calls(nil)
	ask := func(ctx context.Context) error {
		ans, err := k.try(ctx)
		if err == nil && ans.Granted() {
			err = errors.New("granted beside the holder")
		}
		return err
	}
	return inTurn(ask, ask, calls["Wait"], calls["Leave"])
}

// holder returns a function that takes, renews and releases its own name. Slow machines may let it expire.
func holder(k *claim) func(ctx context.Context) error {
	calls := k.calls(nil)
	return inTurn(
		func(ctx context.Context) error {
			k.req.ID, k.ans = store.NewID(), store.Answer{}
			ans, err := k.try(ctx)
			if err == nil && !ans.Granted() {
				err = fmt.Errorf("refused: %s", show(ans.Refusal))
			}
			return err
		},
		calls["Renew"],
		func(ctx context.Context) error {
			if err := calls["Release"](ctx); !errors.Is(err, store.ErrNotHeld) {
				return err
			}
			return nil
		},
	)
}
