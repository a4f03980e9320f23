package storetest

import (
	"context"
	"fmt"
	"time"
)

// drive asks, waits for a wake-up or for Again, and asks again, from any goroutine, as the core does.
func (k *claim) drive(ctx context.Context) error {
	k.req.Queue = true
	for {
		ans, err := k.try(ctx)
		if err != nil || ans.Granted() {
			return err
		}
		if ans.Refusal.Again <= 0 {
			return fmt.Errorf("refusal with Again %v", ans.Refusal.Again)
		}
		wait, cancel := context.WithTimeout(ctx, ans.Refusal.Again)
		err = k.Wait(wait, k.req.Name, k.req.ID)
		if err != nil && wait.Err() == nil {
			err = fmt.Errorf("call of Wait: %w", err)
		} else {
			err = ctx.Err()
		}
		cancel()
		if err != nil {
			return err
		}
	}
}

// served drives the claim until it is granted within the limit, and returns how long that took.
func (k *claim) served(limit time.Duration) time.Duration {
	k.s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := time.Now()
	if err := k.drive(ctx); err != nil {
		k.s.Fatalf("not served within %v: %v", limit, err)
	}
	return time.Since(start)
}

// A wait is a call of Wait in flight.
type wait struct {
	s      *suite
	cancel context.CancelFunc
	err    chan error
}

// wait calls Wait on a new goroutine and gives it some time to reach the server. Even if the call
// has not reached the server yet, no push must be lost.
func (k *claim) wait() *wait { return k.waitFor(eternity) }

func (k *claim) waitFor(limit time.Duration) *wait {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	w := &wait{s: k.s, cancel: cancel, err: make(chan error, 1)}
	go func() { w.err <- k.Wait(ctx, k.req.Name, k.req.ID) }()
	k.s.cancels = append(k.s.cancels, cancel)
	time.Sleep(k.s.TTL / 50)
	return w
}

// ended returns the error of Wait, and fails the test if Wait does not return.
func (w *wait) ended() error {
	w.s.Helper()
	select {
	case err := <-w.err:
		w.cancel()
		return err
	case <-time.After(patience):
		w.s.Fatal("Wait does not return")
		return nil
	}
}

// woken expects that Wait returns nil.
func (w *wait) woken() {
	w.s.Helper()
	if err := w.ended(); err != nil {
		w.s.Fatalf("Wait: %v, want nil", err)
	}
}
