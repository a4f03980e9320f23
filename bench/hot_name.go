package main

import (
	"context"
	"errors"
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

func (r rush) wait() float64 { return r.p99.Seconds() * 1000 }

// rushTargets are the targets of a rush. All of them may be nil.
type rushTargets struct{ best, unfair, wait, idlest *target }

// oneName measures goroutines that contend for one name, distributed over clients.
func (b *bench) oneName(ctx context.Context, s *system, of shape, targets rushTargets) error {
	work := s.work("one name, %s clients × goroutines", of)
	switch {
	case of.clients == 1:
		work = s.work("%d goroutines, one name, one client", of.goroutines)
	case of.goroutines == 1:
		work = s.work("%d clients, one name", of.clients)
	}
	peers := b.waiting(s)
	var turns []turn[rush]
	for _, p := range peers {
		lockers, end, err := of.open(p, b.addr(s))
		if err != nil {
			return err
		}
		defer end()
		// This turn is longer than others: each client needs many pairs to show whether a client
		// starves.
		turns = append(turns, turn[rush]{p.name, func() (rush, error) {
			return rushFor(lockers, p.name+":hot:"+of.String(), 2*b.time)
		}, p.foreign()})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	b.addRush(work, peers, of, found, targets)
	return nil
}

// addRush adds throughput, waits and fairness of clients that contend for one name.
func (b *bench) addRush(work string, peers []peer, of shape, found map[string][]rush, targets rushTargets) {
	rates := make(map[string][]float64)
	for name, rushes := range found {
		rates[name] = column(rushes, func(r rush) float64 { return r.rate })
	}
	// Peers that poll are fast because they are unfair: while the others sleep, one client
	// continues as if it were alone. So clients are compared with those of peers that are woken.
	rivals := slices.DeleteFunc(slices.Clone(peers), func(p peer) bool { return p.poll > 0 })
	if of.clients == 1 || len(rivals) < 2 {
		rivals = peers
	}
	b.compare(work, peers, rivals, rates, nil, targets.best)
	for _, p := range peers {
		var unfair, idlest *target
		if p.name == us {
			unfair, idlest = targets.unfair, targets.idlest
		}
		b.add(work, p.name+suffixWait, "ms", column(found[p.name], rush.wait), nil)
		b.add(work, p.name+suffixUnfair, "×", column(found[p.name], rush.unfair), unfair)
		b.add(work, p.name+": pairs of the idlest", "pairs", column(found[p.name], func(r rush) float64 { return float64(r.least) }), idlest)
	}
	// In order of arrival, a waiter waits for the pairs of all others.
	b.add(work, us+": p99 wait / (waiters × hand-off)", "×", column(found[us], func(r rush) float64 {
		return r.p99.Seconds() / (float64(of.clients*of.goroutines) / r.rate)
	}), targets.wait)
}

// shapes measures goroutines on one name, distributed over clients in several ways: a store that is
// fast with one client, or with one goroutine in each client, can be slow with a mix of both. If the
// target is not nil, every shape must reach that fraction of the rate of two clients.
func (b *bench) shapes(ctx context.Context, s *system, part *target) error {
	var turns []turn[rush]
	var shapes []shape
	for _, clients := range []int{1, 2, 4, 16, b.goroutines} {
		of := shape{clients, b.goroutines / clients}
		if clients > b.goroutines || slices.Contains(shapes, of) {
			continue
		}
		shapes = append(shapes, of)
		lockers, end, err := of.open(s.us(), b.addr(s))
		if err != nil {
			return err
		}
		defer end()
		turns = append(turns, turn[rush]{of.String(), func() (rush, error) { return rushFor(lockers, "shape:"+of.String(), 2*b.time) }, false})
	}
	found, err := interleave(ctx, b, turns)
	if err != nil {
		return err
	}
	work := s.work("%s, one name, clients × goroutines", us)
	rates := func(of shape) []float64 {
		return column(found[of.String()], func(r rush) float64 { return r.rate })
	}
	two := shape{2, b.goroutines / 2}
	for _, of := range shapes {
		b.add(work, of.String(), pairs, rates(of), nil)
		b.add(work, of.String()+suffixWait, "ms", column(found[of.String()], rush.wait), nil)
		b.add(work, of.String()+suffixUnfair, "×", column(found[of.String()], rush.unfair), nil)
		if of.clients > two.clients && of.goroutines > 1 {
			b.add(work, of.String()+" / "+two.String(), "×", ratios(rates(of), rates(two)), part)
		}
	}
	return nil
}

// rushFor makes each locker take and release one name repeatedly for a time.
func rushFor(lockers []*locker, name string, d time.Duration) (rush, error) {
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
				h, err := l.lock(ctx, name)
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
