package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-lock/holdfast/store"
)

// closingTest closes a connection while every other call is in flight on it.
var closingTest = test{name: "calls in flight when the store is closed finish or are closed", run: func(s *suite) {
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
}}

// grantedAtCloseTest closes a connection while names are acquired through it.
var grantedAtCloseTest = test{name: "a grant that was returned while the store was being closed lasts", run: func(s *suite) {
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
}}

// closeDuring repeats calls until the store is closed, and closes a connection after a number of calls.
func (s *suite) closeDuring(c *conn, after int, calls []func(ctx context.Context) error) {
	var wg sync.WaitGroup
	var n atomic.Int64
	enough := make(chan struct{})
	for _, call := range calls {
		wg.Go(func() {
			ctx, cancel := s.boundedFor(0)
			defer cancel()
			for {
				err := call(ctx)
				if n.Add(1) == int64(after) {
					close(enough)
				}
				if err != nil {
					if !errors.Is(err, store.ErrClosed) {
						s.Errorf("a call in flight at Close: %v, want nil or ErrClosed", err)
					}
					return
				}
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
