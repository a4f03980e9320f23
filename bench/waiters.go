package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"
)

// settle is how long waiters get to join the queue before their requests are counted.
const settle = 2 * time.Second

// waitersCost measures P6: the load that waiters for a held lock put on the server.
func (b *bench) waitersCost(ctx context.Context) error {
	work := fmt.Sprintf("%d × %d goroutines wait", b.processes, b.waiters)
	for _, p := range b.waiting(redisServer) {
		window := b.window
		if p.name != us {
			window /= 4 // enough for peers that poll
		}
		u, err := b.waitersOf(ctx, p, window)
		if err != nil && p.foreign() && ctx.Err() == nil {
			b.log("%s: %v: it is not measured", p.name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		share := window.Seconds() * float64(b.processes)
		if p.name == us {
			b.add(work, us+": requests", "/s per process", []float64{u.requests() / share}, atMost(0.5))
		}
		b.add(work, p.name+suffixCost, "/s per process", []float64{u.commands() / share}, nil)
	}
	return nil
}

// waitersOf counts the requests of the waiters of one peer.
func (b *bench) waitersOf(ctx context.Context, p peer, window time.Duration) (usage, error) {
	l, err := p.open(b.redis.Addr())
	if err != nil {
		return nil, err
	}
	defer l.close()
	h, err := lockSoon(ctx, l, awaited)
	if err != nil {
		return nil, err
	}
	children := make([]*child, b.processes)
	for i := range children {
		c, err := startChild(ctx, "waiter", redisServer.name, p.name, b.redis.Addr(), strconv.Itoa(b.waiters))
		if err != nil {
			return nil, err
		}
		children[i] = c
		defer c.end()
	}
	for _, c := range children {
		if _, err := c.hear("waits"); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, min(settle, window)); err != nil {
		return nil, err
	}
	before, err := usageOf(b.redis)
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, window); err != nil {
		return nil, err
	}
	after, err := usageOf(b.redis)
	if err != nil {
		return nil, err
	}
	for _, c := range children {
		if err := c.end(); err != nil {
			return nil, err
		}
	}
	return after.since(before), h.Unlock(ctx)
}

const awaited = "awaited"

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waiterRole waits until its input ends. Args: system, peer, address, number of goroutines.
func waiterRole(ctx context.Context, args []string, in *bufio.Scanner) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	l, err := openPeer(args[0], args[1], args[2])
	if err != nil {
		return err
	}
	defer l.close()
	ctx, cancel := context.WithTimeout(ctx, time.Hour) // otherwise redislock chooses its own deadline
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			h, err := l.lock(ctx, awaited)
			if err == nil {
				h.Unlock(context.Background())
				errs[i] = errors.New("the lock was granted while another held it")
			} else if ctx.Err() == nil {
				errs[i] = err
			}
		})
	}
	fmt.Println("waits")
	for in.Scan() {
	}
	cancel()
	wg.Wait()
	return errors.Join(errs...)
}

// lockSoon takes a free lock, and fails if that takes too long.
func lockSoon(ctx context.Context, l *locker, name string) (held, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(hangs, cancel)
	h, err := l.lock(ctx, name)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &heldUntil{h, cancel}, nil
}

// A heldUntil is a held lock together with the function that ends its context.
type heldUntil struct {
	held
	cancel context.CancelFunc
}

func (h *heldUntil) Unlock(ctx context.Context) error {
	defer h.cancel()
	return h.held.Unlock(ctx)
}
