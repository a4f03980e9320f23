package main

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// handOff measures the time from the release in one process to the grant in another, in round trips
// that are measured at the same time.
func (b *bench) handOff(ctx context.Context, s *system) error {
	var turns []turn[[]float64]
	const trip = "round trip"
	if s.trip != nil {
		call, end, err := s.trip(b.addr(s))
		if err != nil {
			return err
		}
		defer end()
		turns = append(turns, turn[[]float64]{trip, func() ([]float64, error) { return timesOf(ctx, b.handoffs, call) }, false})
	}
	for _, p := range b.waiting(s) {
		pass, err := newPasser(ctx, s, p, b.addr(s))
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer pass.close()
		n := b.handoffs
		if p.poll > 0 {
			n = (n + 19) / 20 // polling takes much longer
		}
		turns = append(turns, turn[[]float64]{p.name, func() ([]float64, error) { return pass.times(ctx, n) }, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := s.work(workHandOff)
	p99 := func(times []float64) float64 { return quantile(times, 0.99) }
	for _, t := range turns {
		b.add(work, t.name+suffixP50, "µs", column(found[t.name], median), nil)
		b.add(work, t.name+": p99", "µs", column(found[t.name], p99), nil)
	}
	trips := column(found[trip], median)
	b.add(work, us+": p50 / "+trip, "×", ratios(column(found[us], median), trips), atMost(3))
	b.add(work, us+": p99 / "+trip, "×", ratios(column(found[us], p99), trips), atMost(10))
	return nil
}

// timesOf returns the times of n calls, in µs. The machine is idle before a hand-off, and needs time
// to wake up, so there is a pause like the one before a hand-off.
func timesOf(ctx context.Context, n int, call func(ctx context.Context) error) ([]float64, error) {
	times := make([]float64, n)
	for i := range times {
		time.Sleep(quiet + rand.N(quietMore))
		begin := time.Now()
		if err := call(ctx); err != nil {
			return nil, err
		}
		times[i] = float64(time.Since(begin).Nanoseconds()) / 1000
	}
	return times, nil
}

// A lock is held for quiet plus up to quietMore before it is passed on, so that the waiter is
// queued by then.
const (
	quiet     = 4 * time.Millisecond
	quietMore = 2 * time.Millisecond
)

// A passer passes a lock to a child repeatedly.
type passer struct {
	peer  peer
	own   *locker
	taker *child
}

const passed = "passed"

func newPasser(ctx context.Context, s *system, p peer, addr string) (*passer, error) {
	own, err := p.open(addr)
	if err != nil {
		return nil, err
	}
	taker, err := startChild(ctx, "taker", s.name, p.name, addr)
	if err != nil {
		own.close()
		return nil, err
	}
	return &passer{p, own, taker}, nil
}

func (p *passer) close() {
	p.taker.end()
	p.own.close()
}

// times returns the times of n hand-offs, in µs.
func (p *passer) times(ctx context.Context, n int) ([]float64, error) {
	times := make([]float64, n)
	for i := range times {
		t, err := p.pass(ctx)
		if err != nil {
			return nil, err
		}
		times[i] = float64(t.Nanoseconds()) / 1000
	}
	return times, nil
}

func (p *passer) pass(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, hangs)
	defer cancel()
	h, err := p.own.lock(ctx, passed)
	if err != nil {
		return 0, err
	}
	if err := p.taker.tell("take"); err != nil {
		return 0, err
	}
	if _, err := p.taker.hear("asks"); err != nil {
		return 0, err
	}
	// For peers that poll, the release happens at a random time between two attempts.
	time.Sleep(quiet + rand.N(p.peer.poll+quietMore))
	begin := time.Now()
	if err := h.Unlock(ctx); err != nil {
		return 0, err
	}
	at, err := p.taker.hear("has")
	if err != nil {
		return 0, err
	}
	nanos, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return 0, err
	}
	_, err = p.taker.hear("released")
	return time.Unix(0, nanos).Sub(begin), err
}

// takerRole takes the lock of a peer on each line of its input, and prints the time at which it
// got the lock. Args: system, peer, address.
func takerRole(ctx context.Context, args []string, in *bufio.Scanner) error {
	l, err := openPeer(args[0], args[1], args[2])
	if err != nil {
		return err
	}
	defer l.close()
	for in.Scan() {
		fmt.Println("asks")
		limited, cancel := context.WithTimeout(ctx, hangs)
		h, err := l.lock(limited, passed)
		now := time.Now()
		if err != nil {
			cancel()
			return err
		}
		fmt.Println("has", now.UnixNano())
		err = h.Unlock(ctx)
		cancel() // for some peers this ends the lock
		if err != nil {
			return err
		}
		fmt.Println("released")
	}
	return nil
}
