package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A rush is many who want one name at the same time.
type rush struct {
	rate  float64       // pairs a second
	p99   time.Duration // of the wait for the lock
	most  int           // pairs of the busiest
	least int           // pairs of the idlest
}

// unfair is how many times as often the busiest had the lock as the idlest.
func (r rush) unfair() float64 { return float64(r.most) / float64(max(1, r.least)) }

// hotName is P3: goroutines of one process share one client.
func (b *bench) hotName(ctx context.Context) error {
	peers := b.wanted(waiting)
	var turns []turn[rush]
	for _, p := range peers {
		l, err := p.open(b.redis.Addr())
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		defer l.Close()
		lockers := slices.Repeat([]locker{l}, b.goroutines)
		turns = append(turns, turn[rush]{p.name, func() (rush, error) { return rushFor(lockers, p.name+":hot", b.time) }, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := fmt.Sprintf("%d goroutines, one name, one client", b.goroutines)
	b.compare(work, peers, ratesOf(found), nil, atLeast(50))
	b.waits(work, peers, found)
	b.add(work, us+": busiest / idlest", "×", column(found[us], rush.unfair), atMost(1.5))
	return nil
}

// hotClients is P4: as many processes would, each with a connection of its own.
func (b *bench) hotClients(ctx context.Context) error {
	for _, n := range b.clients {
		if err := b.hotClientsOf(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) hotClientsOf(ctx context.Context, n int) error {
	peers := b.wanted(waiting)
	var turns []turn[rush]
	for _, p := range peers {
		lockers := make([]locker, n)
		for i := range lockers {
			l, err := p.open(b.redis.Addr())
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			defer l.Close()
			lockers[i] = l
		}
		// Longer than others: there must be many turns of each client to see who starves.
		turns = append(turns, turn[rush]{p.name, func() (rush, error) { return rushFor(lockers, p.name+":hot", 2*b.time) }, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := fmt.Sprintf("%d clients, one name", n)
	// Those that poll are fast by being unfair: while others sleep, one client goes on as if
	// it were alone. The peer to compare with is the one that wakes its waiters.
	rates := ratesOf(found)
	for _, p := range peers {
		b.add(work, p.name, pairs, rates[p.name], nil)
	}
	b.add(work, us+" / rueidislock (is woken too)", "×", ratios(rates[us], rates["rueidislock"]), atLeast(3))
	b.waits(work, peers, found)
	for _, p := range peers {
		b.add(work, p.name+": busiest / idlest", "×", column(found[p.name], rush.unfair), nil)
	}
	// A waiter whose turn comes after all others waits as long as they take.
	b.add(work, us+": p99 wait / (waiters × hand-off)", "×", column(found[us], func(r rush) float64 {
		return r.p99.Seconds() / (float64(n) / r.rate)
	}), atMost(3))
	b.add(work, us+": pairs of the idlest", "pairs", column(found[us], func(r rush) float64 { return float64(r.least) }), atLeast(1))
	return nil
}

func ratesOf(found map[string][]rush) map[string][]float64 {
	rates := make(map[string][]float64)
	for name, rushes := range found {
		rates[name] = column(rushes, func(r rush) float64 { return r.rate })
	}
	return rates
}

// waits adds how long everybody waited.
func (b *bench) waits(work string, peers []peer, found map[string][]rush) {
	for _, p := range peers {
		b.add(work, p.name+": p99 wait", "ms", column(found[p.name], func(r rush) float64 { return r.p99.Seconds() * 1000 }), nil)
	}
}

// rushFor lets each locker take and release one name for a time.
func rushFor(lockers []locker, name string, d time.Duration) (rush, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	type one struct {
		n     int
		waits histogram
		err   error
	}
	each := make([]one, len(lockers))
	var wg sync.WaitGroup
	begin := time.Now()
	for i, l := range lockers {
		o := &each[i]
		wg.Go(func() {
			for {
				asked := time.Now()
				h, err := l.Lock(ctx, name)
				if ctx.Err() != nil {
					if err == nil {
						o.err = h.Unlock(context.Background())
					}
					o.waits.note(time.Since(asked)) // so much at least
					return
				}
				if err == nil {
					o.waits.note(time.Since(asked))
					err = h.Unlock(context.Background())
				}
				if err != nil {
					o.err = err
					return
				}
				o.n++
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(d + hangs):
		return rush{}, errors.New("some of them do not come back")
	}
	took := time.Since(begin)
	r := rush{least: each[0].n}
	var waits histogram
	sum := 0
	for i := range each {
		o := &each[i]
		if o.err != nil {
			return r, o.err
		}
		sum += o.n
		r.most, r.least = max(r.most, o.n), min(r.least, o.n)
		waits.add(&o.waits)
	}
	r.rate, r.p99 = float64(sum)/took.Seconds(), waits.quantile(0.99)
	return r, nil
}
