package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A rush is the result of many lockers contending for one name.
type rush struct {
	rate  float64       // pairs per second
	p99   time.Duration // wait for the lock
	most  int           // pairs of the busiest locker
	least int           // pairs of the least busy one
}

// unfair returns the ratio of the busiest locker's pairs to those of the least busy one.
func (r rush) unfair() float64 { return float64(r.most) / float64(max(1, r.least)) }

// hotName measures P3: goroutines of one process share one client.
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

// hotClients measures P4: clients with a connection each, like separate processes.
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
		// This turn is longer than the others: each client needs many pairs to show whether a
		// client starves.
		turns = append(turns, turn[rush]{p.name, func() (rush, error) { return rushFor(lockers, p.name+":hot", 2*b.time) }, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := fmt.Sprintf("%d clients, one name", n)
	// Peers that poll are fast because they are unfair: while the others sleep, one client
	// continues as if it were alone. So Holdfast is compared with the peer that wakes waiters.
	rates := ratesOf(found)
	for _, p := range peers {
		b.add(work, p.name, pairs, rates[p.name], nil)
	}
	b.add(work, us+" / rueidislock (is woken too)", "×", ratios(rates[us], rates["rueidislock"]), atLeast(3))
	b.waits(work, peers, found)
	for _, p := range peers {
		b.add(work, p.name+": busiest / idlest", "×", column(found[p.name], rush.unfair), nil)
	}
	// In order of arrival, a waiter waits for the pairs of all others.
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

// waits adds the p99 of the wait.
func (b *bench) waits(work string, peers []peer, found map[string][]rush) {
	for _, p := range peers {
		b.add(work, p.name+": p99 wait", "ms", column(found[p.name], func(r rush) float64 { return r.p99.Seconds() * 1000 }), nil)
	}
}

// rushFor makes each locker take and release one name repeatedly for a time.
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
					o.waits.note(time.Since(asked)) // a lower bound
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
		return rush{}, errors.New("some of the lockers hang")
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
